// Claim: every step of every schedule runs fused, and what goes over the windows is what the schedule says:
// each segment of each move once, of its length, under its number and with its authenticated data. How: the
// kernels' bodies run on the host for two to eight ranks; at every flag the segment in the slot is opened by
// OpenSSL as the schedule's next of that column; results are computed beside it.
#include <gtest/gtest.h>

#include <tuple>

#include "sealring/collective/schedule.h"
#include "tests/bodies/fused_rig.h"

namespace sealring::cuda::test {
namespace {

constexpr std::uint32_t kColumns = 3;
constexpr DType kDType = DType::i32;  // sums do not depend on the order, which algorithms choose

struct Case {
  Op op = Op::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  std::uint32_t ranks = 2;
  std::uint64_t elements = 0;
  bool in_place = false;
  Rank root = 1;
  std::uint16_t node_ranks = 0;
};

/// From, to, step, segment, payload bytes, number under the pair's key.
using Sent =
    std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t>;

/// A record as its sender's schedule has it.
struct Record {
  std::uint16_t step = 0;
  std::uint64_t element_offset = 0, first_number = 0, seq = 0;
  RecordLayout layout;
  std::uint32_t columns = 1;
};

class ScheduledWorld : public FusedWorld {
 public:
  ScheduledWorld(const Case& c, std::uint64_t seed) : FusedWorld(c.ranks, kColumns, seed), case_(c) {
    for (std::uint32_t rank = 0; rank < c.ranks; ++rank) {
      const ScheduleRequest request{c.op,
                                    c.algorithm,
                                    static_cast<Rank>(rank),
                                    static_cast<std::uint16_t>(c.ranks),
                                    c.elements,
                                    c.root,
                                    false,
                                    c.node_ranks};
      schedules_.push_back(make_schedule(request));
    }
    records_.resize(c.ranks * c.ranks);
    posted_.resize(c.ranks * c.ranks);
    plan();
    on_post = [this](const Post& post) {
      if (post.flag && post.value != kPoison) look_at(post);
      return true;
    };
  }

