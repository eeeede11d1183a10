#include "sealring/collective/checked_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace sealring {
namespace {

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<const std::byte*> before;  // a total order, also of pointers into different objects
  return before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}

tl::unexpected<Error> bad_argument(std::string what) {
  return fail(Code::invalid_argument, "communicator.call", std::move(what));
}

Result<void> check_types(const Tensor& in, const Tensor& out) {
  if (in.dtype == out.dtype) return {};
  return bad_argument(fmt::format("input is {} but output is {}", to_string(in.dtype), to_string(out.dtype)));
}

Result<void> check_reduction(DType dtype, RedOp op) {
  if (op != RedOp::none && reduction_supported(dtype, op)) return {};
  return fail(Code::unsupported, "communicator.call",
              fmt::format("reduction {} does not exist for {}", to_string(op), to_string(dtype)));
}

Result<void> check_ratio(const Tensor& large, const Tensor& small, std::uint16_t size, const char* what) {
  std::uint64_t elements = 0;
  if (!__builtin_mul_overflow(small.elements, std::uint64_t{size}, &elements) && large.elements == elements)
    return {};
  return bad_argument(
      fmt::format("{}: {} elements must be {} x {}", what, large.elements, size, small.elements));
}

}  // namespace

CheckedCommunicator::CheckedCommunicator(std::vector<Rank> members, Rank me, std::uint16_t node_ranks)
    : members_(std::move(members)), node_ranks_(node_ranks_of(members_, node_ranks)) {
  const auto at = std::lower_bound(members_.begin(), members_.end(), me);
  SR_CHECK(at != members_.end() && *at == me, "not a member: rank", me);
  rank_ = static_cast<Rank>(at - members_.begin());
}

std::span<std::byte> CheckedCommunicator::memory_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data), tensor.elements * dtype_bytes(tensor.dtype)};
}

Result<void> CheckedCommunicator::check_tensor(const Tensor& tensor, const char* name) {
  if (tensor.elements > 0 && tensor.data == nullptr)
    return bad_argument(fmt::format("{} is a null pointer", name));
  if (tensor.elements > (1ull << 60)) return bad_argument(fmt::format("{} has too many elements", name));
  return {};
}

Result<void> CheckedCommunicator::check_root(Rank root) const {
  if (root < size()) return {};
  return bad_argument(fmt::format("root {} is not in a group of {}", root, size()));
}

Result<void> CheckedCommunicator::check_peer(Rank peer) const {
  if (peer < size() && peer != rank()) return {};
  return bad_argument(fmt::format("peer {} is not another rank of a group of {}", peer, size()));
}

Result<Ticket> CheckedCommunicator::all_reduce(Tensor in, Tensor out, Reduction reduction, Stream stream) {
  SR_TRY(check_tensor(in, "input"));
  SR_TRY(check_tensor(out, "output"));
  SR_TRY(check_types(in, out));
  SR_TRY(check_ratio(in, out, 1, "all_reduce"));
  SR_TRY(check_reduction(in.dtype, reduction.op));
  CollectiveCall call;
  call.op = Op::all_reduce;
  call.algorithm = algorithm_for(call.op, memory_of(in).size());
  call.redop = reduction.op;
  call.dtype = in.dtype;
  call.elements = in.elements;
  call.factor = reduction.factor;
  call.in = static_cast<const std::byte*>(in.data);
  call.out = static_cast<std::byte*>(out.data);
  return issue(call, memory_of(out), stream);
}

Result<Ticket> CheckedCommunicator::reduce_scatter(Tensor in, Tensor out, Reduction reduction,
                                                   Stream stream) {
  SR_TRY(check_tensor(in, "input"));
  SR_TRY(check_tensor(out, "output"));
  SR_TRY(check_types(in, out));
  SR_TRY(check_ratio(in, out, size(), "reduce_scatter"));
  SR_TRY(check_reduction(in.dtype, reduction.op));
  CollectiveCall call;
  call.op = Op::reduce_scatter;
  call.algorithm = algorithm_for(call.op, memory_of(in).size());
  call.redop = reduction.op;
  call.dtype = in.dtype;
  call.elements = out.elements;
  call.factor = reduction.factor;
  call.in = static_cast<const std::byte*>(in.data);
  call.out = static_cast<std::byte*>(out.data);
  return issue(call, memory_of(out), stream);
}

