// Everything of PyTorch that the backend sees, and what differs between its versions 2.11 to 2.15.
//
// The backend overrides the virtual functions that every one of them has; newer names (all_gather_single and
// so on) forward to these in PyTorch itself. What a version adds is recognised by its C10D_BACKEND_HAS_*
// macro, never by number, because release candidates and nightlies carry the next version's number.
#pragma once

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace sealring::torch_backend {

/// The scale of ReduceOp.PREMUL_SUM. The type's older name is the one that all versions have.
inline double premul_factor(const c10d::ReduceOp& op) {
  const auto* supplement = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) return 1.0;
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                             : supplement->double_factor;
}

/// True where PyTorch can register functions to be run before a backend aborts.
#ifdef C10D_BACKEND_HAS_HOOKS
inline constexpr bool kHasAbortHooks = true;
#else
inline constexpr bool kHasAbortHooks = false;
#endif

}  // namespace sealring::torch_backend
