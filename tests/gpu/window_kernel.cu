#include "tests/gpu/window_kernel.h"

namespace sealring::cuda::test {
namespace {

using Word = unsigned long long;

__device__ Word word_at(Word seed, Word index) {
  if (seed == 0) return 0;
  Word x = (seed + index) * 0x9E3779B97F4A7C15ull;
  x ^= x >> 31;
  return x * 0xBF58476D1CE4E5B9ull;
}

__global__ void fill(Word* data, Word words, Word seed) {
  for (Word i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    data[i] = word_at(seed, i);
}

__global__ void compare(const volatile Word* data, Word words, Word seed, Word* wrong) {
  for (Word i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x) {
    if (data[i] != word_at(seed, i)) atomicAdd(wrong, Word{1});
  }
}

}  // namespace

cudaError_t fill_pattern(std::byte* data, std::uint64_t bytes, std::uint64_t seed) {
  fill<<<64, 256>>>(reinterpret_cast<Word*>(data), bytes / 8, seed);
  if (const cudaError_t launched = cudaGetLastError(); launched != cudaSuccess) return launched;
  return cudaDeviceSynchronize();
}

cudaError_t count_wrong(const std::byte* data, std::uint64_t bytes, std::uint64_t seed,
                        std::uint64_t* wrong) {
  Word* count = nullptr;
  cudaError_t status = cudaMalloc(&count, sizeof *count);
  if (status != cudaSuccess) return status;
  status = cudaMemset(count, 0, sizeof *count);
  if (status == cudaSuccess) {
    compare<<<64, 256>>>(reinterpret_cast<const Word*>(data), bytes / 8, seed, count);
    status = cudaGetLastError();
  }
  if (status == cudaSuccess) status = cudaMemcpy(wrong, count, sizeof *count, cudaMemcpyDeviceToHost);
  cudaFree(count);
  return status;
}

}  // namespace sealring::cuda::test
