#include "sealring/collective/session_core.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "sealring/base/log.h"

namespace sealring {

SessionCore::SessionCore(CommConfig the_config, std::unique_ptr<Transport> the_transport,
                         std::shared_ptr<BulkCipher> the_cipher)
    : config(std::move(the_config)), transport(std::move(the_transport)), cipher(std::move(the_cipher)) {
  verdict.on_death([this](const Error&) {
    transport->abort();
    {
      const std::lock_guard lock(hooks_mutex_);
      for (const auto& [id, hook] : hooks_) hook();
      hooks_.clear();
    }
    const std::lock_guard lock(mutex_);
    died_ = true;
    changed_.notify_all();
  });
  teardown_ = std::thread([this] { teardown_loop(); });
}

SessionCore::~SessionCore() {
  if (forked()) {
    teardown_.detach();
    (void)control.release();  // its thread lives in the parent
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  teardown_.join();
  control.reset();
}

void SessionCore::teardown_loop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return died_ || stopping_; });
  if (!died_) return;
  Control* const speaks = control.get();  // adopted under the same lock, and kept until this thread has ended
  lock.unlock();
  if (speaks != nullptr) speaks->announce_death(*verdict.error(), Deadline::in(kTeardownMax));
  {
    const std::lock_guard keys_lock(keys_mutex_);
    if (keys) keys->wipe();
  }
  log(LogLevel::error, "session ended", {{"error", verdict.error()->message()}});
  lock.lock();
  torn_down_ = true;
  changed_.notify_all();
  if (!config.exit_after) return;
  const auto over = [this] { return closed_ || stopping_; };
  if (changed_.wait_for(lock, *config.exit_after, over)) return;
  log(LogLevel::error, "process ended",
      {{"reason", "its session has ended, and the program neither closed it nor ended by itself"},
       {"exit_status", std::to_string(kExitStatus)}});
  std::_Exit(kExitStatus);
}

void SessionCore::die(Error error) noexcept {
  if (error.rank < 0) error.rank = config.rank;
  (void)verdict.set(std::move(error));
}

Error SessionCore::final_error() {
  SR_CHECK(verdict.dead());
  std::unique_lock lock(mutex_);
  (void)changed_.wait_for(lock, kTeardownMax, [this] { return torn_down_ || stopping_; });
  return *verdict.error();
}

bool SessionCore::forked() const { return process_.forked(); }

void SessionCore::closed() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

Result<void> SessionCore::check_process() const {
  if (!forked()) return {};
  return fail(Code::forked, "session.process", "this process is a fork of the one that made the session");
}

void SessionCore::adopt(std::unique_ptr<SessionKeys> the_keys, std::vector<std::string> addresses,
                        std::string the_identity) {
  const std::lock_guard lock(keys_mutex_);
  keys = std::move(the_keys);
  addresses_ = std::move(addresses);
  identity = std::move(the_identity);
}

void SessionCore::adopt(std::unique_ptr<Control> the_control) {
  const std::lock_guard lock(mutex_);
  control = std::move(the_control);
}

SessionCore::HookId SessionCore::add_death_hook(std::function<void()> hook) {
  const std::lock_guard lock(hooks_mutex_);
  hooks_.emplace(next_hook_, std::move(hook));
  return next_hook_++;
}

void SessionCore::remove_death_hook(HookId id) {
  const std::lock_guard lock(hooks_mutex_);
  hooks_.erase(id);
}

GroupLinks SessionCore::links_for(const GroupKeys& group, std::vector<Kind> kinds) const {
  GroupLinks links;
  links.me = group.me();
  std::memcpy(links.group.data(), group.group_id().data(), links.group.size());
  for (const Rank peer : group.members()) {
    if (peer == group.me()) continue;
    links.peers.push_back({peer, group.connection_mac(group.me(), peer),
                           group.connection_mac(peer, group.me()), addresses_[peer]});
  }
  links.kinds = std::move(kinds);
  return links;
}

}  // namespace sealring
