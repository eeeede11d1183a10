// Published vectors through sealring/primitives alone, with any AAD: one function for host and device, the
// cases as plain structs, and what they must give.
#pragma once

#include <cstdint>

#include "sealring/primitives/aes.h"
#include "sealring/primitives/chacha20.h"
#include "sealring/primitives/ghash.h"
#include "sealring/primitives/poly1305.h"

namespace sealring::test {

enum class Primitive : std::uint32_t { chacha20_block, poly1305, aes_block, chacha20_poly1305, aes_gcm };

inline constexpr std::uint32_t kCaseBytes = 256;

/// Words are little-endian, as everywhere in primitives.
struct PrimitiveCase {
  Primitive primitive;
  std::uint32_t key[8];
  std::uint32_t nonce[3];
  std::uint32_t counter;
  alignas(16) std::uint32_t round_keys[60];  ///< AES: made by the host
  std::uint32_t rounds;
  std::uint32_t table[256];  ///< AES
  std::uint32_t aad_bytes, in_bytes;
  std::uint8_t aad[kCaseBytes], in[kCaseBytes];
  std::uint8_t out[kCaseBytes], tag[16];  ///< results
};

namespace primitive_internal {

/// One table in memory, turned for the other three.
struct WordTable {
  const std::uint32_t* table;
  template <int kTable, int kByte>
  SR_HOST_DEVICE std::uint32_t at(std::uint32_t column) const {
    return aes::turned(table[(column >> (8 * kByte)) & 0xFFu], kTable);
  }
};

struct Words {
  std::uint32_t words[4];
};

/// Up to 16 bytes, zeros behind.
SR_HOST_DEVICE inline Words words_at(const std::uint8_t* bytes, std::uint32_t count) {
  Words out{};
  for (std::uint32_t i = 0; i < 16 && i < count; ++i)
    out.words[i / 4] |= static_cast<std::uint32_t>(bytes[i]) << (8 * (i % 4));
  return out;
}
SR_HOST_DEVICE inline void put_words(const std::uint32_t* words, std::uint32_t count, std::uint8_t* to) {
  for (std::uint32_t i = 0; i < count; ++i) to[i] = static_cast<std::uint8_t>(words[i / 4] >> (8 * (i % 4)));
}

struct Poly {
  poly1305::Number r, h{};
  std::uint32_t s[4];
  SR_HOST_DEVICE explicit Poly(const std::uint32_t* key)
      : r(poly1305::clamped_r(key[0], key[1], key[2], key[3])), s{key[4], key[5], key[6], key[7]} {}
  SR_HOST_DEVICE void add(const Words& block, std::uint32_t high = 1) {
    poly1305::Columns sum{};
    poly1305::add_number(sum, h);
    poly1305::add_number(
        sum, poly1305::number_of(block.words[0], block.words[1], block.words[2], block.words[3], high));
    h = poly1305::multiply(poly1305::carried(sum), r);
  }
  /// [RFC 8439 §2.5.1] without padding: the 1 stands right behind a short last block.
  SR_HOST_DEVICE void add_bare(const std::uint8_t* bytes, std::uint32_t count) {
    for (std::uint32_t at = 0; at < count; at += 16) {
      const std::uint32_t left = count - at;
      Words block = words_at(bytes + at, left);
      if (left < 16) block.words[left / 4] |= 1u << (8 * (left % 4));
      add(block, left < 16 ? 0u : 1u);
    }
  }
  /// [RFC 8439 §2.8] filled up with zeros.
  SR_HOST_DEVICE void add_padded(const std::uint8_t* bytes, std::uint32_t count) {
    for (std::uint32_t at = 0; at < count; at += 16) add(words_at(bytes + at, count - at));
  }
};

SR_HOST_DEVICE inline void run_chacha20_poly1305(PrimitiveCase& c) {
  Poly mac(chacha20::keystream(c.key, c.nonce, 0).words);
  for (std::uint32_t at = 0; at < c.in_bytes; at += 64) {
    const chacha20::Block stream = chacha20::keystream(c.key, c.nonce, 1 + at / 64);
    for (std::uint32_t i = 0; i < 64 && at + i < c.in_bytes; ++i)
      c.out[at + i] = static_cast<std::uint8_t>(c.in[at + i] ^ (stream.words[i / 4] >> (8 * (i % 4))));
  }
  mac.add_padded(c.aad, c.aad_bytes);
  mac.add_padded(c.out, c.in_bytes);
  mac.add(Words{{c.aad_bytes, 0, c.in_bytes, 0}});
  std::uint32_t tag[4];
  poly1305::finish(mac.h, mac.s, tag);
  put_words(tag, 16, c.tag);
}

SR_HOST_DEVICE inline aes::Block aes_of(const PrimitiveCase& c, const aes::Block& in) {
  aes::Block block[1] = {in};
  aes::encrypt(block, c.round_keys, c.rounds, WordTable{c.table});
  return block[0];
}

SR_HOST_DEVICE inline void ghash_bytes(const ghash::Element& h, const std::uint8_t* bytes,
                                       std::uint32_t count, ghash::Element& sum) {
  for (std::uint32_t at = 0; at < count; at += 16)
    sum = ghash::multiply(sum ^ ghash::element_of(words_at(bytes + at, count - at).words), h);
}

// [SP 800-38D §7.1] with a nonce of 96 bits.
SR_HOST_DEVICE inline void run_aes_gcm(PrimitiveCase& c) {
  const auto counter = [&](std::uint32_t value) {
    return aes::Block{{c.nonce[0], c.nonce[1], c.nonce[2], ghash::swapped(value)}};
  };
  const ghash::Element h = ghash::element_of(aes_of(c, aes::Block{}).words);
  for (std::uint32_t at = 0; at < c.in_bytes; at += 16) {
    const aes::Block stream = aes_of(c, counter(2 + at / 16));
    for (std::uint32_t i = 0; i < 16 && at + i < c.in_bytes; ++i)
      c.out[at + i] = static_cast<std::uint8_t>(c.in[at + i] ^ (stream.words[i / 4] >> (8 * (i % 4))));
  }
  ghash::Element sum = ghash::zero();
  ghash_bytes(h, c.aad, c.aad_bytes, sum);
  ghash_bytes(h, c.out, c.in_bytes, sum);
  sum = ghash::multiply(sum ^ ghash::Element{{0, 8 * c.aad_bytes, 0, 8 * c.in_bytes}}, h);
  std::uint32_t tag[4];
  ghash::block_of(sum, tag);
  const aes::Block mask = aes_of(c, counter(1));
  for (int i = 0; i < 4; ++i) tag[i] ^= mask.words[i];
  put_words(tag, 16, c.tag);
}

}  // namespace primitive_internal

/// Fills `out` and `tag`.
SR_HOST_DEVICE inline void run_primitive(PrimitiveCase& c) {
  namespace in = primitive_internal;
  switch (c.primitive) {
    case Primitive::chacha20_block:
      return in::put_words(chacha20::keystream(c.key, c.nonce, c.counter).words, 64, c.out);
    case Primitive::poly1305: {
      in::Poly mac(c.key);
      mac.add_bare(c.in, c.in_bytes);
      std::uint32_t tag[4];
      poly1305::finish(mac.h, mac.s, tag);
      return in::put_words(tag, 16, c.tag);
    }
    case Primitive::aes_block: {
      const in::Words plain = in::words_at(c.in, 16);
      const aes::Block made =
          in::aes_of(c, aes::Block{{plain.words[0], plain.words[1], plain.words[2], plain.words[3]}});
      return in::put_words(made.words, 16, c.out);
    }
    case Primitive::chacha20_poly1305:
      return in::run_chacha20_poly1305(c);
    case Primitive::aes_gcm:
      return in::run_aes_gcm(c);
  }
}

}  // namespace sealring::test
