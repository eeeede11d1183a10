// Claim: the canonical text names every agreed setting and nothing else; the environment is read strictly.
// How: change one field at a time; good, bad, unknown, empty and study values of every variable.
#include "sealring/collective/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

namespace sealring {
namespace {

using Variables = std::map<std::string, std::string>;

Code code_of(const Variables& variables) {
  const auto result = Environment::parse(variables);
  return result ? Code::ok : result.error().code;
}

TEST(CommConfigTest, CanonicalTextOfTheDefaults) {
  EXPECT_EQ(
      CommConfig{}.canonical(),
      "segment_bytes=262144\nalgorithm=auto\nsender_keys=on\nlanes=1\nnode_ranks=0\n"
      "bytes_rotate=274877906944\n"
      "segments_rotate=2147483648\nops_rotate=16777216\nbytes_max=1099511627776\nsegments_max=4294967295\n");
}

TEST(CommConfigTest, EachAgreedSettingChangesTheText) {
  const std::string base = CommConfig{}.canonical();
  const std::vector<std::function<void(CommConfig&)>> changes = {
      [](CommConfig& c) { c.segment_bytes = 65536; },
      [](CommConfig& c) { c.algorithm = Algorithm::ring; },
      [](CommConfig& c) { c.algorithm = Algorithm::one_hop; },
      [](CommConfig& c) { c.algorithm = Algorithm::one_shot; },
      [](CommConfig& c) { c.algorithm = Algorithm::two_level; },
      [](CommConfig& c) { c.sender_keys = false; },
      [](CommConfig& c) { c.lanes = 2; },
      [](CommConfig& c) { c.node_ranks = 1; },
      [](CommConfig& c) { c.node_ranks = 8; },
      [](CommConfig& c) { c.budget.bytes_rotate = 1; },
      [](CommConfig& c) { c.budget.segments_rotate = 1; },
      [](CommConfig& c) { c.budget.ops_rotate = 1; },
      [](CommConfig& c) { c.budget.bytes_max = 1; },
      [](CommConfig& c) { c.budget.segments_max = 1; },
  };
  std::map<std::string, int> seen = {{base, 0}};
  for (const auto& change : changes) {
    CommConfig config;
    change(config);
    EXPECT_TRUE(seen.emplace(config.canonical(), 1).second) << config.canonical();
  }
}

TEST(CommConfigTest, WhatRanksNeedNotAgreeOnIsAbsent) {
  CommConfig config;
  config.rank = 3;
  config.world = 7;  // rank, world and suite have fields and codes of their own in HELLO
  config.suite = Suite::chacha20_poly1305;
  config.timeout = std::chrono::milliseconds(1);
  config.connect_timeout = std::chrono::milliseconds(1);
  config.heartbeat = std::chrono::milliseconds(1);
  config.emulation = Emulation{};
  config.workers = 9;
  EXPECT_EQ(config.canonical(), CommConfig{}.canonical());
}

TEST(EnvironmentTest, EmptyGivesTheDefaults) {
  const auto env = Environment::parse({{"HOME", "/x"}, {"SEALRINGX", "1"}, {"SEALRING_SUITE", ""}});
  ASSERT_TRUE(env);
  EXPECT_EQ(env->job_key_file, "");
  EXPECT_FALSE(env->suite);
  EXPECT_FALSE(env->timeout_s);
  EXPECT_EQ(env->node_ranks, 0);
  EXPECT_EQ(env->on_error, OnError::exit);
  EXPECT_FALSE(env->blocking_wait || env->require || env->allow_mixed || env->harden);
  EXPECT_EQ(env->log, "text");
  EXPECT_EQ(env->port_min, 0);
  EXPECT_EQ(env->port_max, 0);
}

TEST(EnvironmentTest, EveryVariableIsRead) {
  const auto env = Environment::parse({{"SEALRING_JOB_KEY_FILE", "/k"},
                                       {"SEALRING_SUITE", "chacha20-poly1305"},
                                       {"SEALRING_SOCKET_IFNAME", "^lo,docker"},
                                       {"SEALRING_PORT_RANGE", "29600-29700"},
                                       {"SEALRING_TIMEOUT_S", "2.5"},
                                       {"SEALRING_NODE_RANKS", "8"},
                                       {"SEALRING_ON_ERROR", "raise"},
                                       {"SEALRING_BLOCKING_WAIT", "1"},
                                       {"SEALRING_REQUIRE", "1"},
                                       {"SEALRING_ALLOW_MIXED", "1"},
                                       {"SEALRING_PATH", "staged"},
                                       {"SEALRING_LOG", "json"},
                                       {"SEALRING_HARDEN", "1"},
                                       {"SEALRING_TORCH_INDEX", "anything"}});
  ASSERT_TRUE(env) << env.error().message();
  EXPECT_EQ(env->job_key_file, "/k");
  EXPECT_EQ(env->suite, Suite::chacha20_poly1305);
  EXPECT_EQ(env->socket_ifname, "^lo,docker");
  EXPECT_EQ(env->port_range, "29600-29700");
  EXPECT_EQ(env->port_min, 29600);
  EXPECT_EQ(env->port_max, 29700);
  EXPECT_EQ(env->timeout_s, 2.5);
  EXPECT_EQ(env->node_ranks, 8);
  EXPECT_EQ(env->on_error, OnError::raise);
  EXPECT_TRUE(env->blocking_wait && env->require && env->allow_mixed && env->harden);
  EXPECT_EQ(env->path, "staged");
  EXPECT_EQ(env->log, "json");
}

TEST(EnvironmentTest, BadValuesNameTheVariable) {
  const Variables bad = {{"SEALRING_SUITE", "aes"},          {"SEALRING_TIMEOUT_S", "0"},
                         {"SEALRING_ON_ERROR", "ignore"},    {"SEALRING_BLOCKING_WAIT", "yes"},
                         {"SEALRING_REQUIRE", "2"},          {"SEALRING_ALLOW_MIXED", "true"},
                         {"SEALRING_PATH", "slow"},          {"SEALRING_LOG", "xml"},
                         {"SEALRING_HARDEN", "-1"},          {"SEALRING_PORT_RANGE", "10-"},
                         {"SEALRING_NODE_RANKS", "8 a node"}};
  for (const auto& [name, value] : bad) {
    const auto env = Environment::parse({{name, value}});
    ASSERT_FALSE(env) << name;
    EXPECT_EQ(env.error().code, Code::environment) << name;
    EXPECT_NE(env.error().what.find(name), std::string::npos) << env.error().what;
    EXPECT_EQ(env.error().got, value);
  }
}

TEST(EnvironmentTest, NoVariableMakesItPlain) {
  EXPECT_EQ(code_of({{"SEALRING_SUITE", "plain"}}), Code::environment);
  EXPECT_EQ(code_of({{"SEALRING_SUITE", "chained-gmac"}}), Code::environment);
  EXPECT_EQ(code_of({{"SEALRING_SUITE", "aes-256-gcm"}}), Code::ok);
}

TEST(EnvironmentTest, UnknownNamesGetTheNearest) {
  const std::map<std::string, std::string> near = {{"SEALRING_SUIT", "SEALRING_SUITE"},
                                                   {"SEALRING_KEY_FILE", "SEALRING_JOB_KEY_FILE"},
                                                   {"SEALRING_TIMEOUT", "SEALRING_TIMEOUT_S"},
                                                   {"SEALRING_REQUIRED", "SEALRING_REQUIRE"}};
  for (const auto& [name, expected] : near) {
    const auto env = Environment::parse({{name, "1"}});
    ASSERT_FALSE(env) << name;
    EXPECT_EQ(env.error().code, Code::environment);
    EXPECT_EQ(env.error().expected, expected);
    EXPECT_NE(env.error().message().find(expected), std::string::npos);
  }
}

TEST(EnvironmentTest, ForeignBytesAreNotPrinted) {
  const auto env = Environment::parse({{"SEALRING_LOG", "a\nb\x1b[31m" + std::string(500, 'x')}});
  ASSERT_FALSE(env);
  EXPECT_EQ(env.error().got.substr(0, 3), "a?b");
  EXPECT_LT(env.error().got.size(), 70u);
}

TEST(EnvironmentTest, PortRanges) {
  for (const char* bad : {"0", "65536", "5-4", "-5", "a", "1-65536", "1 -2", "99999999999", "1--2"})
    EXPECT_EQ(code_of({{"SEALRING_PORT_RANGE", bad}}), Code::environment) << bad;
  const auto one = Environment::parse({{"SEALRING_PORT_RANGE", "29600"}});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->port_min, 29600);
  EXPECT_EQ(one->port_max, 29600);
}

TEST(EnvironmentTest, RanksOfANode) {
  for (const char* bad : {"0", "-1", "1025", "65537", "8x", " 8", "two", "auto"})
    EXPECT_EQ(code_of({{"SEALRING_NODE_RANKS", bad}}), Code::environment) << bad;
  EXPECT_EQ(Environment::parse({{"SEALRING_NODE_RANKS", "1024"}})->node_ranks, 1024);
  // What launchers set is not read: jobs with unequal nodes have it too.
  EXPECT_EQ(Environment::parse({{"LOCAL_WORLD_SIZE", "4"}})->node_ranks, 0);
}

TEST(EnvironmentTest, TimeoutBounds) {
  for (const char* bad : {"-1", "nan", "inf", "1e9", "1s", " 1", "1e-9"})
    EXPECT_EQ(code_of({{"SEALRING_TIMEOUT_S", bad}}), Code::environment) << bad;
  EXPECT_EQ(code_of({{"SEALRING_TIMEOUT_S", "0.001"}}), Code::ok);
}

TEST(EnvironmentTest, ReadSeesTheProcess) {
  ASSERT_EQ(setenv("SEALRING_TIMEOUT_S", "7", 1), 0);
  const auto env = Environment::read();
  ASSERT_EQ(unsetenv("SEALRING_TIMEOUT_S"), 0);
  ASSERT_TRUE(env) << env.error().message();
  EXPECT_EQ(env->timeout_s, 7.0);
}

}  // namespace
}  // namespace sealring
