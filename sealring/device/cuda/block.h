// How a kernel body is written once and run twice: by a thread block on a GPU, and by a loop on the host.
//
// A body is a function template over `Block`. Its work is a list of PHASES; between two phases lies a block
// barrier.
//   block.phase([&](auto& warp) { ... });   every warp runs the function, then all wait
//   block.any([&](int thread) { ... })      a phase of one step: true for all when it was true in any thread
// Inside a phase a warp does STEPS; between two steps of one warp lies a warp barrier.
//   warp.step([&](int lane) { ... });       every lane runs the function, then the warp waits
//
// Rules that make both runs equal:
//   - Inside a step no lane reads what another lane writes in the same step; inside a phase no warp reads
//   what
//     another warp writes in the same phase. The host runs lanes and warps one after the other, so it would
//     not notice.
//   - A lane's registers that live from step to step are `typename Warp::template Lanes<T>` (device: one T,
//   host: 32);
//     those that live from phase to phase are `typename Block::template PerThread<T>`, indexed by
//     warp.thread(lane).
//   - Control flow outside step() must be the same for all lanes of the warp, outside phase() for the whole
//   block.
//   - Shared memory is one struct, passed by reference. Memory that others may write (a window) is read only
//   through
//     warp.window_chunk()/window_byte(), each address once: the host counts (protocol E.1).
//   - Warp-wide instructions are members of the warp on whole Lanes (sum, any; a matrix instruction likewise:
//     on the device its asm, on the host a loop over lanes that does what the fragment layout says). All
//     lanes must come to them, index() included: never inside step() or each(). The host checks it.
//
// Work that spans several phases: block.split(n, group_work, rest_work). The first n warps become a block of
// their own with its own phases (a `Block` again), the others do rest_work(warp) meanwhile, and all meet
// behind both. block.parts(n, part_work): the warps become n blocks of as many warps each, which run
// part_work(part, index) with phases of their own and know nothing of each other, until all meet behind it.
//
// A new body: a struct with `Shared`, `kThreads`, and `template <class Block> static SR_HOST_DEVICE void
// run(Block&, Shared&, const SegmentJob&, const OpView&, const KeyWords&, Column)`, which handles the
// segments column.index, column.index + column.count, ... of the job. chacha_body.h is the example; kernel.h
// wraps a body into a kernel (key and numbers from device state, epilogue, wiping), host_run.h runs it on the
// host.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sealring/base/host_device.h"
#include "sealring/base/result.h"

namespace sealring::cuda {

inline constexpr int kLanes = 32;

/// 16 bytes as little-endian words.
struct alignas(16) Chunk {
  std::uint32_t words[4];
};

SR_HOST_DEVICE inline Chunk operator^(const Chunk& a, const Chunk& b) {
  return Chunk{
      {a.words[0] ^ b.words[0], a.words[1] ^ b.words[1], a.words[2] ^ b.words[2], a.words[3] ^ b.words[3]}};
}

/// Operands of the 1-bit matrix instruction as the lanes hold them [PTX ISA, mma.m16n8k256]; with g = lane/4,
/// q = lane%4 A: word q of rows g and g+8 of the first 128 bits, then of the second; counts: columns 2q, 2q+1
/// of row g, of row g+8.
struct FragmentA {
  std::uint32_t words[4];
};
struct Counts {
  std::uint32_t words[4];
};

// --- the host
// -----------------------------------------------------------------------------------------------

/// Counts the reads of every byte of a window.
struct WindowReads {
  const std::byte* begin = nullptr;
  std::vector<std::uint32_t> counts;  ///< one a byte of the window
  std::uint64_t strays = 0;           ///< reads outside of it

  void note(const std::byte* at, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::ptrdiff_t offset = at + i - begin;
      if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(counts.size()))
        ++strays;
      else
        ++counts[static_cast<std::size_t>(offset)];
    }
  }
};

class HostWarp {
 public:
  template <class T>
  struct Lanes {
    std::array<T, kLanes> values{};
    T& operator[](int lane) { return values[static_cast<std::size_t>(lane)]; }
    const T& operator[](int lane) const { return values[static_cast<std::size_t>(lane)]; }
  };

  HostWarp(int index, WindowReads* reads) : index_(index), reads_(reads) {}
  int index() const {
    together();
    return index_;
  }
  int thread(int lane) const { return index_ * kLanes + lane; }

