// How PyTorch's DistributedDataParallel cuts gradients into all-reduces, from the parameters' sizes alone.
//
// The rule (torch.nn.parallel.distributed and reducer.cpp, compute_bucket_assignment_by_size): parameters in
// reverse order of registration; the first bucket is closed once it holds at least 1 MiB, every other once it
// holds at least the cap; a parameter is never split. So a cap is no cap: buckets exceed it, by up to one
// parameter. After the first iteration DDP rebuilds the buckets in the order in which gradients became ready,
// which shapes alone do not tell.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sealring {

inline constexpr std::uint64_t kFirstBucketBytes = 1u << 20;
inline constexpr std::uint64_t kDefaultBucketBytes = 25u << 20;

/// `parameters` are indices into what was given, in the order in which they were added.
struct Bucket {
  std::vector<std::size_t> parameters;
  std::uint64_t bytes = 0;
};

/// Buckets in the order in which they are all-reduced. A parameter of no bytes joins the open bucket.
std::vector<Bucket> assign_buckets(std::span<const std::uint64_t> parameter_bytes,
                                   std::uint64_t cap_bytes = kDefaultBucketBytes,
                                   std::uint64_t first_bytes = kFirstBucketBytes);

}  // namespace sealring
