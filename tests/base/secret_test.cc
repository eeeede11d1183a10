// Claim: secrets are zeroed when they end, lie in memory that is neither dumped nor inherited, and are
// compared in
//        time that does not depend on their bytes.
// How: the arena stays mapped, so what a dead secret left is read through /proc/self/mem; flags from smaps; a
// forked
//      child looks for itself.
#include "sealring/base/secret.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <type_traits>
#include <vector>

namespace sealring {
namespace {

static_assert(!std::is_copy_constructible_v<SecretBytes> && !std::is_copy_assignable_v<SecretBytes>);
static_assert(std::is_nothrow_move_constructible_v<SecretBytes> &&
              std::is_nothrow_move_assignable_v<SecretBytes>);

/// Memory as the kernel sees it: no dereference of a pointer whose object has ended.
Bytes peek(std::uintptr_t address, std::size_t bytes) {
  const int file = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  EXPECT_GE(file, 0);
  Bytes out(bytes, std::byte{0xEE});
  EXPECT_EQ(pread(file, out.data(), bytes, static_cast<off_t>(address)), static_cast<ssize_t>(bytes));
  close(file);
  return out;
}

SecretBytes filled(std::size_t bytes) {
  SecretBytes out(bytes);
  for (std::byte& b : out.span()) b = std::byte{0xA5};
  return out;
}

TEST(SecretBytes, ZeroAfterDestruction) {
  for (const std::size_t bytes : {1u, 32u, 63u, 64u, 65u, 1000u, 100'000u}) {
    std::uintptr_t address = 0;
    {
      const SecretBytes secret = filled(bytes);
      address = reinterpret_cast<std::uintptr_t>(secret.data());
      EXPECT_EQ(peek(address, bytes), Bytes(bytes, std::byte{0xA5})) << "the peephole works";
    }
    EXPECT_EQ(peek(address, bytes), Bytes(bytes)) << bytes;
  }
}

TEST(SecretBytes, ZeroAfterWipeAndAfterBeingAssignedTo) {
  SecretBytes secret = filled(48);
  auto address = reinterpret_cast<std::uintptr_t>(secret.data());
  secret.wipe();
  EXPECT_TRUE(secret.empty());
  EXPECT_EQ(secret.data(), nullptr);
  EXPECT_EQ(peek(address, 48), Bytes(48));
  secret.wipe();  // again: nothing

  SecretBytes target = filled(48), source = filled(200);
  address = reinterpret_cast<std::uintptr_t>(target.data());
  target = std::move(source);
  EXPECT_EQ(peek(address, 48), Bytes(48)) << "what it held before is gone";
  EXPECT_EQ(target.size(), 200u);
  EXPECT_TRUE(source.empty());  // NOLINT: what is left behind is the point
}

TEST(SecretBytes, AReusedCellIsZeroFilled) {
  std::uintptr_t address = 0;
  { address = reinterpret_cast<std::uintptr_t>(filled(96).data()); }
  const SecretBytes next(70);  // the same size class
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(next.data()), address);
  EXPECT_EQ(to_bytes(next.view()), Bytes(70));
}

TEST(SecretBytes, CopiesClonesMovesAndSelfAssigns) {
  const Bytes value{std::byte{1}, std::byte{2}, std::byte{3}};
  SecretBytes secret = SecretBytes::copy_of(value);
  SecretBytes twin = secret.clone();
  EXPECT_NE(twin.data(), secret.data());
  EXPECT_EQ(to_bytes(twin.view()), value);
  const std::byte* place = secret.data();
  SecretBytes moved(std::move(secret));
  EXPECT_EQ(moved.data(), place);
  EXPECT_TRUE(secret.empty());  // NOLINT
  SecretBytes& self = moved;
  moved = std::move(self);
  EXPECT_EQ(to_bytes(moved.view()), value);
  EXPECT_TRUE(SecretBytes(0).empty());
  EXPECT_TRUE(SecretBytes::copy_of({}).empty());
}

/// The VmFlags of the mapping that holds an address.
std::string vm_flags(std::uintptr_t address) {
  std::ifstream in("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(in, line)) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream head(line);
    if (head >> std::hex >> begin >> dash >> end && dash == '-') inside = begin <= address && address < end;
    if (inside && line.starts_with("VmFlags:")) return line + " ";
  }
  return {};
}

TEST(SecretBytes, LiesInMemoryThatIsNeitherDumpedNorInherited) {
  const SecretBytes secret(32), large(1 << 20);
  for (const SecretBytes* one : {&secret, &large}) {
    const std::string flags = vm_flags(reinterpret_cast<std::uintptr_t>(one->data()));
    if (flags.empty()) GTEST_SKIP() << "this kernel shows no VmFlags";
    EXPECT_NE(flags.find(" dd "), std::string::npos) << "MADV_DONTDUMP: " << flags;
    EXPECT_NE(flags.find(" wf "), std::string::npos) << "MADV_WIPEONFORK: " << flags;
  }
}

TEST(SecretBytes, AForkedChildFindsZeros) {
  const SecretBytes secret = filled(64);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::byte all{0};
    for (const std::byte b : secret.view()) all |= b;
    _exit(all == std::byte{0} ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(secret.data()[63], std::byte{0xA5}) << "the parent keeps it";
}

TEST(SecureWipe, ZeroesEveryByteAndNoMore) {
  for (std::size_t bytes = 0; bytes <= 70; ++bytes) {
    Bytes memory(72, std::byte{0xFF});
    secure_wipe(std::span(memory).subspan(1, bytes));
    for (std::size_t i = 0; i < memory.size(); ++i) {
      EXPECT_EQ(memory[i], i >= 1 && i <= bytes ? std::byte{0} : std::byte{0xFF});
    }
  }
}

TEST(ConstantTimeEqual, EveryBitOfEveryPositionCounts) {
  const Bytes base(64, std::byte{0x5A});
  EXPECT_TRUE(constant_time_equal(base, Bytes(64, std::byte{0x5A})));
  for (std::size_t bit = 0; bit < base.size() * 8; ++bit) {
    Bytes other = base;
    other[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(constant_time_equal(base, other)) << bit;
  }
}

TEST(ConstantTimeEqual, SizesMustBeEqual) {
  const Bytes data(8);
  EXPECT_TRUE(constant_time_equal({}, {}));
  EXPECT_FALSE(constant_time_equal(data, ByteView(data).first(7)));
  EXPECT_FALSE(constant_time_equal({}, data));
}

TEST(HardenProcess, TakesCoresAwayAndDumpingWhereAsked) {
  const pid_t child = fork();  // in a child: the limits of the test process stay
  ASSERT_GE(child, 0);
  if (child == 0) {
    harden_process(false);
    rlimit core{1, 1};
    if (getrlimit(RLIMIT_CORE, &core) != 0 || core.rlim_cur != 0 || core.rlim_max != 0) _exit(1);
    if (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 1) _exit(2);
    harden_process(true);
    if (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0) _exit(3);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace sealring