  template <class Function>
  void step(Function&& function) {
    together();
    in_step_ = true;
    for (int lane = 0; lane < kLanes; ++lane) function(lane);
    in_step_ = false;
  }
  /// A step without the barrier behind it: what it writes is read by the same lane only, until the next
  /// step().
  template <class Function>
  void each(Function&& function) {
    step(function);
  }
  /// counts[i][j] += ones in (row i of A AND column j of B). B: words 2 * half and 2 * half + 1 of `b`, which
  /// are word q of column g of the first 128 bits and of the second.
  void count_products(Lanes<Counts>& counts, const Lanes<FragmentA>& a, const Lanes<Chunk>& b,
                      int half) const {
    together();
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = 2 * (lane % 4) + i % 2;
        std::uint32_t ones = 0;
        for (int q = 0; q < 4; ++q) {
          const FragmentA& left = a[row % 8 * 4 + q];
          const Chunk& right = b[column * 4 + q];
          for (int k = 0; k < 2; ++k) {
            const std::uint32_t both = left.words[2 * k + row / 8] & right.words[2 * half + k];
            ones += static_cast<std::uint32_t>(std::popcount(both));
          }
        }
        counts[lane].words[i] += ones;
      }
    }
  }
  /// The sum over GF(2) of all lanes, for every lane.
  std::uint32_t sum_bits(const Lanes<std::uint32_t>& values) const {
    together();
    std::uint32_t out = 0;
    for (const std::uint32_t value : values.values) out ^= value;
    return out;
  }
  /// The sum over all lanes, mod 2^32, for every lane.
  std::uint32_t sum(const Lanes<std::uint32_t>& values) const {
    together();
    std::uint32_t out = 0;
    for (const std::uint32_t value : values.values) out += value;
    return out;
  }
  /// Every lane gets the word of the lane that `from(lane)` names.
  template <class From>
  void shuffle(Lanes<std::uint32_t>& values, From&& from) const {
    together();
    const Lanes<std::uint32_t> before = values;
    for (int lane = 0; lane < kLanes; ++lane) values[lane] = before[from(lane)];
  }
  /// True for every lane when the value of any is not 0.
  bool any(const Lanes<std::uint32_t>& values) const {
    together();
    std::uint32_t out = 0;
    for (const std::uint32_t value : values.values) out |= value;
    return out != 0;
  }
  Chunk window_chunk(const std::byte* at) {
    if (reads_ != nullptr) reads_->note(at, sizeof(Chunk));
    Chunk out;
    std::copy_n(at, sizeof out, reinterpret_cast<std::byte*>(&out));
    return out;
  }
  std::uint32_t window_byte(const std::byte* at) {
    if (reads_ != nullptr) reads_->note(at, 1);
    return std::to_integer<std::uint32_t>(*at);
  }
  /// Private memory that will be read soon, at any byte of a sector: it may be fetched meanwhile.
  void prefetch(const std::byte*) const {}

 private:
  // On a GPU some lanes alone would wait for the others for ever.
  void together() const { SR_CHECK(!in_step_, "a warp-wide instruction inside a step"); }

  int index_;
  WindowReads* reads_;
  bool in_step_ = false;
};

class HostBlock {
 public:
  using Warp = HostWarp;
  template <class T>
  struct PerThread {
    std::array<T, 1024> values{};
    T& operator[](int thread) { return values[static_cast<std::size_t>(thread)]; }
  };

  /// `first`: the number of its first warp.
  explicit HostBlock(int threads, WindowReads* reads = nullptr, int first = 0)
      : first_(first), warps_(threads / kLanes), reads_(reads) {}
  int warps() const { return warps_; }
  /// Whether the shared memory's address, as instructions see it, is `address`; the host has no such address.
  bool shared_begins_at(const void*, std::uint32_t) const { return true; }

  template <class Function>
  void phase(Function&& function) {
    for (int index = first_; index < first_ + warps_; ++index) {
      HostWarp warp(index, reads_);
      function(warp);
    }
  }
  template <class Function>
  bool any(Function&& function) {
    bool out = false;
    for (int thread = first_ * kLanes; thread < (first_ + warps_) * kLanes; ++thread)
      out = function(thread) || out;
    return out;
  }
  template <class Group, class Rest>
  void split(int group_warps, Group&& group, Rest&& rest) {
    HostBlock inner(group_warps * kLanes, reads_);
    group(inner);
    for (int index = group_warps; index < warps_; ++index) {
      HostWarp warp(index, reads_);
      rest(warp);
    }
  }
  template <class Function>
  void parts(int count, Function&& function) {
    const int each = warps_ / count;
    for (int index = 0; index < count; ++index) {
      HostBlock part(each * kLanes, reads_, first_ + index * each);
      function(part, index);
    }
  }

