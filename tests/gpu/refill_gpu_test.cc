// Claim: replayed graphs run on through epoch after epoch, since the host refills the slots that the device
// frees, also while another stream is captured; without the refill they stop before sealing.
// How: limits are lowered, one graph is replayed without any look by the host, the device logs each op's
// numbers and wire, and OpenSSL seals the same with the key of that epoch.
#include <cstdlib>

#include "tests/gpu/gpu_rig.h"
#include "tests/gpu/op_log.h"

namespace sealring::cuda::test {
namespace {

constexpr std::uint32_t kOpsInGraph = 50;

/// Keys that the test can make again.
class TestChain final : public KeySource {
 public:
  TestChain(Suite suite, std::uint64_t seed) : suite_(suite), seed_(seed) {}
  Epoch next_epoch() const override { return next_; }
  EpochKey next() override {
    const auto [key, iv] = of(next_);
    return EpochKey{next_++, secret(key), secret(iv)};
  }
  std::pair<Bytes, Bytes> of(Epoch epoch) const {
    std::mt19937_64 random(seed_ + epoch);
    Bytes key = random_bytes(random, suite_key_bytes(suite_));
    return {std::move(key), random_bytes(random, kNonceBytes)};
  }

 private:
  Suite suite_;
  std::uint64_t seed_;
  Epoch next_ = 0;
};

class RefillGpu : public OnGpu, public ::testing::WithParamInterface<Suite> {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    for (cudaStream_t* const made : {&stream, &other})
      ASSERT_EQ(cudaStreamCreateWithFlags(made, cudaStreamNonBlocking), cudaSuccess);
    in = std::make_unique<DeviceMemory>(record.plaintext.size());
    wire = std::make_unique<DeviceMemory>(record.wire.size());
    in->set(record.plaintext);
    ASSERT_EQ(prepare_log(), cudaSuccess);
  }
  void TearDown() override {
    for (cudaStream_t const made : {stream, other}) {
      if (made != nullptr) cudaStreamDestroy(made);
    }
  }
  void make_ring(std::uint64_t ops_an_epoch) {
    KeyBudget budget;
    budget.ops_rotate = ops_an_epoch;
    ring = *DeviceKeyRing::make(0, GetParam(), 0, budget);
    const auto started = ring->refill_from(std::make_unique<TestChain>(chain));
    ASSERT_TRUE(started) << started.error().message();
  }
  void seal_on(cudaStream_t at) {
    SegmentJob job = record.job();
    job.plaintext = in->data();
    job.wire = wire->data();
    const auto enqueued = ring->enqueue(job, Direction::seal, OpRequest{}, at);
    ASSERT_TRUE(enqueued) << enqueued.error().message();
  }

