// Claim: collectives on GPUs give the CPU's bits at every small count, for every type, reduction, suite and
// number of ranks, and at random large ones; and nothing beside an output is touched.
// How: many operations stand one behind the other on each rank's stream, in one arena of the rank; afterwards
// the whole arena must be what the CPU makes of it.
#include <array>
#include <chrono>

#include "tests/gpu/group_rig.h"

namespace sealring::cuda::test {
namespace {

struct SuitePath {
  Suite suite;
  bool fused;
};
constexpr SuitePath kPaths[] = {{Suite::chacha20_poly1305, true},
                                {Suite::chacha20_poly1305, false},
                                {Suite::aes_256_gcm, true},
                                {Suite::aes_128_gcm, true}};

class GroupGpuSweep : public GroupGpu {
 protected:
  void open_as(std::uint32_t ranks, const SuitePath& path) {
    GroupOptions options;
    options.world = ranks;
    options.suite = path.suite;
    options.fused = path.fused;
    options.timeout = std::chrono::seconds(20);
    open(options);
  }

  /// What a device takes when nobody chooses.
  Algorithm algorithm_of(Op op, std::uint64_t bytes) const {
    return default_device_algorithm(op, static_cast<std::uint16_t>(world()), bytes);
  }

  void run_all(const std::vector<GroupCall>& calls) {
    std::vector<Arena> arenas(world());
    for (const GroupCall& call : calls) {
      inputs.clear();
      for (Rank rank = 0; rank < world(); ++rank)
        inputs.push_back(numbers(call, call.in_elements(rank, world()), call.algorithm == Algorithm::ring));
      for (Rank rank = 0; rank < world(); ++rank) arenas[rank].add(call, inputs[rank], expected(call, rank));
    }
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    for (const Arena& arena : arenas) {
      memory.push_back(std::make_unique<DeviceMemory>(arena.before.size()));
      memory.back()->set(arena.before);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<std::thread> threads;
    std::vector<std::string> errors(world());
    for (Rank rank = 0; rank < world(); ++rank) {
      threads.emplace_back([&, rank] {
        for (std::size_t i = 0; i < calls.size() && errors[rank].empty(); ++i) {
          std::byte* const base = memory[rank]->data();
          const Arena::Place& at = arenas[rank].places[i];
          const auto serial =
              run_call(*groups[rank], calls[i], rank, world(), base + at.in, base + at.out, streams[rank]);
          if (!serial) errors[rank] = serial.error().message() + text(calls[i]);
          if (i % 32 == 31) (void)groups[rank]->progress();  // gives its events back
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) ASSERT_EQ(error, "");
    for (const cudaStream_t stream : streams) ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    for (Rank rank = 0; rank < world(); ++rank) {
      const auto found = groups[rank]->verdict();
      ASSERT_TRUE(found) << found.error().message() << ", in calls from" << text(calls.front()) << " on";
      const Bytes after = memory[rank]->get();
      if (after == arenas[rank].after) continue;
      ASSERT_NO_FATAL_FAILURE(tell(calls, arenas[rank], after, rank));
    }
  }

 private:
  /// A rank's memory: for each call its input and its output, or one place for both, 16 bytes or more apart.
  struct Arena {
    struct Place {
      std::size_t in = 0, out = 0;
    };
    Bytes before, after;
    std::vector<Place> places;

    std::size_t room(std::size_t bytes, std::size_t align) {
      const std::size_t at = (before.size() + 16 + align - 1) / align * align;
      before.resize(at + bytes, std::byte{0xA5});
      after.resize(at + bytes, std::byte{0xA5});
      return at;
    }
    void add(const GroupCall& call, const Bytes& input, const Bytes& wanted) {
      const std::size_t align = dtype_bytes(call.dtype);
      Place at;
      at.in = room(input.size(), align);
      std::ranges::copy(input, before.begin() + static_cast<std::ptrdiff_t>(at.in));
      std::ranges::copy(input, after.begin() + static_cast<std::ptrdiff_t>(at.in));
      at.out = call.in_place ? at.in : room(wanted.size(), align);
      std::ranges::copy(wanted, after.begin() + static_cast<std::ptrdiff_t>(at.out));
      places.push_back(at);
    }
  };

  void tell(const std::vector<GroupCall>& calls, const Arena& arena, const Bytes& after, Rank rank) {
    const auto at = static_cast<std::size_t>(std::ranges::mismatch(after, arena.after).in1 - after.begin());
    std::size_t i = 0;
    while (i + 1 < calls.size() && std::min(arena.places[i + 1].in, arena.places[i + 1].out) <= at) ++i;
    FAIL() << "rank " << rank << " differs at byte " << at << " of its arena, in or behind" << text(calls[i])
           << ", whose input is at " << arena.places[i].in << " and output at " << arena.places[i].out;
  }
};

TEST_F(GroupGpuSweep, EveryCountUpTo4096OfEveryCollective) {
  ASSERT_NO_FATAL_FAILURE(open_as(2, kPaths[0]));
  for (const Op op : all_ops()) {
    if (op == Op::send || op == Op::barrier) continue;
    std::vector<GroupCall> calls;
    for (std::uint64_t elements = 0; elements <= 4096; ++elements) {
      GroupCall call;
      call.op = op;
      call.elements = elements;
      call.algorithm = algorithm_of(op, elements * 4);
      call.root = static_cast<Rank>(elements % 2);
      call.in_place = elements % 3 == 0 && (op == Op::all_reduce || op == Op::broadcast);
      calls.push_back(call);
      if (calls.size() < 512 && elements < 4096) continue;
      ASSERT_NO_FATAL_FAILURE(run_all(calls)) << to_string(op);
      calls.clear();
    }
  }
}

/// 0, 1, both sides of each power of two up to 16384, and odd ones: 64 of them.
std::vector<std::uint64_t> edge_counts() {
  std::vector<std::uint64_t> out{0, 1, 2, 3};
  for (std::uint64_t power = 4; power <= 16384; power *= 2)
    for (const std::int64_t off : {-1, 0, 1}) out.push_back(power + static_cast<std::uint64_t>(off));
  for (std::uint64_t odd = 11; out.size() < 64; odd = odd * 3 / 2 + 4) out.push_back(odd | 1);
  return out;
}

class GroupGpuEdges : public GroupGpuSweep, public ::testing::WithParamInterface<std::uint32_t> {};

TEST_P(GroupGpuEdges, EveryReductionOfEveryTypeAndSuite) {
  const std::vector<std::uint64_t> counts = edge_counts();
  ASSERT_EQ(counts.size(), 64u);
  for (const SuitePath& path : kPaths) {
    ASSERT_NO_FATAL_FAILURE(open_as(GetParam(), path));
    for (const DType dtype : all_dtypes()) {
      for (const RedOp redop : all_redops()) {
        if (!reduction_supported(dtype, redop)) continue;
        std::vector<GroupCall> calls;
        for (const std::uint64_t elements : counts) {
          GroupCall call;
          call.redop = redop;
          call.dtype = dtype;
          call.elements = elements;
          call.algorithm = algorithm_of(Op::all_reduce, elements * dtype_bytes(dtype));
          call.factor = 0.5;
          call.in_place = calls.size() % 2 == 0;
          calls.push_back(call);
        }
        ASSERT_NO_FATAL_FAILURE(run_all(calls));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, GroupGpuEdges, ::testing::Values(2u, 3u, 4u, 8u));

TEST_F(GroupGpuSweep, LargeRandomOnesForAMinute) {
  constexpr std::array<Op, 5> kOps{Op::all_reduce, Op::reduce_scatter, Op::all_gather, Op::broadcast,
                                   Op::all_to_all};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::uint64_t seed = 1;
  for (; std::chrono::steady_clock::now() < end; ++seed) {
    std::mt19937_64 choice(seed);
    const std::uint32_t ranks = std::array{2u, 3u, 4u, 8u}[choice() % 4];
    ASSERT_NO_FATAL_FAILURE(open_as(ranks, kPaths[choice() % std::size(kPaths)])) << "seed " << seed;
    for (int i = 0; i < 4; ++i) {
      GroupCall call;
      call.op = kOps[choice() % kOps.size()];
      call.dtype = all_dtypes()[choice() % all_dtypes().size()];
      const std::uint64_t bytes_max = (std::uint64_t{16} << 20) / ranks;
      call.elements = choice() % (bytes_max / dtype_bytes(call.dtype));
      call.redop = call.dtype == DType::boolean ? RedOp::max : RedOp::sum;
      call.algorithm = algorithm_of(call.op, call.elements * dtype_bytes(call.dtype));
      call.root = static_cast<Rank>(choice() % ranks);
      call.in_place = choice() % 2 == 0 && (call.op == Op::all_reduce || call.op == Op::broadcast);
      ASSERT_NO_FATAL_FAILURE(run_all({call})) << "seed " << seed;
    }
  }
  EXPECT_GT(seed, 5u);
}

}  // namespace
}  // namespace sealring::cuda::test
