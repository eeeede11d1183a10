// Plain kernels that fill memory with a pattern and count what differs from it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace sealring::cuda::test {

/// Waits. `bytes`: a multiple of 8.
cudaError_t fill_pattern(std::byte* data, std::uint64_t bytes, std::uint64_t seed);
/// `*wrong`: how many 8-byte words are not the pattern's; seed 0 stands for zeros.
cudaError_t count_wrong(const std::byte* data, std::uint64_t bytes, std::uint64_t seed, std::uint64_t* wrong);

}  // namespace sealring::cuda::test
