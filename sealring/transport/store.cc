// The stores that need no other process: memory, and the adapter to somebody else's.
#include "sealring/transport/store.h"

#include <algorithm>

#include "sealring/transport/store_entries.h"

namespace sealring {

Result<void> check_store_key(const std::string& key) {
  const bool printable = std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  if (!key.empty() && key.size() <= 512 && printable) return {};
  return fail(Code::invalid_argument, "store.key", "a key must be 1 to 512 printable ASCII characters");
}

Result<void> check_store_value(ByteView value) {
  if (value.size() <= Store::kValueBytesMax) return {};
  return fail(Code::invalid_argument, "store.set",
              "a value of " + std::to_string(value.size()) + " bytes is over the limit of " +
                  std::to_string(Store::kValueBytesMax));
}

Result<void> StoreEntries::set(const std::string& key, ByteView value) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found != values_.end()) {
    if (std::equal(value.begin(), value.end(), found->second.begin(), found->second.end())) return {};
    return fail(Code::store, "store.set", "the entry \"" + key + "\" is there already, with another value",
                "another job uses the same prefix, or a rank was started twice");
  }
  const std::size_t more_bytes = key.size() + value.size();
  if (values_.size() + counters_.size() >= entries_max_ || bytes_ + more_bytes > bytes_max_) {
    return fail(Code::store, "store.set", "the store is full");
  }
  values_.emplace(key, to_bytes(value));
  bytes_ += more_bytes;
  return {};
}

std::optional<Bytes> StoreEntries::get(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

Result<std::int64_t> StoreEntries::add(const std::string& key, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  if (!counters_.contains(key) && values_.size() + counters_.size() >= entries_max_) {
    return fail(Code::store, "store.add", "the store is full");
  }
  std::int64_t& counter = counters_[key];
  std::int64_t sum = 0;
  if (__builtin_add_overflow(counter, amount, &sum)) {
    return fail(Code::store, "store.add", "the counter \"" + key + "\" has passed its last value");
  }
  return counter = sum;
}

void StoreEntries::remove(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found != values_.end()) {
    bytes_ -= key.size() + found->second.size();
    values_.erase(found);
  }
  counters_.erase(key);
}

namespace {

class MemoryStore final : public Store {
 public:
  Result<void> set(const std::string& key, ByteView value) override {
    SR_TRY(check_store_key(key));
    SR_TRY(check_store_value(value));
    return entries_.set(key, value);
  }
  Result<std::optional<Bytes>> try_get(const std::string& key) override {
    SR_TRY(check_store_key(key));
    return entries_.get(key);
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    SR_TRY(check_store_key(key));
    return entries_.add(key, amount);
  }
  Result<void> remove(const std::string& key) override {
    SR_TRY(check_store_key(key));
    entries_.remove(key);
    return {};
  }
  std::string describe() const override { return "memory"; }

 private:
  StoreEntries entries_;
};

class CallbackStore final : public Store {
 public:
  explicit CallbackStore(StoreCallbacks callbacks) : callbacks_(std::move(callbacks)) {
    SR_CHECK(callbacks_.set && callbacks_.try_get && callbacks_.add && callbacks_.remove);
  }
  Result<void> set(const std::string& key, ByteView value) override {
    SR_TRY(check_store_key(key));
    SR_TRY(check_store_value(value));
    return callbacks_.set(key, value);
  }
  Result<std::optional<Bytes>> try_get(const std::string& key) override {
    SR_TRY(check_store_key(key));
    SR_TRY(std::optional<Bytes> value, callbacks_.try_get(key));
    // Somebody else's store may hold anything: what could not have been set is not handed on.
    if (value && value->size() > kValueBytesMax) {
      return fail(
          Code::store, "store.get",
          "the entry \"" + key + "\" is over the limit of " + std::to_string(kValueBytesMax) + " bytes");
    }
    return value;
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    SR_TRY(check_store_key(key));
    return callbacks_.add(key, amount);
  }
  Result<void> remove(const std::string& key) override {
    SR_TRY(check_store_key(key));
    return callbacks_.remove(key);
  }
  std::string describe() const override { return callbacks_.description; }

 private:
  StoreCallbacks callbacks_;
};

}  // namespace

std::unique_ptr<Store> make_memory_store() { return std::make_unique<MemoryStore>(); }

std::unique_ptr<Store> make_callback_store(StoreCallbacks callbacks) {
  return std::make_unique<CallbackStore>(std::move(callbacks));
}

}  // namespace sealring
