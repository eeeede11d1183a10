// TicketState: the shared state behind a Ticket.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "sealring/collective/communicator.h"

namespace sealring {

/// Completed exactly once. Callbacks run in the completing thread, outside the lock.
struct TicketState {
  std::mutex mutex;
  std::atomic<bool> awaited = false;  ///< a thread waits for it, or has
  std::condition_variable changed;
  std::optional<Result<void>> verdict;
  std::vector<std::function<void(const Result<void>&)>> callbacks;

  void complete(Result<void> result);
  static Ticket ticket_of(std::shared_ptr<TicketState> state);
};

}  // namespace sealring
