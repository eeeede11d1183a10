#include "tests/gpu/primitive_kernel.h"

namespace sealring::test {
namespace {

__global__ void run_case(PrimitiveCase* cases) { run_primitive(cases[blockIdx.x]); }

}  // namespace

cudaError_t run_primitives_on_gpu(PrimitiveCase* cases, unsigned count) {
  run_case<<<count, 1>>>(cases);
  if (const cudaError_t launched = cudaGetLastError(); launched != cudaSuccess) return launched;
  return cudaDeviceSynchronize();
}

}  // namespace sealring::test
