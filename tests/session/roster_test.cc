// Claim: ranks that were started differently are told so in words a user can act on, whoever looks first.
// How: worlds of two or three with one setting changed; code, peer, text and remedy of every rank's error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pump.h"
#include "sealring/crypto/kdf.h"

namespace sealring {
namespace {

using test::World;
using ::testing::HasSubstr;
using ::testing::Not;

void expect_error(const std::optional<Error>& error, Code code, std::int32_t rank, std::int32_t peer,
                  const std::string& what) {
  ASSERT_TRUE(error);
  EXPECT_EQ(code_info(error->code).name, code_info(code).name);
  EXPECT_EQ(error->rank, rank);
  EXPECT_EQ(error->peer, peer);
  EXPECT_THAT(error->message(), HasSubstr(what));
  EXPECT_THAT(error->message(), HasSubstr("no key was released"));
}

TEST(Roster, different_job_keys) {
  const JobKey key = JobKey::generate(), other = JobKey::generate();
  World world(2, [&](Rank rank) { return make_job_key_identity(rank == 0 ? key : other); });
  world.run();
  expect_error(world.errors[0], Code::job_key, 0, 1, "rank 1 proved another job key");
  expect_error(world.errors[1], Code::job_key, 1, 0, "rank 0 proved another job key");
  EXPECT_THAT(world.errors[0]->message(), HasSubstr("compare the fingerprints"));
  EXPECT_TRUE(world.none_ready());
}

TEST(Roster, different_suites) {
  const JobKey key = JobKey::generate();
  World world = World::of_key(4, key);
  world.configs[3].suite = Suite::aes_128_gcm;
  world.run();
  for (Rank rank = 0; rank < 3; ++rank) {
    expect_error(world.errors[rank], Code::suite, rank, 3,
                 "peer 3 wants aes-128-gcm, this job requires aes-256-gcm");
    EXPECT_THAT(world.errors[rank]->message(), HasSubstr("set SEALRING_SUITE alike on every rank"));
    EXPECT_EQ(world.errors[rank]->expected, "aes-256-gcm");
    EXPECT_EQ(world.errors[rank]->got, "aes-128-gcm");
  }
  expect_error(world.errors[3], Code::suite, 3, 0, "peer 0 wants aes-256-gcm, this job requires aes-128-gcm");
}

TEST(Roster, different_world_sizes_are_told_without_waiting) {
  const JobKey key = JobKey::generate();
  World world = World::of_key(2, key);
  world.configs[1].world = 3;  // waits for a rank 2 that never comes
  world.run();
  expect_error(world.errors[0], Code::roster_size, 0, 1,
               "rank 1 was started with world size 3, this rank with 2");
  expect_error(world.errors[1], Code::roster_size, 1, 0,
               "rank 0 was started with world size 2, this rank with 3");
}

TEST(Roster, different_identities) {
  const JobKey key = JobKey::generate();
  const SimulatedRoot root;
  World world(2, [&](Rank rank) { return rank == 0 ? make_job_key_identity(key) : root.make_identity({}); });
  world.run();
  expect_error(world.errors[0], Code::identity, 0, 1,
               "peer 1 proves itself by simulated tee, this job requires job key");
  expect_error(world.errors[1], Code::identity, 1, 0, "peer 0 proves itself by job key");
}

TEST(Roster, different_policies_and_jobs) {
  const JobKey key = JobKey::generate();
  World world = World::of_key(2, key);
  world.configs[1].policy = to_bytes(as_bytes("another"));
  world.run();
  expect_error(world.errors[0], Code::policy_hash, 0, 1, "rank 1 follows another policy");

  const SimulatedRoot root;
  World jobs(2, [&root](Rank rank) { return root.make_identity({static_cast<std::byte>(rank)}); });
  jobs.run();
  expect_error(jobs.errors[0], Code::job_id, 0, 1, "rank 1 belongs to another job");
}

TEST(Roster, a_second_process_with_my_rank_is_duplicate) {
  const JobKey key = JobKey::generate();
  World world = World::of_key(2, key), second = World::of_key(2, key);
  second.start();
  const Bytes theirs = second.machines[1].take_posts()[1].bytes;
  world.run([&](Rank, const std::string& slot, Bytes& bytes) {
    if (slot == "hello/1") bytes = theirs;  // the store kept the other process's
  });
  expect_error(world.errors[1], Code::duplicate, 1, 1, "another process was started as rank 1");
}

TEST(Roster, copies_of_a_hello_are_refused) {
  const JobKey key = JobKey::generate();
  const auto run = [&key](const std::function<void(const World&, Bytes&)>& change) {
    World world = World::of_key(3, key);
    world.run([&](Rank reader, const std::string& slot, Bytes& bytes) {
      if (reader == 0 && slot == "hello/2") change(world, bytes);
    });
    return world.errors[0];
  };
  expect_error(run([](const World& w, Bytes& bytes) { bytes = w.board.at("hello/1"); }), Code::duplicate, 0,
               2, "the place of rank 2 holds a HELLO of rank 1");
  const auto with_field_of = [](std::size_t offset, const std::string& slot) {
    return [offset, slot](const World& w, Bytes& bytes) {
      const Bytes& other = w.board.at(slot);
      std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(offset), 32,
                  bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    };
  };
  expect_error(run(with_field_of(96, "hello/1")), Code::duplicate, 0, 2,
               "ranks 1 and 2 present the same nonce");
  expect_error(run(with_field_of(128, "hello/1")), Code::duplicate, 0, 2,
               "ranks 1 and 2 present the same share");
  expect_error(run(with_field_of(96, "hello/0")), Code::duplicate, 0, 2,
               "ranks 0 and 2 present the same nonce");
  expect_error(run(with_field_of(128, "hello/0")), Code::duplicate, 0, 2,
               "ranks 0 and 2 present the same share");
}

TEST(Roster, low_order_and_second_encodings_of_shares_are_malformed) {
  const JobKey key = JobKey::generate();
  for (const std::string hex : {"0000000000000000000000000000000000000000000000000000000000000000",
                                "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
                                "f6ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"}) {
    World world = World::of_key(2, key);
    world.run([&](Rank reader, const std::string& slot, Bytes& bytes) {
      const Bytes point = from_hex(hex).value();
      if (reader == 0 && slot == "hello/1") std::copy(point.begin(), point.end(), bytes.begin() + 128);
    });
    expect_error(world.errors[0], Code::malformed, 0, 1, "no acceptable point");
    EXPECT_TRUE(world.none_ready());
  }
}

std::vector<std::optional<Error>> run_with_texts(const std::string& a, const std::string& b,
                                                 const test::Tamper& tamper = {}) {
  World world = World::of_key(2, JobKey::generate());
  world.configs[0].config_text = a;
  world.configs[1].config_text = b;
  world.run(tamper);
  EXPECT_TRUE(world.none_ready());
  return world.errors;
}

TEST(Roster, config_names_the_first_field_that_differs) {
  auto errors = run_with_texts("lanes=1\nsegment_bytes=262144\nx=1\n", "lanes=1\nsegment_bytes=65536\nx=2\n");
  expect_error(errors[0], Code::config, 0, 1, "segment_bytes is 65536 on rank 1, 262144 on rank 0");
  expect_error(errors[1], Code::config, 1, 0, "segment_bytes is 262144 on rank 0, 65536 on rank 1");
  EXPECT_EQ(errors[0]->expected, "262144");
  EXPECT_EQ(errors[0]->got, "65536");
  EXPECT_THAT(errors[0]->message(), HasSubstr("make segment_bytes equal on every rank"));

  errors = run_with_texts("lanes=1\n", "lanes=1\nextra=5\n");
  expect_error(errors[0], Code::config, 0, 1, "extra is 5 on rank 1, absent on rank 0");
  expect_error(errors[1], Code::config, 1, 0, "extra is absent on rank 0, 5 on rank 1");

  errors = run_with_texts("lanes=1\n", "columns=1\n");
  expect_error(errors[0], Code::config, 0, 1, "rank 1 has a setting columns where this rank has lanes");

  errors = run_with_texts("lanes=1\n", "lanes=1");  // only the form differs
  expect_error(errors[0], Code::config, 0, 1, "rank 1 has other settings");
}

TEST(Roster, config_text_of_a_peer_is_shown_harmless) {
  const auto errors = run_with_texts("lanes=1\n", "lanes=\x1b[2J\\" + std::string(500, 'A') + "\n");
  ASSERT_TRUE(errors[0]);
  const std::string message = errors[0]->message();
  EXPECT_THAT(message, HasSubstr("\\x1b[2J\\x5cAAA"));
  EXPECT_THAT(message, Not(HasSubstr("\x1b")));
  EXPECT_THAT(message, Not(HasSubstr(std::string(65, 'A'))));
  EXPECT_LT(message.size(), 700u);
}

TEST(Roster, a_config_text_that_was_not_hashed_is_not_believed) {
  for (const std::string& lie : {std::string("lanes=9\n"), std::string(), std::string(20'000, 'x')}) {
    const auto errors =
        run_with_texts("lanes=1\n", "lanes=2\n", [&](Rank, const std::string& slot, Bytes& bytes) {
          if (slot == "config/1") bytes = to_bytes(as_bytes(lie));
        });
    expect_error(errors[0], Code::config, 0, 1, "is not the one it hashed");
    EXPECT_THAT(errors[0]->message(), Not(HasSubstr("lanes is")));
  }
}

TEST(Roster, a_config_text_is_awaited_only_when_it_is_needed) {
  World world = World::of_key(2, JobKey::generate());
  world.configs[1].config_text = "lanes=2\n";
  world.start();
  auto& me = world.machines[0];
  std::map<std::string, Bytes> mine, theirs;
  for (auto& post : me.take_posts()) mine[post.slot] = post.bytes;
  for (auto& post : world.machines[1].take_posts()) theirs[post.slot] = post.bytes;
  EXPECT_EQ(me.awaited(), (std::vector<std::string>{"hello/0", "hello/1"}));
  EXPECT_TRUE(me.receive("hello/0", mine.at("hello/0")));
  EXPECT_TRUE(me.receive("hello/1", theirs.at("hello/1")));
  EXPECT_EQ(me.awaited(), (std::vector<std::string>{"config/1"}));
  EXPECT_EQ(me.missing(), (std::vector<Rank>{1}));
  EXPECT_EQ(me.receive("config/1", theirs.at("config/1")).error().code, Code::config);

  // The text may also come first.
  World again = World::of_key(2, JobKey::generate());
  again.configs[1].config_text = "lanes=2\n";
  again.start();
  theirs.clear();
  for (auto& post : again.machines[1].take_posts()) theirs[post.slot] = post.bytes;
  EXPECT_TRUE(again.machines[0].receive("config/1", theirs.at("config/1")));
  EXPECT_EQ(again.machines[0].receive("hello/1", theirs.at("hello/1")).error().code, Code::config);
}

TEST(Roster, a_key_file_may_state_the_world) {
  const JobKey key = JobKey::generate();
  HandshakeConfig config;
  config.world = 2;
  std::string text = "sealring-job-key-1 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE= world=3";
  const Identity identity = make_job_key_identity(JobKey::parse(text).value());
  const auto refused = Handshake::start(config, identity);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::roster_size);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("states world=3, this rank was started with world size 2"));
  config.world = 3;
  EXPECT_TRUE(Handshake::start(config, identity));
}

TEST(Roster, start_refuses_what_cannot_be) {
  const Identity key = make_job_key_identity(JobKey::generate());
  const auto code = [](const HandshakeConfig& config, const Identity& identity) {
    const auto started = Handshake::start(config, identity);
    return started ? Code::ok : started.error().code;
  };
  HandshakeConfig config;
  EXPECT_EQ(code(config, key), Code::ok);
  config.world = 0;
  EXPECT_EQ(code(config, key), Code::invalid_argument);
  config.world = 2;
  config.rank = 2;
  EXPECT_EQ(code(config, key), Code::invalid_argument);
  config.rank = 0;
  config.world = 1025;
  EXPECT_EQ(code(config, key), Code::invalid_argument);
  config.world = 1024;
  EXPECT_EQ(code(config, key), Code::ok);
  config.world = 1;
  EXPECT_EQ(code(config, Identity{}), Code::no_identity);
  for (const Suite suite : {Suite::plain, Suite::chained_gmac, static_cast<Suite>(7)}) {
    config.suite = suite;
    EXPECT_EQ(code(config, key), Code::suite);  // no fallback to plaintext with a production identity
  }
  config.suite = Suite::plain;
  EXPECT_EQ(code(config, make_study_identity(JobKey::generate())), Code::ok);
  config.suite = Suite::aes_256_gcm;
  config.config_text = std::string(16 * 1024 + 1, 'x');
  EXPECT_EQ(code(config, key), Code::invalid_argument);
}

}  // namespace
}  // namespace sealring
