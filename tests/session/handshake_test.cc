// Claim: an undisturbed handshake of n ranks ends with the same group secret and matching pair keys on all of
// them. How: whole handshakes in one process over a board in memory, for every kind of identity; keys are
// compared by value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pump.h"

namespace sealring {
namespace {

using test::World;

void expect_same_key(const TrafficKey& a, const TrafficKey& b) {
  EXPECT_EQ(a.suite, b.suite);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_TRUE(constant_time_equal(a.key.view(), b.key.view()));
  EXPECT_TRUE(constant_time_equal(a.iv.view(), b.iv.view()));
}

void expect_matching_groups(std::vector<GroupKeys*> groups) {
  for (GroupKeys* a : groups) {
    EXPECT_EQ(to_hex(a->group_id()), to_hex(groups[0]->group_id()));
    EXPECT_EQ(to_hex(a->th3()), to_hex(groups[0]->th3()));
    for (GroupKeys* b : groups) {
      if (a == b) continue;
      for (const Kind kind : {Kind::pair, Kind::p2p, Kind::ctl}) {
        KeyChain at_sender = a->take_chain(kind, a->me(), b->me());
        KeyChain at_receiver = b->take_chain(kind, a->me(), b->me());
        expect_same_key(at_sender.next(), at_receiver.next());
        expect_same_key(at_sender.next(), at_receiver.next());
      }
      EXPECT_EQ(to_hex(a->connection_mac(a->me(), b->me()).view()),
                to_hex(b->connection_mac(a->me(), b->me()).view()));
      EXPECT_NE(to_hex(a->connection_mac(a->me(), b->me()).view()),
                to_hex(a->connection_mac(b->me(), a->me()).view()));
    }
  }
  for (const Rank from : groups[0]->members()) {
    TrafficKey first = groups[0]->take_sender_chain(from).next();
    for (std::size_t i = 1; i < groups.size(); ++i)
      expect_same_key(groups[i]->take_sender_chain(from).next(), first);
  }
}

void expect_matching_sessions(const std::vector<std::unique_ptr<SessionKeys>>& sessions) {
  std::vector<GroupKeys*> groups;
  for (const auto& session : sessions) groups.push_back(&session->world_group());
  expect_matching_groups(groups);
}

TEST(Handshake, job_key_worlds_agree) {
  const JobKey key = JobKey::generate();
  for (const std::uint16_t n : std::vector<std::uint16_t>{1, 2, 3, 5}) {
    SCOPED_TRACE(n);
    World world = World::of_key(n, key);
    world.run();
    for (const auto& error : world.errors) EXPECT_FALSE(error) << error->message();
    ASSERT_TRUE(world.all_ready());
    if (n == 1) {
      EXPECT_TRUE(world.board.empty());
    }
    expect_matching_sessions(world.finish());
  }
}

TEST(Handshake, simulated_tee_and_study_agree) {
  const SimulatedRoot root;
  const JobKey key = JobKey::generate();
  World simulated(3, [&root](Rank) { return root.make_identity({}); });
  simulated.run();
  for (const auto& error : simulated.errors) EXPECT_FALSE(error) << error->message();
  ASSERT_TRUE(simulated.all_ready());
  expect_matching_sessions(simulated.finish());

  World study(2, [&key](Rank) { return make_study_identity(key); });
  for (auto& config : study.configs) config.suite = Suite::plain;
  study.run();
  ASSERT_TRUE(study.all_ready());
  expect_matching_sessions(study.finish());
}

TEST(Handshake, subgroups_agree_and_differ_from_the_world) {
  const JobKey key = JobKey::generate();
  World world = World::of_key(4, key);
  world.run();
  ASSERT_TRUE(world.all_ready());
  const auto sessions = world.finish();
  for (const auto& members : std::vector<std::vector<Rank>>{{1, 3}, {0, 1, 2, 3}, {2}, {0, 2, 3}}) {
    std::vector<SubgroupHandshake> machines;
    for (const Rank rank : members)
      machines.push_back(SubgroupHandshake::start(*sessions[rank], members).value());
    test::Board board;
    std::vector<std::optional<Error>> errors;
    test::pump(machines, members, board, errors);
    std::vector<std::unique_ptr<GroupKeys>> owned;
    std::vector<GroupKeys*> groups;
    for (std::size_t i = 0; i < machines.size(); ++i) {
      ASSERT_FALSE(errors[i]) << errors[i]->message();
      ASSERT_TRUE(machines[i].ready());
      owned.push_back(std::move(machines[i]).finish());
      EXPECT_EQ(owned[i]->members(), members);
      EXPECT_NE(to_hex(owned[i]->group_id()), to_hex(sessions[0]->world_group().group_id()));
      groups.push_back(owned[i].get());
    }
    expect_matching_groups(groups);
  }
}

}  // namespace
}  // namespace sealring
