// Kernels: a fused step with several records, every other reduction, switched at run time; also of one record
// each way.
#include "sealring/device/cuda/fused_kernel.h"

namespace sealring::cuda {

void add_fused_many_any(std::vector<FusedEntry>& list) { add_fused_many<CombineKind::any>(list); }

}  // namespace sealring::cuda
