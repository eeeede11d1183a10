// KeyLine: one traffic key of one direction through all its epochs, with the numbers that go with it.
#pragma once

#include <memory>
#include <optional>

#include "sealring/device/bulk_cipher.h"
#include "sealring/session/keys.h"
#include "sealring/wire/nonce_sequence.h"

namespace sealring {

/// Binds a KeyChain to its NonceSequence and to the key loaded into the device.
///
/// Both ends of a key run the same KeyLine code over the same totals, so that epochs and numbers agree
/// without a message [protocol A.3]. Not thread-safe: used by the one thread that runs its operations.
class KeyLine {
 public:
  KeyLine(KeyChain chain, Suite suite, KeyBudget budget, BulkCipher& cipher);

  /// Reserves the numbers of a whole op that seals under this key; moves to the next epoch first where one is
  /// due. Errors: KEY_LIMIT (nothing is reserved), those of BulkCipher::load.
  Result<SealPermit> take(std::uint64_t segments, std::uint64_t bytes);
  /// The same where the op's segments come from the peer: gives the first number.
  Result<std::uint64_t> advance(std::uint64_t segments, std::uint64_t bytes);

  const DeviceKey& key() const { return *key_; }
  Epoch epoch() const { return key_ ? key_->epoch() : 0; }
  /// Erases key and chain; the line cannot be used again.
  void wipe() noexcept;

 private:
  Result<void> enter_epoch_if_due();

  KeyChain chain_;
  Suite suite_;
  KeyBudget budget_;
  BulkCipher& cipher_;
  std::unique_ptr<DeviceKey> key_;
  std::optional<NonceSequence> numbers_;
  bool wiped_ = false;
};

}  // namespace sealring
