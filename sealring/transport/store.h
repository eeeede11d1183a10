// Store: a write-once blob board where ranks meet. Untrusted: it can only delay or stop a start.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "sealring/base/bytes.h"
#include "sealring/base/deadline.h"
#include "sealring/base/result.h"
#include "sealring/base/secret.h"

namespace sealring {

/// Keys are ASCII paths of at most 512 bytes, values at most 128 KiB (the reader re-checks). Thread-safe.
class Store {
 public:
  static constexpr std::size_t kValueBytesMax = 128 * 1024;
  virtual ~Store() = default;
  /// Write-once: setting a key again is an error (STORE), except with the same bytes.
  virtual Result<void> set(const std::string& key, ByteView value) = 0;
  /// nullopt while the key is absent.
  virtual Result<std::optional<Bytes>> try_get(const std::string& key) = 0;
  /// Adds to a counter that starts at 0 and gives the new value.
  virtual Result<std::int64_t> add(const std::string& key, std::int64_t amount) = 0;
  virtual Result<void> remove(const std::string& key) = 0;
  virtual std::string describe() const = 0;  ///< "tcp://host:port", "file:...", for messages
};

/// In one process, for ranks as threads.
std::unique_ptr<Store> make_memory_store();
/// One directory on a filesystem that all ranks see; entries are files written by rename. Errors: STORE,
/// NO_SPACE.
Result<std::unique_ptr<Store>> make_file_store(const std::string& directory);
/// Our own store. Rank 0 serves it inside the process (pass serve = true) on `host:port`; everybody is a
/// client that is admitted only after a challenge MAC under Expand(store_secret, L("store") || prefix, 32)
/// (protocol A.2).
///
/// Errors: PORT, STORE (unreachable until the deadline), RDV_KEY ("the store at rank 0 uses another job
/// key").
struct TcpStoreConfig {
  std::string host;
  std::uint16_t port = 0;  ///< 0 with serve: any free port, see describe()
  bool serve = false;
  std::string prefix = "default";
};
Result<std::unique_ptr<Store>> make_tcp_store(const TcpStoreConfig& config, const SecretBytes& store_secret,
                                              Deadline deadline);
/// Adapts somebody else's store (PyTorch's). Callbacks may be called from any thread and must not throw.
struct StoreCallbacks {
  std::function<Result<void>(const std::string&, ByteView)> set;
  std::function<Result<std::optional<Bytes>>(const std::string&)> try_get;
  std::function<Result<std::int64_t>(const std::string&, std::int64_t)> add;
  std::function<Result<void>(const std::string&)> remove;
  std::string description;
};
std::unique_ptr<Store> make_callback_store(StoreCallbacks callbacks);
/// Asks `inner` from a thread of its own, so that no call waits longer than until `deadline` (and half a
/// second for calls made later).
///
/// A call that is not answered by then is TIMEOUT, naming the store and the key, and so is every later call,
/// at once. The thread is then left behind, and keeps `inner` alive until that answers. In a forked child:
/// FORKED. Errors: OUT_OF_MEMORY (no thread).
Result<std::shared_ptr<Store>> make_bounded_store(std::shared_ptr<Store> inner, Deadline deadline);

}  // namespace sealring
