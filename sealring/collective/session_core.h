// SessionCore: what all communicators of one session share, and the one path by which a session dies.
//
// Teardown order (protocol A.4): set the verdict (nobody seals from here on), wake every exchange, then ABORT
// and the recorder exchange over the control plane, at most 2 s; data keys are wiped by the threads that own
// them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sealring/base/process_mark.h"
#include "sealring/base/verdict.h"
#include "sealring/collective/config.h"
#include "sealring/control/control.h"
#include "sealring/device/bulk_cipher.h"
#include "sealring/session/handshake.h"
#include "sealring/transport/transport.h"

namespace sealring {

class SessionCore {
 public:
  static constexpr std::chrono::milliseconds kTeardownMax{2000};
  static constexpr int kExitStatus = 1;  ///< of CommConfig::exit_after

  SessionCore(CommConfig config, std::unique_ptr<Transport> transport, std::shared_ptr<BulkCipher> cipher);
  ~SessionCore();

  /// Ends the session with `error`, unless it has ended already. Returns at once.
  void die(Error error) noexcept;
  /// The first error, with its diagnosis where one was found: waits for the teardown, at most kTeardownMax.
  Error final_error();
  /// The program has ended the session in order: it is not ended as one that looks away from an error.
  void closed();
  /// FORKED in a forked child: its copy of keys and counters must never be used.
  Result<void> check_process() const;
  bool forked() const;

  /// Set once by Session::connect, before any communicator exists.
  void adopt(std::unique_ptr<SessionKeys> keys, std::vector<std::string> addresses, std::string identity);
  void adopt(std::unique_ptr<Control> control);

  /// Runs `body`, which uses `keys` and returns a Result, unless the session has died: keys are not wiped
  /// meanwhile. It must not wait for anything.
  template <class Body>
  std::invoke_result_t<Body> with_keys(Body&& body) {
    const std::lock_guard lock(keys_mutex_);
    if (verdict.dead()) return fail(*verdict.error());
    return std::forward<Body>(body)();
  }

  /// A hook runs once when the session dies, in the thread that found the error; it must not block. After
  /// remove_death_hook it neither runs nor is running.
  using HookId = std::uint64_t;
  HookId add_death_hook(std::function<void()> hook);
  void remove_death_hook(HookId id);

  GroupLinks links_for(const GroupKeys& group, std::vector<Kind> kinds) const;

  const CommConfig config;
  Verdict verdict;
  const std::unique_ptr<Transport> transport;
  const std::shared_ptr<BulkCipher> cipher;
  std::unique_ptr<SessionKeys> keys;
  std::unique_ptr<Control> control;
  std::string identity;

 private:
  void teardown_loop();

  const ProcessMark process_;
  std::vector<std::string> addresses_;
  std::mutex keys_mutex_;
  std::mutex hooks_mutex_;
  std::map<HookId, std::function<void()>> hooks_;
  HookId next_hook_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool died_ = false, torn_down_ = false, closed_ = false, stopping_ = false;
  std::thread teardown_;
};

}  // namespace sealring
