// Claim: real processes over TCP survive each other: a killed peer is told within 2 s, a stopped one by the
// deadline. How: forked ranks with a file store; SIGKILL and SIGSTOP in the middle of a stream of operations;
// every survivor's
//      error code, its time, and its poisoned output come back through a pipe.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "sealring/base/log.h"
#include "tests/collective/local_job.h"

namespace sealring::testing {
namespace {

//   rank 0 ---- rank 1      each rank is a process; rank 2 is the one that is killed or stopped
//       \      /
//        rank 2
struct Report {
  std::uint16_t rank = 0;
  std::uint16_t code = 0;      ///< Code of the first failed operation, 0: none
  std::uint16_t poisoned = 0;  ///< 1: the failed output was NaN throughout
  std::uint16_t refuses = 0;   ///< 1: the following operation failed with the same code
  std::uint64_t failed_at_ns = 0;
  std::uint64_t ops = 0;
};

class ProcessJob {
 public:
  explicit ProcessJob(std::uint16_t world) : key_(JobKey::generate()) {
    char pattern[] = "/tmp/sealring-test-XXXXXX";
    directory_ = mkdtemp(pattern);
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    read_end_ = ends[0];
    write_end_ = ends[1];
    world_ = world;
  }
  ~ProcessJob() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    close(read_end_);
    if (write_end_ >= 0) close(write_end_);
    std::filesystem::remove_all(directory_);
  }

  void start(std::chrono::milliseconds timeout) {
    for (Rank rank = 0; rank < world_; ++rank) {
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        close(read_end_);
        run_rank(rank, timeout);
        _exit(0);
      }
      pids_.push_back(pid);
    }
    close(std::exchange(write_end_, -1));
  }
  pid_t pid(Rank rank) const { return pids_[rank]; }

  /// Waits for the next report of any rank: its first op worked, or it ends.
  Report next() {
    Report report;
    EXPECT_EQ(read(read_end_, &report, sizeof report), static_cast<ssize_t>(sizeof report));
    return report;
  }

 private:
  void send(const Report& report) const { (void)!write(write_end_, &report, sizeof report); }

  void run_rank(Rank rank, std::chrono::milliseconds timeout) {
    log_setup("off", rank);
    CommConfig config;
    config.rank = rank;
    config.world = world_;
    config.timeout = timeout;
    config.connect_timeout = std::chrono::seconds(30) * slow_factor();
    auto store = make_file_store(directory_);
    TcpConfig tcp;
    tcp.interface_name = "127.0.0.1";
    auto transport = make_tcp_transport(tcp);
    if (!store || !transport) return;
    auto session = Session::connect(config, make_job_key_identity(key_), std::move(*transport),
                                    std::shared_ptr<Store>(std::move(*store)), "job");
    Report report;
    report.rank = rank;
    if (!session) {
      report.code = static_cast<std::uint16_t>(session.error().code);
      return send(report);
    }
    const auto comm = (*session)->world();
    std::vector<float> data(200'000);
    const Tensor tensor{data.data(), data.size(), DType::f32};
    while (true) {
      std::fill(data.begin(), data.end(), 1.0f);
      auto ticket = comm->all_reduce(tensor, tensor, {});
      const auto result =
          ticket ? ticket->wait(Deadline::in(std::chrono::minutes(2))) : tl::unexpected(ticket.error());
      if (result) {
        if (data[0] != static_cast<float>(world_) || data.back() != static_cast<float>(world_)) _exit(9);
        if (++report.ops == 1) send(report);
        continue;
      }
      report.code = static_cast<std::uint16_t>(result.error().code);
      report.failed_at_ns = now_ns();
      report.poisoned = std::all_of(data.begin(), data.end(), [](float x) { return std::isnan(x); });
      const auto again = comm->all_reduce(tensor, tensor, {});
      const auto later = again ? again->wait(Deadline::in(std::chrono::seconds(10))) : Result<void>{};
      report.refuses = !later && later.error().code == result.error().code;
      return send(report);
    }
  }

  JobKey key_;
  std::string directory_;
  std::uint16_t world_ = 0;
  int read_end_ = -1, write_end_ = -1;
  std::vector<pid_t> pids_;
};

void expect_survivors(ProcessJob& job, std::uint64_t struck_ns, std::chrono::milliseconds promised,
                      const std::vector<Code>& codes) {
  for (int i = 0; i < 2; ++i) {
    const Report report = job.next();
    EXPECT_NE(report.rank, 2);
    EXPECT_GT(report.ops, 0u);
    EXPECT_TRUE(std::find(codes.begin(), codes.end(), static_cast<Code>(report.code)) != codes.end())
        << "SR-E" << report.code;
    EXPECT_EQ(report.poisoned, 1);
    EXPECT_EQ(report.refuses, 1);
    EXPECT_LT(report.failed_at_ns - struck_ns,
              static_cast<std::uint64_t>(promised / std::chrono::nanoseconds(1)));
  }
}

TEST(Processes, AKilledPeerIsToldWithinTwoSeconds) {
  ProcessJob job(3);
  job.start(std::chrono::seconds(60));
  for (int i = 0; i < 3; ++i) ASSERT_EQ(job.next().code, 0);
  usleep(200'000);
  const std::uint64_t struck_ns = now_ns();
  kill(job.pid(2), SIGKILL);
  // 2 s to be dead everywhere, and as long for the diagnosis that the error waits for.
  expect_survivors(job, struck_ns, std::chrono::milliseconds(4000) * slow_factor(),
                   {Code::peer_lost, Code::aborted});
}

TEST(Processes, AStoppedPeerIsToldAtTheDeadline) {
  ProcessJob job(3);
  const auto timeout = std::chrono::milliseconds(1500) * slow_factor();
  job.start(timeout);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(job.next().code, 0);
  usleep(200'000);
  const std::uint64_t struck_ns = now_ns();
  kill(job.pid(2), SIGSTOP);
  expect_survivors(job, struck_ns, timeout + std::chrono::milliseconds(4000) * slow_factor(),
                   {Code::timeout, Code::aborted});
}

}  // namespace
}  // namespace sealring::testing
