// Claim: chains, sender keys and connection MACs are the key schedule of protocol A.3; each is given once;
// wiped is gone. How: answers of an independent implementation; programmer errors by death tests.
#include "sealring/session/keys.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "../crypto/vector_file.h"
#include "sealring/session/handshake.h"

namespace sealring {
namespace {

using test::array_of;

struct Inputs {
  std::vector<test::VectorCase> cases = test::read_vectors("key_schedule.txt");
  SecretBytes secret(const std::string& name) const { return SecretBytes::copy_of(cases[0].bytes(name)); }
  std::map<Rank, SecretBytes> pair_secrets() const {
    std::map<Rank, SecretBytes> out;
    out.emplace(Rank{0}, secret("xp0"));
    out.emplace(Rank{2}, secret("xp2"));
    return out;
  }
  std::unique_ptr<GroupKeys> group(Suite suite) const {
    return std::make_unique<GroupKeys>(suite, Rank{1}, std::vector<Rank>{0, 1, 2},
                                       array_of<32>(cases[0].bytes("group_id")),
                                       array_of<64>(cases[0].bytes("th3")), secret("gs"), pair_secrets());
  }
};

Kind kind_of(const std::string& name) {
  return name == "pair" ? Kind::pair : name == "p2p" ? Kind::p2p : Kind::ctl;
}

TEST(Keys, schedule_vectors) {
  const Inputs inputs;
  std::map<std::string, std::unique_ptr<GroupKeys>> groups;
  int chains = 0, macs = 0;
  for (std::size_t i = 1; i < inputs.cases.size(); ++i) {
    const auto& c = inputs.cases[i];
    SCOPED_TRACE(c.text("case"));
    const std::string kind = c.text("case").substr(0, c.text("case").find(' '));
    const std::string ends = c.text("case").substr(kind.size() + 1);
    const Rank from = static_cast<Rank>(ends[0] - '0');
    if (kind == "conn") {
      const Rank to = static_cast<Rank>(ends[3] - '0');
      EXPECT_EQ(to_hex(inputs.group(Suite::aes_256_gcm)->connection_mac(from, to).view()), c.text("mac"));
      ++macs;
      continue;
    }
    const Suite suite = parse_suite(c.text("suite")).value();
    auto& group = groups[c.text("suite")];
    if (group == nullptr) group = inputs.group(suite);
    KeyChain chain = kind == "sender"
                         ? group->take_sender_chain(from)
                         : group->take_chain(kind_of(kind), from, static_cast<Rank>(ends[3] - '0'));
    for (Epoch epoch = 0; epoch < 3; ++epoch) {
      EXPECT_EQ(chain.next_epoch(), epoch);
      const TrafficKey key = chain.next();
      EXPECT_EQ(key.epoch, epoch);
      EXPECT_EQ(key.suite, kind == "ctl" ? Suite::aes_256_gcm : suite);
      EXPECT_EQ(to_hex(key.key.view()), c.text("key" + std::to_string(epoch)));
      EXPECT_EQ(to_hex(key.iv.view()), c.text("iv" + std::to_string(epoch)));
    }
    ++chains;
  }
  EXPECT_EQ(chains, 4 * 9);
  EXPECT_EQ(macs, 4);
}

TEST(Keys, a_session_derives_the_world_group_id) {
  const Inputs inputs;
  SessionKeys session(Suite::aes_256_gcm, 1, 3, array_of<64>(inputs.cases[0].bytes("th3")),
                      inputs.secret("gs"), inputs.pair_secrets());
  EXPECT_EQ(to_hex(session.world_group().group_id()), inputs.cases[0].text("group_id"));
  EXPECT_EQ(session.world_group().members(), (std::vector<Rank>{0, 1, 2}));
  EXPECT_EQ(to_hex(session.pair_secret(0).view()), inputs.cases[0].text("xp0"));
  EXPECT_EQ(to_hex(session.pair_secret(2).view()), inputs.cases[0].text("xp2"));
}

TEST(Keys, threads_take_different_chains_at_once) {
  const Inputs inputs;
  const auto group = inputs.group(Suite::aes_256_gcm);
  const std::string mac = to_hex(inputs.group(Suite::aes_256_gcm)->connection_mac(1, 0).view());
  std::array<std::string, 4> keys, macs;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < keys.size(); ++i) {
    threads.emplace_back([&, i] {
      const Kind kind = i / 2 == 0 ? Kind::pair : Kind::p2p;
      KeyChain chain = i % 2 == 0 ? group->take_chain(kind, 1, 0) : group->take_chain(kind, 0, 1);
      keys[i] = to_hex(chain.next().key.view());
      macs[i] = to_hex(group->connection_mac(1, 0).view());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), keys.size());
  for (const std::string& got : macs) EXPECT_EQ(got, mac);
}

TEST(KeysDeath, a_chain_is_given_once) {
  const Inputs inputs;
  const auto group = inputs.group(Suite::aes_256_gcm);
  (void)group->take_chain(Kind::pair, 1, 0);
  EXPECT_DEATH((void)group->take_chain(Kind::pair, 1, 0), "taken twice");
  (void)group->take_chain(Kind::p2p, 1, 0);  // another kind, another direction: others
  (void)group->take_chain(Kind::pair, 0, 1);
  (void)group->take_sender_chain(1);
  EXPECT_DEATH((void)group->take_sender_chain(1), "taken twice");
}

TEST(KeysDeath, foreign_and_wiped_keys_do_not_exist) {
  const Inputs inputs;
  const auto group = inputs.group(Suite::aes_256_gcm);
  EXPECT_DEATH((void)group->take_chain(Kind::pair, 0, 2), "SR_CHECK");  // I am neither end
  EXPECT_DEATH((void)group->take_chain(Kind::pair, 1, 1), "SR_CHECK");
  EXPECT_DEATH((void)group->take_chain(Kind::pair, 1, 7), "SR_CHECK");
  EXPECT_DEATH((void)group->take_chain(Kind::conn, 1, 0), "SR_CHECK");
  EXPECT_DEATH((void)group->take_sender_chain(3), "SR_CHECK");
  group->wipe();
  EXPECT_DEATH((void)group->take_chain(Kind::pair, 1, 0), "wiped");
  EXPECT_DEATH((void)group->take_sender_chain(0), "wiped");
  EXPECT_DEATH((void)group->connection_mac(1, 0), "wiped");
  KeyChain chain(SecretBytes(64), Suite::aes_256_gcm);
  chain.wipe();
  EXPECT_DEATH((void)chain.next(), "wiped");
}

TEST(KeysDeath, a_wiped_session_aborts) {
  const Inputs inputs;
  SessionKeys session(Suite::aes_256_gcm, 1, 3, array_of<64>(inputs.cases[0].bytes("th3")),
                      inputs.secret("gs"), inputs.pair_secrets());
  session.wipe();
  EXPECT_DEATH((void)session.pair_secret(0), "no secret");
  EXPECT_DEATH((void)session.world_group().take_chain(Kind::pair, 1, 0), "wiped");
}

}  // namespace
}  // namespace sealring
