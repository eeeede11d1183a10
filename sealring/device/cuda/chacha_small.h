// ChaCha20-Poly1305 of small messages: one segment of a few tiles at a time, and the shortest chain of
// latencies.
//
// chacha_body.h hides what a segment needs before and behind its tiles beside other segments. Here there are
// none, so what does not wait for each other runs side by side within the one, in three phases (open: four):
//   workers                              finisher                            preparer
//   load and encrypt or decrypt a tile   one-time key, the lanes' weights    one-time key, powers of r
//   the weighed sum of the tile          the same of the AAD                 what lies behind each tile
//                                        the tag: a product a lane
//   combine (open)
// From r to the tag that are ten products one after the other, seven of them in the first phase.
#pragma once

#include "sealring/device/cuda/chacha_body.h"

namespace sealring::cuda {

template <Direction kDirectionOf, CombineKind kCombineOf>
struct ChachaSmallConfig
    : ChachaConfig<kDirectionOf, 4, 2, kDirectionOf == Direction::open ? 4 * kTileBytes : 0, kCombineOf,
                   kDirectionOf == Direction::open ? 1 : 2> {
  static constexpr int kBatch = 1;
  static constexpr int kPrepared = 1;
};

template <Direction kDirectionOf, CombineKind kCombineOf>
struct ChachaSmall : ChachaBody<ChachaSmallConfig<kDirectionOf, kCombineOf>> {
  using Config = ChachaSmallConfig<kDirectionOf, kCombineOf>;
  using Base = ChachaBody<Config>;
  using Base::kFinisher;
  using Base::kOpen;
  using Base::kPreparer;
  using Base::kWorkers;
  using typename Base::Prep;
  using typename Base::Segment;
  using typename Base::Shared;
  using Number = poly1305::Number;
  static constexpr bool kSmall = true;
  static constexpr std::uint32_t kSegmentMax = kWorkers * kTileBytes;  ///< a tile a worker

  struct Row {
    Chunk chunk[4];
  };
  template <class Block>
  using Rows = typename Block::template PerThread<Row>;
  template <class Block>
  using Words = typename Block::template PerThread<std::uint32_t>;

  /// What lies behind a lane's last chunk, the tail's included: the last one of lane 31 has the lengths
  /// there.
  SR_HOST_DEVICE static int exponent_of(const Segment& segment, int lane) {
    return 33 - lane + static_cast<int>(segment.shape.tail_chunks);  // 2 to 37
  }
  /// Of the power that a lane's sum is multiplied by what the last four bits of its exponent make; the two
  /// others choose from Prep::high.
  SR_HOST_DEVICE static Number& weight_of(Shared& shared, int lane) { return shared.sums[0][kLanes + lane]; }
  /// The sum of the tile that has `tile` tiles behind it; of the one in front of all, which has the AAD.
  SR_HOST_DEVICE static Number& sum_of(Shared& shared, int tile) { return shared.sums[0][tile]; }
  static_assert(kWorkers < kLanes);

  SR_HOST_DEVICE static Number product(const Number& a, const Number& b) {
    poly1305::Columns columns{};
    add_product(columns, a, multiplier_of(b));
    return carried_soon(columns);
  }

