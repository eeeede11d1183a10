// The body of a small fused step of two ranks: one record each way, of the same length, at most 64 KiB.
//
// No slots, flags, credits or fences. A segment (2 KiB at most) has a place in the window, cut into LINES of
// 16 bytes: 12 bytes of ciphertext||tag, and a number. A line is stored and loaded at once, so the load that
// finds the number it waits for has the line's bytes, too, and is the one read of them [protocol E.1].
// Numbers count the small steps that have used a place, in private memory and alike on both ranks; a line
// carries the low 32 bits of its count + 1. It is a hint as every word of a window is: another number costs
// waiting, forged lines are a tag that is not accepted. [protocol E.3]
//
// A place has two buffers, used in turn. Two are enough: records go both ways, so who has ended small step
// s+1 of a place has lines that the peer sent when it had ended step s, so the buffer of s may be written
// again by step s+2. (A record one way takes the large path; both ends see that alike.)
//
// A column has a segment at a time, both ways. Phases of a segment:
//
// 1. two warps compute the keystreams, two others the one-time keys and powers of r; none has waited for the
//    peer.
//
// 2. one warp seals into the block's memory and sends the lines; another collects the peer's lines in the
//    block's memory, decrypts and checks the tag there.
//
// 3. what was accepted goes into the output. So input and output may be the same memory.
#pragma once

#include <cstddef>

#include "sealring/device/cuda/chacha_body.h"
#include "sealring/device/cuda/fused_frame.h"

namespace sealring::cuda {

/// Lines of a segment: ciphertext||tag in pieces of 12 bytes.
SR_HOST_DEVICE constexpr std::uint32_t small_lines(std::uint32_t payload_bytes) {
  return (payload_bytes + static_cast<std::uint32_t>(kTagBytes) + kLinePayload - 1) / kLinePayload;
}
static_assert(small_lines(kSmallSegment) == kSmallLines);

/// A look at the lines that a lane of a warp waits for, every 32nd of a segment, all on their way at once.
inline constexpr std::uint32_t kLinesOfALane = (kSmallLines + kLanes - 1) / kLanes;
struct LinesOfALane {
  const std::byte* first;  ///< the lane's
  std::uint32_t wanted;    ///< a bit each: those that were not found yet
  std::uint32_t number;    ///< that they are to carry
  SR_HOST_DEVICE const std::byte* at(std::uint32_t i) const { return first + i * kLanes * kLineBytes; }
};

template <Direction kDirection, CombineKind kCombine>
struct SmallHalf : ChachaConfig<kDirection, 1, 1, kDirection == Direction::open ? kSmallSegment : 0, kCombine,
                                kDirection == Direction::open ? 1 : 2> {
  static constexpr int kBatch = 1;
  static constexpr int kPrepared = 1;
};

/// A warp as the one worker of a ChachaBody whose wire is the block's own memory.
template <class Warp>
class SmallWorker {
 public:
  template <class T>
  using Lanes = typename Warp::template Lanes<T>;
  SR_HOST_DEVICE explicit SmallWorker(Warp& warp) : warp_(warp) {}
  SR_HOST_DEVICE int index() const { return 0; }
  template <class Function>
  SR_HOST_DEVICE void step(Function&& function) {
    warp_.step(function);
  }
  SR_HOST_DEVICE std::uint32_t sum(const Lanes<std::uint32_t>& values) const { return warp_.sum(values); }
  SR_HOST_DEVICE bool any(const Lanes<std::uint32_t>& values) const { return warp_.any(values); }
  SR_HOST_DEVICE Chunk window_chunk(const std::byte* at) const { return load_aligned(at); }
  SR_HOST_DEVICE std::uint32_t window_byte(const std::byte* at) const {
    return static_cast<std::uint32_t>(*at);
  }

 private:
  Warp& warp_;
};

template <CombineKind kCombine>
struct FusedSmall {
  static constexpr int kLinks = 1;
  static constexpr int kBlocks = 4;
  static constexpr int kSealer = 0, kOpener = 1, kSealPreparer = 2, kOpenPreparer = 3;
  static constexpr int kThreads = 4 * kLanes;
  using Job = FusedStep<1>;
  using Seal = ChachaBody<SmallHalf<Direction::seal, CombineKind::replace>>;
  using Open = ChachaBody<SmallHalf<Direction::open, kCombine>>;
  static constexpr std::uint32_t kStaged = kSmallLines * kLinePayload / 16;  ///< chunks of ciphertext||tag

  struct Shared {
    typename Seal::Shared seal;
    typename Open::Shared open;
    FusedFrame<1> frame;
    // Jobs whose wire is here.
    SegmentJob push, pull;
    Chunk out[kStaged], in[kStaged];
    std::uint64_t ticket;  ///< small steps that have used the segment's place
    std::uint32_t stop;    ///< a Code
  };

  template <class FabricOf>
  struct Work {
    Shared& shared;
    FabricOf& fabric;
    const Job& job;
    FusedState& state;

