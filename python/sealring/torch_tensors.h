// Tensors of PyTorch as memory that a collective can read and write: contiguous, by logical index.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/sealring/torch_compat.h"
#include "sealring/collective/communicator.h"

namespace sealring::torch_backend {

/// The one place where an Error becomes a Python exception.
[[noreturn]] inline void raise(const Error& error) { throw std::runtime_error(error.message()); }
[[noreturn]] inline void raise(Code code, std::string stage, std::string what, std::string next = {}) {
  raise(fail(code, std::move(stage), std::move(what), std::move(next)).value());
}

inline std::optional<DType> native_dtype(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::f32;
    case at::kDouble:
      return DType::f64;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    case at::kChar:
      return DType::i8;
    case at::kShort:
      return DType::i16;
    case at::kInt:
      return DType::i32;
    case at::kLong:
      return DType::i64;
    case at::kByte:
      return DType::u8;
    case at::kBool:
      return DType::boolean;
    default:
      return std::nullopt;
  }
}

/// [protocol A.5] NaN for floats, all bits one otherwise, true for bool; of any strides.
inline void poison(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor one = at::empty({1}, tensor.options());
  const DType dtype = native_dtype(c10::toRealValueType(tensor.scalar_type())).value_or(DType::u8);
  sealring::poison(dtype, {static_cast<std::byte*>(one.data_ptr()), one.nbytes()});
  tensor.detach().copy_(one.expand(tensor.sizes()));
}

/// What can be seen locally before anything is sent.
inline void check_tensor(const at::Tensor& tensor, const char* op) {
  if (!tensor.defined()) raise(Code::invalid_argument, op, "an undefined tensor was passed");
  if (tensor.layout() != at::kStrided)
    raise(Code::unsupported, op, "sparse tensors are not supported", "call .to_dense() first");
  if (tensor.device().is_cuda())
    raise(Code::gpu_absent, op, "a CUDA tensor was passed, and this build serves CPU tensors",
          "move the tensor to the CPU: this release seals no PyTorch tensors on GPUs");
  if (!tensor.device().is_cpu())
    raise(Code::unsupported, op, "tensors on " + tensor.device().str() + " are not supported",
          "move the tensor to the CPU");
}

/// Memory whose bytes are the elements in logical order.
inline bool is_plain_memory(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

/// A fresh contiguous copy by logical index: bytes between the strides are neither read nor sent.
inline at::Tensor plain_copy(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.resolve_conj().resolve_neg().clone(at::MemoryFormat::Contiguous);
}

/// As it is moved: dtypes that are not ours travel as bytes.
inline Tensor moved(const at::Tensor& tensor) {
  const auto elements = static_cast<std::uint64_t>(tensor.numel());
  if (const auto dtype = native_dtype(tensor.scalar_type())) return {tensor.data_ptr(), elements, *dtype};
  return {tensor.data_ptr(), elements * static_cast<std::uint64_t>(tensor.element_size()), DType::u8};
}

/// As it is added up. Raises UNSUPPORTED for a dtype that has no reduction here.
inline Tensor reduced(const at::Tensor& tensor, const char* op) {
  if (!native_dtype(tensor.scalar_type()))
    raise(Code::unsupported, op,
          std::string("a reduction of ") + c10::toString(tensor.scalar_type()) + " is not supported",
          "reduce in float32 or bfloat16 and cast afterwards (complex: torch.view_as_real); "
          "all_gather, broadcast and send work with this dtype");
  return moved(tensor);
}

inline Reduction reduction_of(const c10d::ReduceOp& op, const char* where) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return {RedOp::sum, 1.0};
    case c10d::ReduceOp::AVG:
      return {RedOp::avg, 1.0};
    case c10d::ReduceOp::PRODUCT:
      return {RedOp::product, 1.0};
    case c10d::ReduceOp::MIN:
      return {RedOp::min, 1.0};
    case c10d::ReduceOp::MAX:
      return {RedOp::max, 1.0};
    case c10d::ReduceOp::PREMUL_SUM:
      return {RedOp::premul_sum, premul_factor(op)};
    default:
      raise(Code::unsupported, where, "bitwise reductions (BAND, BOR, BXOR) are not supported",
            "use MIN, MAX or SUM, or all_gather and combine locally");
  }
}

