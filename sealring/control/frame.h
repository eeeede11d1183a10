// Control frames: u32 length || ciphertext || tag, sealed under the ctl chain of one direction (protocol
// A.4).
//
//   AAD = L("ctl") || TH3[0..8) || u32 i || u32 j || u32 epoch || u64 number || u32 length
//
// `length` counts the ciphertext alone. Epoch and number are never sent: both ends count frames, so a lost,
// repeated or reordered frame is an authentication failure. Every frame is one operation of one segment in
// the budget.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "sealring/base/bytes.h"
#include "sealring/base/result.h"
#include "sealring/base/types.h"
#include "sealring/crypto/aead.h"
#include "sealring/session/keys.h"
#include "sealring/wire/nonce_sequence.h"

namespace sealring {

inline constexpr std::uint32_t kFrameBytesMax = 64 * 1024;
inline constexpr std::size_t kFrameHeadBytes = 4;

/// Reads the four bytes in front of a frame. Errors: MALFORMED for 0 and for more than kFrameBytesMax.
Result<std::uint32_t> parse_frame_length(ByteView head);

/// Whose frames: global ranks, sealed by `from` for `to`.
struct FrameDirection {
  std::array<std::byte, 8> th3{};  ///< TH3[0..8) of the world group
  Rank from = 0;
  Rank to = 0;
};

/// The authenticated bytes of one frame.
Bytes frame_aad(const FrameDirection& direction, Epoch epoch, std::uint64_t number,
                std::uint32_t length_bytes);

/// Key, epoch and numbers of one direction; moves to the next epoch when the budget says so. Not thread-safe.
class FrameKey {
 public:
  FrameKey(KeyChain chain, KeyBudget budget) : chain_(std::move(chain)), budget_(budget) {}
  /// Must be called before each frame. Errors: those of Aead::make.
  Result<void> prepare();
  NonceSequence& numbers() { return *numbers_; }
  const Aead& aead() const { return *aead_; }
  Nonce nonce(std::uint64_t number) const;
  Epoch epoch() const { return epoch_; }
  void wipe() noexcept;

 private:
  KeyChain chain_;
  KeyBudget budget_;
  std::unique_ptr<NonceSequence> numbers_;  ///< null before the first frame
  std::optional<Aead> aead_;
  SecretBytes iv_;
  Epoch epoch_ = 0;
};

/// Seals frames of one direction. Not thread-safe.
class FrameSealer {
 public:
  FrameSealer(KeyChain chain, FrameDirection direction, KeyBudget budget)
      : key_(std::move(chain), budget), direction_(direction) {}
  /// The whole frame. 1 to kFrameBytesMax bytes; anything else is a programmer error. Errors: KEY_LIMIT.
  Result<Bytes> seal(ByteView payload);
  Epoch epoch() const { return key_.epoch(); }
  void wipe() noexcept { key_.wipe(); }

 private:
  FrameKey key_;
  FrameDirection direction_;
};

/// Cuts a byte stream into frames and opens them in order. Not thread-safe.
///
/// Holds at most what was fed and not yet taken: nothing is allocated by a length that is only announced.
class FrameOpener {
 public:
  FrameOpener(KeyChain chain, FrameDirection direction, KeyBudget budget)
      : key_(std::move(chain), budget), direction_(direction) {}
  void feed(ByteView bytes);
  /// The next opened payload; nullopt when more bytes are needed. An error is final, every later call returns
  /// it.
  ///
  /// Errors: MALFORMED (length), DATA_TAG (changed, replayed, lost or out of order), KEY_LIMIT.
  Result<std::optional<Bytes>> next();
  Epoch epoch() const { return key_.epoch(); }
  void wipe() noexcept;

 private:
  Result<std::optional<Bytes>> open_next();

  FrameKey key_;
  FrameDirection direction_;
  Bytes pending_;
  std::size_t taken_bytes_ = 0;  ///< of pending_, already opened
  std::optional<Error> failed_;
};

}  // namespace sealring
