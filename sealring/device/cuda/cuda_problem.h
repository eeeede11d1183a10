// CUDA's errors as the library's: a pure function of CUDA's own number and of what was found beside it,
// without a CUDA header, so that every case is tested on the host.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "sealring/base/result.h"

namespace sealring::cuda {

/// The numbers of CUDA's errors that are told apart; errors.cc holds them against the toolkit's.
enum class CudaStatus : int {
  success = 0,
  out_of_memory = 2,
  insufficient_driver = 35,
  devices_unavailable = 46,
  invalid_device_function = 98,
  no_device = 100,
  invalid_device = 101,
  no_kernel_image = 209,
  ecc_uncorrectable = 214,
  unsupported_ptx = 222,
  illegal_address = 700,
  launch_timeout = 702,
  hardware_stack_error = 714,
  illegal_instruction = 715,
  misaligned_address = 716,
  invalid_address_space = 717,
  invalid_pc = 718,
  launch_failure = 719,
  system_not_ready = 802,
  system_driver_mismatch = 803,
  compat_not_supported = 804,
  capture_unsupported = 900,
  capture_invalidated = 901,
  capture_implicit = 906,
  capture_wrong_thread = 908,
};

/// What an error's words are made of. Fields that are not known stay as they are.
struct CudaFacts {
  std::string doing;  ///< "key upload"
  std::string name;   ///< CUDA's name of the error
  std::string text;   ///< CUDA's sentence
  unsigned device = 0;
  int devices = -1;        ///< how many this process sees
  int driver_version = 0;  ///< as CUDA counts: 12040; 0: no driver
  int built_version = 0;   ///< of the toolkit
  std::uint64_t wanted_bytes = 0;
  std::uint64_t free_bytes = 0, total_bytes = 0;
  std::string gpu;  ///< its name
  int major = 0, minor = 0;
  std::string built_for;  ///< "sm_90a"
};

namespace problem_internal {

inline std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}
inline std::string bytes_text(std::uint64_t bytes) {
  const std::uint64_t mib = bytes >> 20;
  return mib < 10 ? std::to_string(bytes) + " bytes" : std::to_string(mib) + " MiB";
}
inline Error made(Code code, std::string what, std::string next) {
  Error out;
  out.code = code;
  out.stage = "device.cuda";
  out.what = std::move(what);
  out.next = std::move(next);
  return out;
}
inline std::string quoted(const CudaFacts& facts) {
  return facts.doing + ": " + facts.name + ": " + facts.text;
}

inline Error absent(const CudaFacts& facts) {
  const std::string seen = facts.devices < 0 ? "none" : std::to_string(facts.devices);
  return made(Code::gpu_absent,
              "CUDA device " + std::to_string(facts.device) + " was asked for, this process sees " + seen,
              "look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use CPU tensors");
}
inline Error driver(const CudaFacts& facts) {
  if (facts.driver_version == 0)
    return made(Code::gpu_absent, "no NVIDIA driver is loaded",
                "install or load the driver, or use CPU tensors; in a container, start it with its GPUs");
  // Any driver of the same major version will do.
  const int needed = facts.built_version / 1000 * 1000;
  return made(Code::gpu_unsupported,
              "the driver serves CUDA " + version_text(facts.driver_version) + ", this build needs " +
                  version_text(needed) + " or newer",
              "update the driver, or build with a CUDA toolkit that it serves");
}
inline Error architecture(const CudaFacts& facts) {
  const std::string found = "sm_" + std::to_string(facts.major) + std::to_string(facts.minor);
  return made(Code::gpu_unsupported,
              (facts.gpu.empty() ? "the GPU" : facts.gpu) + " is of architecture " + found +
                  ", this build holds code for " + facts.built_for,
              "build with -DSEALRING_CUDA_ARCHITECTURES=" + std::to_string(facts.major) +
                  std::to_string(facts.minor) + "; the README says which were run on hardware");
}
inline Error memory(const CudaFacts& facts) {
  std::string what = facts.doing + ": ";
  what += facts.wanted_bytes == 0 ? "the device has no memory left"
                                  : bytes_text(facts.wanted_bytes) + " of device memory were asked for";
  if (facts.total_bytes != 0)
    what += "; " + bytes_text(facts.free_bytes) + " of " + bytes_text(facts.total_bytes) + " are free";
  return made(Code::out_of_memory, std::move(what),
              "free memory on the device (nvidia-smi lists who holds it), or use smaller segments");
}

}  // namespace problem_internal

/// The library's error for `status`, a cudaError_t other than success.
inline Error cuda_problem(int status, const CudaFacts& facts) {
  namespace in = problem_internal;
  switch (static_cast<CudaStatus>(status)) {
    case CudaStatus::no_device:
    case CudaStatus::invalid_device:
      return in::absent(facts);
    case CudaStatus::devices_unavailable:
      return in::made(
          Code::gpu_absent, "the GPU is busy or forbidden: " + in::quoted(facts),
          "another process holds it alone (nvidia-smi -q -d COMPUTE): end that, or use another GPU");
    case CudaStatus::system_not_ready:
      return in::made(Code::gpu_absent, "the GPUs of this machine are not ready: " + in::quoted(facts),
                      "start the fabric manager, or set the machine's confidential-computing state to ready");
    case CudaStatus::insufficient_driver:
    case CudaStatus::unsupported_ptx:
    case CudaStatus::system_driver_mismatch:
    case CudaStatus::compat_not_supported:
      return in::driver(facts);
    case CudaStatus::no_kernel_image:
    case CudaStatus::invalid_device_function:
      return in::architecture(facts);
    case CudaStatus::out_of_memory:
      return in::memory(facts);
    case CudaStatus::capture_unsupported:
    case CudaStatus::capture_invalidated:
    case CudaStatus::capture_implicit:
    case CudaStatus::capture_wrong_thread:
      return in::made(Code::cuda, in::quoted(facts), "call it before or behind the capture of a graph");
    case CudaStatus::ecc_uncorrectable:
      return in::made(Code::cuda, in::quoted(facts), "the GPU's memory is damaged: reset or replace the GPU");
    case CudaStatus::illegal_address:
    case CudaStatus::launch_timeout:
    case CudaStatus::hardware_stack_error:
    case CudaStatus::illegal_instruction:
    case CudaStatus::misaligned_address:
    case CudaStatus::invalid_address_space:
    case CudaStatus::invalid_pc:
    case CudaStatus::launch_failure:
      return in::made(
          Code::cuda, in::quoted(facts),
          "a kernel of this process failed, maybe not one of ours, and the process must end; run it "
          "under compute-sanitizer");
    case CudaStatus::success:
      break;
  }
  return in::made(Code::cuda, in::quoted(facts), "");
}

}  // namespace sealring::cuda
