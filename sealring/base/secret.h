// SecretBytes: memory for keys, chain values and shared secrets.
//
// The memory comes from an arena of its own: never dumped, wiped in a forked child, locked where the limit
// allows, zeroed before it is given back (protocol A.6). No stream operator, no comparison but the
// constant-time one.
#pragma once

#include <cstddef>
#include <span>

#include "sealring/base/bytes.h"

namespace sealring {

/// Owns `size` secret bytes; move-only, wiped on destruction. Thread-safe as far as an ordinary object is.
class SecretBytes {
 public:
  SecretBytes() = default;
  explicit SecretBytes(std::size_t bytes);  ///< zero-filled
  static SecretBytes copy_of(ByteView bytes);
  SecretBytes(SecretBytes&& other) noexcept;
  SecretBytes& operator=(SecretBytes&& other) noexcept;
  SecretBytes(const SecretBytes&) = delete;
  SecretBytes& operator=(const SecretBytes&) = delete;
  ~SecretBytes();

  SecretBytes clone() const { return copy_of(view()); }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  ByteView view() const { return {data_, size_}; }
  std::span<std::byte> span() { return {data_, size_}; }
  void wipe() noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Zeroes memory in a way that the compiler keeps.
void secure_wipe(std::span<std::byte> memory) noexcept;

/// Equal in time that depends on the sizes alone. Different sizes: false.
bool constant_time_equal(ByteView a, ByteView b) noexcept;

/// RLIMIT_CORE 0 for this process, and with `undumpable` PR_SET_DUMPABLE 0 (it breaks passing descriptors
/// between processes, so only for identity tee or SEALRING_HARDEN=1).
void harden_process(bool undumpable) noexcept;

}  // namespace sealring