    SR_HOST_DEVICE Column column() const { return Column{shared.frame.column, job.push[0].columns}; }
    SR_HOST_DEVICE auto pushed(std::uint32_t i) const {
      return placed(Seal::segment_of(shared.push, column(), i));
    }
    SR_HOST_DEVICE auto pulled(std::uint32_t i) const {
      return placed(Open::segment_of(shared.pull, column(), i));
    }
    template <class Segment>
    SR_HOST_DEVICE static Segment placed(Segment segment) {
      segment.i = 0;  // one is prepared at a time
      segment.place.wire = 0;
      return segment;
    }
  };

  template <class Warp, class W>
  SR_HOST_DEVICE static void send(Warp& warp, W& work, std::uint32_t i) {
    Shared& shared = work.shared;
    const auto segment = work.pushed(i);
    const std::uint64_t ticket = shared.ticket;
    std::byte* const lines = work.job.peers.theirs[work.job.push[0].peer] +
                             small_offset(work.job.shape, segment.k % kSmallPlaces, ticket);
    const std::uint32_t bytes = segment.place.payload_bytes + static_cast<std::uint32_t>(kTagBytes);
    const std::uint32_t count = small_lines(segment.place.payload_bytes);
    const auto* const words = reinterpret_cast<const std::uint32_t*>(shared.out);
    warp.step([&](int lane) {
      for (auto line = static_cast<std::uint32_t>(lane); line < count; line += kLanes) {
        const std::uint32_t left = bytes - line * kLinePayload;
        Chunk out = truncated(Chunk{{words[3 * line], words[3 * line + 1], words[3 * line + 2], 0}},
                              left < kLinePayload ? left : kLinePayload);
        out.words[3] = static_cast<std::uint32_t>(ticket + 1);
        work.fabric.send_line(lines + line * kLineBytes, out);
      }
    });
  }

  /// All lines of the peer's segment; true: they are in shared.in.
  template <class Warp, class W>
  SR_HOST_DEVICE static bool collect(Warp& warp, W& work, std::uint32_t i) {
    Shared& shared = work.shared;
    const auto segment = work.pulled(i);
    const std::uint64_t ticket = shared.ticket;
    const std::byte* const mine = work.job.peers.mine[work.job.pull[0].peer];
    const std::byte* const lines = mine + small_offset(work.job.shape, segment.k % kSmallPlaces, ticket);
    const std::byte* const poison_word = mine + work.job.shape.flag_offset(shared.frame.column, 0);
    const std::uint32_t count = small_lines(segment.place.payload_bytes);
    auto* const words = reinterpret_cast<std::uint32_t*>(shared.in);
    typename Warp::template Lanes<std::uint32_t> codes;
    warp.step([&](int lane) {
      codes[lane] = 0;
      LinesOfALane look{lines + static_cast<std::uint32_t>(lane) * kLineBytes, 0,
                        static_cast<std::uint32_t>(ticket + 1)};
      for (std::uint32_t k = 0; k < kLinesOfALane; ++k)
        look.wanted |= (static_cast<std::uint32_t>(lane) + k * kLanes < count ? 1u : 0u) << k;
      for (std::uint32_t looks = 1; look.wanted != 0 && codes[lane] == 0; ++looks) {
        Chunk found[kLinesOfALane];
        const std::uint32_t got = work.fabric.find_lines(look, found);
#pragma unroll
        for (std::uint32_t k = 0; k < kLinesOfALane; ++k) {
          if ((got >> k & 1) == 0) continue;
          const std::uint32_t line = static_cast<std::uint32_t>(lane) + k * kLanes;
          for (std::uint32_t w = 0; w < 3; ++w) words[3 * line + w] = found[k].words[w];
        }
        look.wanted &= ~got;
        if (look.wanted != 0) codes[lane] = work.fabric.look_again(looks, poison_word);
      }
      if (codes[lane] == 0) return;
      shared.stop = codes[lane];  // any of them
      fail_by(work.state, codes[lane], work.job.pull[0].peer, 0);
    });
    return !warp.any(codes);
  }

  template <class Warp, class W>
  SR_HOST_DEVICE static void collect_and_open(Warp& warp, W& work, std::uint32_t i) {
    Shared& shared = work.shared;
    if (!collect(warp, work, i)) return;
    SmallWorker<Warp> worker(warp);
    const auto segment = work.pulled(i);
    Open::cipher_segment(worker, shared.open, shared.pull, shared.frame.in[0].view, shared.frame.in_key(0),
                         work.column(), segment, true);
    Open::finish_segment(worker, shared.open, shared.pull, segment);
    warp.step([&](int lane) {
      if (lane != 0 || shared.open.bad.refused == 0) return;
      shared.stop = status_of(Code::data_tag);
      fail_by(work.state, status_of(Code::data_tag), work.job.pull[0].peer, shared.open.bad.first_segment);
    });
  }

