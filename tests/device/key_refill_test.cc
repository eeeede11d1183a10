// Claim: the refill gives each slot that the device freed the key four epochs later, in an order in which no
// op can ever meet half a key; what it cannot do ends in KEY_LIMIT before sealing, and never in another key.
// How: the device's prologue and epilogue run on the host over slots whose every write is checked and may
// fail.
#include "sealring/device/cuda/key_refill.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace sealring::cuda {
namespace {

/// The key of an epoch is its number, in every word.
std::uint32_t word_of(Epoch epoch) { return 0x10000u + epoch; }

class Chain final : public KeySource {
 public:
  explicit Chain(std::atomic<Epoch>& given) : given_(given) {}
  Epoch next_epoch() const override { return given_; }
  EpochKey next() override {
    const Epoch epoch = given_++;
    EpochKey out{epoch, SecretBytes(32), SecretBytes(12)};
    for (std::size_t i = 0; i < 32; i += 4) {
      const std::uint32_t word = word_of(epoch);
      std::memcpy(out.key.data() + i, &word, 4);
    }
    return out;
  }

 private:
  std::atomic<Epoch>& given_;
};

/// Slots in a KeyState of the host. Ops and writes take turns by a mutex, as single words do on the device.
class HostSlots final : public SlotMemory {
 public:
  Result<SlotLook> look() override {
    SR_TRY(turn("look"));
    const std::lock_guard lock(mutex);
    SlotLook out{};
    for (std::uint32_t i = 0; i < kSlots; ++i) out.heads[i] = {state.slots[i].epoch, state.slots[i].state};
    out.verdict = state.verdict;
    return out;
  }
  Result<void> set_state(std::uint32_t slot, SlotState value) override {
    SR_TRY(turn((value == SlotState::live ? "live " : "empty ") + std::to_string(slot)));
    write([&] { state.slots[slot].state = static_cast<std::uint32_t>(value); });
    return {};
  }
  Result<void> wipe(std::uint32_t slot) override {
    SR_TRY(turn("wipe " + std::to_string(slot)));
    EXPECT_EQ(state.slots[slot].state, 0u);
    write([&] { state.slots[slot] = KeySlot{}; });
    return {};
  }
  Result<void> write_key(const EpochKey& key) override {
    KeySlot& slot = state.slots[key.epoch % kSlots];
    SR_TRY(turn("key " + std::to_string(key.epoch)));
    EXPECT_EQ(slot.state, 0u);
    EXPECT_EQ(slot.words.key[7], 0u) << "the old key is still there";
    write([&] { slot.epoch = key.epoch; });
    write([&] { slot.canary = canary_of(key.epoch); });
    for (std::size_t i = 0; i < 8; ++i)  // word by word: somebody may look in between
      write([&] { std::memcpy(&slot.words.key[i], key.key.data() + 4 * i, 4); });
    return {};
  }

  /// A whole op; gives its status, and checks that its key is its epoch's.
  std::uint32_t op() {
    const std::lock_guard lock(mutex);
    OpRequest request;
    request.payload_bytes = 1;
    begin_op(state, request);
    OpDescriptor& out = state.descriptors[0];
    const std::uint32_t status = out.status;
    if (status == 0) {
      for (const std::uint32_t word : state.slots[out.slot].words.key)
        EXPECT_EQ(word, word_of(out.view.epoch));
    }
    end_op(state, out);
    return status;
  }

  KeyState state{};
  std::mutex mutex;
  std::vector<std::string> writes;
  int fails_in = -1;  ///< this many calls from now; negative: never

