// Claim: on a device the fused all_reduce of two ranks gives the CPU's sum, op after op and from a replayed
// graph, or an error and a poisoned output.
// How: both ranks on one device, in two streams; windows and abort words are set by hand for the failures.
#include <cstdlib>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/fused.h"
#include "sealring/device/cuda/make_job.h"
#include "tests/gpu/gpu_rig.h"

namespace sealring::cuda::test {
namespace {

struct OneOp {
  std::uint64_t elements = 0;
  DType dtype = DType::f32;
  RedOp redop = RedOp::sum;
  std::size_t shift = 0;
  bool in_place = false;
};

class FusedGpu : public OnGpu {
 protected:
  static constexpr std::uint32_t kColumns = 32;  // of both ranks together far fewer than a device can have

  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    for (int i = 0; i < 2; ++i) {
      const Bytes key = random_bytes(random, 32), iv = random_bytes(random, kNonceBytes);
      out_keys[i] = *DeviceKeyRing::make(0, Suite::chacha20_poly1305, 0, KeyBudget{});
      in_keys[1 - i] = *DeviceKeyRing::make(0, Suite::chacha20_poly1305, 0, KeyBudget{});
      ASSERT_TRUE(out_keys[i]->upload(0, secret(key), secret(iv)));
      ASSERT_TRUE(in_keys[1 - i]->upload(0, secret(key), secret(iv)));
      ASSERT_EQ(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), cudaSuccess);
    }
    connect(std::chrono::seconds(std::getenv("SR_TEST_SANITIZER") == nullptr ? 5 : 250));
  }
  void TearDown() override {
    for (cudaStream_t stream : streams) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }
  void connect(std::chrono::nanoseconds timeout) {
    for (auto& rank : ranks) {
      auto made = FusedRank::make(0, kColumns, timeout);
      ASSERT_TRUE(made) << made.error().message();
      rank = std::move(*made);
    }
    ranks[0]->connect(ranks[1]->window());
    ranks[1]->connect(ranks[0]->window());
  }

  void fill(const OneOp& op) {
    const std::size_t size = dtype_bytes(op.dtype);
    for (int i = 0; i < 2; ++i) {
      inputs[i] = random_bytes(random, op.elements * size);
      for (std::size_t at = size - 1; dtype_is_float(op.dtype) && at < inputs[i].size(); at += size)
        inputs[i][at] &= std::byte{0xBB};  // small finite numbers
      in[i] = std::make_unique<DeviceMemory>(inputs[i].size(), op.shift);
      out[i] = std::make_unique<DeviceMemory>(inputs[i].size(), op.shift);
      in[i]->set(inputs[i]);
      out[i]->set(inputs[i]);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  Result<void> enqueue(const OneOp& op, Rank rank) {
    const std::uint64_t bytes = op.elements * dtype_bytes(op.dtype);
    const FusedCut cut = fused_cut(bytes, op.dtype, kColumns);
    RecordContext context;
    context.op = Op::all_reduce;
    context.redop = op.redop;
    context.dtype = op.dtype;
    context.algorithm = Algorithm::one_shot;
    context.elements = op.elements;
    context.group_size = 2;
    FusedJob job = fused_job_of(Suite::chacha20_poly1305, context, RecordLayout::of(bytes, cut.segment_bytes),
                                rank, static_cast<Rank>(1 - rank));
    job.push.plaintext = job.pull.combine.local = op.in_place ? out[rank]->data() : in[rank]->data();
    job.pull.combine.dst = out[rank]->data();
    job.pull.combine.divisor = op.redop == RedOp::avg ? 2 : 1;
    return ranks[rank]->enqueue(job, *out_keys[rank], *in_keys[rank], streams[rank]);
  }
  void run(const OneOp& op) {
    for (const Rank rank : {Rank{0}, Rank{1}}) {
      const auto enqueued = enqueue(op, rank);
      ASSERT_TRUE(enqueued) << enqueued.error().message();
    }
  }
  Code verdict(Rank rank) {
    const auto result = ranks[rank]->verdict(streams[rank]);
    return result ? Code::ok : result.error().code;
  }
  Bytes expected(const OneOp& op) const { return reduced_by_cpu(op.dtype, op.redop, inputs[0], inputs[1]); }
  void expect_sums(const OneOp& op) {
    const Bytes sum = expected(op);
    for (const Rank rank : {Rank{0}, Rank{1}}) {
      ASSERT_EQ(verdict(rank), Code::ok);
      ASSERT_TRUE(out[rank]->get() == sum) << op.elements << " x " << to_string(op.dtype) << " rank " << rank;
    }
  }
  void expect_poison(const OneOp& op, Rank rank) {
    Bytes poisoned(inputs[rank].size());
    poison(op.dtype, poisoned);
    EXPECT_TRUE(out[rank]->get() == poisoned);
  }

  std::mt19937_64 random{11};
  std::unique_ptr<DeviceKeyRing> out_keys[2], in_keys[2];
  std::unique_ptr<FusedRank> ranks[2];
  cudaStream_t streams[2] = {};
  Bytes inputs[2];
  std::unique_ptr<DeviceMemory> in[2], out[2];
};

TEST_F(FusedGpu, SumsAreTheCpusAtAnySizeTypeAndAlignment) {
  int n = 0;
  for (const std::uint64_t elements : {0ull, 1ull, 511ull, 4096ull, 100'003ull, 3'000'001ull}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::u8}) {
      OneOp op{elements, dtype, RedOp::sum, dtype_bytes(dtype) * static_cast<std::size_t>(n % 3), n % 2 == 0};
      ++n;
      fill(op);
      run(op);
      ASSERT_NO_FATAL_FAILURE(expect_sums(op));
    }
  }
}

TEST_F(FusedGpu, EveryOperation) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i64}) {
    for (const RedOp redop : all_redops()) {
      if (redop == RedOp::none || !reduction_supported(dtype, redop)) continue;
      const OneOp op{20'011, dtype, redop, 0, true};
      fill(op);
      run(op);
      ASSERT_NO_FATAL_FAILURE(expect_sums(op)) << to_string(redop);
    }
  }
}

