// AES by tables of columns: key expansion on the host, rounds for host and device [FIPS 197].
//
// A column of the state is a little-endian word, so blocks, round keys and tables are used as they lie in
// memory. Where the tables lie is the caller's business: a round is given a `Lookup` with
//   template <int kTable, int kByte> std::uint32_t at(std::uint32_t column) const;   table kTable at byte
//   kByte of it
// Table-driven AES is constant-time only where the tables' place makes it so: device/cuda gives each lane its
// own copy, so that no lookup's time depends on another lane's. Not for use on a CPU outside of tests and key
// set-up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sealring/base/host_device.h"

namespace sealring::aes {

struct RoundKeys {
  alignas(16) std::uint32_t words[60];  ///< 4 * (rounds + 1) are used
  std::uint32_t rounds;                 ///< 10 or 14
};

struct Block {
  std::uint32_t words[4];
};
/// A round key: one 16-byte access.
struct alignas(16) RoundKey {
  std::uint32_t words[4];
};

constexpr std::uint8_t doubled(std::uint8_t x) {
  return static_cast<std::uint8_t>((x << 1) ^ ((x >> 7) * 0x1B));
}

// [FIPS 197 §5.1.1] The inverse in GF(2^8), by walking through the powers of 3 and 1/3, then the affine map.
constexpr std::array<std::uint8_t, 256> make_sbox() {
  std::array<std::uint8_t, 256> out{};
  std::uint8_t p = 1, q = 1;
  do {
    p = static_cast<std::uint8_t>(p ^ doubled(p));
    q = static_cast<std::uint8_t>(q ^ (q << 1));
    q = static_cast<std::uint8_t>(q ^ (q << 2));
    q = static_cast<std::uint8_t>(q ^ (q << 4));
    if ((q & 0x80) != 0) q ^= 0x09;
    std::uint8_t x = 0x63;
    for (int turn = 0; turn < 5; ++turn) x = static_cast<std::uint8_t>(x ^ ((q << turn) | (q >> (8 - turn))));
    out[p] = x;
  } while (p != 1);
  out[0] = 0x63;
  return out;
}
inline constexpr std::array<std::uint8_t, 256> kSbox = make_sbox();

/// Table 0 at `byte`: MixColumns of SubBytes in row 0. Table i is this turned left by 8 i bits.
constexpr std::uint32_t table_entry(std::uint32_t byte) {
  const std::uint8_t s = kSbox[byte];
  const std::uint8_t twice = doubled(s);
  const auto thrice = static_cast<std::uint8_t>(twice ^ s);
  return static_cast<std::uint32_t>(twice) | static_cast<std::uint32_t>(s) << 8 |
         static_cast<std::uint32_t>(s) << 16 | static_cast<std::uint32_t>(thrice) << 24;
}
SR_HOST_DEVICE constexpr std::uint32_t turned(std::uint32_t entry, int table) {
  return table == 0 ? entry : (entry << (8 * table)) | (entry >> (32 - 8 * table));
}

/// [FIPS 197 §5.2] `key` is 4 (AES-128) or 8 (AES-256) little-endian words.
inline void expand(const std::uint32_t* key, std::uint32_t key_words, RoundKeys& out) {
  const auto substituted = [](std::uint32_t word) {
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i)
      result |= static_cast<std::uint32_t>(kSbox[(word >> (8 * i)) & 0xFFu]) << (8 * i);
    return result;
  };
  out = RoundKeys{};
  out.rounds = key_words + 6;
  std::uint8_t constant = 1;
  for (std::uint32_t i = 0; i < 4 * (out.rounds + 1); ++i) {
    if (i < key_words) {
      out.words[i] = key[i];
      continue;
    }
    std::uint32_t word = out.words[i - 1];
    if (i % key_words == 0) {
      word = substituted((word >> 8) | (word << 24)) ^ constant;
      constant = doubled(constant);
    } else if (key_words == 8 && i % 8 == 4) {
      word = substituted(word);
    }
    out.words[i] = out.words[i - key_words] ^ word;
  }
}

/// [FIPS 197 §5.1] SubBytes, ShiftRows, MixColumns, AddRoundKey.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // a Lookup may be of the host alone
#endif
template <class Lookup>
SR_HOST_DEVICE inline Block full_round(const Block& in, const std::uint32_t* key, const Lookup& tables) {
  Block out;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    out.words[c] = tables.template at<0, 0>(in.words[c]) ^ tables.template at<1, 1>(in.words[(c + 1) & 3]) ^
                   tables.template at<2, 2>(in.words[(c + 2) & 3]) ^
                   tables.template at<3, 3>(in.words[(c + 3) & 3]) ^ key[c];
  }
  return out;
}

