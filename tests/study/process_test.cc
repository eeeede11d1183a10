// Claim: children run as told, their lines come back, their ends are noticed, and a job key passes by a pipe
// alone. How: small programs of the system; a killed child; a key through a pipe; files that cannot be
// written.
#include "sealring/study/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sealring/study/key_text.h"
#include "sealring/study/machine.h"

namespace sealring {
namespace {

Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }

TEST(Process, TalksInLines) {
  ProcessSpec spec;
  spec.arguments = {"cat"};
  spec.pipe_input = spec.pipe_output = true;
  auto process = Process::start(spec);
  ASSERT_TRUE(process) << process.error().message();
  ASSERT_TRUE(process->write_line("one"));
  ASSERT_TRUE(process->write_line("two"));
  EXPECT_EQ(process->read_line(soon()).value(), "one");
  EXPECT_EQ(process->read_line(soon()).value(), "two");
  EXPECT_EQ(process->read_line(Deadline::in(std::chrono::milliseconds(30))).error().code, Code::timeout);
  process->close_input();
  EXPECT_EQ(process->read_line(soon()).error().code, Code::peer_lost);
  EXPECT_EQ(process->wait(soon()), 0);
}

TEST(Process, StatusEnvironmentAndErrors) {
  ProcessSpec spec;
  spec.arguments = {"sh", "-c", "exit $SR_STATUS"};
  spec.environment["SR_STATUS"] = "7";
  auto process = Process::start(spec);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->wait(soon()), 7);
  spec.arguments = {"sleep", "100"};
  process = Process::start(spec);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->wait(Deadline::in(std::chrono::milliseconds(10))), std::nullopt);
  process->kill(SIGKILL);
  EXPECT_EQ(process->wait(soon()), 128 + SIGKILL);
  spec.arguments = {"/no/such/program"};
  EXPECT_EQ(Process::start(spec).error().code, Code::file);
  EXPECT_EQ(output_of({"echo", "hi"}).value(), "hi\n");
  EXPECT_FALSE(output_of({"false"}));
}

TEST(Process, ADestroyedHandleLeavesNoChild) {
  pid_t pid = -1;
  {
    ProcessSpec spec;
    spec.arguments = {"sleep", "100"};
    auto process = Process::start(spec);
    ASSERT_TRUE(process);
    pid = process->pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(Process, KeysPassThroughAPipe) {
  const JobKey key = JobKey::generate();
  const auto descriptor = pipe_with(job_key_text(key));
  ASSERT_TRUE(descriptor);
  const auto back = read_job_key(*descriptor);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->fingerprint(), key.fingerprint());
  const auto nothing = pipe_with(SecretBytes());
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(read_job_key(*nothing));
}

TEST(PrivateDirectoryTest, IsPrivateAndGoesAway) {
  std::string path;
  {
    const auto directory = PrivateDirectory::make();
    ASSERT_TRUE(directory);
    path = directory->path();
    struct stat about {};
    ASSERT_EQ(::stat(path.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0700u);
    ASSERT_TRUE(write_file(path + "/file", "text"));
    EXPECT_EQ(read_file(path + "/file", 10).value(), "text");
    EXPECT_FALSE(read_file(path + "/file", 3));
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(MachineTest, CoresAreSharedEvenly) {
  using Cpus = std::vector<unsigned>;
  const Cpus four{4, 5, 6, 7};
  EXPECT_EQ(cpus_of_rank(four, 0, 2), (Cpus{4, 5}));
  EXPECT_EQ(cpus_of_rank(four, 1, 2), (Cpus{6, 7}));
  EXPECT_EQ(cpus_of_rank(four, 2, 3), (Cpus{6}));
  EXPECT_EQ(cpus_of_rank(four, 5, 8), (Cpus{5}));
  EXPECT_EQ(cpus_of_rank({9}, 1, 2), (Cpus{9}));
  EXPECT_FALSE(usable_cpus().empty());
  EXPECT_GT(read_machine().threads, 0u);
}

}  // namespace
}  // namespace sealring
