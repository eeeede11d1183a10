// Claim: the 80 authenticated bytes are exactly protocol C.3's, every field changes them, and a layout cuts a
// move
//        into segments that cover it once, without gap or overlap.
// How: a golden context with a different value in every byte; one field changed at a time; every small size.
#include "sealring/wire/record.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "sealring/base/bytes.h"

namespace sealring {
namespace {

static_assert(sizeof(Aad) == 80);
static_assert(RecordLayout::of(0, 16).segments() == 1);  // usable at compile time, hence on a device too

RecordContext golden() {
  RecordContext c;
  c.suite = Suite::chacha20_poly1305;
  c.epoch = 0x04050607;
  c.th3 = {0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f};
  c.sender = 0x1011;
  c.receiver = 0x1213;
  c.group_id = {0x14, 0x15, 0x16, 0x17};
  c.seq = 0x18191a1b1c1d1e1f;
  c.op = Op::all_to_all;
  c.redop = RedOp::premul_sum;
  c.dtype = DType::i16;
  c.algorithm = Algorithm::direct;
  c.root = 0x2425;
  c.step = 0x2627;
  c.tag = 0x28292a2b;
  c.segment = 0x2c2d2e2f;
  c.segments = 0x30313233;
  c.payload_bytes = 0x34353637;
  c.elements = 0x38393a3b3c3d3e3f;
  c.element_offset = 0x4041424344454647;
  c.lane = 0x4849;
  c.group_size = 0x4a4b;
  return c;
}

std::string hex(const Aad& aad) { return to_hex(std::as_bytes(std::span(aad))); }

TEST(RecordContext, AadIsByteExact) {
  // [protocol C.3] offset: field
  EXPECT_EQ(hex(aad_of(golden())),
            "01"                //  0 version
            "03"                //  1 suite
            "0000"              //  2 zero
            "04050607"          //  4 epoch
            "08090a0b0c0d0e0f"  //  8 TH3_g[0..8)
            "1011"              // 16 sender
            "1213"              // 18 receiver
            "14151617"          // 20 group_id[0..4)
            "18191a1b1c1d1e1f"  // 24 seq
            "07"                // 32 op
            "03"                // 33 redop
            "0a"                // 34 dtype
            "06"                // 35 algorithm
            "2425"              // 36 root
            "2627"              // 38 step
            "28292a2b"          // 40 tag
            "2c2d2e2f"          // 44 segment
            "30313233"          // 48 segments
            "34353637"          // 52 payload bytes
            "38393a3b3c3d3e3f"  // 56 elements
            "4041424344454647"  // 64 element offset
            "4849"              // 72 lane
            "4a4b"              // 74 group size
            "00000000");        // 76 zero
}

TEST(RecordContext, DefaultsAreABarrierOfOneEmptySegment) {
  EXPECT_EQ(hex(aad_of(RecordContext{})),
            "01010000"
            "00000000"
            "0000000000000000"
            "0000"
            "ffff"
            "00000000"
            "0000000000000000"
            "05000801"
            "ffff"
            "0000"
            "00000000"
            "00000000"
            "00000001"
            "00000000"
            "0000000000000000"
            "0000000000000000"
            "0000"
            "0000"
            "00000000");
}

TEST(RecordContext, EveryFieldChangesTheAadAndNoTwoAlike) {
  using Change = std::function<void(RecordContext&)>;
  std::vector<Change> changes{[](RecordContext& c) { c.suite = Suite::aes_128_gcm; },
                              [](RecordContext& c) { c.epoch ^= 1; },
                              [](RecordContext& c) { c.sender ^= 1; },
                              [](RecordContext& c) { c.receiver ^= 1; },
                              [](RecordContext& c) { c.seq ^= 1; },
                              [](RecordContext& c) { c.op = Op::barrier; },
                              [](RecordContext& c) { c.redop = RedOp::sum; },
                              [](RecordContext& c) { c.dtype = DType::f32; },
                              [](RecordContext& c) { c.algorithm = Algorithm::ring; },
                              [](RecordContext& c) { c.root ^= 1; },
                              [](RecordContext& c) { c.step ^= 1; },
                              [](RecordContext& c) { c.tag ^= 1; },
                              [](RecordContext& c) { c.segment ^= 1; },
                              [](RecordContext& c) { c.segments ^= 1; },
                              [](RecordContext& c) { c.payload_bytes ^= 1; },
                              [](RecordContext& c) { c.elements ^= 1; },
                              [](RecordContext& c) { c.element_offset ^= 1; },
                              [](RecordContext& c) { c.lane ^= 1; },
                              [](RecordContext& c) { c.group_size ^= 1; }};
  for (std::size_t i = 0; i < 8; ++i) changes.push_back([i](RecordContext& c) { c.th3[i] ^= 1; });
  for (std::size_t i = 0; i < 4; ++i) changes.push_back([i](RecordContext& c) { c.group_id[i] ^= 1; });
  std::set<std::string> seen{hex(aad_of(golden()))};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    RecordContext changed = golden();
    changes[i](changed);
    ASSERT_FALSE(changed == golden()) << i;
    EXPECT_TRUE(seen.insert(hex(aad_of(changed))).second) << "field " << i << " is not authenticated";
  }
}

TEST(RecordContext, EveryBitOfAFieldReachesTheAad) {
  std::set<std::string> seen;
  std::size_t bits = 0;
  const auto walk = [&]<class T>(T RecordContext::*field) {
    for (std::size_t bit = 0; bit < 8 * sizeof(T); ++bit, ++bits) {
      RecordContext changed = golden();
      changed.*field = static_cast<T>(changed.*field ^ (T{1} << bit));
      seen.insert(hex(aad_of(changed)));
    }
  };
  walk(&RecordContext::epoch), walk(&RecordContext::sender), walk(&RecordContext::receiver);
  walk(&RecordContext::seq), walk(&RecordContext::root), walk(&RecordContext::step),
      walk(&RecordContext::tag);
  walk(&RecordContext::segment), walk(&RecordContext::segments), walk(&RecordContext::payload_bytes);
  walk(&RecordContext::elements), walk(&RecordContext::element_offset), walk(&RecordContext::lane);
  walk(&RecordContext::group_size);
  EXPECT_EQ(seen.size(), bits);
  EXPECT_FALSE(seen.contains(hex(aad_of(golden()))));
}

TEST(RecordLayout, CoversEverySmallMoveOnce) {
  for (std::uint32_t segment_bytes = 1; segment_bytes <= 20; ++segment_bytes) {
    for (std::uint64_t payload_bytes = 0; payload_bytes <= 100; ++payload_bytes) {
      const RecordLayout layout = RecordLayout::of(payload_bytes, segment_bytes);
      std::uint64_t payload = 0, wire = 0;
      for (std::uint32_t i = 0; i < layout.segments(); ++i) {
        ASSERT_EQ(layout.payload_offset(i), payload);
        ASSERT_EQ(layout.wire_offset(i), wire);
        ASSERT_LE(layout.payload_of(i), segment_bytes);
        // Only the last may be short, and only the one of an empty move may be empty.
        ASSERT_TRUE(layout.payload_of(i) == segment_bytes || i + 1 == layout.segments());
        ASSERT_TRUE(layout.payload_of(i) > 0 || payload_bytes == 0);
        payload += layout.payload_of(i);
        wire += layout.payload_of(i) + kTagBytes;
      }
      ASSERT_EQ(payload, payload_bytes);
      ASSERT_EQ(wire, layout.wire_bytes());
    }
  }
}

TEST(RecordLayout, LargeMovesDoNotWrap) {
  const RecordLayout layout = RecordLayout::of((1ull << 40) + 1, 1 << 20);
  EXPECT_EQ(layout.segments(), (1u << 20) + 1);
  EXPECT_EQ(layout.payload_of(1 << 20), 1u);
  EXPECT_EQ(layout.payload_offset(1 << 20), 1ull << 40);
  EXPECT_EQ(layout.wire_offset(1 << 20), (1ull << 40) + (16ull << 20));
  EXPECT_EQ(layout.wire_bytes(), (1ull << 40) + 1 + 16ull * ((1 << 20) + 1));
  const RecordLayout widest = RecordLayout::of(0xFFFFFFFFull, 0xFFFFFFFFu);
  EXPECT_EQ(widest.segments(), 1u);
  EXPECT_EQ(widest.payload_of(0), 0xFFFFFFFFu);
}

}  // namespace
}  // namespace sealring