 private:
  int first_;
  int warps_;
  WindowReads* reads_;
};

// --- the device
// ---------------------------------------------------------------------------------------------

#if defined(__CUDACC__)

class DeviceWarp {
 public:
  template <class T>
  struct Lanes {
    T value;
    SR_HOST_DEVICE T& operator[](int) { return value; }
    SR_HOST_DEVICE const T& operator[](int) const { return value; }
  };

  SR_HOST_DEVICE int index() const {
#if defined(__CUDA_ARCH__)
    // The same in all lanes, and the compiler is told so.
    return __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / kLanes, 0);
#else
    return 0;
#endif
  }
  SR_HOST_DEVICE int thread([[maybe_unused]] int lane) const {
#if defined(__CUDA_ARCH__)
    return static_cast<int>(threadIdx.x);
#else
    return lane;
#endif
  }

  template <class Function>
  SR_HOST_DEVICE void step(Function&& function) {
#if defined(__CUDA_ARCH__)
    function(static_cast<int>(threadIdx.x) % kLanes);
    __syncwarp();
#endif
  }
  template <class Function>
  SR_HOST_DEVICE void each(Function&& function) {
#if defined(__CUDA_ARCH__)
    function(static_cast<int>(threadIdx.x) % kLanes);
#endif
  }
  SR_HOST_DEVICE void count_products([[maybe_unused]] Lanes<Counts>& counts,
                                     [[maybe_unused]] const Lanes<FragmentA>& a,
                                     [[maybe_unused]] const Lanes<Chunk>& b,
                                     [[maybe_unused]] int half) const {
#if defined(__CUDA_ARCH__)
    std::uint32_t (&d)[4] = counts.value.words;
    const std::uint32_t (&l)[4] = a.value.words;
    asm volatile(
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(l[0]), "r"(l[1]), "r"(l[2]), "r"(l[3]), "r"(b.value.words[2 * half]),
          "r"(b.value.words[2 * half + 1]));
#endif
  }
  SR_HOST_DEVICE std::uint32_t sum_bits(const Lanes<std::uint32_t>& values) const {
#if defined(__CUDA_ARCH__)
    return __reduce_xor_sync(0xFFFFFFFFu, values.value);
#else
    return values.value;
#endif
  }
  SR_HOST_DEVICE std::uint32_t sum(const Lanes<std::uint32_t>& values) const {
#if defined(__CUDA_ARCH__)
    return __reduce_add_sync(0xFFFFFFFFu, values.value);
#else
    return values.value;
#endif
  }
  template <class From>
  SR_HOST_DEVICE void shuffle([[maybe_unused]] Lanes<std::uint32_t>& values,
                              [[maybe_unused]] From&& from) const {
#if defined(__CUDA_ARCH__)
    values.value = __shfl_sync(0xFFFFFFFFu, values.value, from(static_cast<int>(threadIdx.x) % kLanes));
#endif
  }
  SR_HOST_DEVICE bool any(const Lanes<std::uint32_t>& values) const {
#if defined(__CUDA_ARCH__)
    return __any_sync(0xFFFFFFFFu, values.value != 0) != 0;
#else
    return values.value != 0;
#endif
  }
  // [protocol E.1] One load instruction that the compiler neither repeats nor caches: relaxed, system scope.
  SR_HOST_DEVICE Chunk window_chunk(const std::byte* at) {
    Chunk out{};
#if defined(__CUDA_ARCH__)
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out.words[0]), "=r"(out.words[1]), "=r"(out.words[2]), "=r"(out.words[3])
                 : "l"(at)
                 : "memory");
#endif
    return out;
  }
  SR_HOST_DEVICE std::uint32_t window_byte(const std::byte* at) {
    std::uint32_t out = 0;
#if defined(__CUDA_ARCH__)
    asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(out) : "l"(at) : "memory");
#endif
    return out;
  }
  SR_HOST_DEVICE void prefetch([[maybe_unused]] const std::byte* at) const {
#if defined(__CUDA_ARCH__)
    asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
#endif
  }
};

