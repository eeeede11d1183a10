// Claim: whatever is done to control frames on the wire, a peer is lost; no false word is ever believed.
// How: ranks as threads on in-memory streams whose adversary flips, drops, repeats, swaps, cuts, reflects and
// invents;
//      a peer with true keys that talks nonsense; keys at their limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "sealring/control/control.h"
#include "sealring/control/frame.h"
#include "tests/control/control_world.h"

namespace sealring {
namespace {

using testing::eventually;
using testing::leave_all;
using testing::quick;
using testing::World;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

struct Harm {
  const char* name;
  std::function<std::vector<Bytes>(Bytes, std::vector<Bytes>& kept)> strike;
};

TEST(ControlAttack, EveryHarmToAFrameIsPeerLostAndNeverAFalseWord) {
  const std::vector<Harm> harms{{"flip",
                                 [](Bytes frame, auto&) {
                                   frame[4] ^= std::byte{1};
                                   return std::vector<Bytes>{frame};
                                 }},
                                {"flip tag",
                                 [](Bytes frame, auto&) {
                                   frame.back() ^= std::byte{0x80};
                                   return std::vector<Bytes>{frame};
                                 }},
                                {"longer",
                                 [](Bytes frame, auto&) {
                                   store_be(frame.data(), 0x7FFFFFFFu);
                                   return std::vector<Bytes>{frame};
                                 }},
                                {"no length",
                                 [](Bytes frame, auto&) {
                                   store_be(frame.data(), 0u);
                                   return std::vector<Bytes>{frame};
                                 }},
                                {"shorter",
                                 [](Bytes frame, auto&) {
                                   frame.pop_back();
                                   return std::vector<Bytes>{frame};
                                 }},
                                {"replay",
                                 [](const Bytes& frame, auto&) {
                                   return std::vector<Bytes>{frame, frame};
                                 }},
                                {"drop", [](const Bytes&, auto&) { return std::vector<Bytes>{}; }},
                                {"swap",
                                 [](const Bytes& frame, std::vector<Bytes>& kept) {
                                   if (kept.empty()) return kept.push_back(frame), std::vector<Bytes>{};
                                   const Bytes first = kept.front();
                                   return std::vector<Bytes>{frame, first};
                                 }},
                                {"garbage", [](const Bytes& frame, auto&) {
                                   return std::vector<Bytes>{Bytes(40, std::byte{3}), frame};
                                 }}};
  for (const Harm& harm : harms) {
    World world(2, quick());
    world.begin_all(world.op(0));
    std::this_thread::sleep_for(30ms);
    int struck = 0;
    std::vector<Bytes> kept;
    world.hub.tamper([&](Rank from, Rank, ByteView bytes) {
      const int times = std::string_view(harm.name) == "swap" ? 2 : 1;
      if (from != 1 || struck >= times) return std::vector<Bytes>{to_bytes(bytes)};
      ++struck;
      return harm.strike(to_bytes(bytes), kept);
    });
    const Error error = world.ending(0);
    EXPECT_EQ(error.code, Code::peer_lost) << harm.name << ": " << error.message();
    EXPECT_EQ(error.peer, 1) << harm.name;
    EXPECT_THAT(error.what, HasSubstr("no longer authentic")) << harm.name;
    EXPECT_THAT(world.ending(1).what, HasSubstr("rank 0 reported SR-E603 PEER_LOST about rank 1"))
        << harm.name;
    world.controls.clear();  // before `kept` goes
  }
}

TEST(ControlAttack, ReflectedFramesAreNotTaken) {
  World world(2, quick());
  world.hub.tamper([&](Rank from, Rank, ByteView bytes) {
    if (from == 0) world.hub.inject_locked(1, 0, bytes);  // rank 0 hears itself where rank 1 should speak
    return from == 0 ? std::vector<Bytes>{to_bytes(bytes)} : std::vector<Bytes>{};
  });
  const Error error = world.ending(0);
  EXPECT_EQ(error.code, Code::peer_lost);
  EXPECT_THAT(error.what, HasSubstr("no longer authentic"));
}

TEST(ControlAttack, AnAuthenticPeerThatTalksNonsenseIsLost) {
  World world(2, quick());
  // Rank 1 itself, with its right keys, but in a world of its own making: garbage inside a good frame.
  auto keys = testing::keys_for(1, 2);
  FrameDirection direction;
  direction.th3.fill(std::byte{0x33});
  direction.from = 1;
  direction.to = 0;
  FrameSealer sealer(keys->take_chain(Kind::ctl, 1, 0), direction, {});
  std::vector<Bytes> forged{sealer.seal(as_bytes("\x7f nonsense")).value()};
  testing::MemoryHub hub(2);
  Verdict verdict;
  auto mine = testing::keys_for(0, 2);
  ControlConfig config = quick();
  config.world = 2;
  auto control = Control::start(config, *mine, hub.streams(0), verdict).value();
  hub.inject(1, 0, forged[0]);
  ASSERT_TRUE(eventually([&] { return verdict.dead(); }));
  EXPECT_EQ(verdict.error()->code, Code::peer_lost);
  EXPECT_THAT(verdict.error()->what, HasSubstr("does not exist"));
}

TEST(ControlAttack, KeysRotateOftenAndNobodyNotices) {
  ControlConfig config = quick();
  config.heartbeat = 2ms;
  config.budget.ops_rotate = 2;
  World world(3, config);
  for (std::uint64_t seq = 0; seq < 100; ++seq) {
    world.begin_all(world.op(seq));
    world.finish_all(world.op(seq));
    std::this_thread::sleep_for(1ms);
  }
  for (const Verdict& verdict : world.verdicts) EXPECT_FALSE(verdict.dead());
  leave_all(world);
}

TEST(ControlAttack, AKeyAtItsHardLimitEndsTheSessionByThatName) {
  ControlConfig config = quick();
  config.budget.segments_max = 3;
  World world(2, config);
  const Error error = world.ending(0);
  EXPECT_TRUE(error.code == Code::key_limit || error.code == Code::peer_lost) << error.message();
}

}  // namespace
}  // namespace sealring
