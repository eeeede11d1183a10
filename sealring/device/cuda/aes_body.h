// AES-GCM of many segments: the body of the seal and the open kernels [NIST SP 800-38D §7].
//
// A block is four quarters (aes_quarter.h). A quarter has segments of its own and knows nothing of the
// others: while one waits at a barrier the other three keep the lookups going. In step g its workers encrypt
// or decrypt the tiles of step g; its finisher adds the ciphertext of step g-1 to GHASH's sums, and behind a
// segment's last step writes (seal) or checks (open) its tag. Besides, it prepares the segments to come.
//
// AES is bound by lookups in shared memory (four tables, a copy a lane), so GHASH is on the tensor cores
// (aes_key.h, aes_ghash.h). A lane encrypts 4 blocks, 512 bytes apart, so that memory is touched lane after
// lane. open leaves the plaintext in private memory (in L2, mostly) until the tag is known: ciphertext is
// read once, and nothing reaches the tensor before its tag was accepted [protocol E.1]. That memory is a ring
// of one step more than a segment has: when a tile's place is needed again, its segment's tag has been
// checked, and the worker combines it between the rounds of the tile that takes its place.
#pragma once

#include <cstddef>

#include "sealring/device/cuda/aes_quarter.h"
#include "sealring/device/cuda/key_state.h"

namespace sealring::cuda {

template <class Config>
struct AesBody : AesParts<Config> {
  using Parts = AesParts<Config>;
  using Parts::kOpen;
  using Parts::kWorkers;
  using Parts::segment_of;
  using Parts::tile_of;
  using typename Parts::Segment;
  using typename Parts::Tile;
  static constexpr int kThreads = kQuarters * kQuarterThreads;
  static constexpr int kBlocks = 1;
  static constexpr std::uint32_t kDepth = kQuarters;  ///< open: parts of the private memory

  using Quarter = AesQuarter<2 * kLanes, 1>;
  struct Shared {
    AesTables tables;  ///< first: its address is part of the code
    BlockKey key;
    Quarter quarters[kQuarters];
    BadTag bad;
  };
  static_assert(offsetof(Shared, tables) == 0);

  /// What lies behind is cleared at the end of a kernel.
  static constexpr std::size_t kSecretsFrom = offsetof(Shared, key);

  /// The steps of a quarter, from segment to segment. Only its last segment may have fewer than the others.
  struct Walk {
    std::uint32_t segments, each, steps;
    /// Steps whose plaintext waits: those of a segment, and one more.
    SR_HOST_DEVICE std::uint32_t ring() const { return each + 1; }
  };
  SR_HOST_DEVICE static Walk walk_of(const SegmentJob& job, Column column) {
    Walk out{};
    if (column.index >= job.segments) return out;
    out.segments = (job.segments - column.index + column.count - 1) / column.count;
    out.each = segment_of(job, column, 0).steps();
    out.steps = (out.segments - 1) * out.each + segment_of(job, column, out.segments - 1).steps();
    return out;
  }
  /// A step: of which segment, and which of its steps.
  struct Step {
    std::uint32_t segment = 0, within = 0;
    SR_HOST_DEVICE void advance(const Walk& walk) {
      if (++within < walk.each) return;
      within = 0;
      ++segment;
    }
  };

  /// Where a quarter is.
  struct Pace {
    Step now, before, old;  ///< encrypted or decrypted; added to GHASH; combined
    bool ciphers, absorbs, combines;
    std::uint32_t place;   ///< of the ring, for `old` and then for `now`
    std::uint32_t parity;  ///< of `now`
  };

  template <class Warp>
  SR_HOST_DEVICE static void set_up(Warp& warp, Shared& shared, const GcmKey& key) {
    fill_tables(warp, shared.tables, key);
    fill_key(warp, shared.key, key);
    if (warp.index() != 0) return;
    warp.step([&](int lane) {
      if (lane < kQuarters) {
        shared.quarters[lane].lengths[0].payload_bytes = LengthsProduct::kNone;
        shared.quarters[lane].refused = 0;
      }
      if (lane == 0) shared.bad = BadTag{};
    });
  }

  template <class Warp>
  SR_HOST_DEVICE static void encrypt_step(Warp& warp, Quarter& mine, const SegmentJob& job,
                                          const AesCipher& with, Column column, const Pace& pace) {
    const int worker = warp.index() % (kWorkers + 1);
    Tile tile{}, old{};
    if (pace.ciphers) tile = tile_of(segment_of(job, column, pace.now.segment), pace.now.within, worker);
    Chunk* plain = nullptr;
    if constexpr (kOpen) {
      plain = Parts::waiting(job, column, pace.place, worker);
      if (pace.combines && mine.accepted[pace.old.segment % 2] != 0)
        old = tile_of(segment_of(job, column, pace.old.segment), pace.old.within, worker);
    }
    Parts::work(warp, with, mine, job, tile, old, mine.stored[pace.parity][worker], plain);
  }

