// Claim: the device state is the authority for numbers: replayed graphs never repeat one, keys rotate by
// themselves, and
//        what breaks a rule seals nothing.
// How: graphs are captured once and replayed, both ends on one device; limits are lowered; the state is set
// by hand.
#include <set>

#include "tests/gpu/gpu_rig.h"

namespace sealring::cuda::test {
namespace {

constexpr Suite kSuite = Suite::chacha20_poly1305;

class NumbersGpu : public OnGpu {
 protected:
  // A sender and a receiver that share keys of four epochs.
  void make_rings(KeyBudget budget) {
    sender = *DeviceKeyRing::make(0, kSuite, 0, budget);
    receiver = *DeviceKeyRing::make(0, kSuite, 0, budget);
    for (Epoch epoch = 0; epoch < kSlots; ++epoch) {
      const Bytes key = random_bytes(random, 32), iv = random_bytes(random, kNonceBytes);
      ASSERT_TRUE(sender->upload(epoch, secret(key), secret(iv)));
      ASSERT_TRUE(receiver->upload(epoch, secret(key), secret(iv)));
    }
  }
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    in = std::make_unique<DeviceMemory>(kBytes);
    wire = std::make_unique<DeviceMemory>(layout.wire_bytes());
    out = std::make_unique<DeviceMemory>(kBytes);
    plaintext = random_bytes(random, kBytes);
    in->set(plaintext);
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  }
  void TearDown() override {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
  SegmentJob job() {
    RecordContext context;
    context.elements = kBytes;
    SegmentJob made = segment_job_of(kSuite, context, layout, layout.segments());
    made.plaintext = in->data();
    made.wire = wire->data();
    return made;
  }
  Result<void> seal() {
    OpRequest numbers;
    numbers.numbers = Numbers::seal_next;
    return sender->enqueue(job(), Direction::seal, numbers, stream);
  }
  Result<void> open() {
    SegmentJob made = job();
    made.combine.dst = out->data();
    OpRequest numbers;
    numbers.numbers = Numbers::open_next;
    return receiver->enqueue(made, Direction::open, numbers, stream);
  }
  KeyState state_of(const DeviceKeyRing& ring) {
    KeyState state{};
    EXPECT_EQ(cudaMemcpy(&state, ring.state(), sizeof state, cudaMemcpyDeviceToHost), cudaSuccess);
    return state;
  }

  static constexpr std::uint64_t kBytes = 64 << 10;
  const RecordLayout layout = RecordLayout::of(kBytes, 8192);
  std::mt19937_64 random{7};
  Bytes plaintext;
  std::unique_ptr<DeviceKeyRing> sender, receiver;
  std::unique_ptr<DeviceMemory> in, wire, out;
  cudaStream_t stream = nullptr;
};

TEST_F(NumbersGpu, AReplayedGraphNeverSealsTheSameTwice) {
  make_rings({});
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const auto sealed = seal();
  const auto opened = open();
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_TRUE(sealed) << sealed.error().message();
  ASSERT_TRUE(opened) << opened.error().message();
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  std::set<Bytes> wires;
  for (int replay = 0; replay < 20; ++replay) {
    out->fill(0);
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    ASSERT_TRUE(receiver->verdict(stream));
    ASSERT_TRUE(sender->verdict(stream));
    ASSERT_TRUE(out->get() == plaintext) << replay;
    wires.insert(wire->get());
  }
  EXPECT_EQ(wires.size(), 20u);
  EXPECT_EQ(state_of(*sender).segments, 160u);
  EXPECT_EQ(state_of(*sender).in_use, 0u);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

TEST_F(NumbersGpu, KeysRotateByThemselvesAndStopWhereNoKeyIsReady) {
  KeyBudget budget;
  budget.ops_rotate = 3;
  make_rings(budget);
  for (int op = 0; op < 12; ++op) {  // four epochs of three ops
    ASSERT_TRUE(seal());
    ASSERT_TRUE(open());
    const auto verdict = receiver->verdict(stream);
    ASSERT_TRUE(verdict) << op << " " << verdict.error().message();
    ASSERT_TRUE(out->get() == plaintext);
    ASSERT_EQ(state_of(*sender).epoch, static_cast<Epoch>(op / 3));
  }
  // Slot 0 was freed by the first op of epoch 1, but nobody filled it for epoch 4.
  EXPECT_EQ(state_of(*sender).slots[0].state, static_cast<std::uint32_t>(SlotState::free));
  wire->fill(0);
  ASSERT_TRUE(seal());
  const auto verdict = sender->verdict(stream);
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().code, Code::key_limit);
  EXPECT_TRUE(wire->get() == Bytes(layout.wire_bytes()));
}

TEST_F(NumbersGpu, HardLimitsStopBeforeSealing) {
  KeyBudget budget;
  budget.segments_max = 15;
  make_rings(budget);
  ASSERT_TRUE(seal());
  ASSERT_TRUE(sender->verdict(stream));
  wire->fill(0);
  ASSERT_TRUE(seal());
  const auto verdict = sender->verdict(stream);
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().code, Code::key_limit);
  EXPECT_TRUE(wire->get() == Bytes(layout.wire_bytes()));
  EXPECT_EQ(state_of(*sender).segments, 8u);
}

TEST_F(NumbersGpu, AnOpInUseIsRefusedAndTheSessionDies) {
  make_rings({});
  const std::uint32_t one = 1;
  ASSERT_EQ(cudaMemcpy(&sender->state()->in_use, &one, sizeof one, cudaMemcpyHostToDevice), cudaSuccess);
  wire->fill(0);
  for (int op = 0; op < 2; ++op) {
    ASSERT_TRUE(seal());
    const auto verdict = sender->verdict(stream);
    ASSERT_FALSE(verdict);
    EXPECT_EQ(verdict.error().code, Code::seq_reuse_guard);
  }
  EXPECT_TRUE(wire->get() == Bytes(layout.wire_bytes()));
}

TEST_F(NumbersGpu, AfterABadTagEveryLaterOpPoisonsItsOutput) {
  make_rings({});
  ASSERT_TRUE(seal());
  ASSERT_TRUE(sender->verdict(stream));
  Bytes broken = wire->get();
  broken[9000] ^= std::byte{2};
  wire->set(broken);
  ASSERT_TRUE(open());
  EXPECT_EQ(receiver->verdict(stream).error().code, Code::data_tag);
  EXPECT_TRUE(out->get() == Bytes(kBytes, std::byte{0xFF}));
  // A good record behind it, enqueued without looking.
  out->fill(0);
  ASSERT_TRUE(seal());
  ASSERT_TRUE(open());
  EXPECT_EQ(receiver->verdict(stream).error().code, Code::data_tag);
  EXPECT_TRUE(out->get() == Bytes(kBytes, std::byte{0xFF}));
}

TEST_F(NumbersGpu, ALiveSlotIsNotOverwritten) {
  make_rings({});
  EXPECT_EQ(sender->upload(4, SecretBytes(32), SecretBytes(kNonceBytes)).error().code,
            Code::invalid_argument);
}

}  // namespace
}  // namespace sealring::cuda::test
