// Claim: on a device fused steps of three to eight ranks give what the CPU makes of the inputs in rank order,
// bit for bit, and a bad segment is an error and a poisoned output everywhere. How: all ranks on one device,
// a stream each; steps are enqueued rank after rank, one step after the other.
#include <cstdlib>

#include "sealring/device/cuda/fused.h"
#include "tests/gpu/gpu_rig.h"

namespace sealring::cuda::test {
namespace {

struct Move {
  DeviceOp op;
  std::vector<DeviceSend> sends;
  std::vector<DeviceRecv> recvs;
  DeviceStepRules rules;
};

class FusedManyGpu : public OnGpu, public ::testing::WithParamInterface<Rank> {
 protected:
  static constexpr std::uint32_t kColumns = 6;  // of all ranks together far fewer than a device can have

  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    const std::uint64_t bytes = FusedRank::window_bytes(ranks, kColumns);
    const std::chrono::seconds timeout(std::getenv("SR_TEST_SANITIZER") == nullptr ? 5 : 250);
    for (int i = 0; i < ranks * ranks; ++i) {
      const Bytes key = random_bytes(random, 32), iv = random_bytes(random, kNonceBytes);
      for (auto* const rings : {&sealing, &opening}) {
        rings->push_back(*DeviceKeyRing::make(0, Suite::chacha20_poly1305, 0, KeyBudget{}));
        ASSERT_TRUE(rings->back()->upload(0, secret(key), secret(iv)));
      }
    }
    for (Rank i = 0; i < ranks; ++i) {
      DeviceGroupConfig group;
      group.rank = i;
      for (Rank member = 0; member < ranks; ++member) group.members.push_back(member);
      group.timeout = timeout;
      windows.push_back(std::make_unique<DeviceMemory>(bytes));
      windows.back()->fill(0);
      auto made = FusedRank::make(group, FusedGrid{kColumns});
      ASSERT_TRUE(made) << made.error().message();
      fused.push_back(std::move(*made));
      ASSERT_EQ(cudaStreamCreateWithFlags(&streams.emplace_back(), cudaStreamNonBlocking), cudaSuccess);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (Rank i = 0; i < ranks; ++i) {
      std::vector<FusedRank::Peer> peers(ranks);
      for (Rank peer = 0; peer < ranks; ++peer)
        peers[peer] = {windows[peer]->data(), sealing[i * ranks + peer].get(),
                       opening[peer * ranks + i].get()};
      ASSERT_TRUE(fused[i]->connect(windows[i]->data(), peers));
    }
  }
  void TearDown() override {
    fused.clear();
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  }

  /// `of(rank)`: what a rank does in the step.
  template <class Of>
  void step(Of of) {
    for (Rank rank = 0; rank < ranks; ++rank) {
      const Move move = of(rank);
      const auto enqueued = fused[rank]->enqueue(move.op, move.sends, move.recvs, move.rules, streams[rank]);
      ASSERT_TRUE(enqueued) << enqueued.error().message();
    }
  }
  Code verdict(Rank rank) {
    const auto result = fused[rank]->verdict(streams[rank]);
    return result ? Code::ok : result.error().code;
  }
  template <class Visit>
  void for_others(Rank rank, Visit visit) const {
    for (Rank peer = 0; peer < ranks; ++peer) {
      if (peer != rank) visit(peer);
    }
  }
  static DeviceOp op_of(Op op, DType dtype, RedOp redop, std::uint64_t elements) {
    DeviceOp out;
    out.op = op;
    out.dtype = dtype;
    out.redop = redop;
    out.algorithm = Algorithm::one_hop;
    out.elements = elements;
    return out;
  }

