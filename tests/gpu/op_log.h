// A log on the device of what replayed ops sealed: graphs run no host code that could keep it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "sealring/device/cuda/key_state.h"

namespace sealring::cuda::test {

/// The numbers of one op.
struct LoggedOp {
  Epoch epoch;
  std::uint32_t segments;
  std::uint64_t first_number, seq;
};

/// All pointers are the device's. `wires` has `room` places of `wire_bytes`, a multiple of 4.
struct OpLog {
  std::uint32_t* count;
  std::uint64_t* last_ns;
  LoggedOp* ops;
  std::byte* wires;
  std::uint32_t room;
  std::uint32_t wire_bytes;
  std::uint64_t pace_ns;  ///< the log lets an op take this long at least, by the device's clock
};

/// Loads the kernel: not while a stream is captured.
cudaError_t prepare_log();
/// Enqueues the entry of the op that is the last on `stream`; a refused op has none.
cudaError_t enqueue_log(const KeyState* state, std::uint32_t segments, const std::byte* wire,
                        const OpLog& log, cudaStream_t stream);

}  // namespace sealring::cuda::test
