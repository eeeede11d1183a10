// Where a device takes the keys of one direction from, epoch after epoch.
#pragma once

#include "sealring/base/secret.h"
#include "sealring/base/types.h"

namespace sealring {

/// Wiped when destroyed, through SecretBytes.
struct EpochKey {
  Epoch epoch = 0;
  SecretBytes key;  ///< suite_key_bytes(suite)
  SecretBytes iv;   ///< 12 bytes
};

/// Gives the keys of rising epochs, each once. Used by one thread at a time.
class KeySource {
 public:
  virtual ~KeySource() = default;
  /// What next() will give; asking changes nothing.
  virtual Epoch next_epoch() const = 0;
  virtual EpochKey next() = 0;
};

}  // namespace sealring