  template <class Warp>
  SR_HOST_DEVICE static void finish_step(Warp& warp, Quarter& mine, const SegmentJob& job,
                                         const AesCipher& with, Column column, const Walk& walk,
                                         const Pace& pace, BadTag& bad) {
    if (pace.absorbs) {
      const Segment segment = segment_of(job, column, pace.before.segment);
      const auto found = Parts::absorb_step(warp, mine, mine.lengths[0], job, with, segment,
                                            pace.before.within, pace.parity ^ 1u);
      if (kOpen && found.tagged) {
        warp.step([&](int lane) {
          if (lane != 0) return;
          if (found.refused && mine.refused == 0) {
            mine.refused = 1;
            // Of several quarters the first one is told.
            if (exchange_if(bad.refused, 0, 1) == 0) bad.first_segment = segment.k;
          }
          mine.accepted[segment.parity()] = mine.refused == 0 ? 1u : 0u;
        });
      }
    }
    if (!pace.ciphers) return;
    const std::uint32_t i = pace.now.segment;
    if (pace.now.within == 0) Parts::begin_sums(warp, mine, job, with.op, segment_of(job, column, i).k);
    // Behind the tag of segment i-1, which needs the masks before.
    if (pace.now.within == 0 && i % kLanes == 0) {
      warp.step([&](int lane) {
        const std::uint32_t k = column.index + (i + static_cast<std::uint32_t>(lane)) * column.count;
        Parts::make_mask(with, k, lane, mine.masks[lane]);
      });
    }
    if (pace.now.within + 1 == walk.each && i + 1 < walk.segments)
      Parts::make_groups(warp, with, mine, segment_of(job, column, i + 1));
  }

  // Out of line: so much of open's code is the workers' that what a finisher needs besides would take their
  // registers (docs/kernel-notes.md).
  template <class Warp>
#if defined(__CUDACC__)
  __noinline__
#endif
      SR_HOST_DEVICE static void finish_step_of_open(Warp warp, Quarter& mine, const SegmentJob& job,
                                                     const AesCipher with, Column column, const Walk walk,
                                                     const Pace pace, BadTag& bad) {
    is_shared(&mine);
    is_shared(&bad);
    with.is_shared();
    finish_step(warp, mine, job, with, column, walk, pace, bad);
  }

  template <class Part>
  SR_HOST_DEVICE static void run_quarter(Part& part, Quarter& mine, const SegmentJob& job,
                                         const AesCipher& with, Column column, BadTag& bad) {
    using Warp = typename Part::Warp;
    const Walk walk = walk_of(job, column);
    if (walk.segments == 0) return;
    const auto is_finisher = [](Warp& warp) { return warp.index() % (kWorkers + 1) == kWorkers; };
    part.phase([&](Warp& warp) {
      if (is_finisher(warp)) Parts::make_groups(warp, with, mine, segment_of(job, column, 0));
    });
    const std::uint32_t phases = walk.steps + (kOpen ? walk.ring() : 1);
    Pace pace{};
    for (std::uint32_t step = 0; step < phases; ++step) {
      pace.ciphers = step < walk.steps;
      pace.absorbs = step >= 1 && step <= walk.steps;
      pace.combines = step >= walk.ring();
      part.phase([&](Warp& warp) {
        if (!is_finisher(warp))
          encrypt_step(warp, mine, job, with, column, pace);
        else if constexpr (kOpen)
          finish_step_of_open(warp, mine, job, with, column, walk, pace, bad);
        else
          finish_step(warp, mine, job, with, column, walk, pace, bad);
      });
      pace.before = pace.now;
      pace.now.advance(walk);
      if (pace.combines) pace.old.advance(walk);
      pace.place = pace.place + 1 < walk.ring() ? pace.place + 1 : 0;
      pace.parity ^= 1u;
    }
  }

  template <class Block>
  SR_HOST_DEVICE static void run(Block& block, Shared& shared, const SegmentJob& job, const OpView& op,
                                 const KeyWords& key, Column column) {
    using Warp = typename Block::Warp;
    if (!block.shared_begins_at(&shared, kTablesAddress)) {  // never seen; nothing is sealed or opened
      block.phase([&](Warp& warp) {
        warp.step([&](int lane) {
          if (warp.thread(lane) == 0) shared.bad = BadTag{1, 0};
        });
      });
      return;
    }
    block.phase([&](Warp& warp) { set_up(warp, shared, *key.gcm); });
    const AesCipher with{shared.tables, shared.key, op, key};
    // The first segments of all are on different multiprocessors.
    block.parts(kQuarters, [&](auto& part, int quarter) {
      run_quarter(
          part, shared.quarters[quarter], job, with,
          Column{static_cast<std::uint32_t>(quarter) * column.count + column.index, kQuarters * column.count},
          shared.bad);
    });
  }
};

}  // namespace sealring::cuda
