// Steps of collectives on a FusedWorld, with memory for them: inputs, outputs (which may be the same), and
// what must be in the outputs behind them.
#pragma once

#include "tests/bodies/fused_rig.h"

namespace sealring::cuda::test {

struct StepCase {
  std::uint64_t elements = 0;  ///< of a piece
  DType dtype = DType::f32;
  RedOp redop = RedOp::none;
  bool in_place = false;
  std::uint32_t resident = 1024;
  std::uint64_t seed = 1;
};

/// What the CPU makes of as many inputs, in their order.
inline Bytes reduced_in_order(DType dtype, RedOp redop, const std::vector<const std::byte*>& inputs,
                              std::uint64_t elements) {
  Bytes out(elements * dtype_bytes(dtype));
  ReduceJob job;
  job.dtype = dtype;
  job.redop = redop;
  job.sources = inputs;
  job.dst = out.data();
  job.elements = elements;
  job.divisor = redop == RedOp::avg ? static_cast<std::uint32_t>(inputs.size()) : 1;
  EXPECT_TRUE(reduce_cpu(job));
  return out;
}

class SteppingWorld : public FusedWorld {
 public:
  using FusedWorld::FusedWorld;

  /// A rank's input is a piece for each rank; its output is what all have for it, reduced.
  void reduce_scatter(const StepCase& c) {
    const std::uint64_t piece = c.elements * dtype_bytes(c.dtype);
    begin(c, ranks() * piece, piece, [&](std::uint32_t rank) { return rank * piece; });
    std::vector<std::vector<RankStep>> steps;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      RankStep step;
      step.rules.ordered = true;
      for_others(rank, [&](std::uint32_t peer) {
        step.sends.push_back(send(c, peer, in(rank) + peer * piece, peer * c.elements));
        step.recvs.push_back(recv(c, peer, out(rank), rank * c.elements));
        step.recvs.back().local = in(rank) + rank * piece;
        step.recvs.back().divisor = c.redop == RedOp::avg ? ranks() : 1;
      });
      steps.push_back({step});
      std::vector<const std::byte*> pieces;
      for (const Bytes& input : inputs) pieces.push_back(input.data() + rank * piece);
      expected[rank] = reduced_in_order(c.dtype, c.redop, pieces, c.elements);
    }
    run(op_of(c, Op::reduce_scatter, Algorithm::one_hop), steps, c.resident, c.seed);
  }

