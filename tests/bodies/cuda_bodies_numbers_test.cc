// Claim: the device's reservation of numbers follows protocol A.3: each number once, rotation by its own
// counters, limits
//        and live slots before sealing, one op at a time, a sticky verdict; and the kernel choice is a pure
//        function.
// How: begin_op and end_op, which the prologue and epilogue run, are driven on the host.
#include <gtest/gtest.h>

#include "sealring/device/cuda/kernel_list.h"
#include "sealring/device/cuda/key_state.h"

namespace sealring::cuda {
namespace {

KeyState state_with(Epoch epochs, KeyBudget budget = {}) {
  KeyState state{};
  state.budget = budget;
  for (Epoch e = 0; e < epochs; ++e) {
    state.slots[e].epoch = e;
    state.slots[e].state = static_cast<std::uint32_t>(SlotState::live);
    state.slots[e].canary = canary_of(e);
  }
  return state;
}

OpRequest next(std::uint32_t segments, std::uint64_t bytes) {
  OpRequest out;
  out.segments = segments;
  out.payload_bytes = bytes;
  return out;
}

// Runs a whole op; gives its status.
std::uint32_t run_op(KeyState& state, const OpRequest& request) {
  begin_op(state, request);
  OpDescriptor& op = state.descriptors[request.descriptor];
  const std::uint32_t status = op.status;
  end_op(state, op);
  return status;
}

TEST(CudaBodiesNumbers, EachOpContinuesWhereTheLastEnded) {
  KeyState state = state_with(2);
  std::uint64_t expected = 0;
  for (std::uint32_t n = 1; n < 50; ++n) {
    ASSERT_EQ(run_op(state, next(n, 100 * n)), 0u);
    ASSERT_EQ(state.descriptors[0].view.first_number, expected);
    ASSERT_EQ(state.descriptors[0].view.seq, n - 1);
    expected += n;
  }
  EXPECT_EQ(state.segments, expected);
}

TEST(CudaBodiesNumbers, RotationByBytesSegmentsAndOps) {
  for (int which = 0; which < 3; ++which) {
    KeyBudget budget;
    if (which == 0) budget.bytes_rotate = 1000;
    if (which == 1) budget.segments_rotate = 10;
    if (which == 2) budget.ops_rotate = 2;
    KeyState state = state_with(2, budget);
    for (int op = 0; op < 4; ++op) {
      ASSERT_EQ(run_op(state, next(5, 500)), 0u);
      ASSERT_EQ(state.descriptors[0].view.epoch, static_cast<Epoch>(op / 2)) << which;
      ASSERT_EQ(state.descriptors[0].view.first_number, op % 2 == 0 ? 0u : 5u);
    }
    EXPECT_EQ(state.slots[0].state, static_cast<std::uint32_t>(SlotState::free));
    EXPECT_EQ(state.slots[1].state, static_cast<std::uint32_t>(SlotState::live));
    // Epoch 2 has no key.
    EXPECT_EQ(run_op(state, next(5, 500)), status_of(Code::key_limit));
    EXPECT_EQ(state.epoch, 1u);
  }
}

TEST(CudaBodiesNumbers, HardLimits) {
  KeyBudget budget;
  budget.segments_max = 10;
  KeyState state = state_with(1, budget);
  EXPECT_EQ(run_op(state, next(10, 1)), 0u);
  EXPECT_EQ(run_op(state, next(1, 1)), status_of(Code::key_limit));
  budget = {};
  budget.bytes_max = 100;
  state = state_with(1, budget);
  EXPECT_EQ(run_op(state, next(1, 101)), status_of(Code::key_limit));
  EXPECT_EQ(state.segments, 0u);
}

TEST(CudaBodiesNumbers, ASecondOpBeforeTheEndOfTheFirstIsRefusedAndLeavesItAlone) {
  KeyState state = state_with(1);
  OpRequest first = next(3, 3), second = next(3, 3);
  second.descriptor = 1;
  begin_op(state, first);
  begin_op(state, second);
  EXPECT_EQ(state.descriptors[0].status, 0u);
  EXPECT_EQ(state.descriptors[1].status, status_of(Code::seq_reuse_guard));
  EXPECT_EQ(state.segments, 3u);
  end_op(state, state.descriptors[1]);  // the refused one gives nothing back that it does not hold
  EXPECT_EQ(state.in_use, 1u);
  end_op(state, state.descriptors[0]);
  EXPECT_EQ(state.in_use, 0u);
  EXPECT_EQ(run_op(state, first), status_of(Code::seq_reuse_guard));  // sticky
}

// It was stopped between the two while another op began and ended.
TEST(CudaBodiesNumbers, AStateThatWasReadBeforeAnotherOpHadItIsRefused) {
  KeyState state = state_with(1);
  const StateView stale = view_of(state);
  EXPECT_EQ(run_op(state, next(3, 3)), 0u);
  ASSERT_TRUE(take_state(state));
  const OpDescriptor op = begin_op(state, stale, true, next(3, 3));
  EXPECT_EQ(op.status, status_of(Code::seq_reuse_guard));
  EXPECT_EQ(state.segments, 3u);  // no number twice
  EXPECT_EQ(state.verdict, status_of(Code::seq_reuse_guard));
  end_op(state, op);
  EXPECT_EQ(state.in_use, 0u);
}

// As two launches of one graph beside each other: both have one descriptor.
TEST(CudaBodiesNumbers, ARefusedOpLeavesTheNumbersOfARunningOneInTheirSharedDescriptor) {
  KeyState state = state_with(2);
  const OpRequest request = next(3, 3);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(run_op(state, request), 0u);
  state.descriptors[0].frees = 1;  // of an op long ago
  state.descriptors[1].frees = 1;
  begin_op(state, request);
  begin_op(state, request);
  const OpDescriptor& op = state.descriptors[0];
  EXPECT_EQ(op.view.first_number, 12u);
  EXPECT_EQ(op.view.seq, 4u);
  EXPECT_EQ(op.slot, 0u);
  EXPECT_EQ(op.status, status_of(Code::seq_reuse_guard));
  EXPECT_EQ(state.segments, 15u);
  // Nor does a refused op free a slot for an op that had its descriptor before.
  OpRequest other = request;
  other.descriptor = 1;
  begin_op(state, other);
  end_op(state, state.descriptors[1]);
  EXPECT_EQ(state.slots[0].state, static_cast<std::uint32_t>(SlotState::live));
}

TEST(CudaBodiesNumbers, APermitMustBeTheDevicesOwnNextNumber) {
  KeyState state = state_with(2);
  OpRequest permit = next(4, 64);
  permit.numbers = Numbers::seal_at;
  permit.seq = 77;
  EXPECT_EQ(run_op(state, permit), 0u);
  EXPECT_EQ(state.descriptors[0].view.seq, 77u);
  permit.first_number = 4;
  EXPECT_EQ(run_op(state, permit), 0u);
  KeyState other = state;
  EXPECT_EQ(run_op(other, permit), status_of(Code::seq_reuse_guard));
  other = state;
  permit.first_number = 8;
  permit.epoch = 1;
  EXPECT_EQ(run_op(other, permit), status_of(Code::seq_reuse_guard));
}

TEST(CudaBodiesNumbers, ASlotWithoutLiveKeyOrWithABrokenCanaryIsRefused) {
  KeyState state = state_with(1);
  state.slots[0].canary ^= 1;
  EXPECT_EQ(run_op(state, next(1, 1)), status_of(Code::key_limit));
  state = state_with(1);
  state.slots[0].epoch = 4;  // the right slot, another epoch
  EXPECT_EQ(run_op(state, next(1, 1)), status_of(Code::key_limit));
}

TEST(CudaBodiesNumbers, TheFirstKernelThatFitsIsPicked) {
  KernelEntry small, large, seal;
  small.direction = large.direction = Direction::open;
  small.segment_max = 32768;
  small.shared_bytes = 50000;
  large.segment_max = 65536;
  large.shared_bytes = 100000;
  seal.segment_max = 1u << 30;
  const KernelEntry list[] = {small, large, seal};
  const auto pick = [&](Direction direction, std::uint32_t segment, std::size_t shared) {
    return pick_kernel(list, Suite::chacha20_poly1305, direction, CombineKind::replace, segment, shared);
  };
  EXPECT_EQ(pick(Direction::open, 32768, 232448), &list[0]);
  EXPECT_EQ(pick(Direction::open, 32769, 232448), &list[1]);
  EXPECT_EQ(pick(Direction::open, 65536, 99 << 10), &list[1]);
  EXPECT_EQ(pick(Direction::open, 65536, 99999), nullptr);
  EXPECT_EQ(pick(Direction::open, 65537, 232448), nullptr);
  EXPECT_EQ(pick(Direction::seal, 1 << 20, 0), &list[2]);
  EXPECT_EQ(pick_kernel(list, Suite::aes_256_gcm, Direction::seal, CombineKind::replace, 1, 1 << 20),
            nullptr);
}

TEST(CudaBodiesNumbers, SmallMessagesHaveAKernelOfTheirOwn) {
  KernelEntry small, large;
  small.small = true;
  small.segment_max = 8192;
  small.blocks = 2;
  small.shared_bytes = 14000;
  large.segment_max = 1u << 30;
  large.blocks = 4;
  large.shared_bytes = 31000;
  const KernelEntry list[] = {small, large};
  constexpr std::size_t kShared = 232448;
  const auto pick = [&](std::uint32_t segment, std::uint32_t segments) {
    return pick_kernel(list, Suite::chacha20_poly1305, Direction::seal, CombineKind::replace, segment,
                       kShared, segments, 132);
  };
  EXPECT_EQ(pick(8192, 1), &list[0]);
  EXPECT_EQ(pick(8192, 264), &list[0]);
  EXPECT_EQ(pick(8192, 265), &list[1]);
  EXPECT_EQ(pick(8193, 1), &list[1]);
  // No number of segments: as many as there may be.
  EXPECT_EQ(pick_kernel(list, Suite::chacha20_poly1305, Direction::seal, CombineKind::replace, 8192, kShared),
            &list[1]);

  // Exactly as many blocks fit as are a multiprocessor's share.
  const auto fit = [&](const KernelEntry& entry, unsigned columns) {
    const std::size_t claimed = claimed_bytes(entry, columns, 132, kShared);
    EXPECT_LE(claimed, kShared);
    return (kShared + 1024) / (claimed + 1024);
  };
  EXPECT_EQ(fit(list[0], 1), 1u);
  EXPECT_EQ(fit(list[0], 132), 1u);
  EXPECT_EQ(fit(list[0], 133), 2u);
  EXPECT_EQ(fit(list[0], 264), 2u);
  EXPECT_EQ(claimed_bytes(list[1], 132, 132, kShared), 31000u);
  EXPECT_EQ(claimed_bytes(list[0], 132, 132, 20000), 14000u);
}

}  // namespace
}  // namespace sealring::cuda