  /// What a segment reads of the tensor, or adds to, on its way while the cipher is prepared.
  template <class Warp>
  SR_HOST_DEVICE static void fetch(Warp& warp, const std::byte* from, std::uint32_t bytes) {
    constexpr std::uint32_t kSector = 32;
    warp.step([&](int lane) {
      for (std::uint32_t at = static_cast<std::uint32_t>(lane) * kSector; at < bytes; at += kLanes * kSector)
        warp.prefetch(from + at);
    });
  }

  /// Keystream, one-time key and powers of r of a segment, either way: the two warps of a pair run the same
  /// code, which they meet for the first time, so that it is fetched once.
  template <class Warp, class W>
  SR_HOST_DEVICE static void prepare(Warp& warp, W& work, std::uint32_t i) {
    Shared& shared = work.shared;
    FusedFrame<1>& frame = shared.frame;
    const bool seals = warp.index() == kSealer || warp.index() == kSealPreparer;
    const auto pushed = work.pushed(i);
    const auto pulled = work.pulled(i);
    const KeyWords& key = seals ? frame.out_key(0) : frame.in_key(0);
    const OpView& view = seals ? frame.out[0].view : frame.in[0].view;
    if (warp.index() == kSealPreparer || warp.index() == kOpenPreparer) {
      prepare_alone(warp, key, view, seals ? pushed.k : pulled.k,
                    seals ? Seal::prep_of(shared.seal, 0) : Open::prep_of(shared.open, 0));
      return;
    }
    if (seals || kCombine != CombineKind::replace) {
      const std::byte* const from = seals ? shared.push.plaintext + pushed.place.payload
                                          : shared.pull.combine.local + pulled.place.payload;
      fetch(warp, from, seals ? pushed.place.payload_bytes : pulled.place.payload_bytes);
    }
    warp.step([&](int lane) {
      if (lane == 0 && seals) shared.ticket = work.state.small_tickets[pushed.k % kSmallPlaces];
    });
    const Shape shape = seals ? pushed.shape : pulled.shape;
    if (shape.tiles == 0) return;
    const NonceWords nonce = nonce_words(key, view.first_number + (seals ? pushed.k : pulled.k));
    Chunk* const stream =
        seals ? Seal::transposed(shared.seal, pushed, 0, 0) : Open::transposed(shared.open, pulled, 0, 0);
    warp.step([&](int lane) { Seal::stream_tile(key, nonce, shape, 0, lane, stream); });
  }

  /// A segment both ways: 0, or the Code to stop with.
  template <class Block, class W>
  SR_HOST_DEVICE static std::uint32_t exchange_segment(Block& block, W& work, std::uint32_t i) {
    using Warp = typename Block::Warp;
    Shared& shared = work.shared;
    FusedFrame<1>& frame = shared.frame;
    block.phase([&](Warp& warp) { prepare(warp, work, i); });
    block.phase([&](Warp& warp) {
      const int index = warp.index();
      if (index == kSealer) {
        SmallWorker<Warp> worker(warp);
        const auto segment = work.pushed(i);
        Seal::cipher_segment(worker, shared.seal, shared.push, frame.out[0].view, frame.out_key(0),
                             work.column(), segment, true);
        Seal::finish_segment(worker, shared.seal, shared.push, segment);
        send(warp, work, i);
      } else if (index == kOpener) {
        collect_and_open(warp, work, i);
      }
    });
    const std::uint32_t code = shared.stop;
    block.phase([&](Warp& warp) {
      if (code != 0) return;
      if (warp.index() == kOpener) {
        SmallWorker<Warp> worker(warp);
        Open::combine_segment(worker, shared.open, shared.pull, work.column(), work.pulled(i));
      } else if (warp.index() == kSealer) {
        warp.step([&](int lane) {
          if (lane == 0) work.state.small_tickets[work.pushed(i).k % kSmallPlaces] = shared.ticket + 1;
        });
      }
    });
    return code;
  }

  /// A column from its start to its end.
  template <class Block, class FabricOf>
  SR_HOST_DEVICE static void run(Block& block, Shared& shared, FabricOf& fabric, const Job& job,
                                 FusedState& state, const Chunk& pattern) {
    FusedFrame<1>& frame = shared.frame;
    frame.template enter<kThreads, false>(block, state, job, [&](int lane) {
      if (lane != 0) return;
      shared.open.bad = BadTag{};
      shared.stop = 0;
      shared.push = job.push[0].job;
      shared.pull = job.pull[0].job;
      shared.push.wire = reinterpret_cast<std::byte*>(shared.out);
      shared.pull.wire = reinterpret_cast<std::byte*>(shared.in);
    });
    Work<FabricOf> work{shared, fabric, job, state};
    const std::uint32_t count = frame.out[0].count;
    std::uint32_t code = frame.status;
    for (std::uint32_t i = 0; code == 0 && i < count; ++i) code = exchange_segment(block, work, i);
    frame.template leave<kThreads>(block, &shared, fabric, job, state, code, pattern, [](int) {});
  }
};

}  // namespace sealring::cuda
