#include "sealring/device/cpu/vector_level.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sealring::cpu {
namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports of clang 14 does not know f16c; that of avx2 also says that the system saves the
// registers.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

VectorLevel detect() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !has_f16c()) return VectorLevel::portable;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? VectorLevel::avx512 : VectorLevel::avx2;
#else
  return VectorLevel::portable;
#endif
}

}  // namespace

VectorLevel vector_level_max() {
  static const VectorLevel level = detect();
  return level;
}

}  // namespace sealring::cpu