  // The block of counter 0, whose first half is r and s [RFC 8439 §2.6]: four lanes do a quarter round each,
  // since the warp shares a scheduler with a worker. All lanes get r, and the first four a word of s each.
  template <class Warp>
  SR_HOST_DEVICE static void make_once(Warp& warp, const KeyWords& key, const NonceWords& nonce,
                                       typename Warp::template Lanes<Number>& r,
                                       typename Warp::template Lanes<std::uint32_t>& s) {
    typename Warp::template Lanes<std::uint32_t> a, c, d;
    auto& b = s;
    const auto constant = [](int q) {
      return q < 2 ? (q == 0 ? 0x61707865u : 0x3320646eu) : (q == 2 ? 0x79622d32u : 0x6b206574u);
    };
    // Of the lane's four.
    const auto next = [](int lane) { return (lane & ~3) | ((lane + 1) & 3); };
    const auto opposite = [](int lane) { return (lane & ~3) | ((lane + 2) & 3); };
    const auto previous = [](int lane) { return (lane & ~3) | ((lane + 3) & 3); };
    warp.each([&](int lane) {
      const int q = lane & 3;
      a[lane] = constant(q);
      b[lane] = key.key[q];
      c[lane] = key.key[4 + q];
      d[lane] = q < 2 ? (q == 0 ? 0u : nonce.words[0]) : (q == 2 ? nonce.words[1] : nonce.words[2]);
    });
#pragma unroll 2
    for (int round = 0; round < 10; ++round) {
      warp.each([&](int lane) { chacha20::quarter_round(a[lane], b[lane], c[lane], d[lane]); });
      warp.shuffle(b, next);  // from columns to diagonals
      warp.shuffle(c, opposite);
      warp.shuffle(d, previous);
      warp.each([&](int lane) { chacha20::quarter_round(a[lane], b[lane], c[lane], d[lane]); });
      warp.shuffle(b, previous);
      warp.shuffle(c, opposite);
      warp.shuffle(d, next);
    }
    typename Warp::template Lanes<std::uint32_t> words[4];
    warp.each([&](int lane) {
      s[lane] = b[lane] + key.key[lane & 3];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i][lane] = a[lane] + constant(lane & 3);
    });
#pragma unroll
    for (int i = 0; i < 4; ++i) warp.shuffle(words[i], [i](int lane) { return (lane & ~3) | i; });
    warp.each([&](int lane) {
      r[lane] = poly1305::clamped_r(words[0][lane], words[1][lane], words[2][lane], words[3][lane]);
    });
  }

  // The powers that the workers need. One lane's: to hand a number on would take as long as half a product.
  template <class Warp>
  SR_HOST_DEVICE static void make_powers(Warp& warp, Prep& prep,
                                         const typename Warp::template Lanes<Number>& r,
                                         const typename Warp::template Lanes<std::uint32_t>& s) {
    warp.step([&](int lane) {
      if (lane < 4) prep.s[lane] = s[lane];
      if (lane != 0) return;
      const Number r2 = product(r[lane], r[lane]);
      const Number r4 = product(r2, r2);
      const Number r8 = product(r4, r4);
      const Number r16 = product(r8, r8);
      const Number r32 = product(r16, r16);
      const Number r64 = product(r32, r32);
      const Number r96 = product(r64, r32);
      const Number r128 = product(r64, r64);
      prep.low[0] = r[lane];
      prep.low[1] = r2;
      prep.low[3] = r4;
      prep.high[0] = poly1305::one();
      prep.high[1] = r16;
      prep.high[2] = r32;
      prep.stride[1] = multiplier_of(r96);
      prep.stride[2] = multiplier_of(r64);
      prep.stride[3] = multiplier_of(r32);
      prep.worker[0] = poly1305::one();
      prep.worker[1] = r128;
    });
  }

  // A power for each lane, by the bits of its exponent. r^16 and r^32 the preparer has sooner.
  template <class Warp>
  SR_HOST_DEVICE static void make_weights(Warp& warp, Shared& shared, const Segment& segment,
                                          const typename Warp::template Lanes<Number>& r) {
    warp.step([&](int lane) {
      const int exponent = exponent_of(segment, lane);
      Number square = r[lane];
      Number out = (exponent & 1) != 0 ? square : poly1305::one();
#pragma unroll
      for (int bit = 1; bit < 4; ++bit) {
        square = product(square, square);
        const Number with = product(out, square);
        const bool wanted = (exponent >> bit & 1) != 0;
#pragma unroll
        for (int i = 0; i < 5; ++i) out.limb[i] = wanted ? with.limb[i] : out.limb[i];
      }
      weight_of(shared, lane) = out;
    });
  }

