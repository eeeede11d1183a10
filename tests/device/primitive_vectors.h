// The vectors of data/vectors as cases for run_primitive(), and the check of what came out.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "sealring/base/result.h"
#include "tests/crypto/vector_file.h"
#include "tests/device/primitive_cases.h"

namespace sealring::test {

struct PublishedCase {
  std::string name;
  PrimitiveCase input;
  Bytes out, tag;  ///< empty where the source gives none
};

inline Primitive primitive_of(const std::string& suite) {
  if (suite == "chacha20-block") return Primitive::chacha20_block;
  if (suite == "poly1305") return Primitive::poly1305;
  if (suite == "aes-block") return Primitive::aes_block;
  if (suite == "chacha20-poly1305") return Primitive::chacha20_poly1305;
  SR_CHECK(suite == "aes-128-gcm" || suite == "aes-256-gcm", "unknown suite", suite);
  return Primitive::aes_gcm;
}

inline PublishedCase published_case(const VectorCase& from) {
  PublishedCase made{from.text("case"), PrimitiveCase{}, {}, {}};
  PrimitiveCase& c = made.input;
  const auto put = [&](const std::string& name, void* to, std::size_t room) {
    const Bytes bytes = from.values.contains(name) ? from.bytes(name) : Bytes{};
    SR_CHECK(bytes.size() <= room, "bytes", bytes.size());
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    return static_cast<std::uint32_t>(bytes.size());
  };
  c.primitive = primitive_of(from.text("suite"));
  const std::uint32_t key_bytes = put("key", c.key, sizeof c.key);
  put("nonce", c.nonce, sizeof c.nonce);
  put("counter", &c.counter, sizeof c.counter);
  c.aad_bytes = put("aad", c.aad, kCaseBytes);
  c.in_bytes = put("plain", c.in, kCaseBytes);
  if (c.primitive == Primitive::aes_block || c.primitive == Primitive::aes_gcm) {
    aes::RoundKeys keys;
    aes::expand(c.key, key_bytes / 4, keys);
    std::memcpy(c.round_keys, keys.words, sizeof c.round_keys);
    c.rounds = keys.rounds;
    for (std::uint32_t i = 0; i < 256; ++i) c.table[i] = aes::table_entry(i);
  }
  if (from.values.contains("cipher")) made.out = from.bytes("cipher");
  if (from.values.contains("tag")) made.tag = from.bytes("tag");
  return made;
}

/// All of data/vectors that the primitives can compute.
inline std::vector<PublishedCase> published_cases() {
  std::vector<PublishedCase> out;
  for (const char* const file : {"blocks.txt", "aead.txt"}) {
    for (const VectorCase& each : read_vectors(file)) out.push_back(published_case(each));
  }
  return out;
}

inline void expect_published(const PublishedCase& published, const PrimitiveCase& result) {
  EXPECT_TRUE(published.out.size() + published.tag.size() != 0) << published.name;
  EXPECT_TRUE(published.out.empty() ||
              std::memcmp(published.out.data(), result.out, published.out.size()) == 0)
      << published.name;
  EXPECT_TRUE(published.tag.empty() ||
              std::memcmp(published.tag.data(), result.tag, published.tag.size()) == 0)
      << published.name;
}

}  // namespace sealring::test
