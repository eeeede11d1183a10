// Claim: the control plane keeps its promises on real streams too: loopback pipes and tcp sockets.
// How: three ranks as threads; alive under many ops, an abort to all, a lost rank, a mismatch, orderly ends
// in a row.
#include <gmock/gmock.h>

#include "tests/control/control_world.h"
#include "tests/transport/ranks.h"

namespace sealring::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class ControlOverTransport : public ::testing::TestWithParam<const char*> {
 protected:
  void start(std::uint16_t ranks) {
    world_.reset();
    cluster_ = std::make_unique<Cluster>(GetParam(), ranks);
    cluster_->open(group_named(0xAA), {Kind::pair, Kind::p2p, Kind::ctl});
    world_ = std::make_unique<World>(
        ranks, quick(), [this](Rank rank) { return cluster_->at(rank).control_streams().value(); });
  }
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<World> world_;  ///< ends before its streams' transport
};

TEST_P(ControlOverTransport, AliveThenOrderlyEndsWithoutOneFalseLoss) {
  for (int round = 0; round < 10; ++round) {
    start(3);
    for (std::uint64_t seq = 0; seq < 50; ++seq) {
      world_->begin_all(world_->op(seq));
      world_->finish_all(world_->op(seq));
    }
    std::this_thread::sleep_for(25ms);
    leave_all(*world_);
    for (const Verdict& verdict : world_->verdicts) EXPECT_FALSE(verdict.dead());
    world_->controls.clear();
    for (const Verdict& verdict : world_->verdicts) EXPECT_FALSE(verdict.dead());
  }
}

TEST_P(ControlOverTransport, AnAbortReachesAllWithItsReason) {
  for (int round = 0; round < 5; ++round) {
    start(3);
    world_->begin_all(world_->op(0));
    const auto before = Clock::now();
    world_->fail_op(1, make_error(Code::data_tag, "a segment was not accepted", "data.open", 2));
    for (const Rank rank : std::initializer_list<Rank>{0, 2}) {
      const Error error = world_->ending(rank);
      EXPECT_EQ(error.code, Code::aborted) << error.message();
      EXPECT_THAT(error.what, HasSubstr("rank 1 reported SR-E602 DATA_TAG about rank 2 at data.open"));
    }
    EXPECT_LT(Clock::now() - before, patient(2000ms));
  }
}

TEST_P(ControlOverTransport, AMismatchIsNamedOnBothSides) {
  start(2);
  OpContext other = world_->op(0);
  other.dtype = DType::f16;
  world_->begin(0, world_->op(0));
  world_->begin(1, other);
  for (Rank rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(world_->ending(rank).diagnosis, HasSubstr("they differ in dtype"));
  }
}

TEST_P(ControlOverTransport, ALostRankIsFoundAtOnce) {
  start(3);
  std::this_thread::sleep_for(30ms);
  const auto before = Clock::now();
  world_->controls[2].reset();  // ends without a farewell, as a killed process does
  for (Rank rank = 0; rank < 2; ++rank) {
    const Error error = world_->ending(rank);
    EXPECT_TRUE(error.code == Code::peer_lost || error.code == Code::aborted) << error.message();
    EXPECT_THAT(error.what, HasSubstr("rank 2"));
  }
  EXPECT_LT(Clock::now() - before, patient(1000ms));
}

INSTANTIATE_TEST_SUITE_P(Transports, ControlOverTransport, ::testing::Values("loopback", "tcp"));

}  // namespace
}  // namespace sealring::testing
