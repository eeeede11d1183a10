#include "sealring/collective/ticket.h"

#include <utility>

namespace sealring {

void TicketState::complete(Result<void> result) {
  std::vector<std::function<void(const Result<void>&)>> waiting;
  {
    const std::lock_guard lock(mutex);
    SR_CHECK(!verdict, "an operation completed twice");
    verdict = std::move(result);
    waiting.swap(callbacks);
  }
  changed.notify_all();
  for (const auto& callback : waiting) callback(*verdict);  // never changes again: no lock needed
}

Ticket TicketState::ticket_of(std::shared_ptr<TicketState> state) {
  Ticket ticket;
  ticket.state_ = std::move(state);
  return ticket;
}

Result<void> Ticket::wait(Deadline deadline) const {
  state_->awaited = true;
  std::unique_lock lock(state_->mutex);
  while (!state_->verdict) {
    if (state_->changed.wait_for(lock, deadline.left()) == std::cv_status::timeout && deadline.expired()) {
      return fail(Code::timeout, "ticket.wait", "the operation is not done yet; it goes on",
                  "wait longer, or set the communicator's timeout");
    }
  }
  return *state_->verdict;
}

bool Ticket::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->verdict.has_value();
}

void Ticket::on_done(std::function<void(const Result<void>&)> callback) const {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->verdict) {
      state_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback(*state_->verdict);
}

}  // namespace sealring
