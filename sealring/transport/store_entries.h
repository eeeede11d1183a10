// StoreEntries: the board itself, with its rules and caps; the memory store and our server both hold one.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "sealring/transport/store.h"

namespace sealring {

/// Errors: INVALID_ARGUMENT for a key that is empty, longer than 512 bytes or not printable ASCII.
Result<void> check_store_key(const std::string& key);
/// Errors: INVALID_ARGUMENT for a value over Store::kValueBytesMax.
Result<void> check_store_value(ByteView value);

/// Thread-safe. Keys and values have been checked. Errors: STORE when a key has another value, or at a cap.
class StoreEntries {
 public:
  static constexpr std::size_t kEntriesMax = 1 << 20;
  static constexpr std::size_t kBytesMax = 1ull << 30;
  explicit StoreEntries(std::size_t entries_max = kEntriesMax, std::size_t bytes_max = kBytesMax)
      : entries_max_(entries_max), bytes_max_(bytes_max) {}

  Result<void> set(const std::string& key, ByteView value);
  std::optional<Bytes> get(const std::string& key) const;
  Result<std::int64_t> add(const std::string& key, std::int64_t amount);
  void remove(const std::string& key);

 private:
  const std::size_t entries_max_, bytes_max_;
  mutable std::mutex mutex_;
  std::map<std::string, Bytes> values_;
  std::map<std::string, std::int64_t> counters_;
  std::size_t bytes_ = 0;
};

}  // namespace sealring
