// Claim: layouts are big-endian and exact, and a reader never passes the end of its input.
// How: golden bytes; every read at every remaining size; hex in both directions with each kind of bad text.
#include "sealring/base/bytes.h"

#include <gtest/gtest.h>

namespace sealring {
namespace {

TEST(Bytes, StoreAndLoadAreBigEndian) {
  std::array<std::byte, 8> out{};
  store_be(out.data(), std::uint64_t{0x0102030405060708});
  EXPECT_EQ(to_hex(out), "0102030405060708");
  EXPECT_EQ(load_be<std::uint64_t>(out.data()), 0x0102030405060708u);
  EXPECT_EQ(load_be<std::uint32_t>(out.data() + 2), 0x03040506u);
  EXPECT_EQ(load_be<std::uint16_t>(out.data() + 6), 0x0708u);
  EXPECT_EQ(load_be<std::uint8_t>(out.data() + 7), 8u);
}

TEST(Bytes, WriterAppends) {
  ByteWriter out;
  out.put(std::uint8_t{1}).put(std::uint16_t{0x0203}).put(as_bytes("ab")).put(std::uint32_t{0x04050607});
  EXPECT_EQ(to_hex(out.bytes()), "010203616204050607");
  const Bytes taken = out.take();
  EXPECT_EQ(taken.size(), 9u);
}

TEST(ByteReader, ReadsWhatTheWriterWrote) {
  ByteWriter out;
  out.put(std::uint64_t{1}).put(std::uint16_t{2}).put(as_bytes("xyz"));
  ByteReader in(out.bytes());
  EXPECT_EQ(in.get<std::uint64_t>(), 1u);
  EXPECT_EQ(in.get<std::uint16_t>(), 2u);
  EXPECT_FALSE(in.finished()) << "bytes are left";
  EXPECT_EQ(to_hex(in.array<3>()), "78797a");
  EXPECT_TRUE(in.finished());
  EXPECT_EQ(in.remaining(), 0u);
}

TEST(ByteReader, NeverPassesTheEnd) {
  const Bytes data(7, std::byte{0xFF});
  for (std::size_t bytes = 0; bytes <= data.size(); ++bytes) {
    const ByteView view = ByteView(data).first(bytes);
    ByteReader u64(view), u32(view), array(view), raw(view);
    EXPECT_EQ(u64.get<std::uint64_t>(), 0u);
    EXPECT_TRUE(u64.failed());
    EXPECT_EQ(u32.get<std::uint32_t>(), bytes >= 4 ? 0xFFFFFFFFu : 0u);
    EXPECT_EQ(u32.failed(), bytes < 4);
    EXPECT_EQ(to_hex(array.array<6>()), bytes >= 6 ? "ffffffffffff" : "000000000000");
    EXPECT_EQ(raw.take(bytes + 1).size(), 0u);
    EXPECT_TRUE(raw.failed());
  }
}

TEST(ByteReader, AFailureIsFinal) {
  const Bytes data(4);
  ByteReader in(data);
  (void)in.take(5);
  EXPECT_TRUE(in.failed());
  EXPECT_EQ(in.take(1).size(), 0u) << "even what would fit";
  EXPECT_EQ(in.get<std::uint8_t>(), 0u);
  EXPECT_FALSE(in.finished());
  ByteReader huge(data);
  EXPECT_EQ(huge.take(~std::size_t{0}).size(), 0u);
  EXPECT_TRUE(huge.failed());
}

TEST(ByteReader, EmptyInput) {
  ByteReader in{ByteView{}};
  EXPECT_TRUE(in.finished());
  EXPECT_EQ(in.take(0).size(), 0u);
  EXPECT_TRUE(in.finished());
  EXPECT_EQ(in.get<std::uint8_t>(), 0u);
  EXPECT_FALSE(in.finished());
}

TEST(Hex, RoundTripOfEveryByte) {
  Bytes all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<std::byte>(i));
  const std::string text = to_hex(all);
  EXPECT_EQ(text.substr(0, 8), "00010203");
  EXPECT_EQ(text.substr(504), "fcfdfeff");
  EXPECT_EQ(from_hex(text).value(), all);
  EXPECT_EQ(from_hex("aAbBcCdDeEfF").value(), from_hex("AABBCCDDEEFF").value());
  EXPECT_TRUE(from_hex("").value().empty());
}

TEST(Hex, BadTextIsMalformed) {
  for (const char* text : {"0", "abc", "0g", "g0", "0x", " 0", "0 ", "/0", ":0", "@0", "`0",
                           "\xff"
                           "0"}) {
    const auto got = from_hex(text);
    ASSERT_FALSE(got.has_value()) << text;
    EXPECT_EQ(got.error().code, Code::malformed);
  }
}

}  // namespace
}  // namespace sealring