Result<Ticket> CheckedCommunicator::all_gather(Tensor in, Tensor out, Stream stream) {
  SR_TRY(check_tensor(in, "input"));
  SR_TRY(check_tensor(out, "output"));
  SR_TRY(check_types(in, out));
  SR_TRY(check_ratio(out, in, size(), "all_gather"));
  CollectiveCall call;
  call.op = Op::all_gather;
  call.algorithm = algorithm_for(call.op, memory_of(out).size());
  call.dtype = in.dtype;
  call.elements = in.elements;
  call.in = static_cast<const std::byte*>(in.data);
  call.out = static_cast<std::byte*>(out.data);
  return issue(call, memory_of(out), stream);
}

Result<Ticket> CheckedCommunicator::broadcast(Tensor data, Rank root, Stream stream) {
  SR_TRY(check_tensor(data, "tensor"));
  SR_TRY(check_root(root));
  CollectiveCall call;
  call.op = Op::broadcast;
  call.dtype = data.dtype;
  call.root = root;
  call.elements = data.elements;
  call.in = static_cast<const std::byte*>(data.data);
  call.out = static_cast<std::byte*>(data.data);
  return issue(call, root == rank() ? std::span<std::byte>() : memory_of(data), stream);
}

Result<Ticket> CheckedCommunicator::reduce(Tensor in, Tensor out, Reduction reduction, Rank root,
                                           Stream stream) {
  SR_TRY(check_tensor(in, "input"));
  SR_TRY(check_root(root));
  SR_TRY(check_reduction(in.dtype, reduction.op));
  CollectiveCall call;
  call.op = Op::reduce;
  call.redop = reduction.op;
  call.dtype = in.dtype;
  call.root = root;
  call.elements = in.elements;
  call.factor = reduction.factor;
  call.in = static_cast<const std::byte*>(in.data);
  if (root != rank()) return issue(call, {}, stream);
  SR_TRY(check_tensor(out, "output"));
  SR_TRY(check_types(in, out));
  SR_TRY(check_ratio(in, out, 1, "reduce"));
  call.out = static_cast<std::byte*>(out.data);
  return issue(call, memory_of(out), stream);
}

Result<Ticket> CheckedCommunicator::gather(Tensor in, Tensor out, Rank root, Stream stream) {
  SR_TRY(check_tensor(in, "input"));
  SR_TRY(check_root(root));
  CollectiveCall call;
  call.op = Op::gather;
  call.dtype = in.dtype;
  call.root = root;
  call.elements = in.elements;
  call.in = static_cast<const std::byte*>(in.data);
  if (root != rank()) return issue(call, {}, stream);
  SR_TRY(check_tensor(out, "output"));
  SR_TRY(check_types(in, out));
  SR_TRY(check_ratio(out, in, size(), "gather"));
  call.out = static_cast<std::byte*>(out.data);
  return issue(call, memory_of(out), stream);
}

Result<Ticket> CheckedCommunicator::scatter(Tensor in, Tensor out, Rank root, Stream stream) {
  SR_TRY(check_tensor(out, "output"));
  SR_TRY(check_root(root));
  CollectiveCall call;
  call.op = Op::scatter;
  call.dtype = out.dtype;
  call.root = root;
  call.elements = out.elements;
  call.out = static_cast<std::byte*>(out.data);
  if (root == rank()) {
    SR_TRY(check_tensor(in, "input"));
    SR_TRY(check_types(in, out));
    SR_TRY(check_ratio(in, out, size(), "scatter"));
    call.in = static_cast<const std::byte*>(in.data);
  }
  return issue(call, memory_of(out), stream);
}

Result<Ticket> CheckedCommunicator::all_to_all(Tensor in, Tensor out, Stream stream) {
  SR_TRY(check_tensor(in, "input"));
  SR_TRY(check_tensor(out, "output"));
  SR_TRY(check_types(in, out));
  SR_TRY(check_ratio(in, out, 1, "all_to_all"));
  if (in.elements % size() != 0) {
    return bad_argument(
        fmt::format("all_to_all: {} elements cannot be cut into {} equal pieces", in.elements, size()));
  }
  if (overlap(memory_of(in), memory_of(out))) {
    return bad_argument("all_to_all: input and output overlap; it cannot run in place");
  }
  CollectiveCall call;
  call.op = Op::all_to_all;
  call.dtype = in.dtype;
  call.elements = in.elements / size();
  call.in = static_cast<const std::byte*>(in.data);
  call.out = static_cast<std::byte*>(out.data);
  return issue(call, memory_of(out), stream);
}

Result<Ticket> CheckedCommunicator::barrier(Stream stream) {
  CollectiveCall call;
  call.op = Op::barrier;
  return issue(call, {}, stream);
}

}  // namespace sealring
