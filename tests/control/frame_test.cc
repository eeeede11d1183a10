// Claim: a control frame opens only unchanged, once, in order, under its own direction, and no length is
// believed. How: two ends of one chain; every bit flipped, frames dropped, repeated, swapped, cut; lengths at
// both edges.
#include "sealring/control/frame.h"

#include <gtest/gtest.h>

#include "sealring/crypto/kdf.h"
#include "tests/control/control_world.h"

namespace sealring {
namespace {

FrameDirection direction_01() {
  FrameDirection out;
  out.th3.fill(std::byte{0x33});
  out.from = 0;
  out.to = 1;
  return out;
}

KeyChain chain_of(std::uint8_t fill) {
  SecretBytes root(64);
  root.data()[0] = static_cast<std::byte>(fill);
  return KeyChain(std::move(root), Suite::aes_256_gcm);
}

struct Pair {
  explicit Pair(KeyBudget budget = {})
      : sealer(chain_of(1), direction_01(), budget), opener(chain_of(1), direction_01(), budget) {}
  FrameSealer sealer;
  FrameOpener opener;
  Bytes frame(std::string_view text) { return sealer.seal(as_bytes(text)).value(); }
  Result<std::optional<Bytes>> give(ByteView bytes) {
    opener.feed(bytes);
    return opener.next();
  }
};

std::string text_of(const Result<std::optional<Bytes>>& got) {
  if (!got || !*got) return "(none)";
  return std::string(reinterpret_cast<const char*>((*got)->data()), (*got)->size());
}

TEST(Frame, AadIsExactlyTheProtocolsFields) {
  FrameDirection direction;
  for (int i = 0; i < 8; ++i) direction.th3[static_cast<std::size_t>(i)] = static_cast<std::byte>(0xA0 + i);
  direction.from = 0x0102;
  direction.to = 0x0304;
  // "SEALRING1/ctl" 00 | TH3[0..8) | u32 i | u32 j | u32 epoch | u64 number | u32 length
  EXPECT_EQ(to_hex(frame_aad(direction, 0x11121314, 0x2122232425262728, 0x31323334)),
            "5345414c52494e47312f63746c00"
            "a0a1a2a3a4a5a6a7"
            "00000102"
            "00000304"
            "11121314"
            "2122232425262728"
            "31323334");
}

TEST(Frame, RoundTripAndLayout) {
  Pair pair;
  const Bytes frame = pair.frame("hello");
  ASSERT_EQ(frame.size(), 4u + 5u + 16u);
  EXPECT_EQ(to_hex(ByteView(frame).first(4)), "00000005");
  EXPECT_EQ(text_of(pair.give(frame)), "hello");
  EXPECT_EQ(text_of(pair.opener.next()), "(none)");
}

TEST(Frame, IsTheAeadOfItsNumberAndNothingElse) {
  Pair pair;
  (void)pair.frame("zero");
  const Bytes frame = pair.frame("one");
  TrafficKey key = chain_of(1).next();
  Nonce iv{};
  std::copy_n(key.iv.data(), iv.size(), iv.begin());
  const Aead oracle = Aead::make(Suite::aes_256_gcm, key.key.view()).value();
  Bytes body(3);
  const Tag tag =
      oracle.seal(nonce_of(iv, 1), frame_aad(direction_01(), 0, 1, 3), as_bytes("one"), body).value();
  EXPECT_EQ(to_hex(ByteView(frame).subspan(4)), to_hex(body) + to_hex(tag));
}

TEST(Frame, ArrivesByteByByteAndInOneLump) {
  Pair pair;
  Bytes stream;
  for (const char* text : {"a", "bb", "ccc"}) {
    const Bytes frame = pair.frame(text);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  std::vector<std::string> got;
  for (const std::byte b : stream) {
    auto next = pair.give(ByteView(&b, 1));
    ASSERT_TRUE(next.has_value());
    if (*next) got.push_back(text_of(next));
  }
  EXPECT_EQ(got, (std::vector<std::string>{"a", "bb", "ccc"}));
  Bytes lump = pair.frame("d");
  const Bytes second = pair.frame("e");
  lump.insert(lump.end(), second.begin(), second.end());
  EXPECT_EQ(text_of(pair.give(lump)), "d");
  EXPECT_EQ(text_of(pair.opener.next()), "e");
  EXPECT_EQ(text_of(pair.opener.next()), "(none)");
}

TEST(Frame, EveryFlippedBitIsRefusedOrWaitsForBytesThatNeverCome) {
  const std::size_t frame_bytes = Pair().frame("0123456789").size();
  for (std::size_t bit = 0; bit < frame_bytes * 8; ++bit) {
    Pair pair;
    Bytes frame = pair.frame("0123456789");
    frame[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const auto got = pair.give(frame);
    if (got.has_value()) {
      // Only a longer announced length may still wait; it never gives a payload.
      EXPECT_LT(bit, 32u);
      EXPECT_FALSE(got->has_value()) << "bit " << bit;
    } else {
      EXPECT_EQ(got.error().code,
                bit < 32 && got.error().code == Code::malformed ? Code::malformed : Code::data_tag);
    }
  }
}

TEST(Frame, DropReplayReorderAndReflectionAreDataTag) {
  {
    Pair pair;
    (void)pair.frame("lost");
    EXPECT_EQ(pair.give(pair.frame("next")).error().code, Code::data_tag);
  }
  {
    Pair pair;
    const Bytes frame = pair.frame("once");
    EXPECT_EQ(text_of(pair.give(frame)), "once");
    EXPECT_EQ(pair.give(frame).error().code, Code::data_tag);
  }
  {
    Pair pair;
    const Bytes first = pair.frame("1"), second = pair.frame("2");
    EXPECT_EQ(pair.give(second).error().code, Code::data_tag);
    EXPECT_EQ(pair.give(first).error().code, Code::data_tag);  // sticky
  }
  {
    Pair pair;
    FrameDirection back = direction_01();
    std::swap(back.from, back.to);
    FrameOpener reflected(chain_of(1), back, {});  // even under the same key, the direction is authenticated
    reflected.feed(pair.frame("mirror"));
    EXPECT_EQ(reflected.next().error().code, Code::data_tag);
  }
  {
    Pair pair;
    FrameDirection other = direction_01();
    other.th3[7] ^= std::byte{1};
    FrameOpener foreign(chain_of(1), other, {});
    foreign.feed(pair.frame("other session"));
    EXPECT_EQ(foreign.next().error().code, Code::data_tag);
  }
}

TEST(Frame, LengthEdges) {
  const auto head = [](std::uint32_t length) {
    std::array<std::byte, 4> out{};
    store_be(out.data(), length);
    return out;
  };
  EXPECT_EQ(parse_frame_length(head(0)).error().code, Code::malformed);
  EXPECT_EQ(parse_frame_length(head(1)).value(), 1u);
  EXPECT_EQ(parse_frame_length(head(65536)).value(), 65536u);
  EXPECT_EQ(parse_frame_length(head(65537)).error().code, Code::malformed);
  EXPECT_EQ(parse_frame_length(head(0xFFFFFFFF)).error().code, Code::malformed);
  EXPECT_EQ(parse_frame_length(ByteView(head(1)).first(3)).error().code, Code::malformed);

  Pair pair;
  const Bytes most(kFrameBytesMax, std::byte{7});
  const Bytes frame = pair.sealer.seal(most).value();
  EXPECT_EQ(pair.give(frame).value().value(), most);
  // Refused from its four bytes alone, and for good.
  EXPECT_EQ(pair.give(head(65537)).error().code, Code::malformed);
  EXPECT_EQ(pair.give(pair.frame("x")).error().code, Code::malformed);
}

TEST(FrameDeathTest, EmptyAndOversizedPayloadsAreProgrammerErrors) {
  Pair pair;
  EXPECT_DEATH((void)pair.sealer.seal({}), "SR_CHECK");
  const Bytes over(kFrameBytesMax + 1);
  EXPECT_DEATH((void)pair.sealer.seal(over), "SR_CHECK");
}

TEST(Frame, EpochsTurnAtTheSameFrameOnBothEnds) {
  KeyBudget by_ops, by_bytes, by_segments;
  by_ops.ops_rotate = 3;
  by_bytes.bytes_rotate = 9;
  by_segments.segments_rotate = 3;
  for (const KeyBudget& budget : {by_ops, by_bytes, by_segments}) {
    Pair pair(budget);
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(text_of(pair.give(pair.frame("abc"))), "abc");
      EXPECT_EQ(pair.sealer.epoch(), static_cast<Epoch>(i / 3));
      EXPECT_EQ(pair.opener.epoch(), static_cast<Epoch>(i / 3));
    }
  }
}

TEST(Frame, OldEpochFrameIsDataTag) {
  KeyBudget budget;
  budget.ops_rotate = 1;
  Pair pair(budget);
  const Bytes old = pair.frame("old");
  EXPECT_EQ(text_of(pair.give(old)), "old");
  EXPECT_EQ(pair.give(old).error().code, Code::data_tag);
}

TEST(Frame, HardLimitIsRefusedBeforeSealing) {
  KeyBudget budget;
  budget.bytes_max = 4;
  Pair pair(budget);
  EXPECT_EQ(pair.sealer.seal(as_bytes("abcd")).has_value(), true);
  EXPECT_EQ(pair.sealer.seal(as_bytes("e")).error().code, Code::key_limit);
}

TEST(Frame, GarbageOfEveryLengthIsNeverOpened) {
  std::uint64_t state = 88172645463325252ull;
  for (std::size_t bytes = 0; bytes < 600; ++bytes) {
    Bytes garbage(bytes);
    for (std::byte& b : garbage) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      b = static_cast<std::byte>(state);
    }
    if (bytes >= 4) store_be(garbage.data(), static_cast<std::uint32_t>(1 + state % 64));
    Pair pair;
    const auto got = pair.give(garbage);
    EXPECT_FALSE(got.has_value() && got->has_value());
  }
}

TEST(FrameDeathTest, WipedKeysSealNothing) {
  Pair pair;
  (void)pair.frame("x");
  pair.opener.wipe();
  EXPECT_FALSE(pair.give(pair.frame("y")).has_value());
}

}  // namespace
}  // namespace sealring