  // What lies behind a tile: r^256, r^384 and r^512; behind a chunk of the tail: r^3 and r^5. The tag needs
  // them last.
  template <class Warp>
  SR_HOST_DEVICE static void make_far(Warp& warp, Prep& prep) {
    static_assert(kWorkers == 4);
    warp.step([&](int lane) {
      if (lane >= 3) return;
      const Number& a = lane == 0 ? prep.worker[1] : prep.low[2 * lane - 1];
      const Number& b = lane == 0 ? prep.worker[1] : prep.low[0];
      Number& out = lane == 0 ? prep.worker[2] : prep.low[2 * lane];
      out = product(a, b);
    });
    warp.step([&](int lane) {
      if (lane >= 2) return;
      const Number made = product(prep.worker[2], prep.worker[1 + lane]);
      if (lane == 0)
        prep.worker[3] = made;
      else
        prep.stride[0] = multiplier_of(made);
    });
  }
  SR_HOST_DEVICE static Number number_in(const poly1305::Multiplier& a) {
    Number out;
#pragma unroll
    for (int i = 0; i < 5; ++i) out.limb[i] = a.limb[i];
    return out;
  }

  template <bool kPlain, class Warp, class Data>
  SR_HOST_DEVICE static void cipher(Warp& warp, Shared& shared, const SegmentJob& job,
                                    const NonceWords& nonce, const KeyWords& key, const Segment& segment,
                                    std::uint32_t tile, Data& data) {
    Chunk* const stream = Base::transposed(shared, segment, warp.index(), tile);
    warp.step([&](int lane) {
      Base::template load_tile<kPlain>(warp, job, segment, tile, lane, data[warp.thread(lane)].chunk);
      Base::stream_tile(key, nonce, segment.shape, tile, lane, stream);
    });
    warp.step([&](int lane) {
      Chunk(&mine)[4] = data[warp.thread(lane)].chunk;
      const int first = Base::chunk_of(segment, static_cast<int>(tile), lane, 0);
      std::byte* const to = job.wire + segment.place.wire + 16 * static_cast<std::int64_t>(first);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Chunk& there = stream[Base::coalesced_slot(lane, c)];
        const Chunk other = mine[c] ^ there;
        if constexpr (kOpen) {
          there = other;
        } else {
          if (kPlain || first + c * kLanes >= 0) store_aligned(to + c * kLanes * 16, other);
          mine[c] = other;
        }
      }
    });
  }

  // What the tensor holds is on its way while the tag is made: each sector of a tile once.
  template <class Warp>
  SR_HOST_DEVICE static void fetch_local(Warp& warp, const SegmentJob& job, const Segment& segment,
                                         std::uint32_t tile) {
    const std::byte* const local = job.combine.local + segment.place.payload;
    warp.each([&](int lane) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = Base::chunk_of(segment, static_cast<int>(tile), lane, c);
        if (at >= 0 && lane % 2 == 0) warp.prefetch(local + 16 * static_cast<std::int64_t>(at));
      }
    });
  }

  // Weighs every lane's number and adds them up.
  template <class Warp>
  SR_HOST_DEVICE static void add_up(Warp& warp, Shared& shared, const Segment& segment, int tile,
                                    const typename Warp::template Lanes<Number>& numbers) {
    typename Warp::template Lanes<std::uint32_t> limbs[5];
    warp.step([&](int lane) {
      const Number& high = shared.prep[0][0].high[exponent_of(segment, lane) >> 4];
      const Number weighed = product(numbers[lane], product(weight_of(shared, lane), high));
#pragma unroll
      for (int i = 0; i < 5; ++i) limbs[i][lane] = weighed.limb[i];
    });
    // 32 limbs of at most 2^26 + 9: below 2^32.
    Number sum;
#pragma unroll
    for (int i = 0; i < 5; ++i) sum.limb[i] = warp.sum(limbs[i]);
    warp.step([&](int lane) {
      if (lane == 0) sum_of(shared, tile) = sum;
    });
  }

  template <bool kPlain, class Warp, class Data>
  SR_HOST_DEVICE static void absorb(Warp& warp, Shared& shared, const SegmentJob& job, const OpView& op,
                                    const Segment& segment, std::uint32_t tile, Data& data) {
    const Prep& prep = shared.prep[0][0];
    typename Warp::template Lanes<Number> numbers;
    warp.step([&](int lane) {
      const Chunk(&mine)[4] = data[warp.thread(lane)].chunk;
      poly1305::Columns columns{};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = kPlain ? 0 : Base::chunk_of(segment, static_cast<int>(tile), lane, c);
        const Number number = at < 0 ? Base::number_in_front(job, op, segment, at)
                                     : poly1305::number_of(mine[c].words[0], mine[c].words[1],
                                                           mine[c].words[2], mine[c].words[3]);
        if (c < 3)
          add_product(columns, number, prep.stride[1 + c]);
        else
          add_number(columns, number);
      }
      numbers[lane] = carried_soon(columns);
    });
    add_up(warp, shared, segment, static_cast<int>(segment.shape.tiles - 1 - tile), numbers);
  }

  // The AAD that finds no place in the padding of the first tile.
  template <class Warp>
  SR_HOST_DEVICE static void absorb_in_front(Warp& warp, Shared& shared, const SegmentJob& job,
                                             const OpView& op, const Segment& segment) {
    typename Warp::template Lanes<Number> numbers;
    warp.step([&](int lane) {
      numbers[lane] = Base::number_in_front(job, op, segment, Base::chunk_of(segment, -1, lane, 3));
    });
    add_up(warp, shared, segment, static_cast<int>(segment.shape.tiles), numbers);
  }

  // A product a lane: the tiles' sums, the tail's chunks, the lengths.
  template <class Warp>
  SR_HOST_DEVICE static Chunk tag_of(Warp& warp, Shared& shared, const Segment& segment) {
    const Prep& prep = shared.prep[0][0];
    const int tail = static_cast<int>(segment.shape.tail_chunks);
    typename Warp::template Lanes<std::uint32_t> limbs[5];
    warp.step([&](int lane) {
      Number a{}, b{};
      const int extra = lane - kWorkers - 1;
      if (lane <= static_cast<int>(segment.shape.tiles)) {
        a = sum_of(shared, lane);
        b = lane == kWorkers ? number_in(prep.stride[0]) : prep.worker[lane];
      } else if (extra >= 0 && extra <= tail) {
        // [RFC 8439 §2.8] le64 lengths of AAD and ciphertext
        const Chunk block =
            extra == tail ? Chunk{{static_cast<std::uint32_t>(kAadBytes), 0, segment.place.payload_bytes, 0}}
                          : shared.tail[segment.parity()][extra];
        a = poly1305::number_of(block.words[0], block.words[1], block.words[2], block.words[3]);
        b = prep.low[tail - extra];
      }
      // Sums of 32 limbs fit: five terms below 2^32 * 5 * 2^27 are below 2^64.
      const Number made = product(a, b);
#pragma unroll
      for (int i = 0; i < 5; ++i) limbs[i][lane] = made.limb[i];
    });
    poly1305::Columns columns{};
#pragma unroll
    for (int i = 0; i < 5; ++i) columns.column[i] = warp.sum(limbs[i]);
    Chunk tag;
    poly1305::finish(carried_soon(columns), prep.s, tag.words);
    return tag;
  }

  // The tag's bytes of open are on their way while everything else is made.
  template <class Warp, class Given>
  SR_HOST_DEVICE static void begin_finisher(Warp& warp, Shared& shared, const SegmentJob& job,
                                            const Segment& segment, bool first, Given& given) {
    warp.step([&](int lane) {
      if (first && lane == 0) shared.bad = BadTag{};
      if constexpr (kOpen) {
        const std::byte* const at = job.wire + segment.place.wire + segment.place.payload_bytes;
        if (lane < static_cast<int>(kTagBytes)) given[warp.thread(lane)] = warp.window_byte(at + lane);
      }
    });
  }

  template <class Warp, class Given>
  SR_HOST_DEVICE static void finish(Warp& warp, Shared& shared, const SegmentJob& job, const Segment& segment,
                                    Given& given) {
    const Chunk tag = tag_of(warp, shared, segment);
    if constexpr (!kOpen) {
      std::byte* const at = job.wire + segment.place.wire + segment.place.payload_bytes;
      put_tag(warp, tag, at);
    } else {
      const bool refused = is_refused(warp, tag, [&](int lane) { return given[warp.thread(lane)]; });
      warp.step([&](int lane) {
        if (lane != 0) return;
        if (refused && shared.bad.refused == 0) shared.bad = BadTag{1, segment.k};
        // After the first refusal the column writes nothing more.
        shared.accepted[0] = shared.bad.refused == 0 ? 1u : 0u;
      });
    }
  }

  template <class Block>
  SR_HOST_DEVICE static void run(Block& block, Shared& shared, const SegmentJob& job, const OpView& op,
                                 const KeyWords& key, Column column) {
    using Warp = typename Block::Warp;
    Rows<Block> data;    // workers: the ciphertext of a tile
    Words<Block> given;  // finisher of open: the tag's bytes
    const bool aligned = kOpen || misalignment(job.plaintext) == 0;
    for (std::uint32_t k = column.index, i = 0; k < job.segments; k += column.count, ++i) {
      const Segment segment = Base::segment_of(job, column, i);
      const std::uint32_t tiles = segment.shape.tiles;
      block.phase([&](Warp& warp) {
        const int worker = warp.index();
        const NonceWords nonce = nonce_words(key, op.first_number + segment.k);
        if (worker >= kWorkers) {
          if (worker == kFinisher) begin_finisher(warp, shared, job, segment, i == 0, given);
          typename Warp::template Lanes<Number> r;
          typename Warp::template Lanes<std::uint32_t> s;
          make_once(warp, key, nonce, r, s);
          if (worker == kPreparer)
            make_powers(warp, shared.prep[0][0], r, s);
          else
            make_weights(warp, shared, segment, r);
          return;
        }
        if (static_cast<std::uint32_t>(worker) < tiles) {
          const std::uint32_t tile = Base::first_tile(segment.shape, worker);
          if (aligned && (tile > 0 || segment.shape.pad_rows == 0))
            cipher<true>(warp, shared, job, nonce, key, segment, tile, data);
          else
            cipher<false>(warp, shared, job, nonce, key, segment, tile, data);
        }
        if (worker == 0 && segment.shape.tail_chunks > 0)
          Base::cipher_tail(warp, shared, job, key, nonce, segment);
      });
      block.phase([&](Warp& warp) {
        const int worker = warp.index();
        if (worker == kPreparer) {
          make_far(warp, shared.prep[0][0]);
        } else if (worker == kFinisher) {
          absorb_in_front(warp, shared, job, op, segment);
        } else if (static_cast<std::uint32_t>(worker) < tiles) {
          const std::uint32_t tile = Base::first_tile(segment.shape, worker);
          if constexpr (kOpen && kCombineOf != CombineKind::replace) fetch_local(warp, job, segment, tile);
          if (tile > 0 || segment.shape.pad_rows == 0)
            absorb<true>(warp, shared, job, op, segment, tile, data);
          else
            absorb<false>(warp, shared, job, op, segment, tile, data);
        }
      });
      block.phase([&](Warp& warp) {
        if (warp.index() == kFinisher) finish(warp, shared, job, segment, given);
      });
      if constexpr (kOpen) {
        block.phase([&](Warp& warp) {
          if (warp.index() < kWorkers && shared.accepted[0] != 0)
            Base::combine_segment(warp, shared, job, column, segment);
        });
      }
    }
  }
};

}  // namespace sealring::cuda
