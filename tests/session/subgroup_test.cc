// Claim: a subgroup's keys need every member's consent to the same nonces and members; anything else is a
// named error. How: groups over a finished session with changed, replayed, reflected messages and different
// member lists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pump.h"

namespace sealring {
namespace {

using test::World;

struct Group {
  explicit Group(std::vector<std::vector<Rank>> lists_given)
      : lists(std::move(lists_given)), world(make_world()) {
    world.run();
    sessions = world.finish();
  }
  static World make_world() {
    static const JobKey key = JobKey::generate();
    return World::of_key(4, key);
  }
  /// lists[k] is the member list that the k-th of `members` starts with; a single list is everybody's.
  void run(const std::vector<Rank>& members, const test::Tamper& tamper = {}) {
    ranks = members;
    machines.clear();
    board.clear();
    for (std::size_t i = 0; i < members.size(); ++i) {
      machines.push_back(SubgroupHandshake::start(*sessions[members[i]], lists.at(i % lists.size())).value());
    }
    test::pump(machines, ranks, board, errors, tamper);
  }
  bool any_ready() const {
    return std::any_of(machines.begin(), machines.end(), [](const auto& machine) { return machine.ready(); });
  }

  std::vector<std::vector<Rank>> lists;
  World world;
  std::vector<std::unique_ptr<SessionKeys>> sessions;
  std::vector<SubgroupHandshake> machines;
  std::vector<Rank> ranks;
  test::Board board;
  std::vector<std::optional<Error>> errors;
};

TEST(Subgroup, every_changed_byte_is_refused) {
  Group group({{1, 3}});
  group.run({1, 3});
  ASSERT_TRUE(group.machines[0].ready() && group.machines[1].ready());
  const test::Board sample = group.board;
  EXPECT_EQ(sample.size(), 6u);  // nonce, m5sub, confirm of two ranks
  for (const auto& [slot, bytes] : sample) {
    for (std::size_t offset = 0; offset < bytes.size(); ++offset) {
      group.run({1, 3}, [&, name = slot](Rank, const std::string& read, Bytes& now) {
        if (read == name) now[offset] ^= std::byte{0x80};
      });
      const bool confirm = slot.starts_with("confirm");
      const Code wanted = confirm ? Code::confirm : Code::pair_auth;
      const auto& error = group.errors[0] ? group.errors[0] : group.errors[1];
      ASSERT_TRUE(error) << slot << offset;
      EXPECT_EQ(error->code, wanted) << error->message();
      EXPECT_TRUE(confirm || !group.any_ready());
    }
  }
}

TEST(Subgroup, different_member_lists_never_agree) {
  Group group({{1, 3}, {1, 2, 3}});
  group.run({1, 3});
  // Rank 1 believes in {1,3}, rank 3 in {1,2,3}: rank 3 still waits for rank 2, rank 1 for rank 3.
  EXPECT_FALSE(group.any_ready());
  EXPECT_EQ(group.machines[1].missing(), (std::vector<Rank>{2}));
  Group three({{1, 2, 3}, {1, 2, 3}, {1, 3}});
  three.run({1, 2, 3});
  EXPECT_FALSE(three.any_ready());
  EXPECT_TRUE(three.errors[2]);
  EXPECT_EQ(three.errors[2]->code, Code::pair_auth);
}

TEST(Subgroup, two_groups_of_the_same_members_have_different_keys) {
  Group group({{0, 2}});
  std::vector<std::string> ids;
  for (int i = 0; i < 2; ++i) {
    group.run({0, 2});
    ASSERT_TRUE(group.machines[0].ready());
    auto keys = std::move(group.machines[0]).finish();
    ids.push_back(to_hex(keys->group_id()));
    ids.push_back(to_hex(keys->take_chain(Kind::pair, 0, 2).next().key.view()));
    ids.push_back(to_hex(keys->take_sender_chain(0).next().key.view()));
  }
  for (int i = 0; i < 3; ++i) EXPECT_NE(ids[i], ids[i + 3]);
}

TEST(Subgroup, replayed_reflected_and_exchanged_messages_are_refused) {
  Group group({{0, 1, 2}});
  group.run({0, 1, 2});
  ASSERT_TRUE(group.machines[0].ready());
  const test::Board old = group.board;
  const std::vector<std::tuple<std::string, std::string, Code>> cases{
      {"nonce/1", "nonce/0", Code::duplicate},     {"nonce/1", "nonce/2", Code::duplicate},
      {"m5sub/1/0", "m5sub/0/1", Code::pair_auth}, {"m5sub/1/0", "m5sub/2/0", Code::pair_auth},
      {"confirm/1", "confirm/0", Code::confirm},   {"confirm/1", "confirm/2", Code::confirm}};
  for (const auto& [slot, source, code] : cases) {
    SCOPED_TRACE(slot);
    bool there = true;
    group.run({0, 1, 2}, [&, name = slot, from = source](Rank reader, const std::string& read, Bytes& bytes) {
      if (reader != 0 || read != name) return;
      there = group.board.contains(from);
      if (there) bytes = group.board.at(from);
    });
    ASSERT_TRUE(there);
    ASSERT_TRUE(group.errors[0]);
    EXPECT_EQ(group.errors[0]->code, code);
    EXPECT_EQ(group.errors[0]->peer,
              source == "nonce/2" ? 2 : 1);  // told when the second of the two equals comes
  }
  for (const auto& [slot, bytes] : old) {  // each message of the earlier start of the same members
    SCOPED_TRACE(slot);
    group.run({0, 1, 2}, [&, name = slot](Rank, const std::string& read, Bytes& now) {
      if (read == name) now = old.at(name);
    });
    EXPECT_TRUE(group.errors[0] || group.errors[1] || group.errors[2]);
  }
}

TEST(Subgroup, wrong_sizes_and_slots) {
  Group group({{0, 1}});
  const auto fresh = [&] { return SubgroupHandshake::start(*group.sessions[0], {0, 1}).value(); };
  for (const std::size_t bytes : {0u, 31u, 33u}) {
    auto machine = fresh();
    const auto taken = machine.receive("nonce/1", Bytes(bytes));
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, Code::malformed);
    EXPECT_EQ(taken.error().stage, "subgroup.nonce");
    EXPECT_EQ(taken.error().rank, 0);
    EXPECT_EQ(machine.receive("nonce/1", Bytes(32)).error().code,
              Code::malformed);  // the first error is the last
    EXPECT_TRUE(machine.take_posts().empty());
  }
  for (const std::string slot : {"nonce/0", "nonce/2", "m5sub/1/0", "confirm/1", "nonce/1/0", "x", ""}) {
    auto machine = fresh();
    EXPECT_EQ(machine.receive(slot, Bytes(32)).error().code, Code::invalid_argument) << slot;
  }
  auto machine = fresh();
  const Bytes nonce(32, std::byte{7});
  EXPECT_TRUE(machine.receive("nonce/1", nonce));
  EXPECT_TRUE(machine.receive("nonce/1", nonce));
  EXPECT_EQ(machine.stage(), "secret");
  EXPECT_EQ(machine.awaited(), (std::vector<std::string>{"m5sub/1/0"}));
  EXPECT_EQ(machine.receive("m5sub/1/0", Bytes(47)).error().code, Code::pair_auth);
}

TEST(Subgroup, member_lists_are_checked) {
  Group group({{0, 1}});
  const auto code = [&](std::vector<Rank> members) {
    const auto started = SubgroupHandshake::start(*group.sessions[0], std::move(members));
    return started ? Code::ok : started.error().code;
  };
  EXPECT_EQ(code({0, 3}), Code::ok);
  EXPECT_EQ(code({0}), Code::ok);
  EXPECT_EQ(code({}), Code::invalid_argument);
  EXPECT_EQ(code({1, 2}), Code::invalid_argument);
  EXPECT_EQ(code({1, 0}), Code::invalid_argument);
  EXPECT_EQ(code({0, 0}), Code::invalid_argument);
  EXPECT_EQ(code({0, 4}), Code::invalid_argument);
}

}  // namespace
}  // namespace sealring
