// SR_HOST_DEVICE marks a function that a CUDA compiler builds for host and device; elsewhere it is nothing.
#pragma once

#if defined(__CUDACC__)
#define SR_HOST_DEVICE __host__ __device__
#else
#define SR_HOST_DEVICE
#endif