  void run() {
    make_memory();
    std::vector<std::vector<RankStep>> steps;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) steps.push_back(steps_of(rank));
    DeviceOp op;
    op.op = case_.op;
    op.redop = RedOp::sum;
    op.dtype = kDType;
    op.algorithm = case_.algorithm;
    op.root = case_.root;
    op.elements = case_.elements;
    FusedWorld::run(op, steps, 2, random());
  }
  void expect_right() {
    EXPECT_FALSE(planned_.empty());
    EXPECT_EQ(sent_, planned_);
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      ASSERT_EQ(verdict(rank), 0u) << "rank " << rank;
      const Bytes wanted = expected(rank);
      ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), outputs_[rank].begin())) << "rank " << rank;
    }
  }

 private:
  static constexpr std::uint64_t kSize = 4;
  static std::uint64_t pieces(bool many, std::uint32_t ranks) { return many ? ranks : 1; }
  std::uint64_t input_elements() const {
    const bool many = case_.op == Op::reduce_scatter || case_.op == Op::scatter || case_.op == Op::all_to_all;
    return case_.elements * pieces(many, ranks());
  }
  std::uint64_t output_elements() const {
    const bool many = case_.op == Op::all_gather || case_.op == Op::gather || case_.op == Op::all_to_all;
    return case_.elements * pieces(many, ranks());
  }

  /// What each pair's segments must be, in the order of their numbers. [protocol A.3]
  void plan() {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      for (std::size_t step = 0; step < schedules_[rank].steps.size(); ++step) {
        for (const Move& move : schedules_[rank].steps[step].sends) {
          auto& of_pair = records_[rank * ranks() + move.peer];
          Record record;
          record.step = static_cast<std::uint16_t>(step);
          record.element_offset = move.element_offset;
          if (!of_pair.empty()) {
            record.first_number = of_pair.back().first_number + of_pair.back().layout.segments();
            record.seq = of_pair.back().seq + 1;
          }
          const FusedCut cut = fused_cut(move.data.elements * kSize, ranks(), kColumns);
          record.layout = RecordLayout::of(move.data.elements * kSize, cut.segment_bytes);
          record.columns = cut.columns;
          of_pair.push_back(record);
          for (std::uint32_t k = 0; k < record.layout.segments(); ++k)
            planned_.insert(
                {rank, move.peer, record.step, k, record.layout.payload_of(k), record.first_number + k});
        }
      }
    }
  }

  /// The segment behind a flag must be the column's next one of the pair.
  void look_at(const Post& post) {
    const std::uint32_t pair = post.from * ranks() + post.to;
    auto& posted = posted_[pair];
    ASSERT_LT(posted.record, records_[pair].size());
    const Record& record = records_[pair][posted.record];
    const std::uint32_t k = post.column + posted.of_column[post.column]++ * record.columns;
    ASSERT_LT(k, record.layout.segments());
    RecordContext c;
    c.suite = Suite::chacha20_poly1305;
    std::memcpy(c.th3.data(), group().th3.data(), c.th3.size());
    std::memcpy(c.group_id.data(), group().group_id.data(), c.group_id.size());
    c.sender = group().members[post.from];
    c.receiver = group().members[post.to];
    c.seq = record.seq;
    c.op = case_.op;
    c.redop = RedOp::sum;
    c.dtype = kDType;
    c.algorithm = case_.algorithm;
    c.root = case_.root;
    c.step = record.step;
    c.segment = k;
    c.segments = record.layout.segments();
    c.payload_bytes = record.layout.payload_of(k);
    c.elements = case_.elements;
    c.element_offset = record.element_offset + record.layout.payload_offset(k) / kSize;
    c.group_size = static_cast<std::uint16_t>(ranks());
    const KeyWords& words = sealing(post.from, post.to).slots[0].words;
    Nonce iv;
    std::memcpy(iv.data(), words.iv, iv.size());
    const Aead aead = *Aead::make(Suite::chacha20_poly1305, std::as_bytes(std::span(words.key)));
    const std::byte* const at =
        region_at(post.from, post.to) + region().slot_offset(post.column, post.ticket);
    Tag tag;
    std::memcpy(tag.data(), at + c.payload_bytes, tag.size());
    Bytes plain(c.payload_bytes);
    const Aad aad = aad_of(c);
    ASSERT_TRUE(aead.open(nonce_of(iv, record.first_number + k), std::as_bytes(std::span(aad)),
                          {at, c.payload_bytes}, tag, plain))
        << "from " << post.from << " to " << post.to << " step " << record.step << " segment " << k;
    sent_.insert({post.from, post.to, record.step, k, c.payload_bytes, record.first_number + k});
    if (++posted.segments < record.layout.segments()) return;
    posted = Posted{posted.record + 1, 0, {}};
  }

  void make_memory() {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      inputs_.push_back(random_bytes(random, input_elements() * kSize));
      in_use_.push_back(inputs_.back());
      outputs_.push_back(case_.in_place ? inputs_.back() : Bytes(output_elements() * kSize));
      scratches_.emplace_back(schedules_[rank].scratch_elements * kSize);
    }
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      for (const Copy& copy : schedules_[rank].before)
        std::copy_n(place(rank, copy.from), copy.from.elements * kSize, place(rank, copy.to));
    }
  }
  std::byte* place(std::uint32_t rank, const Range& range) {
    Bytes& memory = range.buffer == Buffer::scratch                    ? scratches_[rank]
                    : range.buffer == Buffer::output || case_.in_place ? outputs_[rank]
                                                                       : in_use_[rank];
    return memory.data() + range.offset * kSize;
  }
  std::vector<RankStep> steps_of(std::uint32_t rank) {
    std::vector<RankStep> out;
    for (std::size_t i = 0; i < schedules_[rank].steps.size(); ++i) {
      const Step& step = schedules_[rank].steps[i];
      RankStep made;
      made.rules = {step.combine == Combine::ordered, step.lockstep};
      for (const Move& move : step.sends)
        made.sends.push_back({move.peer, static_cast<std::uint16_t>(i), place(rank, move.data),
                              move.data.elements, move.element_offset, 1.0});
      for (const Move& move : step.recvs)
        made.recvs.push_back({move.peer, static_cast<std::uint16_t>(i), place(rank, move.data),
                              move.data.elements, move.element_offset,
                              step.combine == Combine::replace ? nullptr : place(rank, move.local), 1.0, 1});
      out.push_back(made);
    }
    return out;
  }

  Bytes sum(std::uint64_t offset, std::uint64_t elements) const {
    std::vector<std::uint32_t> out(elements);
    for (const Bytes& input : inputs_) {
      for (std::uint64_t i = 0; i < elements; ++i) {
        std::uint32_t value = 0;
        std::memcpy(&value, input.data() + (offset + i) * kSize, kSize);
        out[i] += value;
      }
    }
    const auto bytes = std::as_bytes(std::span(out));
    return Bytes(bytes.begin(), bytes.end());
  }
  /// A piece of a rank's input.
  Bytes piece(std::uint32_t rank, std::uint64_t index) const {
    const auto begin = inputs_[rank].begin() + static_cast<long>(index * case_.elements * kSize);
    return Bytes(begin, begin + static_cast<long>(case_.elements * kSize));
  }
  /// The output's first bytes, as far as they are defined.
  Bytes expected(std::uint32_t rank) const {
    const bool at_root = rank == case_.root;
    Bytes out;
    const auto gather = [&](std::uint64_t index) {
      for (std::uint32_t from = 0; from < ranks(); ++from) {
        const Bytes next = piece(from, index);
        out.insert(out.end(), next.begin(), next.end());
      }
    };
    if (case_.op == Op::all_reduce) return sum(0, case_.elements);
    if (case_.op == Op::reduce_scatter) return sum(rank * case_.elements, case_.elements);
    if (case_.op == Op::reduce && at_root) return sum(0, case_.elements);
    if (case_.op == Op::broadcast) return inputs_[case_.root];
    if (case_.op == Op::scatter) return piece(case_.root, rank);
    if (case_.op == Op::all_gather || (case_.op == Op::gather && at_root)) gather(0);
    if (case_.op == Op::all_to_all) gather(rank);
    return out;
  }

  struct Posted {
    std::size_t record = 0;
    std::uint32_t segments = 0;
    std::array<std::uint32_t, kColumns> of_column{};
  };

  const Case case_;
  std::vector<Schedule> schedules_;
  std::vector<std::vector<Record>> records_;  ///< by from * ranks + to
  std::vector<Posted> posted_;
  std::set<Sent> planned_, sent_;
  std::vector<Bytes> inputs_, in_use_, outputs_, scratches_;
};

