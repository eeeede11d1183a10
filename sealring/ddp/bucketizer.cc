#include "sealring/ddp/bucketizer.h"

namespace sealring {

std::vector<Bucket> assign_buckets(std::span<const std::uint64_t> parameter_bytes, std::uint64_t cap_bytes,
                                   std::uint64_t first_bytes) {
  std::vector<Bucket> out;
  Bucket open;
  for (std::size_t i = parameter_bytes.size(); i-- > 0;) {
    open.parameters.push_back(i);
    open.bytes += parameter_bytes[i];
    if (open.bytes >= (out.empty() ? first_bytes : cap_bytes)) {
      out.push_back(std::move(open));
      open = {};
    }
  }
  if (!open.parameters.empty()) out.push_back(std::move(open));
  return out;
}

}  // namespace sealring
