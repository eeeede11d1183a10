// Claim: on a device a fused step of two ranks gives the CPU's result, op after op and from a replayed graph,
// or an error and a poisoned output. How: both ranks on one device, in two streams; windows and abort words
// are set by hand for the failures.
#include <algorithm>
#include <cstdlib>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/fused.h"
#include "sealring/device/cuda/fused_job.h"
#include "tests/gpu/gpu_rig.h"

namespace sealring::cuda::test {
namespace {

struct OneOp {
  std::uint64_t elements = 0;  ///< all_reduce: of the tensor; else of a piece
  DType dtype = DType::f32;
  RedOp redop = RedOp::sum;
  std::size_t shift = 0;
  bool in_place = false;
  Op op = Op::all_reduce;
};

class FusedGpu : public OnGpu {
 protected:
  static constexpr std::uint32_t kColumns = 32;  // of both ranks together far fewer than a device can have

  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    for (int i = 0; i < 2; ++i) {
      const Bytes key = random_bytes(random, suite_key_bytes(suite)), iv = random_bytes(random, kNonceBytes);
      out_keys[i] = *DeviceKeyRing::make(0, suite, 0, KeyBudget{});
      in_keys[1 - i] = *DeviceKeyRing::make(0, suite, 0, KeyBudget{});
      ASSERT_TRUE(out_keys[i]->upload(0, secret(key), secret(iv)));
      ASSERT_TRUE(in_keys[1 - i]->upload(0, secret(key), secret(iv)));
      ASSERT_EQ(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), cudaSuccess);
    }
    connect(patience);
  }
  void TearDown() override {
    for (auto& rank : ranks) rank.reset();
    for (cudaStream_t& stream : streams) {
      if (stream != nullptr) cudaStreamDestroy(stream);
      stream = nullptr;
    }
  }
  DeviceGroupConfig config(Rank rank, std::chrono::nanoseconds timeout) const {
    DeviceGroupConfig out;
    out.suite = suite;
    out.rank = rank;
    out.members = {0, 1};
    out.timeout = timeout;
    return out;
  }
  void connect(std::chrono::nanoseconds timeout, std::uint64_t small_bytes_max = 0) {
    for (Rank i = 0; i < 2; ++i) {
      windows[i] = std::make_unique<DeviceMemory>(FusedRank::window_bytes(2, grid.columns));
      windows[i]->fill(0);
      auto made = FusedRank::make(config(i, timeout), grid, small_bytes_max);
      ASSERT_TRUE(made) << made.error().message();
      ranks[i] = std::move(*made);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (Rank i = 0; i < 2; ++i) {
      FusedRank::Peer peers[2];
      peers[1 - i] = {windows[1 - i]->data(), out_keys[i].get(), in_keys[i].get()};
      ASSERT_TRUE(ranks[i]->connect(windows[i]->data(), peers));
    }
  }

  /// Pieces of the input and of the output.
  static std::uint64_t pieces_in(const OneOp& op) { return op.op == Op::reduce_scatter ? 2 : 1; }
  static std::uint64_t pieces_out(const OneOp& op) { return op.op == Op::all_gather ? 2 : 1; }
  void fill(const OneOp& op) {
    for (int i = 0; i < 2; ++i) {
      inputs[i] = random_elements(random, op.dtype, op.elements * pieces_in(op));
      in[i] = std::make_unique<DeviceMemory>(inputs[i].size(), op.shift);
      in[i]->set(inputs[i]);
      const std::uint64_t piece = op.elements * dtype_bytes(op.dtype);
      out[i] = std::make_unique<DeviceMemory>(piece * pieces_out(op), op.shift);
      if (op.op == Op::all_reduce) out[i]->set(inputs[i]);
      if (op.op == Op::all_gather) {
        EXPECT_EQ(cudaMemcpy(out[i]->data() + static_cast<std::uint64_t>(i) * piece, inputs[i].data(), piece,
                             cudaMemcpyHostToDevice),
                  cudaSuccess);
      }
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  Result<void> enqueue(const OneOp& op, Rank rank) {
    const std::uint64_t piece = op.elements * dtype_bytes(op.dtype);
    const auto peer = static_cast<Rank>(1 - rank);
    const bool reduces = op.op != Op::all_gather, scatters = op.op == Op::reduce_scatter;
    DeviceOp device_op;
    device_op.op = op.op;
    device_op.redop = reduces ? op.redop : RedOp::none;
    device_op.dtype = op.dtype;
    device_op.algorithm = op.op == Op::all_reduce ? Algorithm::one_shot : Algorithm::one_hop;
    device_op.elements = op.elements;
    std::byte* const input = op.in_place ? out[rank]->data() : in[rank]->data();
    DeviceSend send;
    send.peer = peer;
    send.data = scatters ? input + peer * piece : input;
    send.elements = op.elements;
    send.element_offset = scatters ? peer * op.elements : reduces ? 0 : rank * op.elements;
    DeviceRecv recv;
    recv.peer = peer;
    recv.dst = reduces ? out[rank]->data() : out[rank]->data() + peer * piece;
    recv.elements = op.elements;
    recv.element_offset = scatters ? rank * op.elements : reduces ? 0 : peer * op.elements;
    if (reduces) recv.local = scatters ? input + rank * piece : input;
    if (reduces && op.redop == RedOp::avg) recv.divisor = 2;
    return ranks[rank]->enqueue(device_op, {&send, 1}, {&recv, 1}, {reduces, op.op == Op::all_reduce},
                                streams[rank]);
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
  Bytes expected(const OneOp& op, Rank rank) const {
    const std::size_t piece = op.elements * dtype_bytes(op.dtype);
    if (op.op == Op::all_gather) {
      Bytes both = inputs[0];
      both.insert(both.end(), inputs[1].begin(), inputs[1].end());
      return both;
    }
    const auto begin = static_cast<long>(op.op == Op::reduce_scatter ? rank * piece : 0);
    const auto end = begin + static_cast<long>(piece);
    return reduced_by_cpu(op.dtype, op.redop, Bytes(inputs[0].begin() + begin, inputs[0].begin() + end),
                          Bytes(inputs[1].begin() + begin, inputs[1].begin() + end));
  }
  void expect_sums(const OneOp& op) {
    for (const Rank rank : {Rank{0}, Rank{1}}) {
      ASSERT_EQ(verdict(rank), Code::ok);
      ASSERT_TRUE(out[rank]->get() == expected(op, rank))
          << to_string(op.op) << " " << op.elements << " x " << to_string(op.dtype) << " rank " << rank;
    }
  }
  void expect_poison(const OneOp& op, Rank rank) {
    Bytes poisoned(out[rank]->get().size());
    poison(op.dtype, poisoned);
    EXPECT_TRUE(out[rank]->get() == poisoned);
  }

  const std::chrono::seconds patience{std::getenv("SR_TEST_SANITIZER") == nullptr ? 5 : 250};
  Suite suite = Suite::chacha20_poly1305;
  FusedGrid grid{kColumns};
  std::mt19937_64 random{11};
  std::unique_ptr<DeviceKeyRing> out_keys[2], in_keys[2];
  std::unique_ptr<DeviceMemory> windows[2];
  std::unique_ptr<FusedRank> ranks[2];
  cudaStream_t streams[2] = {};
  Bytes inputs[2];
  std::unique_ptr<DeviceMemory> in[2], out[2];
};

/// The same with each suite's kernels.
class FusedGpuSuites : public FusedGpu, public ::testing::WithParamInterface<Suite> {
 protected:
  void SetUp() override {
    suite = GetParam();
    if (suite != Suite::chacha20_poly1305) grid = {kColumns, kColumns, kColumns / kGcmColumns, kGcmColumns};
    FusedGpu::SetUp();
  }
};
INSTANTIATE_TEST_SUITE_P(Suites, FusedGpuSuites,
                         ::testing::Values(Suite::chacha20_poly1305, Suite::aes_256_gcm, Suite::aes_128_gcm));

TEST_P(FusedGpuSuites, ResultsAreTheCpusAtAnySizeTypeAndAlignment) {
  int n = 0;
  for (const std::uint64_t elements : {0ull, 1ull, 511ull, 4096ull, 100'003ull, 3'000'001ull}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::u8}) {
      OneOp op{elements, dtype, RedOp::sum, dtype_bytes(dtype) * static_cast<std::size_t>(n % 3), n % 2 == 0};
      ++n;
      for (const Op kind : {Op::all_reduce, Op::reduce_scatter, Op::all_gather}) {
        op.op = kind;
        op.in_place = op.in_place && kind == Op::all_reduce;
        fill(op);
        run(op);
        ASSERT_NO_FATAL_FAILURE(expect_sums(op));
      }
    }
  }
}

TEST_F(FusedGpu, SmallStepsAreTheCpusAtAnySizeTypeAndAlignment) {
  connect(patience, kSmallBytesMax);
  int n = 0;
  for (const std::uint64_t bytes : {0ull, 8ull, 1000ull, 2048ull, 4104ull, 30'000ull, 65'536ull, 65'544ull}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::u8}) {
      const std::size_t size = dtype_bytes(dtype);
      for (const Op kind : {Op::all_reduce, Op::reduce_scatter, Op::all_gather}) {
        OneOp op{bytes / size, dtype, RedOp::sum, size * static_cast<std::size_t>(n % 3), false, kind};
        op.in_place = kind == Op::all_reduce && n++ % 2 == 0;
        fill(op);
        run(op);
        ASSERT_NO_FATAL_FAILURE(expect_sums(op));
      }
    }
  }
}

// Blocks of three teams; teams without a column; more columns than teams; kernels without teams.
TEST_F(FusedGpu, FewerBlocksThanColumnsGiveTheSameResults) {
  const std::uint64_t largest = std::getenv("SR_TEST_SANITIZER") == nullptr ? 1'000'001 : 100'003;
  for (const FusedGrid of : {FusedGrid{32, 31, 11}, {96, 32, 32}, {30, 3, 3}, {7, 2, 1}, {4, 3, 3}}) {
    grid = of;
    connect(patience, kSmallBytesMax);
    for (const std::uint64_t elements : {std::uint64_t{1}, std::uint64_t{4096}, largest}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
        for (const Op kind : {Op::all_reduce, Op::reduce_scatter, Op::all_gather}) {
          const OneOp op{elements, dtype, RedOp::sum, dtype_bytes(dtype), kind == Op::all_reduce, kind};
          fill(op);
          run(op);
          ASSERT_NO_FATAL_FAILURE(expect_sums(op)) << of.columns << " columns, " << of.blocks << " blocks";
        }
      }
    }
  }
}

// For synccheck: a team's barriers, and a column behind another one.
TEST_F(FusedGpu, TeamsWithColumnsInTurn) {
  grid = {30, 4, 4};
  connect(patience, kSmallBytesMax);
  const OneOp op{60'000, DType::f32, RedOp::sum, 0, true};
  fill(op);
  run(op);
  ASSERT_NO_FATAL_FAILURE(expect_sums(op));
}

// By kernels without teams: one of lines, and that of reductions which have none.
TEST_F(FusedGpu, ColumnsInTurn) {
  grid = {30, 12, 4};
  connect(patience, kSmallBytesMax);
  for (const OneOp& op :
       {OneOp{10'000, DType::f32, RedOp::sum, 0, true}, OneOp{60'000, DType::i32, RedOp::sum, 0, true}}) {
    fill(op);
    run(op);
    ASSERT_NO_FATAL_FAILURE(expect_sums(op));
  }
}

// Of several columns that a team has in turn the first fails, and those behind it must neither wait nor seal.
TEST_F(FusedGpu, TeamsThatWaitForNobodyEndAtTheDeadline) {
  for (const FusedGrid of : {FusedGrid{96, 32, 32}, {96, 32, 8}, {7, 2, 1}}) {
    grid = of;
    connect(std::chrono::seconds(1));
    const OneOp op{2'000'000, DType::f32, RedOp::sum, 0, false};
    fill(op);
    ASSERT_TRUE(enqueue(op, 1));
    EXPECT_EQ(verdict(1), Code::timeout);
    expect_poison(op, 1);
    // The first columns, as many as there are teams, have sealed; those in turn behind them have not.
    const Bytes window = windows[0]->get();
    const WindowShape region = ranks[1]->region();
    for (std::uint32_t column = kFusedTeams * of.blocks; column < of.columns; ++column) {
      const auto begin = window.begin() + static_cast<long>(region.slot_offset(column, 0));
      EXPECT_TRUE(std::all_of(begin, begin + WindowShape::kSlots * region.slot_bytes,
                              [](std::byte b) { return b == std::byte{0}; }))
          << "column " << column;
    }
    TearDown();  // a failed rank and its keys stay failed
    ASSERT_NO_FATAL_FAILURE(SetUp());
  }
}

// Nothing but the ranks' own order stands between the steps.
TEST_F(FusedGpu, ManySmallStepsBehindOneAnother) {
  connect(patience, kSmallBytesMax);
  const OneOp op{16'384, DType::f32, RedOp::max, 0, true};  // the same result however often
  fill(op);
  for (int i = 0; i < 200; ++i) run(op);
  expect_sums(op);
}

TEST_F(FusedGpu, AForgedLineIsADataTag) {
  connect(patience, kSmallBytesMax);
  const OneOp op{10'000, DType::f32, RedOp::sum, 0, false};
  fill(op);
  const std::uint32_t line[4] = {1, 2, 3, 1};  // the number of place 0's first step
  for (std::uint32_t i = 0; i < kSmallLines; ++i) {
    std::byte* const at = windows[1]->data() + small_offset(ranks[1]->region(), 0, 0) + i * kLineBytes;
    ASSERT_EQ(cudaMemcpy(at, line, sizeof line, cudaMemcpyHostToDevice), cudaSuccess);
  }
  ASSERT_TRUE(enqueue(op, 1));
  EXPECT_EQ(verdict(1), Code::data_tag);  // rank 0 has not even begun
  expect_poison(op, 1);
  ASSERT_TRUE(enqueue(op, 0));
  EXPECT_EQ(verdict(0), Code::ok);  // all that rank 1 sealed is there
  EXPECT_TRUE(out[0]->get() == expected(op, 0));
  ASSERT_TRUE(enqueue(op, 0));
  EXPECT_EQ(verdict(0), Code::aborted);  // by POISON, not at the deadline
  expect_poison(op, 0);
}

TEST_P(FusedGpuSuites, EveryOperation) {
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

TEST_P(FusedGpuSuites, AReplayedGraphContinuesTheNumbersAndTickets) {
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

// As a graph is that is launched beside another op: what it was to write is poison, and the other op's state
// is left alone.
TEST_F(FusedGpu, AStepBesideAnotherIsRefusedAndPoisonsItsOwnOutput) {
  for (const bool captured : {false, true}) {
    connect(patience, kSmallBytesMax);
    const OneOp op{captured ? 200'000u : 10'000u, DType::f32, RedOp::sum, 0, false};
    fill(op);
    const std::uint32_t one = 1;
    std::uint32_t in_use = 0;
    ASSERT_EQ(cudaMemcpy(&ranks[0]->state()->in_use, &one, sizeof one, cudaMemcpyHostToDevice), cudaSuccess);
    cudaGraph_t graph = nullptr;
    if (captured) {
      ASSERT_EQ(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal), cudaSuccess);
    }
    const auto enqueued = enqueue(op, 0);
    if (captured) {
      cudaGraphExec_t exec = nullptr;
      ASSERT_EQ(cudaStreamEndCapture(streams[0], &graph), cudaSuccess);
      ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
      ASSERT_EQ(cudaGraphLaunch(exec, streams[0]), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(streams[0]), cudaSuccess);
      cudaGraphExecDestroy(exec);
      cudaGraphDestroy(graph);
    }
    ASSERT_TRUE(enqueued) << enqueued.error().message();
    EXPECT_EQ(verdict(0), Code::seq_reuse_guard);
    expect_poison(op, 0);
    ASSERT_EQ(cudaMemcpy(&in_use, &ranks[0]->state()->in_use, sizeof in_use, cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_EQ(in_use, 1u);
    TearDown();  // a failed rank and its keys stay failed
    ASSERT_NO_FATAL_FAILURE(SetUp());
  }
}

TEST_P(FusedGpuSuites, AForgedFlagIsADataTagAndNothingWorksAfterIt) {
  const OneOp op{50'000, DType::f32, RedOp::sum, 0, false};
  fill(op);
  const std::uint64_t forged = 1;  // of ticket 0, before anything lies in the slot
  ASSERT_EQ(cudaMemcpy(windows[1]->data() + ranks[1]->region().flag_offset(0, 0), &forged, sizeof forged,
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

TEST_P(FusedGpuSuites, AMissingPeerIsATimeout) {
  connect(std::chrono::milliseconds(300));
  const OneOp op{50'000, DType::bf16, RedOp::sum, 0, false};
  fill(op);
  ASSERT_TRUE(enqueue(op, 0));
  EXPECT_EQ(verdict(0), Code::timeout);
  expect_poison(op, 0);
}

TEST_P(FusedGpuSuites, AbortEndsAWaitingOp) {
  const OneOp op{50'000, DType::f32, RedOp::sum, 0, false};
  fill(op);
  ASSERT_TRUE(enqueue(op, 0));
  ASSERT_TRUE(ranks[0]->abort());
  EXPECT_EQ(verdict(0), Code::aborted);
  expect_poison(op, 0);
}

TEST_P(FusedGpuSuites, ARecordOneWayAndALongerOneBack) {
  for (const std::uint64_t back : {0ull, 700ull, 150'000ull}) {
    const OneOp op{40'000, DType::f32, RedOp::sum, 0, false};
    fill(op);
    DeviceOp device_op;
    device_op.op = Op::all_to_all;
    device_op.dtype = op.dtype;
    DeviceMemory longer(150'000 * 4), landing(150'000 * 4);
    const Bytes sent = random_bytes(random, back * 4);
    longer.set(sent);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    DeviceSend sends[2];
    DeviceRecv recvs[2];
    for (Rank i = 0; i < 2; ++i) {
      sends[i].peer = recvs[1 - i].peer = static_cast<Rank>(1 - i);
      recvs[1 - i].peer = i;
      sends[i].data = i == 0 ? in[0]->data() : longer.data();
      sends[i].elements = recvs[1 - i].elements = i == 0 ? op.elements : back;
      recvs[1 - i].dst = i == 0 ? out[1]->data() : landing.data();
    }
    for (Rank i = 0; i < 2; ++i) {
      const std::size_t out_records = i == 0 || back > 0 ? 1 : 0, in_records = i == 1 || back > 0 ? 1 : 0;
      const auto enqueued =
          ranks[i]->enqueue(device_op, {&sends[i], out_records}, {&recvs[i], in_records}, {}, streams[i]);
      ASSERT_TRUE(enqueued) << enqueued.error().message();
    }
    ASSERT_EQ(verdict(0), Code::ok);
    ASSERT_EQ(verdict(1), Code::ok);
    EXPECT_TRUE(out[1]->get() == inputs[0]);
    const Bytes landed = landing.get();
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), landed.begin())) << back;
  }
}

TEST_F(FusedGpu, AVerdictOfAKeyRingIsTheStepsVerdict) {
  const std::uint32_t bad = status_of(Code::data_tag);
  ASSERT_EQ(cudaMemcpy(&in_keys[0]->state()->verdict, &bad, sizeof bad, cudaMemcpyHostToDevice), cudaSuccess);
  const OneOp op{50'000, DType::f32, RedOp::sum, 0, false};
  fill(op);
  run(op);
  EXPECT_EQ(verdict(0), Code::data_tag);
  EXPECT_EQ(ranks[0]->verdict_so_far().error().code, Code::data_tag);
  EXPECT_EQ(verdict(1), Code::aborted);
  expect_poison(op, 0);
  expect_poison(op, 1);
  EXPECT_FALSE(out_keys[0]->verdict_so_far());
  EXPECT_FALSE(out_keys[1]->verdict_so_far());
}

TEST_F(FusedGpu, WhatDoesNotFitIsRefused) {
  const auto made = [&](Suite of, std::vector<Rank> members, FusedGrid with) {
    DeviceGroupConfig group = config(0, std::chrono::seconds(1));
    group.suite = of;
    group.members = std::move(members);
    return FusedRank::make(group, with).error().code;
  };
  EXPECT_EQ(made(Suite::chacha20_poly1305, {0, 1}, {0}), Code::invalid_argument);
  EXPECT_EQ(made(Suite::chacha20_poly1305, {0, 1}, {kFusedColumnsMax + 1}), Code::invalid_argument);
  EXPECT_EQ(made(Suite::aes_256_gcm, {0, 1}, {1}), Code::invalid_argument);
  EXPECT_EQ(made(Suite::chacha20_poly1305, {0, 1}, {4, 4, 1, 4}), Code::invalid_argument);
  EXPECT_EQ(made(Suite::aes_256_gcm, {0, 1, 2}, {4, 4, 1, 4}), Code::unsupported);
  EXPECT_EQ(made(Suite::plain, {0, 1}, {1}), Code::unsupported);
  EXPECT_EQ(made(Suite::chacha20_poly1305, {0}, {1}), Code::unsupported);
  EXPECT_EQ(made(Suite::chacha20_poly1305, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {1}), Code::unsupported);
  EXPECT_EQ(FusedRank::make(config(0, std::chrono::seconds(1)), FusedGrid{2, 2, 3}).error().code,
            Code::invalid_argument);
  EXPECT_EQ(FusedRank::make(config(0, std::chrono::seconds(1)), FusedGrid{2, 2, 0}).error().code,
            Code::invalid_argument);
  auto unconnected = FusedRank::make(config(0, std::chrono::seconds(1)), FusedGrid{1});
  ASSERT_TRUE(unconnected);
  DeviceSend send;
  send.peer = 1;
  EXPECT_EQ((*unconnected)->enqueue(DeviceOp{}, {&send, 1}, {}, {}, streams[0]).error().code,
            Code::invalid_argument);
}

}  // namespace
}  // namespace sealring::cuda::test