  /// One shot: every rank's whole input to every other.
  void all_reduce(const StepCase& c) {
    const std::uint64_t bytes = c.elements * dtype_bytes(c.dtype);
    begin(c, bytes, bytes, [](std::uint32_t) { return 0; });
    std::vector<std::vector<RankStep>> steps;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      RankStep step;
      step.rules = {true, true};
      for_others(rank, [&](std::uint32_t peer) {
        step.sends.push_back(send(c, peer, in(rank), 0));
        step.recvs.push_back(recv(c, peer, out(rank), 0));
        step.recvs.back().local = in(rank);
        step.recvs.back().divisor = c.redop == RedOp::avg ? ranks() : 1;
      });
      steps.push_back({step});
      std::vector<const std::byte*> whole;
      for (const Bytes& input : inputs) whole.push_back(input.data());
      expected[rank] = reduced_in_order(c.dtype, c.redop, whole, c.elements);
    }
    run(op_of(c, Op::all_reduce, Algorithm::one_shot), steps, c.resident, c.seed);
  }

  /// A rank's input is its piece; its output has everybody's.
  void all_gather(const StepCase& c) {
    const std::uint64_t piece = c.elements * dtype_bytes(c.dtype);
    begin(c, piece, ranks() * piece, [&](std::uint32_t rank) { return rank * piece; });
    std::vector<std::vector<RankStep>> steps;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      RankStep step;
      for_others(rank, [&](std::uint32_t peer) {
        step.sends.push_back(send(c, peer, in(rank), rank * c.elements));
        step.recvs.push_back(recv(c, peer, out(rank) + peer * piece, peer * c.elements));
      });
      steps.push_back({step});
      std::ranges::copy(inputs[rank], out(rank) + rank * piece);  // the schedule's copy
      for (const Bytes& input : inputs)
        expected[rank].insert(expected[rank].end(), input.begin(), input.end());
    }
    run(op_of(c, Op::all_gather, Algorithm::one_hop), steps, c.resident, c.seed);
  }

  /// Every rank to every other, `elements[from * ranks + to]` of them; 0: no record.
  void exchange(const StepCase& c, const std::vector<std::uint64_t>& elements) {
    const std::uint64_t size = dtype_bytes(c.dtype);
    const std::uint64_t largest = *std::ranges::max_element(elements) * size;
    begin(c, ranks() * largest, ranks() * largest, [](std::uint32_t) { return 0; });
    std::vector<std::vector<RankStep>> steps;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      RankStep step;
      expected[rank].assign(ranks() * largest, std::byte{0xA5});  // as it was made
      for_others(rank, [&](std::uint32_t peer) {
        StepCase there = c, back = c;
        there.elements = elements[rank * ranks() + peer];
        back.elements = elements[peer * ranks() + rank];
        if (there.elements > 0) step.sends.push_back(send(there, peer, in(rank) + peer * largest, 0));
        if (back.elements == 0) return;
        step.recvs.push_back(recv(back, peer, out(rank) + peer * largest, 0));
        const auto from = inputs[peer].begin() + static_cast<long>(rank * largest);
        std::copy_n(from, back.elements * size, expected[rank].begin() + static_cast<long>(peer * largest));
      });
      steps.push_back({step});
    }
    run(op_of(c, Op::all_to_all, Algorithm::direct), steps, c.resident, c.seed);
  }

  /// The whole output: what it should be, with verdict 0; else one of the errors. Gives the verdict.
  std::uint32_t expect_right_or_failed(std::uint32_t rank) {
    const std::uint32_t found = verdict(rank);
    if (found == 0) {
      EXPECT_TRUE(std::ranges::equal(output_span(rank), expected[rank]))
          << "a wrong result passed for right, rank " << rank;
    } else {
      EXPECT_TRUE(found == status_of(Code::data_tag) || found == status_of(Code::timeout) ||
                  found == status_of(Code::aborted))
          << found;
    }
    EXPECT_TRUE(larger_[rank]->margin_untouched());
    EXPECT_TRUE(in_place_ || smaller_[rank]->margin_untouched());
    return found;
  }
  void expect_right() {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      ASSERT_EQ(expect_right_or_failed(rank), 0u) << "rank " << rank;
      ASSERT_TRUE(std::ranges::equal(output_span(rank), expected[rank])) << "rank " << rank;
    }
  }
  std::span<std::byte> output_span(std::uint32_t rank) { return {out(rank), output_bytes_}; }

  std::vector<Bytes> inputs, expected;

 private:
  static DeviceOp op_of(const StepCase& c, Op op, Algorithm algorithm) {
    DeviceOp out;
    out.op = op;
    out.redop = c.redop;
    out.dtype = c.dtype;
    out.algorithm = algorithm;
    out.elements = c.elements;
    return out;
  }
  static DeviceSend send(const StepCase& c, std::uint32_t peer, const std::byte* data, std::uint64_t offset) {
    DeviceSend out;
    out.peer = static_cast<Rank>(peer);
    out.data = data;
    out.elements = c.elements;
    out.element_offset = offset;
    return out;
  }
  static DeviceRecv recv(const StepCase& c, std::uint32_t peer, std::byte* dst, std::uint64_t offset) {
    DeviceRecv out;
    out.peer = static_cast<Rank>(peer);
    out.dst = dst;
    out.elements = c.elements;
    out.element_offset = offset;
    return out;
  }
  template <class Visit>
  void for_others(std::uint32_t rank, Visit visit) const {
    for (std::uint32_t peer = 0; peer < ranks(); ++peer) {
      if (peer != rank) visit(peer);
    }
  }
  std::byte* in(std::uint32_t rank) const { return in_[rank]; }
  std::byte* out(std::uint32_t rank) const { return out_[rank]; }

  /// Memory and random inputs. In place the smaller of both lies inside the larger, at `inside(rank)`.
  template <class Inside>
  void begin(const StepCase& c, std::uint64_t input_bytes, std::uint64_t output_bytes, Inside inside) {
    in_place_ = c.in_place;
    output_bytes_ = output_bytes;
    const std::size_t shift = c.seed % 2 == 0 ? 0 : c.seed % 16;
    const bool input_larger = input_bytes > output_bytes;
    inputs.clear();
    larger_.clear();
    smaller_.clear();
    in_.clear();
    out_.clear();
    expected.assign(ranks(), {});
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      inputs.push_back(random_elements(random, c.dtype, input_bytes / dtype_bytes(c.dtype)));
      larger_.push_back(std::make_unique<Shifted>(std::max(input_bytes, output_bytes), shift));
      smaller_.push_back(std::make_unique<Shifted>(std::min(input_bytes, output_bytes), (shift * 5) % 16));
      std::byte* const large = larger_[rank]->data();
      std::byte* const small = c.in_place ? large + inside(rank) : smaller_[rank]->data();
      in_.push_back(input_larger ? large : small);
      out_.push_back(input_larger ? small : large);
      std::ranges::copy(inputs[rank], in_[rank]);
    }
  }

  std::vector<std::unique_ptr<Shifted>> larger_, smaller_;
  std::vector<std::byte*> in_, out_;
  std::uint64_t output_bytes_ = 0;
  bool in_place_ = false;
};

}  // namespace sealring::cuda::test
