// Claim: a sample on a GPU is exactly so many operations behind the meeting of the ranks, eager or replayed;
// and a sample that was captured before runs nothing else, so that it may be checked on fresh inputs. How: a
// runtime in host memory whose operation doubles a number in place.
#include <gtest/gtest.h>

#include "sealring/study/bench_engine.h"

namespace sealring {
namespace {

/// Runs what is enqueued at once, or keeps it for a graph.
class HostRuntime final : public DeviceRuntime {
 public:
  class Graph final : public DeviceGraph {
   public:
    explicit Graph(std::vector<std::function<void()>> work) : work_(std::move(work)) {}
    Result<void> launch() override {
      for (const auto& each : work_) each();
      return {};
    }

   private:
    std::vector<std::function<void()>> work_;
  };

  void enqueue(std::function<void()> work) {
    if (capturing_)
      captured_.push_back(std::move(work));
    else
      work();
  }
  Stream stream() const override { return {}; }
  unsigned device() const override { return 0; }
  Result<std::byte*> allocate(std::uint64_t) override { return nullptr; }
  Result<void> copy_in(std::byte*, ByteView) override { return {}; }
  Result<void> copy_out(std::span<std::byte>, const std::byte*) override { return {}; }
  Result<void> start_clock() override {
    started = true;
    return {};
  }
  Result<void> stop_clock() override {
    started = false;
    return {};
  }
  Result<double> elapsed_us() override { return 1.0; }
  Result<void> begin_capture() override {
    capturing_ = true;
    return {};
  }
  Result<std::unique_ptr<DeviceGraph>> end_capture() override {
    capturing_ = false;
    return std::unique_ptr<DeviceGraph>(std::make_unique<Graph>(std::exchange(captured_, {})));
  }

  bool started = false;

 private:
  bool capturing_ = false;
  std::vector<std::function<void()>> captured_;
};

struct Doubling {
  explicit Doubling(bool graph) : samples(runtime, graph) {}
  void run(unsigned calls) {
    BenchCall call;
    call.in_place = true;
    call.out = reinterpret_cast<std::byte*>(&value);
    const auto meet = [&]() -> Result<void> {
      ++meetings;
      return {};
    };
    const auto once = [&]() -> Result<void> {
      runtime.enqueue([this] {
        value *= 2;
        timed += runtime.started ? 1 : 0;
      });
      return {};
    };
    const auto done = samples.run(call, calls, meet, once);
    ASSERT_TRUE(done) << done.error().message();
  }

  HostRuntime runtime;
  GpuSamples samples;
  std::uint64_t value = 1;
  unsigned timed = 0, meetings = 0;
};

TEST(GpuSamples, AnEagerSampleIsItsOperationsAlone) {
  Doubling doubling(false);
  doubling.run(1);
  EXPECT_EQ(doubling.value, 2u);
  doubling.run(3);
  EXPECT_EQ(doubling.value, 16u);
  EXPECT_EQ(doubling.timed, 4u);
  EXPECT_EQ(doubling.meetings, 2u);
}

TEST(GpuSamples, AReplayedSampleRunsOnceMoreOnlyWhereItIsCaptured) {
  Doubling doubling(true);
  doubling.run(1);
  EXPECT_EQ(doubling.value, 4u);  // before the capture, and the replay
  EXPECT_EQ(doubling.timed, 1u);
  doubling.value = 1;  // fresh inputs
  doubling.run(1);
  EXPECT_EQ(doubling.value, 2u);
  doubling.value = 1;
  doubling.run(3);  // another sample
  doubling.value = 1;
  doubling.run(3);
  EXPECT_EQ(doubling.value, 8u);
  EXPECT_EQ(doubling.timed, 8u);
}

}  // namespace
}  // namespace sealring
