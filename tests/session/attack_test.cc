// Claim: whoever owns the store can stop a start, with a named error, but never make a rank release a key.
// How: every message kind changed at sampled bytes (all of them in the slow test), replayed, reflected,
// swapped, split.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pump.h"
#include "sealring/crypto/x25519.h"

namespace sealring {
namespace {

using test::World;

bool starts(const std::string& text, std::string_view prefix) { return text.starts_with(prefix); }

/// What a changed byte of a message may be called. HELLO depends on the field.
std::vector<Code> codes_of(const std::string& slot, Rank reader) {
  if (slot == "hello/" + std::to_string(reader)) return {Code::self_altered};
  if (starts(slot, "hello/")) {
    return {Code::version,   Code::suite,   Code::roster_size, Code::duplicate,   Code::identity,
            Code::malformed, Code::job_key, Code::job_id,      Code::policy_hash, Code::config};
  }
  if (starts(slot, "evidence/")) {
    return {Code::malformed, Code::job_key, Code::cpu_parse,
            Code::cpu_root,  Code::cpu_sig, Code::report_data};
  }
  if (starts(slot, "kk") || starts(slot, "m5/")) return {Code::pair_auth};
  return {Code::confirm, Code::malformed, Code::post_evidence};
}

/// Changes byte `offset` of `slot` for everybody who reads it.
void check_changed_byte(const std::function<World()>& make, const std::string& slot, std::size_t offset) {
  SCOPED_TRACE(slot + " byte " + std::to_string(offset));
  World world = make();
  bool changed = false;
  world.run([&](Rank, const std::string& read, Bytes& bytes) {
    if (read != slot || offset >= bytes.size()) return;
    bytes[offset] ^= std::byte{0x01};
    changed = true;
  });
  ASSERT_TRUE(changed);
  bool refused = false;
  for (Rank rank = 0; rank < world.machines.size(); ++rank) {
    const auto& error = world.errors[rank];
    if (!error) continue;
    refused = true;
    EXPECT_FALSE(world.machines[rank].ready());
    const bool field_only_in_th1 = starts(slot, "hello/") && error->stage == "handshake.evidence";
    if (!field_only_in_th1) {
      EXPECT_THAT(codes_of(slot, rank), ::testing::Contains(error->code)) << error->message();
    }
  }
  EXPECT_TRUE(refused);
  // A changed CONFIRM stops its readers; its writer may be ready: nobody can know that the last message
  // arrived.
  if (!starts(slot, "confirm/")) {
    EXPECT_TRUE(world.none_ready());
  }
}

void check_every(const std::function<World()>& make, std::size_t stride) {
  World sample = make();
  sample.run();
  ASSERT_TRUE(sample.all_ready());
  int kinds = 0;
  for (const auto& [slot, bytes] : sample.board) {
    if (starts(slot, "config/")) continue;  // unread while the hashes agree
    ++kinds;
    // Signatures in DER vary in length: stay clear of the end.
    const std::size_t end =
        std::min<std::size_t>(bytes.size(), starts(slot, "evidence/") ? 90 : bytes.size());
    for (std::size_t offset = stride / 2; offset < end; offset += stride)
      check_changed_byte(make, slot, offset);
  }
  EXPECT_EQ(kinds, 2 + 2 + 1 + 1 + 2 + 2);
}

TEST(Attack, changed_bytes_of_every_message_kind) {
  const JobKey key = JobKey::generate();
  check_every([&key] { return World::of_key(2, key); }, 13);
  const SimulatedRoot root;
  check_every([&root] { return World(2, [&root](Rank) { return root.make_identity({}); }); }, 29);
}

TEST(SlowAttack, every_changed_byte_of_every_message_kind) {
  const JobKey key = JobKey::generate();
  check_every([&key] { return World::of_key(2, key); }, 1);
}

TEST(Attack, truncated_extended_and_empty_messages) {
  const JobKey key = JobKey::generate();
  World sample = World::of_key(2, key);
  sample.run();
  for (const auto& [slot, original] : sample.board) {
    if (starts(slot, "config/")) continue;
    for (const int change : {-1, +1, 0}) {
      World world = World::of_key(2, key);
      world.run([&, name = slot](Rank, const std::string& read, Bytes& bytes) {
        if (read != name) return;
        bytes.resize(change == 0 ? 0 : change < 0 ? bytes.size() - 1 : bytes.size() + 1);
      });
      EXPECT_TRUE(world.errors[0] || world.errors[1]) << slot;
      EXPECT_FALSE(world.all_ready()) << slot;
    }
  }
}

TEST(Attack, oversized_messages_are_refused_before_they_are_parsed) {
  for (const char* kind : {"hello/1", "config/1"}) {
    World world = World::of_key(2, JobKey::generate());
    world.start();
    const auto refused = world.machines[0].receive(kind, Bytes(1 << 20));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::malformed);
    EXPECT_EQ(refused.error().peer, 1);
  }
}

/// The store gives reader 1 another share for rank 0 and reader 0 another one for rank 1: a man in the
/// middle.
TEST(Attack, swapped_shares_end_at_the_evidence) {
  const JobKey key = JobKey::generate();
  const SimulatedRoot root;
  const X25519KeyPair evil = X25519KeyPair::generate();
  const auto swap = [&evil](Rank reader, const std::string& slot, Bytes& bytes) {
    if (starts(slot, "hello/") && slot != "hello/" + std::to_string(reader)) {
      std::copy(evil.public_key.begin(), evil.public_key.end(), bytes.begin() + 128);
    }
  };
  World by_key = World::of_key(2, key);
  by_key.run(swap);
  World by_tee(2, [&root](Rank) { return root.make_identity({}); });
  by_tee.run(swap);
  for (Rank rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(by_key.errors[rank] && by_tee.errors[rank]);
    EXPECT_EQ(by_key.errors[rank]->code, Code::job_key);
    EXPECT_EQ(by_tee.errors[rank]->code, Code::report_data);
    EXPECT_EQ(by_tee.errors[rank]->stage, "handshake.evidence");
  }
  EXPECT_TRUE(by_key.none_ready());
  EXPECT_TRUE(by_tee.none_ready());
}

TEST(Attack, split_view_ends_at_the_evidence) {
  // Rank 0 is shown another, equally genuine process as rank 2 than ranks 1 and 2 see.
  const JobKey key = JobKey::generate();
  World world = World::of_key(3, key), other = World::of_key(3, key);
  other.start();
  const Bytes second = other.machines[2].take_posts()[1].bytes;
  world.run([&](Rank reader, const std::string& slot, Bytes& bytes) {
    if (reader == 0 && slot == "hello/2") bytes = second;
  });
  for (Rank rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(world.errors[rank]) << rank;
    EXPECT_EQ(world.errors[rank]->code, Code::job_key);
    EXPECT_EQ(world.errors[rank]->stage, "handshake.evidence");
  }
  EXPECT_TRUE(world.none_ready());
}

TEST(Attack, messages_of_an_old_session_are_refused) {
  const JobKey key = JobKey::generate();
  World old = World::of_key(2, key);
  old.run();
  ASSERT_TRUE(old.all_ready());
  for (const auto& [slot, bytes] : old.board) {
    if (starts(slot, "config/")) continue;
    SCOPED_TRACE(slot);
    World world = World::of_key(2, key);
    world.run([&old, name = slot](Rank reader, const std::string& read, Bytes& now) {
      // A rank's own HELLO comes back unchanged: the plain replay, not the attack on its writer.
      if (read == name && read != "hello/" + std::to_string(reader)) now = old.board.at(name);
    });
    EXPECT_TRUE(world.errors[0] || world.errors[1]);
    EXPECT_FALSE(world.all_ready());
    for (const auto& error : world.errors) {
      if (!error) continue;
      EXPECT_THAT((std::vector<Code>{Code::job_key, Code::pair_auth, Code::confirm}),
                  ::testing::Contains(error->code))
          << error->message();
    }
  }
}

TEST(Attack, everything_of_an_old_session_replayed_is_refused) {
  const JobKey key = JobKey::generate();
  World old = World::of_key(2, key);
  old.run();
  World world = World::of_key(2, key);
  world.run([&old](Rank reader, const std::string& slot, Bytes& bytes) {
    if (reader == 0 && slot != "hello/0" && old.board.contains(slot))
      bytes = old.board.at(slot);  // rank 1 is dead
  });
  ASSERT_TRUE(world.errors[0]);
  EXPECT_EQ(world.errors[0]->code, Code::job_key);  // its proof covers my fresh nonce
  EXPECT_FALSE(world.machines[0].ready());
}

TEST(Attack, reflected_and_exchanged_messages_are_refused) {
  const JobKey key = JobKey::generate();
  const std::vector<std::tuple<std::string, std::string, Code>> swaps{
      {"m5/1/0", "m5/0/1", Code::pair_auth},       {"m5/1/0", "m5/1/2", Code::pair_auth},
      {"m5/1/0", "m5/2/0", Code::pair_auth},       {"kk2/0/1", "kk2/0/2", Code::pair_auth},
      {"kk2/0/1", "kk1/0/1", Code::pair_auth},     {"confirm/1", "confirm/0", Code::confirm},
      {"confirm/1", "confirm/2", Code::confirm},   {"evidence/1", "evidence/0", Code::job_key},
      {"evidence/1", "evidence/2", Code::job_key},
  };
  for (const auto& [slot, source, code] : swaps) {
    SCOPED_TRACE(slot + " <- " + source);
    // Rank 0's reading of `slot` is held back until `source` is on the board.
    World world = World::of_key(3, key);
    world.start();
    bool fed = false;
    for (int round = 0; round < 50 && !fed; ++round) {
      for (auto& machine : world.machines) {
        for (Post& post : machine.take_posts()) world.board.emplace(post.slot, std::move(post.bytes));
      }
      for (Rank rank = 0; rank < 3; ++rank) {
        for (const std::string& name : world.machines[rank].awaited()) {
          if (rank == 0 && name == slot) {
            if (!world.board.contains(source)) continue;
            const auto taken = world.machines[0].receive(slot, world.board.at(source));
            ASSERT_FALSE(taken);
            EXPECT_EQ(taken.error().code, code) << taken.error().message();
            EXPECT_EQ(taken.error().peer, 1);
            fed = true;
            break;
          }
          if (!world.board.contains(name)) continue;
          ASSERT_TRUE(world.machines[rank].receive(name, world.board.at(name)));
        }
        if (fed) break;
      }
    }
    EXPECT_TRUE(fed);
    EXPECT_FALSE(world.machines[0].ready());
  }
}

TEST(Attack, evidence_of_another_root_is_cpu_root) {
  const SimulatedRoot root, foreign;
  World world(2, [&](Rank rank) { return (rank == 0 ? root : foreign).make_identity({}); });
  world.run();
  ASSERT_TRUE(world.errors[0] && world.errors[1]);
  EXPECT_EQ(world.errors[0]->code, Code::cpu_root);
  EXPECT_EQ(world.errors[1]->code, Code::cpu_root);
}

TEST(Attack, evidence_of_another_platform_is_report_data) {
  // Genuine in itself, of a member of the same root, but not the platform that the HELLO named.
  const SimulatedRoot root;
  World world(2, [&root](Rank) { return root.make_identity({}); });
  Identity relayed = root.make_identity({});
  world.run([&](Rank reader, const std::string& slot, Bytes& bytes) {
    if (reader != 0 || slot != "evidence/1") return;
    Claim claim;  // what it signs does not matter: the platform is another
    bytes = relayed.attester->quote(claim).value().encode();
  });
  ASSERT_TRUE(world.errors[0]);
  EXPECT_EQ(world.errors[0]->code, Code::report_data);
}

}  // namespace
}  // namespace sealring
