#include "sealring/base/verdict.h"

#include <utility>

namespace sealring {

bool Verdict::set(Error error) {
  std::vector<std::function<void(const Error&)>> callbacks;
  Error first;
  {
    const std::lock_guard lock(mutex_);
    if (error_) return false;
    error_ = std::move(error);
    first = *error_;
    callbacks.swap(callbacks_);
    dead_.store(true, std::memory_order_release);
  }
  for (const auto& callback : callbacks) callback(first);
  return true;
}

std::optional<Error> Verdict::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Verdict::set_diagnosis(std::string line) {
  const std::lock_guard lock(mutex_);
  if (error_ && error_->diagnosis.empty()) error_->diagnosis = std::move(line);
}

void Verdict::on_death(std::function<void(const Error&)> callback) {
  Error first;
  {
    const std::lock_guard lock(mutex_);
    if (!error_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
    first = *error_;
  }
  callback(first);
}

}  // namespace sealring
