// The functions of SealedBackend that send to single peers: send, recv and all_to_all. Included once, by
// backend.cc.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "python/sealring/torch_group.h"

namespace sealring::torch_backend {

inline constexpr std::uint32_t kPiecesTag =
    0xFFFF'FFFF;  ///< of all_to_all's pieces: no user's tag reaches it

inline std::uint32_t tag_of(int tag, const char* op) {
  if (tag < 0)
    raise(Code::invalid_argument, op, "tags are not negative, and this one is " + std::to_string(tag));
  return static_cast<std::uint32_t>(tag);
}

/// One piece to and from each rank, of any sizes: sends and receives run beside each other.
inline void SealedBackend::add_pieces(Call& call, const AtTensors& outputs, const AtTensors& inputs,
                                      const char* op) {
  const auto me = static_cast<std::size_t>(rank_);
  same_elements(inputs[me].numel(), outputs[me].numel(), "my own piece", op);
  AtTensors from, to;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    same_dtype(inputs[i], outputs[i], op);
    from.push_back(call.staging.input(inputs[i], op));
    to.push_back(call.staging.output(outputs[i], false, op));
  }
  for (AtTensor& piece : from)
    for (const AtTensor& place : to)
      if (clashes(place, piece, place.nbytes() + 1)) piece = call.staging.keep(plain_copy(piece));
  {
    const at::NoGradGuard no_grad;
    to[me].detach().view({-1}).copy_(from[me].view({-1}));
  }
  for (int distance = 1; distance < size_; ++distance) {
    const auto next = static_cast<Rank>((rank_ + distance) % size_);
    const auto previous = static_cast<Rank>((rank_ + size_ - distance) % size_);
    call.add(
        [data = moved(from[next]), next](Communicator& comm) { return comm.send(data, next, kPiecesTag); });
    call.add([data = moved(to[previous]), previous](Communicator& comm) {
      return comm.recv(data, previous, kPiecesTag);
    });
  }
}

inline WorkPtr SealedBackend::alltoall_base(AtTensor& output, AtTensor& input,
                                            std::vector<std::int64_t>& output_splits,
                                            std::vector<std::int64_t>& input_splits,
                                            const c10d::AllToAllOptions&) {
  constexpr const char* kOp = "sealring:all_to_all";
  same_dtype(input, output, kOp);
  Call call(*this, OpType::ALLTOALL_BASE, kOp, {output});
  const AtTensor in = call.staging.input(input, kOp);
  const AtTensor out = call.staging.output(output, false, kOp);
  // Splits may be equal on one rank and not on another: whether they were given decides, which all ranks know
  // alike.
  if (output_splits.empty() && input_splits.empty()) {
    same_elements(in.numel(), out.numel(), "the output", kOp);
    same_elements(in.numel() / size_ * size_, in.numel(), "the input (it must divide by the number of ranks)",
                  kOp);
    const auto from = moved(clashes(out, in, out.nbytes() + 1) ? call.staging.keep(plain_copy(in)) : in);
    call.add([from, to = moved(out)](Communicator& comm) { return comm.all_to_all(from, to); });
    return launch(std::move(call));
  }
  const auto cut = [&](const AtTensor& whole, std::vector<std::int64_t> splits, const char* what) {
    const std::int64_t rows = whole.dim() == 0 ? 0 : whole.size(0);
    if (splits.empty()) splits.assign(static_cast<std::size_t>(size_), rows / size_);
    same_elements(size_, static_cast<std::int64_t>(splits.size()), what, kOp);
    std::int64_t total = 0;
    for (const std::int64_t split : splits) {
      if (split < 0) raise(Code::invalid_argument, kOp, std::string(what) + " has a negative size");
      total += split;
    }
    same_elements(rows, total, what, kOp);
    return whole.split_with_sizes(splits, 0);
  };
  add_pieces(call, cut(out, output_splits, "the list of output splits"),
             cut(in, input_splits, "the list of input splits"), kOp);
  return launch(std::move(call));
}

inline WorkPtr SealedBackend::alltoall(AtTensors& outputs, AtTensors& inputs, const c10d::AllToAllOptions&) {
  constexpr const char* kOp = "sealring:all_to_all";
  same_elements(size_, static_cast<std::int64_t>(inputs.size()), "the list of inputs", kOp);
  same_elements(size_, static_cast<std::int64_t>(outputs.size()), "the list of outputs", kOp);
  Call call(*this, OpType::ALLTOALL, kOp, outputs);
  add_pieces(call, outputs, inputs, kOp);
  return launch(std::move(call));
}

inline WorkPtr SealedBackend::send(AtTensors& tensors, int peer, int tag) {
  constexpr const char* kOp = "sealring:send";
  same_elements(1, static_cast<std::int64_t>(tensors.size()), "the list of tensors", kOp);
  Call call(*this, OpType::SEND, kOp, {});
  const auto data = moved(call.staging.input(tensors[0], kOp));
  const Rank to = rank_in_group(peer, kOp);
  call.add([data, to, tag = tag_of(tag, kOp)](Communicator& comm) { return comm.send(data, to, tag); });
  return launch(std::move(call));
}

inline WorkPtr SealedBackend::recv(AtTensors& tensors, int peer, int tag) {
  constexpr const char* kOp = "sealring:recv";
  same_elements(1, static_cast<std::int64_t>(tensors.size()), "the list of tensors", kOp);
  Call call(*this, OpType::RECV, kOp, tensors);
  const auto data = moved(call.staging.output(tensors[0], false, kOp));
  const Rank from = rank_in_group(peer, kOp);
  call.add([data, from, tag = tag_of(tag, kOp)](Communicator& comm) { return comm.recv(data, from, tag); });
  return launch(std::move(call));
}

inline WorkPtr SealedBackend::recvAnysource(AtTensors& tensors, int tag) {
  constexpr const char* kOp = "sealring:recv_any";
  same_elements(1, static_cast<std::int64_t>(tensors.size()), "the list of tensors", kOp);
  Call call(*this, OpType::RECVANYSOURCE, kOp, tensors);
  const auto data = moved(call.staging.output(tensors[0], false, kOp));
  call.work->source = std::make_shared<Rank>(kNoRoot);
  call.add([data, tag = tag_of(tag, kOp), source = call.work->source](Communicator& comm) {
    return comm.recv_any(data, tag, source);
  });
  return launch(std::move(call));
}

}  // namespace sealring::torch_backend