/// The last round has no MixColumns: its bytes are where a table holds the plain S-box at the byte's own
/// place.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // a Lookup may be of the host alone
#endif
template <class Lookup>
SR_HOST_DEVICE inline Block last_round(const Block& in, const std::uint32_t* key, const Lookup& tables) {
  Block out;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const std::uint32_t low = (tables.template at<2, 0>(in.words[c]) & 0xFFu) |
                              (tables.template at<0, 1>(in.words[(c + 1) & 3]) & ~0xFFu);
    const std::uint32_t high = (tables.template at<1, 2>(in.words[(c + 2) & 3]) & 0xFFFFFFu) |
                               (tables.template at<2, 3>(in.words[(c + 3) & 3]) & ~0xFFFFFFu);
    out.words[c] = ((low & 0xFFFFu) | (high & ~0xFFFFu)) ^ key[c];
  }
  return out;
}

/// Rounds `first` to `end` - 1, none of which may be the last one, of kBlocks blocks side by side, in place.
/// `keys` is aligned to 16 bytes.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // a Lookup may be of the host alone
#endif
template <int kBlocks, class Lookup>
SR_HOST_DEVICE inline void full_rounds(std::uint32_t first, std::uint32_t end, Block (&blocks)[kBlocks],
                                       const std::uint32_t* keys, const Lookup& tables) {
#pragma unroll 1
  for (std::uint32_t round = first; round < end; ++round) {
    const RoundKey key = *reinterpret_cast<const RoundKey*>(keys + 4 * round);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) blocks[b] = full_round(blocks[b], key.words, tables);
  }
}

/// Rounds `first` to the last.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // a Lookup may be of the host alone
#endif
template <int kBlocks, class Lookup>
SR_HOST_DEVICE inline void rounds_from(std::uint32_t first, Block (&blocks)[kBlocks],
                                       const std::uint32_t* keys, std::uint32_t rounds,
                                       const Lookup& tables) {
  full_rounds(first, rounds, blocks, keys, tables);
  const RoundKey last = *reinterpret_cast<const RoundKey*>(keys + 4 * rounds);
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) blocks[b] = last_round(blocks[b], last.words, tables);
}

/// Encrypts kBlocks blocks side by side, in place. `keys` is memory that all lanes read alike.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <int kBlocks, class Lookup>
SR_HOST_DEVICE inline void encrypt(Block (&blocks)[kBlocks], const std::uint32_t* keys, std::uint32_t rounds,
                                   const Lookup& tables) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
    for (int c = 0; c < 4; ++c) blocks[b].words[c] ^= keys[c];
  }
  rounds_from(1, blocks, keys, rounds, tables);
}

/// What 256 counter blocks have in common that differ in their last byte alone: that byte reaches one column
/// of round 1, and one byte of each column of round 2.
struct CounterGroup {
  std::uint32_t after_two[4];  ///< the sums of round 2 but for the byte that differs
  std::uint32_t after_one;     ///< column 0 of round 1, likewise
};

/// `block` is any of the group.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Lookup>
SR_HOST_DEVICE inline CounterGroup counter_group(const Block& block, const std::uint32_t* keys,
                                                 const Lookup& tables) {
  Block in;
#pragma unroll
  for (int c = 0; c < 4; ++c) in.words[c] = block.words[c] ^ keys[c];
  const Block one = full_round(in, keys + 4, tables);
  CounterGroup out;
  out.after_one = one.words[0] ^ tables.template at<3, 3>(in.words[3]);
  const Block two = full_round(one, keys + 8, tables);
  out.after_two[0] = two.words[0] ^ tables.template at<0, 0>(one.words[0]);
  out.after_two[1] = two.words[1] ^ tables.template at<3, 3>(one.words[0]);
  out.after_two[2] = two.words[2] ^ tables.template at<2, 2>(one.words[0]);
  out.after_two[3] = two.words[3] ^ tables.template at<1, 1>(one.words[0]);
  return out;
}

/// A counter block after two rounds: five lookups instead of 32. `last` holds the block's last byte in its
/// uppermost.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Lookup>
SR_HOST_DEVICE inline Block after_two_rounds(const CounterGroup& group, std::uint32_t last,
                                             const std::uint32_t* keys, const Lookup& tables) {
  const std::uint32_t column = group.after_one ^ tables.template at<3, 3>(last ^ keys[3]);
  return Block{{group.after_two[0] ^ tables.template at<0, 0>(column),
                group.after_two[1] ^ tables.template at<3, 3>(column),
                group.after_two[2] ^ tables.template at<2, 2>(column),
                group.after_two[3] ^ tables.template at<1, 1>(column)}};
}

/// Plain tables, for key set-up and tests.
struct PlainTables {
  template <int kTable, int kByte>
  std::uint32_t at(std::uint32_t column) const {
    return turned(table_entry((column >> (8 * kByte)) & 0xFFu), kTable);
  }
};

}  // namespace sealring::aes
