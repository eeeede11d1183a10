// Nobody can write a nonce: a seal spends a SealPermit, and permits come in order from one NonceSequence.
//
// This is the whole argument for nonce uniqueness on a CPU (protocol A.3): a key lives in one NonceSequence,
// which hands out each number at most once; a SealPermit is move-only and shrinks as numbers are spent.
#pragma once

#include <cstdint>

#include "sealring/base/result.h"

namespace sealring {

/// When a key is changed and when it must stop; totals that both ends of the key know alike (protocol A.3,
/// C.1).
struct KeyBudget {
  std::uint64_t bytes_rotate = 1ull << 38;
  std::uint64_t segments_rotate = 1ull << 31;
  std::uint64_t ops_rotate = 1ull << 24;
  std::uint64_t bytes_max = 1ull << 40;
  std::uint64_t segments_max = (1ull << 32) - 1;
};

/// Consecutive segment numbers of one key, each to be used for at most one seal. Move-only; may be split.
class SealPermit {
 public:
  SealPermit(SealPermit&& other) noexcept;
  SealPermit& operator=(SealPermit&& other) noexcept;
  SealPermit(const SealPermit&) = delete;
  SealPermit& operator=(const SealPermit&) = delete;

  std::uint64_t first() const { return first_; }
  std::uint64_t remaining() const { return segments_; }
  /// Cuts the first `segments` numbers off; more than remaining() is a programmer error.
  SealPermit split(std::uint64_t segments);
  /// Spends one number: the only way to turn a permit into a nonce.
  std::uint64_t spend();

 private:
  friend class NonceSequence;
  SealPermit(std::uint64_t first, std::uint64_t segments) : first_(first), segments_(segments) {}
  std::uint64_t first_ = 0;
  std::uint64_t segments_ = 0;
};

/// Hands out the numbers of one traffic key, starting at 0. Not thread-safe: one thread walks the schedule.
class NonceSequence {
 public:
  explicit NonceSequence(KeyBudget budget) : budget_(budget) {}
  NonceSequence(const NonceSequence&) = delete;
  NonceSequence& operator=(const NonceSequence&) = delete;

  /// True when an op must move to the next epoch before it takes anything (protocol A.3, rotation).
  bool rotation_due() const;
  /// Reserves `segments` numbers for one op that seals `bytes` of plaintext (0 allowed).
  ///
  /// Errors: KEY_LIMIT when a hard limit would be passed; nothing is reserved then.
  Result<SealPermit> take(std::uint64_t segments, std::uint64_t bytes);
  /// The same reservation on the receiving side: advances alike, gives the first number.
  Result<std::uint64_t> advance(std::uint64_t segments, std::uint64_t bytes);

  std::uint64_t segments() const { return segments_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t ops() const { return ops_; }

 private:
  KeyBudget budget_;
  std::uint64_t segments_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t ops_ = 0;
};

}  // namespace sealring
