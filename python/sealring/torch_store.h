// PyTorch's store as ours: where ranks meet. It is trusted with nothing (protocol A.2).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "python/sealring/torch_compat.h"
#include "sealring/transport/store.h"

namespace sealring::torch_backend {

inline tl::unexpected<Error> store_failed(const char* doing, const std::exception& problem) {
  // The first line alone: the rest of a c10 exception is a stack of frames.
  const std::string text = problem.what();
  return fail(Code::store, std::string("torch.store.") + doing,
              "PyTorch's store failed: " + text.substr(0, std::min<std::size_t>(text.find('\n'), 200)),
              "check that rank 0 (MASTER_ADDR:MASTER_PORT) is alive and reachable");
}

/// Keeps `store` alive. Its calls wait as long as PyTorch's store does, 300 s by default: bound them by
/// make_bounded_store. Any thread may call it, with or without the GIL: a store written in Python takes it
/// itself.
inline std::shared_ptr<Store> make_torch_store(c10::intrusive_ptr<c10d::Store> store,
                                               std::string description) {
  StoreCallbacks callbacks;
  callbacks.set = [store](const std::string& key, ByteView value) -> Result<void> {
    try {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(value.data());
      store->set(key, std::vector<std::uint8_t>(bytes, bytes + value.size()));
      return {};
    } catch (const std::exception& problem) {
      return store_failed("set", problem);
    }
  };
  callbacks.try_get = [store](const std::string& key) -> Result<std::optional<Bytes>> {
    try {
      // get() waits inside the store for a key that is absent; the handshake has its own deadline.
      if (!store->check({key})) return std::nullopt;
      const std::vector<std::uint8_t> value = store->get(key);
      const auto* bytes = reinterpret_cast<const std::byte*>(value.data());
      return Bytes(bytes, bytes + value.size());
    } catch (const std::exception& problem) {
      return store_failed("get", problem);
    }
  };
  callbacks.add = [store](const std::string& key, std::int64_t amount) -> Result<std::int64_t> {
    try {
      return store->add(key, amount);
    } catch (const std::exception& problem) {
      return store_failed("add", problem);
    }
  };
  callbacks.remove = [store](const std::string& key) -> Result<void> {
    try {
      store->deleteKey(key);
      return {};
    } catch (const std::exception& problem) {
      return store_failed("remove", problem);
    }
  };
  callbacks.description = std::move(description);
  return make_callback_store(std::move(callbacks));
}

}  // namespace sealring::torch_backend
