// Claim: the machine speaks the documented protocol, takes only what it awaits, and its first error is its
// last. How: rank 1 played by hand from the document, honest and deviating; posts, slots and stages checked
// one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "manual_peer.h"
#include "pump.h"

namespace sealring {
namespace {

using test::ManualPeer;

/// Rank 0 as a machine, rank 1 by hand, on one board.
struct Duo {
  Duo() : key(JobKey::generate()), identity(make_job_key_identity(key)), peer(key, "lanes=1\n") {
    HandshakeConfig config;
    config.world = 2;
    config.config_text = "lanes=1\n";
    machine.emplace(Handshake::start(config, identity).value());
    collect();
  }
  void collect() {
    for (Post& post : machine->take_posts()) board[post.slot] = std::move(post.bytes);
  }
  Result<void> feed(const std::string& slot, const Bytes& bytes) {
    auto taken = machine->receive(slot, bytes);
    collect();
    return taken;
  }
  void to_evidence() {
    ASSERT_TRUE(feed("hello/0", board.at("hello/0")));
    ASSERT_TRUE(feed("hello/1", peer.hello));
    peer.take_hello(board.at("hello/0"));
  }
  void to_pair() {
    to_evidence();
    ASSERT_TRUE(feed("evidence/1", peer.evidence));
  }
  void to_secret() {
    to_pair();
    ASSERT_TRUE(feed("kk2/0/1", peer.take_first(board.at("evidence/0"), board.at("kk1/0/1"))));
  }
  void to_confirm() {
    to_secret();
    ASSERT_TRUE(feed("m5/1/0", peer.secret(peer.pair.handshake_hash)));
    peer.take_secret(board.at("m5/0/1"));
  }