  // Replays one graph of kOpsInGraph seals; gives how many of them sealed.
  std::uint32_t replay(std::uint32_t times, std::uint64_t pace_ns) {
    const std::uint32_t room = times * kOpsInGraph;
    log_count = std::make_unique<DeviceMemory>(sizeof(std::uint32_t));
    log_last = std::make_unique<DeviceMemory>(sizeof(std::uint64_t));
    log_ops = std::make_unique<DeviceMemory>(room * sizeof(LoggedOp));
    log_wires = std::make_unique<DeviceMemory>(room * record.wire.size());
    log_count->fill(0);
    log_last->fill(0);
    OpLog log;
    log.count = reinterpret_cast<std::uint32_t*>(log_count->data());
    log.last_ns = reinterpret_cast<std::uint64_t*>(log_last->data());
    log.ops = reinterpret_cast<LoggedOp*>(log_ops->data());
    log.wires = log_wires->data();
    log.room = room;
    log.wire_bytes = static_cast<std::uint32_t>(record.wire.size());
    log.pace_ns = pace_ns;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // what was filled above, by another stream
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    for (std::uint32_t i = 0; i < kOpsInGraph; ++i) {
      seal_on(stream);
      EXPECT_EQ(enqueue_log(ring->state(), record.layout.segments(), wire->data(), log, stream), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (std::uint32_t i = 0; i < times; ++i) EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    std::uint32_t count = 0;
    std::memcpy(&count, log_count->get().data(), sizeof count);
    return count;
  }

  // What OpenSSL makes of the plaintext with the numbers of a logged op and the key of its epoch.
  Bytes expected_of(const LoggedOp& op) {
    Record out = record;
    std::tie(out.key_bytes, out.iv_bytes) = chain.of(op.epoch);
    out.op = OpView{op.epoch, op.first_number, op.seq};
    out.seal_by_oracle();
    return out.wire;
  }

  const Record record{GetParam(), 20480, 4096, std::random_device{}()};
  const TestChain chain{GetParam(), std::random_device{}()};
  std::unique_ptr<DeviceMemory> in, wire, log_count, log_last, log_ops, log_wires;
  std::unique_ptr<DeviceKeyRing> ring;
  cudaStream_t stream = nullptr, other = nullptr;
};

TEST_P(RefillGpu, OneReplayedGraphCrossesEpochs) {
  // Under a sanitizer an op takes many times longer: fewer of them.
  const bool slow = std::getenv("SR_TEST_SANITIZER") != nullptr;
  const std::uint32_t ops_an_epoch = slow ? 50 : 100, times = slow ? 8 : 16;
  make_ring(ops_an_epoch);
  // An op takes one or two milliseconds, so an epoch takes the 100 that the protocol asks for.
  const std::uint32_t count = replay(times, 100000000 / ops_an_epoch);
  const auto verdict = ring->verdict(stream);
  ASSERT_TRUE(verdict) << verdict.error().message();
  ASSERT_EQ(count, times * kOpsInGraph);
  const Bytes ops = log_ops->get(), wires = log_wires->get();
  for (std::uint32_t i = 0; i < count; ++i) {
    LoggedOp op;
    std::memcpy(&op, ops.data() + i * sizeof op, sizeof op);
    ASSERT_EQ(op.epoch, i / ops_an_epoch);
    ASSERT_EQ(op.first_number, i % ops_an_epoch * record.layout.segments());
    ASSERT_EQ(op.seq, i);
    const auto begin = wires.begin() + static_cast<std::ptrdiff_t>(i * record.wire.size());
    const Bytes expected = expected_of(op);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), begin)) << "op " << i << " epoch " << op.epoch;
  }
  EXPECT_GE(ring->filled_to(), 8u);
  EXPECT_LE(ring->filled_to(), 7u + kSlots);
}

TEST_P(RefillGpu, AGraphThatOutrunsTheRefillGetsKeyLimitBeforeSealing) {
  constexpr std::uint32_t kOpsAnEpoch = 30;
  make_ring(kOpsAnEpoch);
  ring->stop_refill();
  const std::uint32_t count = replay(4, 0);
  const auto verdict = ring->verdict(stream);
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().code, Code::key_limit);
  ASSERT_EQ(count, kSlots * kOpsAnEpoch);
  // The wire still is what the last good op made of it.
  const Bytes wires = log_wires->get();
  EXPECT_TRUE(std::ranges::equal(
      wire->get(), std::span(wires).subspan((count - 1) * record.wire.size(), record.wire.size())));
}

TEST_P(RefillGpu, RefillsWhileAnotherStreamIsCaptured) {
  make_ring(1);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal), cudaSuccess);
  seal_on(other);
  for (int op = 0; op < 2; ++op) seal_on(stream);  // the second enters epoch 1 and frees slot 0
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (ring->filled_to() < 5 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(cudaStreamEndCapture(other, &graph), cudaSuccess);
  EXPECT_EQ(ring->filled_to(), 5u);
  ASSERT_NE(graph, nullptr);
  cudaGraphDestroy(graph);
  const auto verdict = ring->verdict(stream);
  EXPECT_TRUE(verdict) << verdict.error().message();
}

INSTANTIATE_TEST_SUITE_P(Suites, RefillGpu, ::testing::Values(Suite::chacha20_poly1305, Suite::aes_256_gcm));

}  // namespace
}  // namespace sealring::cuda::test
