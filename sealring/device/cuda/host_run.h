// Runs a kernel body on the host, column after column: the tests' way to it.
#pragma once

#include <memory>

#include "sealring/device/cuda/block.h"
#include "sealring/device/cuda/segment_job.h"

namespace sealring::cuda {

/// Gives the first refused segment, if any; `reads` counts the window's reads (null: not counted).
template <class Body>
BadTag run_on_host(const SegmentJob& job, const OpView& op, const KeyWords& key, std::uint32_t columns,
                   WindowReads* reads = nullptr) {
  BadTag bad;
  const auto shared = std::make_unique<typename Body::Shared>();
  for (std::uint32_t index = 0; index < columns; ++index) {
    HostBlock block(Body::kThreads, reads);
    Body::run(block, *shared, job, op, key, Column{index, columns});
    if (shared->bad.refused != 0 && bad.refused == 0) bad = shared->bad;
  }
  return bad;
}

}  // namespace sealring::cuda
