// Claim: the second line names the differing field or the missing rank, and nothing that the records do not
// show. How: records written by hand, exact lines.
#include "sealring/control/diagnosis.h"

#include <gtest/gtest.h>

#include "sealring/control/recorder.h"
#include "tests/control/control_world.h"

namespace sealring {
namespace {

using testing::group_id_of;
const auto kWorldGroup = group_id_of(0xAA);

OpContext op_of(std::uint64_t seq, OpContext::State state = OpContext::State::started) {
  OpContext op;
  op.group_id = kWorldGroup;
  op.seq = seq;
  op.op = Op::all_reduce;
  op.redop = RedOp::sum;
  op.dtype = DType::bf16;
  op.elements = 4096;
  op.state = state;
  return op;
}

DiagnosisInput input_of(Code code, std::uint16_t world = 2) {
  DiagnosisInput input;
  input.me = 0;
  input.world_group = kWorldGroup;
  input.error.code = code;
  for (Rank rank = 0; rank < world; ++rank) {
    input.members[kWorldGroup].push_back(rank);
    if (rank != 0) input.peers[rank].answered = true;
  }
  return input;
}

TEST(Diagnosis, NamesTheFieldThatDiffers) {
  struct Case {
    std::function<void(OpContext&)> change;
    std::string line;
  };
  const std::string head = "operation 17 of the world group: rank 1 called ";
  const std::string tail = ", this rank called all_reduce bf16 x 4096 sum ring; they differ in ";
  const std::vector<Case> cases{
      {[](OpContext& op) { op.dtype = DType::f16; },
       head + "all_reduce fp16 x 4096 sum ring" + tail + "dtype"},
      {[](OpContext& op) { op.elements = 1; }, head + "all_reduce bf16 x 1 sum ring" + tail + "elements"},
      {[](OpContext& op) { op.redop = RedOp::max; },
       head + "all_reduce bf16 x 4096 max ring" + tail + "redop"},
      {[](OpContext& op) { op.op = Op::reduce; }, head + "reduce bf16 x 4096 sum ring" + tail + "op"},
      {[](OpContext& op) { op.root = 1; }, head + "all_reduce bf16 x 4096 sum root 1 ring" + tail + "root"},
      {[](OpContext& op) { op.algorithm = Algorithm::one_hop; },
       head + "all_reduce bf16 x 4096 sum one-hop" + tail + "algorithm"},
      {[](OpContext& op) {
         op.op = Op::barrier;
         op.elements = 0;
         op.redop = RedOp::none;
       },
       head + "barrier bf16 x 0 ring" + tail + "op, elements, redop"}};
  for (const Case& one : cases) {
    DiagnosisInput input = input_of(Code::data_tag);
    input.mine = {op_of(16, OpContext::State::done), op_of(17)};
    OpContext other = op_of(17);
    one.change(other);
    input.peers[1].ops = {op_of(16), other};
    EXPECT_EQ(diagnose(input), one.line);
  }
}

TEST(Diagnosis, TakesTheFirstDifferenceAndAllRanksOfItsKind) {
  DiagnosisInput input = input_of(Code::op_mismatch, 4);
  OpContext other = op_of(3), later = op_of(4);
  other.dtype = DType::f32;
  later.dtype = DType::i8;
  input.mine = {op_of(3), op_of(4)};
  input.peers[1].ops = {op_of(3), later};
  input.peers[2].ops = {other, later};
  input.peers[3].ops = {other};
  EXPECT_EQ(
      diagnose(input),
      "operation 3 of the world group: ranks 2, 3 called all_reduce fp32 x 4096 sum ring, this rank called "
      "all_reduce bf16 x 4096 sum ring; they differ in dtype");
}

TEST(Diagnosis, TellsOfTwoOthersWhenThisRankHasNotCalledIt) {
  DiagnosisInput input = input_of(Code::aborted, 3);
  OpContext other = op_of(1);
  other.dtype = DType::f32;
  input.peers[1].ops = {op_of(1)};
  input.peers[2].ops = {other};
  EXPECT_EQ(diagnose(input),
            "operation 1 of the world group: rank 2 called all_reduce fp32 x 4096 sum ring, rank 1 called "
            "all_reduce "
            "bf16 x 4096 sum ring; they differ in dtype");
}

TEST(Diagnosis, NamesWhoHasNotIssuedTheOp) {
  DiagnosisInput input = input_of(Code::timeout, 4);
  input.mine = {op_of(16, OpContext::State::done), op_of(17)};
  input.peers[1].ops = {op_of(16)};
  input.peers[2].ops = {op_of(16), op_of(17)};
  input.peers[3].last_seq[kWorldGroup] = 16;  // from its heartbeat alone
  EXPECT_EQ(diagnose(input), "ranks 1, 3 have not issued operation 17 of the world group");
  input.peers[3].last_seq[kWorldGroup] = 17;
  EXPECT_EQ(diagnose(input), "rank 1 has not issued operation 17 of the world group");
  input.peers[1].last_seq[kWorldGroup] = 18;
  EXPECT_EQ(diagnose(input), "");
}

TEST(Diagnosis, NamesWhoIsSilent) {
  DiagnosisInput input = input_of(Code::timeout);
  input.mine = {op_of(17)};
  input.peers[1].answered = false;
  input.peers[1].silent_for = std::chrono::milliseconds(5230);
  EXPECT_EQ(diagnose(input),
            "rank 1 has not answered for 5.2 s, while operation 17 of the world group was under way");
  input.peers[1].gone = true;
  EXPECT_EQ(diagnose(input), "");
}

TEST(Diagnosis, TellsTheLateRankThatItIsTheLateOne) {
  DiagnosisInput input = input_of(Code::aborted);
  input.mine = {op_of(16, OpContext::State::done)};
  input.peers[1].ops = {op_of(16, OpContext::State::done), op_of(17)};
  input.peers[1].report = AbortReport{Code::timeout, 1, -1, "wait", "passed"};
  EXPECT_EQ(diagnose(input),
            "this rank has not issued operation 17 of the world group, which rank 1 waits in (all_reduce "
            "bf16 x 4096 "
            "sum ring)");
}

TEST(Diagnosis, QuotesAReasonThatTheVerdictLacks) {
  DiagnosisInput input = input_of(Code::peer_lost);
  input.peers[1].report = AbortReport{Code::data_tag, 1, 0, "data.open", "a tag was not accepted"};
  EXPECT_EQ(diagnose(input),
            "rank 1 reported SR-E602 DATA_TAG about rank 0 at data.open: a tag was not accepted");
  input.error.code = Code::aborted;  // already says it
  EXPECT_EQ(diagnose(input), "");
  EXPECT_EQ(report_text(*input.peers[1].report, 3),
            "rank 1 reported SR-E602 DATA_TAG about rank 0 at data.open: a tag was not accepted (passed on "
            "by rank 3)");
}

TEST(Diagnosis, KeepsSilentWithoutSupport) {
  for (const Code code : {Code::data_tag, Code::peer_lost, Code::aborted, Code::timeout, Code::op_mismatch}) {
    DiagnosisInput input = input_of(code);
    input.mine = {op_of(17)};
    input.peers[1].ops = {op_of(17)};
    EXPECT_EQ(diagnose(input), "");
  }
  // Point-to-point numbers count per direction: never compared.
  DiagnosisInput input = input_of(Code::data_tag);
  OpContext mine = op_of(1), theirs = op_of(1);
  mine.op = theirs.op = Op::send;
  theirs.elements = 1;
  input.mine = {mine};
  input.peers[1].ops = {theirs};
  EXPECT_EQ(diagnose(input), "");
  // A stranger's word about a group does not count, nor does a group that this rank does not know.
  input = input_of(Code::data_tag, 3);
  input.members[kWorldGroup] = {0, 1};
  OpContext other = op_of(17), foreign = op_of(17);
  other.dtype = DType::i8;
  foreign.group_id = group_id_of(9);
  input.mine = {op_of(17)};
  input.peers[2].ops = {other, foreign};
  EXPECT_EQ(diagnose(input), "");
}

TEST(FlightRecorder, KeepsTheLastOpsAndTheirEnd) {
  FlightRecorder recorder;
  for (std::uint64_t seq = 0; seq < 70; ++seq) recorder.started(op_of(seq));
  recorder.finished(kWorldGroup, 69, false);
  recorder.finished(kWorldGroup, 68, true);
  recorder.finished(kWorldGroup, 68, false);  // an op ends once
  recorder.finished(kWorldGroup, 1, true);    // long forgotten
  const auto ops = recorder.ops();
  ASSERT_EQ(ops.size(), 64u);
  EXPECT_EQ(ops.front().seq, 6u);
  EXPECT_EQ(ops[63].state, OpContext::State::failed);
  EXPECT_EQ(ops[62].state, OpContext::State::done);
  EXPECT_EQ(ops[61].state, OpContext::State::started);
}

}  // namespace
}  // namespace sealring
