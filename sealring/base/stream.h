// Stream: the order in which a device does work.
#pragma once

namespace sealring {

/// On CUDA, `native` is the cudaStream_t whose order the call joins. On a CPU it is null and work is done
/// when the call returns. Not owned.
struct Stream {
  void* native = nullptr;
};

}  // namespace sealring