 private:
  Result<void> turn(const std::string& what) {
    if (fails_in == 0) return fail(Code::cuda, "test", "the device is gone");
    if (fails_in > 0) --fails_in;
    if (what != "look") writes.push_back(what);
    return {};
  }
  void write(const std::function<void()>& change) {
    const std::lock_guard lock(mutex);
    change();
    for (const KeySlot& slot : state.slots) {
      if (slot.state != static_cast<std::uint32_t>(SlotState::live)) continue;
      EXPECT_EQ(slot.canary, canary_of(slot.epoch));
      for (const std::uint32_t word : slot.words.key) EXPECT_EQ(word, word_of(slot.epoch));
    }
  }
};

struct World {
  explicit World(std::uint64_t ops_an_epoch) { slots.state.budget.ops_rotate = ops_an_epoch; }
  unsigned refill() {
    const auto filled = refill_once(slots, chain);
    EXPECT_TRUE(filled) << filled.error().message();
    return filled.value_or(0u);
  }
  std::atomic<Epoch> given{0};
  Chain chain{given};
  HostSlots slots;
};

TEST(KeyRefill, EmptySlotsAreFilledInOrderEachLiveLast) {
  World world(1);
  EXPECT_EQ(world.refill(), 4u);
  std::vector<std::string> expected;
  for (const std::string slot : {"0", "1", "2", "3"}) {
    for (const char* const what : {"empty ", "wipe ", "key ", "live "}) expected.push_back(what + slot);
  }
  EXPECT_EQ(world.slots.writes, expected);
  EXPECT_EQ(world.refill(), 0u);
  EXPECT_EQ(world.given, 4u);
}

TEST(KeyRefill, AFreedSlotGetsTheKeyFourEpochsLater) {
  World world(3);
  world.refill();
  for (int op = 0; op < 3; ++op) ASSERT_EQ(world.slots.op(), 0u);
  EXPECT_EQ(world.refill(), 0u);  // epoch 0 has not been left yet
  ASSERT_EQ(world.slots.op(), 0u);
  world.slots.writes.clear();
  EXPECT_EQ(world.refill(), 1u);
  EXPECT_EQ(world.slots.writes, (std::vector<std::string>{"empty 0", "wipe 0", "key 4", "live 0"}));
  EXPECT_EQ(world.slots.state.slots[0].epoch, 4u);
}

TEST(KeyRefill, ManyEpochsWhateverTheRefillsPace) {
  for (std::uint64_t every = 1; every <= 9; ++every) {  // ops between two looks; an epoch has three
    World world(3);
    world.refill();
    for (std::uint64_t op = 0; op < 300; ++op) {
      ASSERT_EQ(world.slots.op(), 0u) << every << " " << op;
      ASSERT_LE(world.given, world.slots.state.epoch + kSlots) << "more than four epochs are ahead";
      if (op % every == every - 1) world.refill();
    }
    EXPECT_EQ(world.slots.state.epoch, 99u);
  }
}

TEST(KeyRefill, AGraphThatOutrunsItIsRefusedBeforeItSeals) {
  World world(2);
  world.refill();
  for (int op = 0; op < 8; ++op) ASSERT_EQ(world.slots.op(), 0u);
  const std::uint64_t before = world.slots.state.segments;
  EXPECT_EQ(world.slots.op(), status_of(Code::key_limit));
  EXPECT_EQ(world.slots.state.segments, before);
  EXPECT_EQ(world.slots.state.epoch, 3u);
  EXPECT_EQ(world.slots.state.slots[3].state, static_cast<std::uint32_t>(SlotState::live));
  // The verdict is sticky: no key is taken any more.
  EXPECT_EQ(world.refill(), 0u);
  EXPECT_EQ(world.given, 4u);
  EXPECT_EQ(world.slots.op(), status_of(Code::key_limit));
}

TEST(KeyRefill, ARefusedOpFreesNothing) {
  World world(1);
  world.slots.state.budget.segments_max = 5;
  world.refill();
  ASSERT_EQ(world.slots.op(), 0u);
  OpRequest large;
  large.segments = 6;  // would enter epoch 1, and then is too large
  begin_op(world.slots.state, large);
  EXPECT_EQ(world.slots.state.descriptors[0].status, status_of(Code::key_limit));
  end_op(world.slots.state, world.slots.state.descriptors[0]);
  EXPECT_EQ(world.slots.state.epoch, 0u);
  EXPECT_EQ(world.slots.state.slots[0].state, static_cast<std::uint32_t>(SlotState::live));
}

TEST(KeyRefill, ASlotThatNobodyLeftLikeThisIsAnErrorAndStaysAsItIs) {
  for (const SlotHead head : {SlotHead{1, 2}, SlotHead{4, 2}, SlotHead{0, 3}, SlotHead{0, ~0u}}) {
    World world(1);
    world.refill();
    world.slots.state.slots[0].epoch = head.epoch;
    world.slots.state.slots[0].state = head.state;
    world.slots.writes.clear();
    const auto filled = refill_once(world.slots, world.chain);
    ASSERT_FALSE(filled);
    EXPECT_EQ(filled.error().code, Code::cuda);
    EXPECT_TRUE(world.slots.writes.empty());
    EXPECT_EQ(world.given, 4u);
  }
}

TEST(KeyRefill, AfterAnyFailedWriteTheSlotIsNotLive) {
  for (int step = 1; step <= 4; ++step) {  // 0 is the look
    World world(1);
    world.refill();
    ASSERT_EQ(world.slots.op(), 0u);
    ASSERT_EQ(world.slots.op(), 0u);
    world.slots.fails_in = step;
    EXPECT_FALSE(refill_once(world.slots, world.chain)) << step;
    EXPECT_NE(world.slots.state.slots[0].state, static_cast<std::uint32_t>(SlotState::live)) << step;
    ASSERT_EQ(world.slots.op(), 0u);
    ASSERT_EQ(world.slots.op(), 0u);
    EXPECT_EQ(world.slots.op(), status_of(Code::key_limit)) << step;
  }
}

/// Waits until `done`, at most ten seconds.
bool within_reason(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(KeyRefill, TheThreadKeepsAheadOfOps) {
  World world(4);
  KeyRefill refill(world.slots, std::make_unique<Chain>(world.given));
  ASSERT_TRUE(refill.start());
  EXPECT_EQ(refill.filled_to(), 4u);
  for (Epoch epoch = 0; epoch < 20; ++epoch) {
    for (int op = 0; op < 4; ++op) ASSERT_EQ(world.slots.op(), 0u);
    ASSERT_TRUE(within_reason([&] { return refill.filled_to() >= epoch + 4; })) << epoch;
  }
  refill.stop();
  EXPECT_TRUE(refill.status());
  const Epoch given = world.given;
  while (world.slots.op() == 0) {  // what is on the device is used up, and no more comes
  }
  EXPECT_EQ(world.slots.state.verdict, status_of(Code::key_limit));
  EXPECT_EQ(world.given, given);
  EXPECT_EQ(world.slots.state.epoch, given - 1);
}

TEST(KeyRefill, TheThreadKeepsItsFirstErrorAndEnds) {
  World world(1);
  KeyRefill refill(world.slots, std::make_unique<Chain>(world.given));
  ASSERT_TRUE(refill.start());
  {
    const std::lock_guard lock(world.slots.mutex);
    world.slots.state.slots[0].state = 77;
  }
  ASSERT_TRUE(within_reason([&] { return !refill.status(); }));
  EXPECT_EQ(refill.status().error().code, Code::cuda);
  refill.stop();
  EXPECT_EQ(world.given, 4u);
}

}  // namespace
}  // namespace sealring::cuda