/// Barriers of a block. Barrier 0 is all of it.
struct BlockBarriers {
#if defined(__CUDA_ARCH__)
  static __device__ void all() { __syncthreads(); }
  static __device__ void first(int threads) { asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory"); }
  static __device__ void part(int index, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(2 + index), "r"(threads) : "memory");
  }
  static __device__ bool any(bool value) { return __syncthreads_or(value ? 1 : 0) != 0; }
#endif
};

/// Barriers of a team: a block may be launched as several teams, which run a body each and know nothing of
/// each other. threadIdx.y is a team's number, and threadIdx.x a thread's in its team.
struct TeamBarriers {
  static constexpr int kTeamsMax = 8;  ///< two of a multiprocessor's 16 barriers each
#if defined(__CUDA_ARCH__)
  static __device__ void all() {
    asm volatile("bar.sync %0, %1;" ::"r"(2 * threadIdx.y), "r"(blockDim.x) : "memory");
  }
  static __device__ void first(int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(2 * threadIdx.y + 1), "r"(threads) : "memory");
  }
  static __device__ void part(int, int) { __trap(); }  ///< no barriers are left for parts of a team
  static __device__ bool any(bool value) {
    int out = 0;
    asm volatile(
        "{ .reg .pred mine, some; setp.ne.s32 mine, %1, 0; bar.red.or.pred some, %2, %3, mine; "
        "selp.s32 %0, 1, 0, some; }"
        : "=r"(out)
        : "r"(value ? 1 : 0), "r"(2 * threadIdx.y), "r"(blockDim.x)
        : "memory");
    return out != 0;
  }
#endif
};

template <class Barriers>
class DeviceBlockOf {
 public:
  using Warp = DeviceWarp;
  template <class T>
  struct PerThread {
    T value;
    SR_HOST_DEVICE T& operator[](int) { return value; }
  };

  /// `group_warps` 0: the whole block. `part`: the warps are one of several parts, -1: the first of all.
  SR_HOST_DEVICE explicit DeviceBlockOf(int group_warps = 0, int part = -1)
      : group_warps_(group_warps), part_(part) {}
  SR_HOST_DEVICE int warps() const {
#if defined(__CUDA_ARCH__)
    return group_warps_ != 0 ? group_warps_ : static_cast<int>(blockDim.x) / kLanes;
#else
    return 0;
#endif
  }
  SR_HOST_DEVICE bool shared_begins_at([[maybe_unused]] const void* shared,
                                       [[maybe_unused]] std::uint32_t address) const {
#if defined(__CUDA_ARCH__)
    return __cvta_generic_to_shared(shared) == address;
#else
    return true;
#endif
  }
  template <class Function>
  SR_HOST_DEVICE void phase(Function&& function) {
#if defined(__CUDA_ARCH__)
    DeviceWarp warp;
    function(warp);
    if (group_warps_ == 0)
      Barriers::all();
    else if (part_ < 0)
      Barriers::first(group_warps_ * kLanes);
    else
      Barriers::part(part_, group_warps_ * kLanes);
#endif
  }
  template <class Function>
  SR_HOST_DEVICE bool any([[maybe_unused]] Function&& function) {
#if defined(__CUDA_ARCH__)
    return Barriers::any(function(static_cast<int>(threadIdx.x)));
#else
    return false;
#endif
  }
  template <class Group, class Rest>
  SR_HOST_DEVICE void split(int group_warps, Group&& group, Rest&& rest) {
#if defined(__CUDA_ARCH__)
    DeviceWarp warp;
    if (warp.index() < group_warps) {
      DeviceBlockOf inner(group_warps);
      group(inner);
    } else {
      rest(warp);
    }
    Barriers::all();
#endif
  }
  template <class Function>
  SR_HOST_DEVICE void parts([[maybe_unused]] int count, [[maybe_unused]] Function&& function) {
#if defined(__CUDA_ARCH__)
    const int each = warps() / count;
    const int index = DeviceWarp().index() / each;
    DeviceBlockOf part(each, index);
    function(part, index);
    Barriers::all();
#endif
  }

 private:
  int group_warps_, part_;
};
using DeviceBlock = DeviceBlockOf<BlockBarriers>;
using DeviceTeam = DeviceBlockOf<TeamBarriers>;

#endif

}  // namespace sealring::cuda
