// Claim: control messages survive a round trip and nothing else is accepted: every bound, every number, exact
// length. How: golden bytes for each type; every truncation and extension; each field out of its range;
// random changes.
#include "sealring/control/messages.h"

#include <gtest/gtest.h>

#include "tests/control/control_world.h"

namespace sealring {
namespace {

constexpr std::uint16_t kWorld = 4;

OpContext sample_op() {
  OpContext op;
  op.group_id = testing::group_id_of(0xAB);
  op.seq = 17;
  op.op = Op::broadcast;
  op.redop = RedOp::none;
  op.dtype = DType::bf16;
  op.algorithm = Algorithm::direct;
  op.root = 1;
  op.elements = 4096;
  op.state = OpContext::State::failed;
  return op;
}

Heartbeat sample_beat() {
  GroupBeat group;
  group.group.fill(std::byte{0xCD});
  group.last_seq = 9;
  for (const std::uint64_t seq : {7u, 9u}) {
    OpMark mark;
    mark.seq = seq;
    mark.digest.fill(static_cast<std::byte>(seq));
    group.marks.push_back(mark);
  }
  return Heartbeat{{group}};
}

AbortReport sample_abort() {
  return AbortReport{Code::data_tag, 2, 1, "data.open", "a tag was not accepted"};
}

std::vector<Bytes> samples() {
  return {encode(sample_beat()), encode(sample_abort()), encode(RecorderReport{{sample_op(), sample_op()}}),
          encode(Leave{}), encode(LeaveSeen{})};
}

TEST(Messages, GoldenBytes) {
  EXPECT_EQ(to_hex(encode(sample_beat())),
            "01"
            "0001"
            "cdcdcdcdcdcdcdcd"
            "0000000000000009"
            "0002"
            "0000000000000007"
            "0707070707070707"
            "0000000000000009"
            "0909090909090909");
  EXPECT_EQ(to_hex(encode(AbortReport{Code::data_tag, 2, -1, "ab", "c"})),
            "02"
            "025a"
            "0002"
            "ffffffff"
            "0002"
            "6162"
            "0001"
            "63");
  std::string group;
  for (int i = 0; i < 32; ++i) group += "ab";
  EXPECT_EQ(to_hex(encode(RecorderReport{{sample_op()}})),
            "03"
            "0001" +
                group +
                "0000000000000011"
                "04"
                "00"
                "04"
                "06"
                "0001"
                "0000000000001000"
                "03");
  EXPECT_EQ(to_hex(encode(Leave{})), "04");
  EXPECT_EQ(to_hex(encode(LeaveSeen{})), "05");
}

TEST(Messages, RoundTrip) {
  const auto beat = decode_control_message(encode(sample_beat()), kWorld).value();
  EXPECT_EQ(std::get<Heartbeat>(beat), sample_beat());
  const auto report = decode_control_message(encode(sample_abort()), kWorld).value();
  EXPECT_EQ(std::get<AbortReport>(report), sample_abort());
  const auto recorder = decode_control_message(encode(RecorderReport{{sample_op()}}), kWorld).value();
  const auto& ops = std::get<RecorderReport>(recorder).ops;
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_EQ(ops[0].signature(), sample_op().signature());
  EXPECT_EQ(ops[0].state, OpContext::State::failed);
  EXPECT_TRUE(std::holds_alternative<Leave>(decode_control_message(encode(Leave{}), kWorld).value()));
  EXPECT_TRUE(std::holds_alternative<LeaveSeen>(decode_control_message(encode(LeaveSeen{}), kWorld).value()));
}

TEST(Messages, EveryTruncationAndExtensionIsMalformed) {
  for (const Bytes& whole : samples()) {
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
      const auto got = decode_control_message(ByteView(whole).first(bytes), kWorld);
      ASSERT_FALSE(got.has_value()) << to_hex(whole) << " cut to " << bytes;
      EXPECT_EQ(got.error().code, Code::malformed);
    }
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_EQ(decode_control_message(longer, kWorld).error().code, Code::malformed);
  }
}

TEST(Messages, UnknownTypesAreMalformed) {
  for (int type = 0; type < 256; ++type) {
    if (type == 4 || type == 5) continue;
    const std::byte only{static_cast<std::uint8_t>(type)};
    EXPECT_EQ(decode_control_message(ByteView(&only, 1), kWorld).error().code, Code::malformed) << type;
  }
}

TEST(Messages, AbortFieldsOutOfRangeAreMalformed) {
  const auto refused = [](std::size_t at, std::uint16_t value) {
    Bytes bytes = encode(sample_abort());
    store_be(bytes.data() + at, value);
    const auto got = decode_control_message(bytes, kWorld);
    return !got.has_value() && got.error().code == Code::malformed;
  };
  EXPECT_TRUE(refused(1, 0));        // code OK is no reason
  EXPECT_TRUE(refused(1, 604 + 3));  // a hole in the table
  EXPECT_TRUE(refused(1, 0xFFFF));
  EXPECT_FALSE(refused(1, 601));
  EXPECT_TRUE(refused(3, kWorld));  // origin
  EXPECT_FALSE(refused(3, kWorld - 1));
  EXPECT_TRUE(refused(7, kWorld));  // low half of peer
  EXPECT_FALSE(refused(7, kWorld - 1));
  EXPECT_TRUE(refused(5, 0x8000));  // negative but not -1
  EXPECT_TRUE(refused(9, 65));      // stage too long
}

TEST(Messages, TextIsCutBySendersAndRefusedFromOthers) {
  AbortReport report = sample_abort();
  report.stage.assign(100, 's');
  report.what.assign(2000, 'w');
  const auto got = std::get<AbortReport>(decode_control_message(encode(report), kWorld).value());
  EXPECT_EQ(got.stage, std::string(64, 's'));
  EXPECT_EQ(got.what, std::string(512, 'w'));

  ByteWriter longer;
  longer.put(std::uint8_t{2}).put(std::uint16_t{602}).put(std::uint16_t{0}).put(std::uint32_t{0});
  longer.put(std::uint16_t{0}).put(std::uint16_t{513}).put(ByteView(Bytes(513, std::byte{'x'})));
  EXPECT_EQ(decode_control_message(longer.bytes(), kWorld).error().code, Code::malformed);
}

TEST(Messages, HostileTextIsPrintable) {
  AbortReport report = sample_abort();
  report.what = "line\nSR-E000 rank=0: \x1b[2J\xff\x7f ok";
  const auto got = std::get<AbortReport>(decode_control_message(encode(report), kWorld).value());
  EXPECT_EQ(got.what, "line\\x0aSR-E000 rank=0: \\x1b[2J\\xff\\x7f ok");
  EXPECT_EQ(printable(got.what), got.what);
}

TEST(Messages, HeartbeatBounds) {
  Heartbeat most;
  most.groups.resize(Heartbeat::kGroupsMax);
  for (GroupBeat& group : most.groups) {
    group.last_seq = GroupBeat::kMarksMax;
    for (std::uint64_t seq = 1; seq <= GroupBeat::kMarksMax; ++seq) group.marks.push_back({seq, {}});
  }
  const Bytes bytes = encode(most);
  EXPECT_LE(bytes.size(), 64u * 1024u);
  EXPECT_EQ(std::get<Heartbeat>(decode_control_message(bytes, kWorld).value()), most);

  Bytes groups = encode(Heartbeat{});
  store_be(groups.data() + 1, std::uint16_t{Heartbeat::kGroupsMax + 1});
  EXPECT_EQ(decode_control_message(groups, kWorld).error().code, Code::malformed);
  Bytes marks = encode(sample_beat());
  store_be(marks.data() + 19, std::uint16_t{GroupBeat::kMarksMax + 1});
  EXPECT_EQ(decode_control_message(marks, kWorld).error().code, Code::malformed);

  Heartbeat after_last = sample_beat();
  after_last.groups[0].last_seq = 8;
  EXPECT_EQ(decode_control_message(encode(after_last), kWorld).error().code, Code::malformed);
  Heartbeat equal = sample_beat();
  equal.groups[0].marks[0].seq = 9;
  EXPECT_EQ(decode_control_message(encode(equal), kWorld).error().code, Code::malformed);
}

TEST(Messages, RecorderNumbersOutsideTheTablesAreMalformed) {
  const std::size_t first = 1 + 2 + 32 + 8;  // op, redop, dtype, algorithm, root u16, elements u64, state
  for (const std::size_t at : {first, first + 1, first + 2, first + 3, first + 14}) {
    Bytes bytes = encode(RecorderReport{{sample_op()}});
    bytes[at] = std::byte{0xEE};
    EXPECT_EQ(decode_control_message(bytes, kWorld).error().code, Code::malformed) << at;
  }
  Bytes state = encode(RecorderReport{{sample_op()}});
  state.back() = std::byte{0};
  EXPECT_EQ(decode_control_message(state, kWorld).error().code, Code::malformed);
  Bytes count = encode(RecorderReport{});
  store_be(count.data() + 1, std::uint16_t{65});
  EXPECT_EQ(decode_control_message(count, kWorld).error().code, Code::malformed);
}

TEST(Messages, AcceptedRandomChangesEncodeToThemselves) {
  std::uint64_t state = 42;
  const auto random = [&state] { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; };
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto all = samples();
    Bytes bytes = all[random() % all.size()];
    for (std::uint64_t k = random() % 3 + 1; k > 0; --k)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto got = decode_control_message(bytes, kWorld);
    if (!got) {
      EXPECT_EQ(got.error().code, Code::malformed);
      continue;
    }
    if (std::holds_alternative<AbortReport>(*got)) continue;  // escaped on receipt
    ++accepted;
    EXPECT_EQ(encode(*got), bytes);
  }
  EXPECT_GT(accepted, 0);
}

TEST(OpContext, SignatureHoldsEveryFieldButTheState) {
  const OpContext base = sample_op();
  const Bytes wanted = base.signature();
  EXPECT_EQ(wanted.size(), 54u);
  std::vector<OpContext> others(8, base);
  others[0].group_id[31] ^= std::byte{1};
  others[1].seq = 18;
  others[2].op = Op::all_reduce;
  others[3].redop = RedOp::sum;
  others[4].dtype = DType::f16;
  others[5].algorithm = Algorithm::ring;
  others[6].root = 2;
  others[7].elements = 4097;
  for (const OpContext& other : others) EXPECT_NE(other.signature(), wanted);
  OpContext done = base;
  done.state = OpContext::State::done;
  EXPECT_EQ(done.signature(), wanted);
}

TEST(OpContext, DescribeNamesWhatWasCalled) {
  OpContext op = sample_op();
  EXPECT_EQ(op.describe(), "broadcast bf16 x 4096 root 1 direct");
  op.op = Op::all_reduce;
  op.redop = RedOp::sum;
  op.root = kNoRoot;
  op.algorithm = Algorithm::ring;
  EXPECT_EQ(op.describe(), "all_reduce bf16 x 4096 sum ring");
}

}  // namespace
}  // namespace sealring
