// The sticky first error of a session: once set it never changes, and everybody who waits is woken.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "sealring/base/error.h"

namespace sealring {

/// One object a session, shared by its channels, control plane and communicators. Thread-safe.
class Verdict {
 public:
  /// True when this call set the error: the caller is then the one who starts the teardown. Callbacks run
  /// here, in the calling thread, outside the lock, in the order in which they were added.
  bool set(Error error);
  bool dead() const { return dead_.load(std::memory_order_acquire); }
  /// The first error; nullopt while alive.
  std::optional<Error> error() const;
  /// Adds the authenticated second line once it is known; ignored unless dead and still empty.
  void set_diagnosis(std::string line);
  /// Runs `callback` once when the error is set; at once if it is already.
  void on_death(std::function<void(const Error&)> callback);

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> dead_{false};
  std::optional<Error> error_;
  std::vector<std::function<void(const Error&)>> callbacks_;
};

}  // namespace sealring
