// Claim: the NCCL that the process has is the one that is used; two of them, an old one, one that lacks a
// function or none at all are refused with their names; and so is an environment in which it would use
// multicast or block.
// How: small libraries of that name are loaded in forked processes, before or by the loader.
#include "sealring/device/cuda/nccl_api.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

namespace sealring::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kStubs = SEALRING_NCCL_STUBS;
std::string stub(const std::string& name) { return kStubs + "/" + name + "/libnccl.so.2"; }

/// What is loaded stays loaded, so each case has a process of its own.
void in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "see what the child said above";
}

void load(const std::string& path) { EXPECT_NE(::dlopen(path.c_str(), RTLD_NOW), nullptr) << ::dlerror(); }

TEST(NcclApi, MapsNameEachFileOnce) {
  const std::string maps =
      "7f00-7f01 r--p 00000000 08:01 11                         /opt/a/libnccl.so.2\n"
      "7f01-7f02 r-xp 00001000 08:01 11                         /opt/a/libnccl.so.2\n"
      "7f02-7f03 r-xp 00000000 08:01 12                         /opt/with space/libnccl.so.2.28.9\n"
      "7f03-7f04 r-xp 00000000 08:02 11                         /opt/b/libnccl.so.2 (deleted)\n"
      "7f04-7f05 r-xp 00000000 08:02 13                         /opt/b/libnccl-net.so\n"
      "7f05-7f06 r-xp 00000000 08:02 14                         /opt/libnccl.so.2/other.so\n"
      "7f06-7f07 rw-p 00000000 00:00 0 \n"
      "7ffc-7ffd rw-p 00000000 00:00 0                          [stack]\n";
  EXPECT_THAT(mapped_nccl(maps), ElementsAre("/opt/a/libnccl.so.2", "/opt/with space/libnccl.so.2.28.9",
                                             "/opt/b/libnccl.so.2 (deleted)"));
  EXPECT_THAT(mapped_nccl(""), IsEmpty());
}

TEST(NcclApi, NoneIsRefused) {
  in_child([] {
    const auto api = open_nccl({}, "libnccl-that-is-nowhere.so.2");
    ASSERT_FALSE(api);
    EXPECT_EQ(api.error().code, Code::unsupported);
    EXPECT_THAT(api.error().what, HasSubstr("libnccl-that-is-nowhere.so.2"));
  });
}

TEST(NcclApi, OneThatIsFoundIsDescribed) {
  in_child([] {
    const auto api = open_nccl({}, stub("one"));
    ASSERT_TRUE(api) << api.error().message();
    EXPECT_EQ(api->version, 22809);
    EXPECT_EQ(nccl_version_text(api->version), "2.28.9");
    EXPECT_EQ(api->path, stub("one"));
    EXPECT_EQ(api->group_start(), NcclStatus::internal_error);  // the stub's
    EXPECT_NE(api->mem_alloc, nullptr);
    EXPECT_EQ(api->window_register, nullptr);
    EXPECT_EQ(api->window_deregister, nullptr);
  });
}

TEST(NcclApi, TheOneThatIsLoadedIsUsed) {
  in_child([] {
    void* const loaded = ::dlopen(stub("two").c_str(), RTLD_NOW);
    ASSERT_NE(loaded, nullptr);
    const auto api = nccl_api();
    ASSERT_TRUE(api) << api.error().message();
    EXPECT_EQ((*api)->path, stub("two"));
    EXPECT_EQ(reinterpret_cast<void*>((*api)->send), ::dlsym(loaded, "ncclSend"));
    EXPECT_EQ(*nccl_api(), *api);
  });
}

TEST(NcclApi, OneWhoseFileIsGoneIsStillTheOne) {
  in_child([] {
    const std::string folder =
        (std::filesystem::temp_directory_path() / ("sealring-" + std::to_string(::getpid()))).string();
    std::filesystem::create_directory(folder);
    std::filesystem::copy_file(stub("one"), folder + "/libnccl.so.2");
    void* const loaded = ::dlopen((folder + "/libnccl.so.2").c_str(), RTLD_NOW);
    std::filesystem::remove_all(folder);
    ASSERT_NE(loaded, nullptr);
    const auto api = nccl_api();
    ASSERT_TRUE(api) << api.error().message();
    EXPECT_EQ(reinterpret_cast<void*>((*api)->send), ::dlsym(loaded, "ncclSend"));
  });
}

TEST(NcclApi, TwoAreRefusedWithBothNames) {
  in_child([] {
    load(stub("one"));
    load(stub("two"));
    const auto api = nccl_api();
    ASSERT_FALSE(api);
    EXPECT_EQ(api.error().code, Code::version_mismatch);
    EXPECT_THAT(api.error().what, HasSubstr(stub("one")));
    EXPECT_THAT(api.error().what, HasSubstr(stub("two")));
  });
}

TEST(NcclApi, AnOldOneIsRefused) {
  in_child([] {
    const auto api = open_nccl({}, stub("old"));
    ASSERT_FALSE(api);
    EXPECT_EQ(api.error().code, Code::version_mismatch);
    EXPECT_EQ(api.error().got, "2.17.1");
    EXPECT_EQ(api.error().expected, "2.18.0");
    EXPECT_THAT(api.error().what, HasSubstr(stub("old")));
  });
}

TEST(NcclApi, OneThatLacksAFunctionIsRefused) {
  in_child([] {
    const auto api = open_nccl({}, stub("partial"));
    ASSERT_FALSE(api);
    EXPECT_EQ(api.error().code, Code::unsupported);
    EXPECT_THAT(api.error().what, HasSubstr("ncclSend"));
  });
}

TEST(NcclApi, OneThatIsNoNcclIsRefused) {
  in_child([] { EXPECT_EQ(open_nccl({}, "libc.so.6").error().code, Code::unsupported); });
}

TEST(NcclApi, MulticastAndBlockingMustBeOff) {
  in_child([] {
    ::unsetenv("NCCL_COMM_BLOCKING");
    ::unsetenv("NCCL_NVLS_ENABLE");
    EXPECT_EQ(check_nccl_environment().error().code, Code::environment);
    EXPECT_THAT(check_nccl_environment().error().next, HasSubstr("NCCL_NVLS_ENABLE=0"));
    for (const char* const wrong : {"1", "2", "", "00"}) {
      ::setenv("NCCL_NVLS_ENABLE", wrong, 1);
      EXPECT_FALSE(check_nccl_environment()) << wrong;
    }
    ::setenv("NCCL_NVLS_ENABLE", "0", 1);
    EXPECT_TRUE(check_nccl_environment());
    ::setenv("NCCL_COMM_BLOCKING", "1", 1);
    EXPECT_EQ(check_nccl_environment().error().code, Code::environment);
    ::setenv("NCCL_COMM_BLOCKING", "0", 1);
    EXPECT_TRUE(check_nccl_environment());
  });
}

}  // namespace
}  // namespace sealring::cuda