  JobKey key;
  Identity identity;
  ManualPeer peer;
  std::optional<Handshake> machine;
  test::Board board;
};

using Slots = std::vector<std::string>;

TEST(Machine, speaks_the_documented_protocol) {
  Duo duo;
  EXPECT_EQ(duo.machine->stage(), "hello");
  EXPECT_EQ(duo.machine->awaited(), (Slots{"hello/0", "hello/1"}));
  EXPECT_EQ(duo.machine->missing(), (std::vector<Rank>{1}));
  EXPECT_EQ(duo.board.size(), 2u);  // config/0 and hello/0
  duo.to_evidence();
  EXPECT_EQ(duo.machine->stage(), "evidence");
  EXPECT_EQ(duo.machine->awaited(), (Slots{"evidence/1"}));
  EXPECT_EQ(duo.board.at("evidence/0"), duo.peer.evidence_wanted_of_0);
  EXPECT_FALSE(duo.board.contains("kk1/0/1"));  // no Diffie-Hellman before all evidence was accepted
  ASSERT_TRUE(duo.feed("evidence/1", duo.peer.evidence));
  EXPECT_EQ(duo.machine->stage(), "pair");
  EXPECT_EQ(duo.machine->awaited(), (Slots{"kk2/0/1"}));
  ASSERT_TRUE(duo.feed("kk2/0/1", duo.peer.take_first(duo.board.at("evidence/0"), duo.board.at("kk1/0/1"))));
  EXPECT_EQ(duo.machine->stage(), "secret");
  EXPECT_EQ(duo.machine->awaited(), (Slots{"m5/1/0"}));
  EXPECT_FALSE(duo.board.contains("confirm/0"));
  ASSERT_TRUE(duo.feed("m5/1/0", duo.peer.secret(duo.peer.pair.handshake_hash)));
  duo.peer.take_secret(duo.board.at("m5/0/1"));
  EXPECT_EQ(duo.machine->stage(), "confirm");
  EXPECT_EQ(duo.machine->awaited(), (Slots{"confirm/1"}));
  EXPECT_TRUE(constant_time_equal(ByteView(duo.board.at("confirm/0")).first(64), duo.peer.finished(0)));
  EXPECT_FALSE(duo.machine->ready());
  ASSERT_TRUE(duo.feed("confirm/1", duo.peer.confirm()));
  EXPECT_TRUE(duo.machine->ready());
  EXPECT_TRUE(duo.machine->awaited().empty());
  EXPECT_TRUE(duo.machine->missing().empty());
  EXPECT_EQ(duo.machine->stage(), "ready");
  EXPECT_TRUE(duo.feed("confirm/1", duo.peer.confirm()));  // the same again, late
  EXPECT_TRUE(duo.machine->ready());

  const auto session = std::move(*duo.machine).finish();
  EXPECT_EQ(session->th3(), duo.peer.th3);
  EXPECT_EQ(session->rank(), 0);
  EXPECT_EQ(session->world(), 2);
  EXPECT_TRUE(constant_time_equal(session->pair_secret(1).view(), duo.peer.pair_secret().view()));
}

void expect_refused(Duo& duo, const Result<void>& taken, Code code) {
  ASSERT_FALSE(taken);
  EXPECT_EQ(code_info(taken.error().code).name, code_info(code).name);
  EXPECT_EQ(taken.error().rank, 0);
  EXPECT_EQ(taken.error().peer, 1);
  EXPECT_FALSE(duo.machine->ready());
  // The first error is the last: whatever is fed afterwards, awaited or not.
  for (const char* slot : {"hello/1", "confirm/1", "nonsense"}) {
    const auto again = duo.machine->receive(slot, duo.peer.hello);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().message(), taken.error().message());
  }
  EXPECT_TRUE(duo.machine->awaited().empty());
  // One note, in place of whatever else was to be posted.
  const Note note = Note::decode(duo.board.at("note/0"), 2).value();
  EXPECT_EQ(note.rank, 0);
  EXPECT_EQ(note.code, code);
  EXPECT_EQ(note.peer, 1);
  EXPECT_TRUE(duo.machine->take_posts().empty());
}

TEST(Machine, a_secret_that_names_another_exchange_is_pair_auth) {
  Duo duo;
  duo.to_secret();
  Hash512 other = duo.peer.pair.handshake_hash;
  other[63] ^= std::byte{1};
  expect_refused(duo, duo.feed("m5/1/0", duo.peer.secret(other)), Code::pair_auth);
  EXPECT_FALSE(duo.board.contains("confirm/0"));
}

TEST(Machine, a_peer_that_shares_other_secrets_is_confirm) {
  Duo duo;
  duo.to_confirm();
  duo.peer.contribution.data()[0] ^= std::byte{1};  // as if it had told another rank something else
  duo.peer.take_secret(duo.board.at("m5/0/1"));
  expect_refused(duo, duo.feed("confirm/1", duo.peer.confirm()), Code::confirm);
}

TEST(Machine, a_peer_that_cannot_prove_itself_again_is_post_evidence) {
  Duo duo;
  duo.to_confirm();
  Bytes confirm = duo.peer.confirm();
  confirm.at(64 + 4) ^= std::byte{1};
  expect_refused(duo, duo.feed("confirm/1", confirm), Code::post_evidence);

  Duo join;  // the proof of the join is none of the finished session
  join.to_confirm();
  Bytes swapped = join.peer.confirm();
  std::copy(join.peer.evidence.begin(), join.peer.evidence.end(), swapped.begin() + 64);
  expect_refused(join, join.feed("confirm/1", swapped), Code::post_evidence);
}

TEST(Machine, a_payload_in_a_pair_message_is_pair_auth) {
  Duo duo;
  duo.to_pair();
  Bytes kk2 = duo.peer.take_first(duo.board.at("evidence/0"), duo.board.at("kk1/0/1"));
  kk2.push_back(std::byte{0});
  expect_refused(duo, duo.feed("kk2/0/1", kk2), Code::pair_auth);
}

TEST(Machine, a_low_order_ephemeral_is_pair_auth) {
  Duo duo;
  duo.to_pair();
  expect_refused(duo, duo.feed("kk2/0/1", Bytes(NoiseKk::kMessageBytes)), Code::pair_auth);
}

TEST(Machine, evidence_with_foreign_fields_is_malformed) {
  Duo duo;
  duo.to_evidence();
  Evidence evidence = Evidence::decode(duo.peer.evidence).value();
  evidence.ocsp = Bytes(1);
  expect_refused(duo, duo.feed("evidence/1", evidence.encode()), Code::malformed);
}

TEST(Machine, the_same_bytes_again_are_ignored_and_others_refused) {
  Duo duo;
  duo.to_secret();
  for (const auto& [slot, bytes] :
       std::vector<std::pair<std::string, Bytes>>{{"hello/0", duo.board.at("hello/0")},
                                                  {"hello/1", duo.peer.hello},
                                                  {"evidence/1", duo.peer.evidence}}) {
    EXPECT_TRUE(duo.feed(slot, bytes)) << slot;
  }
  EXPECT_EQ(duo.machine->stage(), "secret");
  Bytes changed = duo.peer.evidence;
  changed.back() ^= std::byte{1};
  expect_refused(duo, duo.feed("evidence/1", changed), Code::malformed);
}

TEST(Machine, slots_that_are_not_awaited_are_refused) {
  for (const std::string slot :
       {"evidence/1", "kk1/0/1", "kk2/0/1", "m5/1/0", "confirm/1", "note/1", "hello/2", "hello/65537",
        "hello/01", "hello", "hello/", "hello/1/", "hello/-1", "", "m5/1/0/0", "config/0"}) {
    SCOPED_TRACE(slot);
    Duo duo;
    const auto taken = duo.machine->receive(slot, duo.peer.hello);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, Code::invalid_argument);
    EXPECT_EQ(duo.machine->receive("hello/1", duo.peer.hello).error().code, Code::invalid_argument);
  }
  Duo duo;
  duo.to_secret();
  EXPECT_EQ(duo.machine->receive("confirm/1", duo.peer.hello).error().code, Code::invalid_argument);
}

TEST(MachineDeath, no_keys_before_ready) {
  Duo duo;
  duo.to_confirm();
  EXPECT_DEATH((void)std::move(*duo.machine).finish(), "before n valid CONFIRMs");
  EXPECT_FALSE(duo.feed("confirm/1", Bytes(64)));
  EXPECT_DEATH((void)std::move(*duo.machine).finish(), "before n valid CONFIRMs");
}

TEST(Machine, a_failing_attester_ends_the_start) {
  // Gives up at the first proof, or at the second.
  struct Failing final : Attester {
    explicit Failing(Attester& real_one, int good_quotes) : real(real_one), left(good_quotes) {}
    IdentityKind kind() const override { return real.kind(); }
    Result<void> describe(Hello& hello) override { return real.describe(hello); }
    Result<Evidence> quote(const Claim& claim) override {
      if (left-- == 0) return fail(Code::file, "attester", "no report");
      return real.quote(claim);
    }
    std::optional<SecretBytes> noise_psk(ByteView th1) const override { return real.noise_psk(th1); }
    Attester& real;
    int left;
  };
  for (const int good : {0, 1}) {
    Identity real = make_job_key_identity(JobKey::generate());
    Identity identity;
    identity.attester = std::make_unique<Failing>(*real.attester, good);
    identity.verifier = std::move(real.verifier);
    const auto alone = Handshake::start({}, identity);  // a world of one proves itself too
    ASSERT_FALSE(alone);
    EXPECT_EQ(alone.error().code, Code::file);
    EXPECT_EQ(alone.error().rank, 0);
  }
}

}  // namespace
}  // namespace sealring
