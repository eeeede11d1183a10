// Claim: a group of ranks on GPUs gives the CPU's results for every operation, type, suite and size, eagerly
// and from replayed graphs; whatever goes wrong, a rank has the right result or a verdict and poison.
// How: 2 to 8 ranks on one device with local windows, each with its own thread and stream, walk the schedules
// that the executor walks; windows are changed, ranks left out and aborted by hand.
#include "tests/gpu/group_rig.h"

namespace sealring::cuda::test {
namespace {

// Ranks that wait must not stand in front of those they wait for: each stream has a queue of its own. Set
// before CUDA looks.
[[maybe_unused]] const int kConnections = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16, DType::i32, DType::u8, DType::f64};

class GroupGpuWorlds : public GroupGpu, public ::testing::WithParamInterface<std::uint32_t> {};

TEST_P(GroupGpuWorlds, EveryOperationGivesTheCpusResult) {
  GroupOptions options;
  options.world = GetParam();
  ASSERT_NO_FATAL_FAILURE(open(options));
  int n = 0;
  for (const Op op : all_ops()) {
    for (const Algorithm algorithm : all_algorithms()) {
      if (!algorithm_supported(op, algorithm)) continue;
      for (const std::uint64_t elements : {0ull, 1ull, 1000ull, 70'001ull}) {
        GroupCall call;
        call.op = op;
        call.algorithm = algorithm;
        call.dtype = kTypes[n % std::size(kTypes)];
        call.elements = elements;
        call.root = static_cast<Rank>(n % options.world);
        call.in_place = n % 2 == 0 && (op == Op::all_reduce || op == Op::broadcast || op == Op::reduce);
        call.shift = dtype_bytes(call.dtype) * static_cast<std::size_t>(n % 3);
        ++n;
        ASSERT_NO_FATAL_FAILURE(run_and_expect(call));
      }
    }
  }
}

TEST_P(GroupGpuWorlds, LargeOnesInPlaceByEveryAlgorithm) {
  GroupOptions options;
  options.world = GetParam();
  ASSERT_NO_FATAL_FAILURE(open(options));
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::one_hop, Algorithm::ring}) {
    GroupCall call;
    call.algorithm = algorithm;
    call.dtype = DType::bf16;
    call.elements = 6'000'001;  // several chunks, the last one odd
    call.in_place = true;
    ASSERT_NO_FATAL_FAILURE(run_and_expect(call));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, GroupGpuWorlds, ::testing::Values(2u, 3u, 4u, 8u));

TEST_F(GroupGpu, EverySumOfEveryType) {
  for (const std::uint32_t ranks : {2u, 3u}) {
    GroupOptions options;
    options.world = ranks;
    ASSERT_NO_FATAL_FAILURE(open(options));
    for (const DType dtype : all_dtypes()) {
      for (const RedOp redop : all_redops()) {
        if (!reduction_supported(dtype, redop)) continue;
        GroupCall call;
        call.algorithm = ranks == 2 ? Algorithm::one_shot : Algorithm::one_hop;
        call.redop = redop;
        call.dtype = dtype;
        call.elements = 10'007;
        call.factor = 0.5;
        call.in_place = dtype != DType::i64;
        ASSERT_NO_FATAL_FAILURE(run_and_expect(call));
      }
    }
  }
}

struct SuitePath {
  Suite suite;
  bool fused;
};
class GroupGpuSuites : public GroupGpu, public ::testing::WithParamInterface<SuitePath> {};

TEST_P(GroupGpuSuites, SumsAtSixteenSizes) {
  GroupOptions options;
  options.suite = GetParam().suite;
  options.fused = GetParam().fused;
  ASSERT_NO_FATAL_FAILURE(open(options));
  int n = 0;
  for (const std::uint64_t elements :
       {0ull, 1ull, 31ull, 511ull, 512ull, 513ull, 4096ull, 16'385ull, 65'536ull, 100'003ull, 262'144ull,
        524'288ull, 524'289ull, 1'048'577ull, 3'000'001ull, 9'000'001ull}) {
    GroupCall call;
    call.elements = elements;
    call.in_place = n++ % 2 == 0;
    ASSERT_NO_FATAL_FAILURE(run_and_expect(call));
  }
}

INSTANTIATE_TEST_SUITE_P(Suites, GroupGpuSuites,
                         ::testing::Values(SuitePath{Suite::chacha20_poly1305, true},
                                           SuitePath{Suite::chacha20_poly1305, false},
                                           SuitePath{Suite::aes_256_gcm, true},
                                           SuitePath{Suite::aes_128_gcm, true},
                                           SuitePath{Suite::plain, true}),
                         [](const auto& each) {
                           std::string out(to_string(each.param.suite));
                           std::ranges::replace(out, '-', '_');
                           return out + (each.param.fused ? "" : "_staged");
                         });

class GroupGpuGraphs : public GroupGpu, public ::testing::WithParamInterface<bool> {};

TEST_P(GroupGpuGraphs, ReplayedOnesGoThroughEpochsBetweenEagerOps) {
  GroupOptions options;
  options.world = 3;
  options.fused = GetParam();
  options.budget.ops_rotate = options.fused ? 4 : 24;  // a step is one operation of its keys, or one a chunk
  ASSERT_NO_FATAL_FAILURE(open(options));
  GroupCall call;
  call.algorithm = Algorithm::one_hop;
  call.dtype = DType::bf16;
  call.elements = 9'000'001;  // several chunks a piece: two streams
  ASSERT_NO_FATAL_FAILURE(run_and_expect(call));
  std::vector<cudaGraphExec_t> execs(world());
  for (Rank rank = 0; rank < world(); ++rank) {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal), cudaSuccess);
    const auto first = enqueue(call, rank), second = enqueue(call, rank);
    ASSERT_TRUE(groups[rank]->progress());  // allowed, and breaks no capture
    ASSERT_EQ(cudaStreamEndCapture(streams[rank], &graph), cudaSuccess);
    ASSERT_TRUE(first) << first.error().message();
    ASSERT_TRUE(second) << second.error().message();
    EXPECT_EQ(*first, 0u);
    ASSERT_EQ(cudaGraphInstantiate(&execs[rank], graph, 0), cudaSuccess);
    cudaGraphDestroy(graph);
  }
  for (int replay = 0; replay < 12; ++replay) {
    for (auto& memory : out_) memory->fill(0);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (Rank rank = 0; rank < world(); ++rank)
      ASSERT_EQ(cudaGraphLaunch(execs[rank], streams[rank]), cudaSuccess);
    for (const cudaStream_t stream : streams) ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ASSERT_NO_FATAL_FAILURE(expect_right(call)) << replay;
    if (replay % 5 == 4) {
      ASSERT_NO_FATAL_FAILURE(run(call)) << replay;
      ASSERT_NO_FATAL_FAILURE(expect_right(call)) << replay;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the refill looks every few milliseconds
  }
  KeyState keys{};
  ASSERT_EQ(cudaMemcpy(&keys, groups[0]->ring_to(1)->state(), sizeof keys, cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_GT(keys.epoch, 4u);
  EXPECT_EQ(keys.in_use, 0u);
  for (cudaGraphExec_t exec : execs) cudaGraphExecDestroy(exec);
}

INSTANTIATE_TEST_SUITE_P(Paths, GroupGpuGraphs, ::testing::Bool());

// The first graph takes every count of columns that captured steps can have for themselves, and is never
// launched; what is captured behind it ends all the same.
TEST_F(GroupGpu, CapturedOpsBeyondTheirLaunchesEndToo) {
  ASSERT_NO_FATAL_FAILURE(open(GroupOptions{}));
  GroupCall call;
  call.elements = 70'001;
  ASSERT_NO_FATAL_FAILURE(run_and_expect(call));
  std::vector<cudaGraphExec_t> execs(world());
  for (Rank rank = 0; rank < world(); ++rank) {
    for (const std::uint32_t ops : {kLaunches, 2u}) {
      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal), cudaSuccess);
      bool captured = true;
      for (std::uint32_t i = 0; i < ops; ++i) captured = static_cast<bool>(enqueue(call, rank)) && captured;
      ASSERT_EQ(cudaStreamEndCapture(streams[rank], &graph), cudaSuccess);
      ASSERT_TRUE(captured);
      if (ops == 2) {
        ASSERT_EQ(cudaGraphInstantiate(&execs[rank], graph, 0), cudaSuccess);
      }
      cudaGraphDestroy(graph);
    }
  }
  for (auto& memory : out_) memory->fill(0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (Rank rank = 0; rank < world(); ++rank)
    ASSERT_EQ(cudaGraphLaunch(execs[rank], streams[rank]), cudaSuccess);
  for (const cudaStream_t stream : streams) ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  ASSERT_NO_FATAL_FAILURE(expect_right(call));
  ASSERT_NO_FATAL_FAILURE(run_and_expect(call));
  for (cudaGraphExec_t exec : execs) cudaGraphExecDestroy(exec);
}

/// Waits, on a stream of its own, until a word of a window is not 0.
void wait_for_word(const std::byte* word) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  const Deadline deadline = Deadline::in(std::chrono::seconds(4));
  std::uint64_t value = 0;
  while (value == 0 && !deadline.expired()) {
    ASSERT_EQ(cudaMemcpyAsync(&value, word, sizeof value, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }
  cudaStreamDestroy(stream);
  ASSERT_NE(value, 0u);
}

TEST_F(GroupGpu, AFlippedBitIsADataTagAndPoisonAndNothingWorksAfterIt) {
  for (const std::uint32_t ranks : {2u, 3u}) {
    GroupOptions options;
    options.world = ranks;
    options.fused = false;  // fused_gpu_test.cc flips theirs
    ASSERT_NO_FATAL_FAILURE(open(options));
    GroupCall call;
    call.elements = 50'000;
    ASSERT_NO_FATAL_FAILURE(prepare(call));
    ASSERT_TRUE(enqueue(call, 0));
    const WireShape& shape = wire(1).shape();
    ASSERT_NO_FATAL_FAILURE(wait_for_word(wire(1).window() + shape.flag_offset(1, 0, 0)));
    std::byte* const at = wire(1).window() + shape.slot_offset(1, 0, 0) + 777;
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    std::byte value{};
    ASSERT_EQ(cudaMemcpyAsync(&value, at, 1, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    value ^= std::byte{1};
    ASSERT_EQ(cudaMemcpyAsync(at, &value, 1, cudaMemcpyHostToDevice, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaStreamDestroy(stream);
    for (Rank rank = 1; rank < ranks; ++rank) ASSERT_TRUE(enqueue(call, rank));
    for (const cudaStream_t each : streams) ASSERT_EQ(cudaStreamSynchronize(each), cudaSuccess);
    EXPECT_EQ(verdict(1), Code::data_tag);
    EXPECT_EQ(groups[1]->verdict().error().peer, 1);  // rank 0, whose global number is 1
    expect_poison(call, 1);
    for (const Rank rank : {Rank{0}, static_cast<Rank>(ranks - 1)}) {
      EXPECT_TRUE(verdict(rank) != Code::ok || output(call, rank) == expected(call, rank));
    }
    // The next one fails everywhere, by POISON and not at the deadline.
    const auto begun = Clock::now();
    ASSERT_NO_FATAL_FAILURE(run(call));
    EXPECT_LT(Clock::now() - begun, std::chrono::seconds(3));
    for (Rank rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(verdict(rank), rank == 1 ? Code::data_tag : Code::aborted);
      expect_poison(call, rank);
    }
    ASSERT_EQ(cudaMemset(out_[0]->data(), 0, 16), cudaSuccess);  // the device itself is well
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

TEST_F(GroupGpu, AnAbsentPeerIsATimeout) {
  for (const bool fused : {true, false}) {
    GroupOptions options;
    options.world = 3;
    options.fused = fused;
    options.timeout = std::chrono::milliseconds(300);
    ASSERT_NO_FATAL_FAILURE(open(options));
    GroupCall call;
    call.elements = 50'000;
    call.dtype = DType::i32;
    ASSERT_NO_FATAL_FAILURE(prepare(call));
    for (const Rank rank : {Rank{0}, Rank{1}}) ASSERT_TRUE(enqueue(call, rank));
    for (const Rank rank : {Rank{0}, Rank{1}}) {
      ASSERT_EQ(cudaStreamSynchronize(streams[rank]), cudaSuccess);
      const Code code = verdict(rank);
      EXPECT_TRUE(code == Code::timeout || code == Code::aborted) << static_cast<int>(code);
      expect_poison(call, rank);
    }
    EXPECT_TRUE(verdict(0) == Code::timeout || verdict(1) == Code::timeout);
  }
}

TEST_F(GroupGpu, AbortEndsAWaitingOp) {
  ASSERT_NO_FATAL_FAILURE(open({}));
  GroupCall call;
  call.elements = 6'000'000;
  ASSERT_NO_FATAL_FAILURE(prepare(call));
  ASSERT_TRUE(enqueue(call, 0));
  EXPECT_EQ(groups[0]->progress()->finished, 0u);
  groups[0]->abort();
  groups[0]->abort();
  ASSERT_EQ(cudaStreamSynchronize(streams[0]), cudaSuccess);
  EXPECT_EQ(verdict(0), Code::aborted);
  EXPECT_EQ(groups[0]->progress()->finished, 1u);
  expect_poison(call, 0);
}

// As in a session that died while the device was idle: nothing waits any more that could find the abort.
TEST_F(GroupGpu, WhatEndsBehindAnAbortIsPoisonedThoughNoStepOfItWasEnqueued) {
  for (const bool fused : {true, false}) {
    GroupOptions options;
    options.fused = fused;
    ASSERT_NO_FATAL_FAILURE(open(options));
    GroupCall call;
    call.elements = 3'000'000;
    call.in_place = true;
    ASSERT_NO_FATAL_FAILURE(run_and_expect(call));
    groups[0]->abort();
    Stream stream{streams[0]};
    ASSERT_TRUE(groups[0]->begin({}, stream));
    ASSERT_TRUE(groups[0]->end(call.dtype, {out_[0]->data(), output(call, 0).size()}));
    ASSERT_EQ(cudaStreamSynchronize(streams[0]), cudaSuccess);
    EXPECT_EQ(verdict(0), Code::aborted);
    expect_poison(call, 0);
  }
}

TEST_F(GroupGpu, ProgressAndCountersTellWhatWasEnqueued) {
  ASSERT_NO_FATAL_FAILURE(open({}));
  GroupCall call;
  call.elements = 1000;
  ASSERT_NO_FATAL_FAILURE(prepare(call));
  for (int i = 0; i < 100; ++i) ASSERT_NO_FATAL_FAILURE(run(call));
  EXPECT_EQ(groups[0]->progress()->finished, 100u);
  const DeviceGroupCounters counters = groups[0]->counters();
  EXPECT_EQ(counters.seals, 100u);
  EXPECT_EQ(counters.opens, 100u);
  EXPECT_EQ(counters.sealed_bytes, 400'000u);
  EXPECT_EQ(counters.opened_bytes, 400'000u);
  EXPECT_EQ(groups[0]->describe(), "local windows, fused");
}

TEST_F(GroupGpu, WhatCannotBeIsRefused) {
  DeviceGroupConfig config;
  config.members = {0, 1};
  config.timeout = std::chrono::seconds(1);
  EXPECT_EQ(make_cuda_group(config, {}).error().code, Code::invalid_argument);  // no keys
  config.suite = Suite::chained_gmac;
  EXPECT_EQ(make_cuda_group(config, {}).error().code, Code::unsupported);
  config.suite = Suite::plain;
  config.rank = 2;
  EXPECT_EQ(make_cuda_group(config, {}).error().code, Code::invalid_argument);
  config.rank = 0;
  config.timeout = {};
  EXPECT_EQ(make_cuda_group(config, {}).error().code, Code::invalid_argument);
}

}  // namespace
}  // namespace sealring::cuda::test