  void fill(DType dtype, std::uint64_t elements, std::size_t shift) {
    inputs.clear();
    memory.clear();
    for (Rank rank = 0; rank < ranks; ++rank) {
      inputs.push_back(random_elements(random, dtype, elements));
      memory.push_back(std::make_unique<DeviceMemory>(inputs.back().size(), shift));
      memory.back()->set(inputs.back());
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  /// One hop, in place: a piece a rank, the last may be short; summed there and gathered.
  void all_reduce(DType dtype, RedOp redop, std::uint64_t elements) {
    const std::uint64_t size = dtype_bytes(dtype), piece = (elements + ranks - 1) / ranks;
    const auto begin = [&](Rank owner) { return std::min(elements, owner * piece); };
    const auto count = [&](Rank owner) { return std::min(elements, (owner + 1) * piece) - begin(owner); };
    const DeviceOp op = op_of(Op::all_reduce, dtype, redop, elements);
    step([&](Rank rank) {
      Move move{op, {}, {}, {true, false}};
      std::byte* const at = memory[rank]->data();
      for_others(rank, [&](Rank peer) {
        move.sends.push_back({peer, 0, at + begin(peer) * size, count(peer), begin(peer), 1.0});
        std::byte* const mine = at + begin(rank) * size;
        move.recvs.push_back(
            {peer, 0, mine, count(rank), begin(rank), mine, 1.0, redop == RedOp::avg ? ranks : 1u});
      });
      return move;
    });
    step([&](Rank rank) {
      Move move{op, {}, {}, {}};
      std::byte* const at = memory[rank]->data();
      for_others(rank, [&](Rank peer) {
        move.sends.push_back({peer, 1, at + begin(rank) * size, count(rank), begin(rank), 1.0});
        move.recvs.push_back({peer, 1, at + begin(peer) * size, count(peer), begin(peer), nullptr, 1.0, 1});
      });
      return move;
    });
  }
  Bytes reduced(DType dtype, RedOp redop) const {
    std::vector<const std::byte*> sources;
    for (const Bytes& input : inputs) sources.push_back(input.data());
    Bytes out(inputs[0].size());
    ReduceJob job;
    job.dtype = dtype;
    job.redop = redop;
    job.sources = sources;
    job.dst = out.data();
    job.elements = out.size() / dtype_bytes(dtype);
    job.divisor = redop == RedOp::avg ? ranks : 1;
    EXPECT_TRUE(reduce_cpu(job));
    return out;
  }

  const Rank ranks = GetParam();
  std::mt19937_64 random{13};
  std::vector<std::unique_ptr<DeviceKeyRing>> sealing, opening;  ///< by from * ranks + to
  std::vector<std::unique_ptr<DeviceMemory>> windows;
  std::vector<std::unique_ptr<FusedRank>> fused;
  std::vector<cudaStream_t> streams;
  std::vector<Bytes> inputs;
  std::vector<std::unique_ptr<DeviceMemory>> memory;
};

TEST_P(FusedManyGpu, AllReducesInOneHopAreTheCpus) {
  int n = 0;
  for (const std::uint64_t elements : {0ull, 1ull, 513ull, 100'003ull, 1'500'001ull}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      for (const RedOp redop : {RedOp::sum, RedOp::avg, RedOp::max}) {
        fill(dtype, elements, dtype_bytes(dtype) * static_cast<std::size_t>(n++ % 3));
        all_reduce(dtype, redop, elements);
        const Bytes wanted = reduced(dtype, redop);
        for (Rank rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(verdict(rank), Code::ok);
          ASSERT_TRUE(memory[rank]->get() == wanted)
              << elements << " x " << to_string(dtype) << " " << to_string(redop) << " rank " << rank;
        }
      }
    }
  }
}

// Records of different lengths: each rank sends to `distance` others.
TEST_P(FusedManyGpu, RecordsOfAnyLengths) {
  constexpr std::uint64_t kLongest = 90'000;
  for (int run = 0; run < 10; ++run) {
    std::vector<std::uint64_t> elements(ranks * ranks);
    for (std::uint64_t& count : elements) count = random() % 3 == 0 ? 0 : 1 + random() % kLongest;
    fill(DType::f32, ranks * kLongest, 0);
    std::vector<std::unique_ptr<DeviceMemory>> landing;
    for (Rank rank = 0; rank < ranks; ++rank)
      landing.push_back(std::make_unique<DeviceMemory>(ranks * kLongest * 4));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    step([&](Rank rank) {
      Move move{op_of(Op::all_to_all, DType::f32, RedOp::none, 0), {}, {}, {}};
      for_others(rank, [&](Rank peer) {
        const std::uint64_t there = elements[rank * ranks + peer], back = elements[peer * ranks + rank];
        if (there > 0)
          move.sends.push_back({peer, 0, memory[rank]->data() + peer * kLongest * 4, there, 0, 1.0});
        if (back > 0)
          move.recvs.push_back(
              {peer, 0, landing[rank]->data() + peer * kLongest * 4, back, 0, nullptr, 1.0, 1});
      });
      return move;
    });
    for (Rank rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(verdict(rank), Code::ok);
      const Bytes landed = landing[rank]->get();
      for_others(rank, [&](Rank peer) {
        const auto from = inputs[peer].begin() + static_cast<long>(rank * kLongest * 4);
        const auto bytes = static_cast<long>(elements[peer * ranks + rank] * 4);
        EXPECT_TRUE(std::equal(from, from + bytes, landed.begin() + static_cast<long>(peer * kLongest * 4)))
            << peer << " to " << rank;
      });
    }
  }
}

TEST_P(FusedManyGpu, AForgedFlagNamesThePeerAndEndsAllRanks) {
  constexpr std::uint64_t kElements = 300'000;
  fill(DType::bf16, kElements, 0);
  const std::uint64_t forged = 1;  // of ticket 0, before anything lies in the slot
  const Rank from = 2, to = 1;
  const WindowShape region = fused[to]->region();
  std::byte* const word =
      windows[to]->data() + peer_index(to, from) * region.bytes() + region.flag_offset(0, 0);
  ASSERT_EQ(cudaMemcpy(word, &forged, sizeof forged, cudaMemcpyHostToDevice), cudaSuccess);
  // Rank 1 alone: who should have sealed has not begun, the others have not either.
  Move move{op_of(Op::all_gather, DType::bf16, RedOp::none, kElements), {}, {}, {}};
  DeviceMemory landing(kElements * 2);
  move.recvs.push_back({from, 0, landing.data(), kElements, 0, nullptr, 1.0, 1});
  ASSERT_TRUE(fused[to]->enqueue(move.op, move.sends, move.recvs, move.rules, streams[to]));
  const auto result = fused[to]->verdict(streams[to]);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::data_tag);
  EXPECT_NE(result.error().what.find("rank 2"), std::string::npos) << result.error().what;
  Bytes poisoned(kElements * 2);
  poison(DType::bf16, poisoned);
  EXPECT_TRUE(landing.get() == poisoned);
  all_reduce(DType::bf16, RedOp::sum, kElements);
  for (Rank rank = 0; rank < ranks; ++rank)
    EXPECT_EQ(verdict(rank), rank == to ? Code::data_tag : Code::aborted);
}

INSTANTIATE_TEST_SUITE_P(Worlds, FusedManyGpu, ::testing::Values(Rank{3}, Rank{4}, Rank{8}));

}  // namespace
}  // namespace sealring::cuda::test