TEST(FusedSchedule, EveryStepOfEverySchedule) {
  std::uint64_t seed = 1;
  for (const std::uint32_t ranks : {2u, 3u, 4u, 8u}) {
    for (const Op op : all_ops()) {
      for (const Algorithm algorithm : all_algorithms()) {
        if (op == Op::send || !algorithm_supported(op, algorithm)) continue;
        for (const std::uint64_t elements : {1ull, 20'011ull}) {
          const bool may_be_in_place = op == Op::all_reduce || op == Op::broadcast || op == Op::reduce;
          for (const bool in_place : {false, true}) {
            if (in_place && !may_be_in_place) continue;
            Case c{op, algorithm, ranks, op == Op::barrier ? 0 : elements, in_place};
            ScheduledWorld world(c, ++seed);
            world.run();
            ASSERT_NO_FATAL_FAILURE(world.expect_right())
                << ranks << " ranks, " << to_string(op) << " " << to_string(algorithm) << " " << elements;
          }
        }
      }
    }
  }
}

TEST(FusedSchedule, EveryStepOverSeveralNodes) {
  std::uint64_t seed = 1000;
  for (const auto& [ranks, node_ranks] : {std::pair{4u, 2u}, {6u, 2u}, {6u, 3u}, {8u, 2u}, {8u, 4u}}) {
    for (const Op op : {Op::all_reduce, Op::reduce_scatter, Op::all_gather}) {
      for (const std::uint64_t elements : {1ull, 20'011ull}) {
        for (const bool in_place : {false, true}) {
          if (in_place && op != Op::all_reduce) continue;
          Case c{
              op, Algorithm::two_level, ranks, elements, in_place, 1, static_cast<std::uint16_t>(node_ranks)};
          ScheduledWorld world(c, ++seed);
          world.run();
          ASSERT_NO_FATAL_FAILURE(world.expect_right())
              << ranks << " ranks, " << node_ranks << " a node, " << to_string(op) << " " << elements;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sealring::cuda::test