TEST_F(FusedGpu, AReplayedGraphContinuesTheNumbersAndTickets) {
  const OneOp op{200'000, DType::f32, RedOp::sum, 0, false};
  fill(op);
  cudaGraphExec_t execs[2] = {};
  for (const Rank rank : {Rank{0}, Rank{1}}) {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal), cudaSuccess);
    const auto enqueued = enqueue(op, rank);
    ASSERT_EQ(cudaStreamEndCapture(streams[rank], &graph), cudaSuccess);
    ASSERT_TRUE(enqueued) << enqueued.error().message();
    ASSERT_EQ(cudaGraphInstantiate(&execs[rank], graph, 0), cudaSuccess);
    cudaGraphDestroy(graph);
  }
  for (int replay = 0; replay < 20; ++replay) {
    for (auto& memory : out) memory->fill(0);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(execs[i], streams[i]), cudaSuccess);
    ASSERT_NO_FATAL_FAILURE(expect_sums(op)) << replay;
  }
  KeyState keys{};
  ASSERT_EQ(cudaMemcpy(&keys, out_keys[0]->state(), sizeof keys, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(keys.ops, 20u);
  EXPECT_EQ(keys.in_use, 0u);
  for (cudaGraphExec_t exec : execs) cudaGraphExecDestroy(exec);
}

TEST_F(FusedGpu, AForgedFlagIsADataTagAndNothingWorksAfterIt) {
  const OneOp op{50'000, DType::f32, RedOp::sum, 0, false};
  fill(op);
  const std::uint64_t forged = 1;  // of ticket 0, before anything lies in the slot
  ASSERT_EQ(cudaMemcpy(ranks[1]->window() + ranks[1]->shape().flag_offset(0, 0), &forged, sizeof forged,
                       cudaMemcpyHostToDevice),
            cudaSuccess);
  ASSERT_TRUE(enqueue(op, 1));
  EXPECT_EQ(verdict(1), Code::data_tag);  // rank 0 has not even begun
  expect_poison(op, 1);
  ASSERT_TRUE(enqueue(op, 0));
  EXPECT_EQ(verdict(0), Code::aborted);  // by POISON, not at the deadline
  expect_poison(op, 0);
  out[1]->fill(0);
  ASSERT_TRUE(enqueue(op, 1));
  EXPECT_EQ(verdict(1), Code::data_tag);
  expect_poison(op, 1);
}

TEST_F(FusedGpu, AMissingPeerIsATimeout) {
  connect(std::chrono::milliseconds(300));
  const OneOp op{50'000, DType::bf16, RedOp::sum, 0, false};
  fill(op);
  ASSERT_TRUE(enqueue(op, 0));
  EXPECT_EQ(verdict(0), Code::timeout);
  expect_poison(op, 0);
}

TEST_F(FusedGpu, AbortEndsAWaitingOp) {
  const OneOp op{50'000, DType::f32, RedOp::sum, 0, false};
  fill(op);
  ASSERT_TRUE(enqueue(op, 0));
  ASSERT_TRUE(ranks[0]->abort());
  EXPECT_EQ(verdict(0), Code::aborted);
  expect_poison(op, 0);
}

TEST_F(FusedGpu, JobsThatDoNotFitAreRefused) {
  FusedJob job;
  job.push.layout = job.pull.layout = RecordLayout::of(1 << 20, 64 << 10);
  EXPECT_EQ(ranks[0]->enqueue(job, *out_keys[0], *in_keys[0], streams[0]).error().code,
            Code::invalid_argument);
  EXPECT_EQ(FusedRank::make(0, 0, std::chrono::seconds(1)).error().code, Code::invalid_argument);
  EXPECT_EQ(FusedRank::make(0, kFusedColumnsMax + 1, std::chrono::seconds(1)).error().code,
            Code::invalid_argument);
}

}  // namespace
}  // namespace sealring::cuda::test
