// Claim: HELLO, EVIDENCE and NOTE have the layouts of docs/handshake.md and their decoders take nothing else.
// How: bytes at every offset; every truncation; lengths at and beyond each limit; reserved fields.
#include <gtest/gtest.h>

#include "sealring/session/handshake.h"

namespace sealring {
namespace {

template <std::size_t N>
std::array<std::byte, N> filled(unsigned value) {
  std::array<std::byte, N> out;
  out.fill(static_cast<std::byte>(value));
  return out;
}

Hello sample_hello() {
  Hello hello;
  hello.suite = Suite::chacha20_poly1305;
  hello.world = 0x01020304;
  hello.rank = 0x05060708;
  hello.cpu_type = 0x11;
  hello.gpu_type = 0x12;
  hello.identity = IdentityKind::simulated_tee;
  hello.job_id = filled<16>(0x20);
  hello.policy_hash = filled<32>(0x21);
  hello.config_hash = filled<32>(0x22);
  hello.nonce = filled<32>(0x23);
  hello.share = filled<32>(0x24);
  hello.cpu_id = filled<32>(0x25);
  hello.gpu_id = filled<32>(0x26);
  return hello;
}

TEST(Messages, hello_layout) {
  static_assert(Hello::kBytes == 224);
  const Bytes bytes = sample_hello().encode();
  ASSERT_EQ(bytes.size(), Hello::kBytes);
  EXPECT_EQ(to_hex(ByteView(bytes).first(16)),
            "000100030102030405060708"
            "1112f000");
  const std::vector<std::pair<std::size_t, unsigned>> fields{{16, 0x20},  {32, 0x21},  {64, 0x22}, {96, 0x23},
                                                             {128, 0x24}, {160, 0x25}, {192, 0x26}};
  for (const auto& [offset, value] : fields) {
    EXPECT_EQ(bytes[offset], static_cast<std::byte>(value));
    EXPECT_NE(bytes[offset - 1], static_cast<std::byte>(value));
  }
  const Hello back = Hello::decode(bytes).value();
  EXPECT_EQ(back.encode(), bytes);
  EXPECT_EQ(back.rank, 0x05060708u);
  EXPECT_EQ(back.gpu_id, filled<32>(0x26));
}

TEST(Messages, hello_refusals) {
  const Bytes bytes = sample_hello().encode();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Hello::decode(ByteView(bytes).first(size)).error().code, Code::malformed) << size;
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(Hello::decode(longer).error().code, Code::malformed);
  Bytes flags = bytes;
  flags[15] = std::byte{1};
  EXPECT_EQ(Hello::decode(flags).error().code, Code::malformed);
  Bytes version = bytes;
  version[1] = std::byte{2};
  EXPECT_EQ(Hello::decode(version).error().code, Code::version);
  EXPECT_EQ(Hello::decode(ByteView(version).first(2)).error().code,
            Code::version);  // before anything else is parsed
}

TEST(Messages, evidence_round_trips_at_its_limits) {
  Evidence evidence;
  EXPECT_EQ(evidence.encode(), Bytes(28));
  evidence.job_mac = Bytes(64, std::byte{1});
  evidence.cpu_report = Bytes(8 * 1024, std::byte{2});
  evidence.cpu_chain = Bytes(16 * 1024, std::byte{3});
  evidence.gpu_report = Bytes(8 * 1024, std::byte{4});
  evidence.gpu_chain = Bytes(16 * 1024, std::byte{5});
  evidence.ocsp = Bytes(10 * 1024, std::byte{6});
  evidence.crl = Bytes(64 * 1024 - 28 - 64 - 58 * 1024, std::byte{7});
  const Bytes bytes = evidence.encode();
  ASSERT_EQ(bytes.size(), 64u * 1024);
  const Evidence back = Evidence::decode(bytes).value();
  EXPECT_EQ(back.encode(), bytes);
  EXPECT_EQ(back.crl, evidence.crl);
  evidence.crl.push_back(std::byte{7});
  EXPECT_EQ(Evidence::decode(evidence.encode()).error().code, Code::malformed);
}

TEST(Messages, evidence_refusals) {
  Evidence evidence;
  evidence.job_mac = Bytes(64, std::byte{1});
  evidence.crl = Bytes(3, std::byte{2});
  const Bytes bytes = evidence.encode();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Evidence::decode(ByteView(bytes).first(size)).error().code, Code::malformed) << size;
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(Evidence::decode(longer).error().code, Code::malformed);
  for (const std::size_t mac : {1u, 63u, 65u}) {
    Evidence wrong;
    wrong.job_mac = Bytes(mac);
    EXPECT_EQ(Evidence::decode(wrong.encode()).error().code, Code::malformed) << mac;
  }
  const std::vector<std::pair<Bytes Evidence::*, std::size_t>> limits{{&Evidence::cpu_report, 8 * 1024},
                                                                      {&Evidence::cpu_chain, 16 * 1024},
                                                                      {&Evidence::gpu_report, 8 * 1024},
                                                                      {&Evidence::gpu_chain, 16 * 1024},
                                                                      {&Evidence::ocsp, 16 * 1024}};
  for (const auto& [field, bytes_max] : limits) {
    Evidence wrong;
    wrong.*field = Bytes(bytes_max);
    EXPECT_TRUE(Evidence::decode(wrong.encode()));
    (wrong.*field).push_back(std::byte{0});
    EXPECT_EQ(Evidence::decode(wrong.encode()).error().code, Code::malformed);
  }
  for (std::size_t field = 0; field < 7; ++field) {  // a length that promises 4 GiB
    Bytes huge(28);
    for (std::size_t i = 0; i < 4; ++i) huge[4 * field + i] = std::byte{0xff};
    EXPECT_EQ(Evidence::decode(huge).error().code, Code::malformed);
  }
}

TEST(Messages, note_layout_and_refusals) {
  const Note note{2, Code::suite, 1};
  const Bytes bytes = note.encode();
  EXPECT_EQ(to_hex(bytes),
            "0001000200cd0000"
            "0000000100000000");
  const Note back = Note::decode(bytes, 3).value();
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.code, Code::suite);
  EXPECT_EQ(back.peer, 1);
  EXPECT_EQ(Note::decode(Note{0, Code::timeout, -1}.encode(), 1).value().peer, -1);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Note::decode(ByteView(bytes).first(size), 3).error().code, Code::malformed) << size;
  }
  const auto refused = [](const Note& wrong) { return !Note::decode(wrong.encode(), 3); };
  EXPECT_TRUE(refused({3, Code::suite, 1}));
  EXPECT_TRUE(refused({0, Code::suite, 3}));
  EXPECT_TRUE(refused({0, Code::suite, -2}));
  EXPECT_TRUE(refused({0, Code::ok, 1}));
  EXPECT_TRUE(refused({0, static_cast<Code>(9999), 1}));
  for (const std::size_t reserved : {6u, 7u, 12u, 13u, 14u, 15u}) {
    Bytes changed = bytes;
    changed[reserved] = std::byte{1};
    EXPECT_EQ(Note::decode(changed, 3).error().code, Code::malformed) << reserved;
  }
  Bytes version = bytes;
  version[1] = std::byte{9};
  EXPECT_EQ(Note::decode(version, 3).error().code, Code::version);
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(Note::decode(longer, 3).error().code, Code::malformed);
}

}  // namespace
}  // namespace sealring