/// The buffers of one operation: keeps everything alive, and writes results back where a copy stood in.
class Staging {
 public:
  /// `tensor` for reading: itself if it is plain memory, else a copy.
  at::Tensor input(const at::Tensor& tensor, const char* op) {
    check_tensor(tensor, op);
    return keep(is_plain_memory(tensor) ? tensor : plain_copy(tensor));
  }
  /// `tensor` for writing; with `holds_input` its present values matter too.
  at::Tensor output(const at::Tensor& tensor, bool holds_input, const char* op) {
    check_tensor(tensor, op);
    if (tensor.numel() > 1 && at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
      raise(Code::invalid_argument, op, "the output tensor has several elements in one place of memory",
            "pass a tensor with memory of its own, e.g. tensor.contiguous()");
    if (is_plain_memory(tensor)) return keep(tensor);
    const at::Tensor stand_in = holds_input
                                    ? plain_copy(tensor)
                                    : at::empty(tensor.sizes(), tensor.options().memory_format(c10::nullopt));
    write_back(tensor, stand_in);
    return keep(stand_in);
  }
  /// One contiguous buffer for equal tensors side by side: their own memory if it is that already.
  at::Tensor flat_input(const std::vector<at::Tensor>& tensors, const char* op) {
    for (const at::Tensor& tensor : tensors) check_tensor(tensor, op);
    if (const auto whole = side_by_side(tensors)) return keep(*whole);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> rows;
    for (const at::Tensor& tensor : tensors)
      rows.push_back(tensor.resolve_conj().resolve_neg().reshape({-1}));
    return keep(at::cat(rows));
  }
  at::Tensor flat_output(const std::vector<at::Tensor>& tensors, const char* op) {
    for (const at::Tensor& tensor : tensors) check_tensor(tensor, op);
    if (const auto whole = side_by_side(tensors)) return keep(*whole);
    const at::NoGradGuard no_grad;
    const std::int64_t each = tensors[0].numel();
    const at::Tensor flat =
        at::empty({each * static_cast<std::int64_t>(tensors.size())}, tensors[0].options());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      output_fits(tensors[i], op);
      write_back(tensors[i],
                 flat.narrow(0, static_cast<std::int64_t>(i) * each, each).view(tensors[i].sizes()));
    }
    return keep(flat);
  }
  at::Tensor keep(at::Tensor tensor) {
    kept_.push_back(tensor);
    return tensor;
  }
  /// Of an operation in several parts: when one fails, these are poisoned as a whole.
  void fails_as_one(std::vector<at::Tensor> outputs) { outputs_ = std::move(outputs); }
  void write_back(at::Tensor to, at::Tensor from) { back_.emplace_back(std::move(to), std::move(from)); }
  /// After the operation, failed or not: a poisoned stand-in poisons the user's tensor.
  void finish(bool failed) {
    const at::NoGradGuard no_grad;
    for (const auto& [to, from] : back_) to.detach().copy_(from);
    if (failed)
      for (const at::Tensor& output : outputs_) poison(output);
    back_.clear();
    kept_.clear();
    outputs_.clear();
  }

 private:
  static void output_fits(const at::Tensor& tensor, const char* op) {
    if (tensor.numel() > 1 && at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
      raise(Code::invalid_argument, op, "an output tensor has several elements in one place of memory");
  }
  static std::optional<at::Tensor> side_by_side(const std::vector<at::Tensor>& tensors) {
    const at::Tensor& first = tensors[0];
    const std::int64_t each = first.numel();
    const auto bytes = static_cast<std::size_t>(each * first.element_size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor = tensors[i];
      if (!is_plain_memory(tensor) || !tensor.is_alias_of(first) || tensor.numel() != each ||
          tensor.data_ptr() != static_cast<char*>(first.data_ptr()) + i * bytes)
        return std::nullopt;
    }
    const at::NoGradGuard no_grad;
    return first.detach().as_strided({each * static_cast<std::int64_t>(tensors.size())}, {1});
  }

  std::vector<at::Tensor> kept_, outputs_;
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;
};

/// True when the two run into each other otherwise than `inner` lying exactly at `offset_bytes` in `outer`.
inline bool clashes(const at::Tensor& outer, const at::Tensor& inner, std::size_t offset_bytes) {
  const auto* outer_begin = static_cast<const char*>(outer.data_ptr());
  const auto* inner_begin = static_cast<const char*>(inner.data_ptr());
  const bool apart =
      outer_begin + outer.nbytes() <= inner_begin || inner_begin + inner.nbytes() <= outer_begin;
  return !apart && inner_begin != outer_begin + offset_bytes;
}

}  // namespace sealring::torch_backend
