#include "sealring/collective/device_queue.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "sealring/base/boundary.h"
#include "sealring/base/bytes.h"

namespace sealring {
namespace {

using std::chrono::microseconds;

/// Between two looks while ops are queued: a look takes turns with the launches of the thread that enqueues.
constexpr microseconds kPauseMin{100}, kPauseMax{1000};
/// The same while a thread waits for one of them.
constexpr microseconds kAwaitedMin{20}, kAwaitedMax{200};

std::string name_of(const std::array<std::byte, 32>& group) {
  return "group " + to_hex(ByteView(group).first(4));
}

}  // namespace

DeviceQueue::DeviceQueue(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {
  thread_ = std::thread([this] { run(); });
  (void)pthread_setname_np(thread_.native_handle(), "sr-device");
}

DeviceQueue::~DeviceQueue() {
  if (core_->forked()) {  // the thread lives in the parent
    thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DeviceQueue::add(std::shared_ptr<WatchedGroup> group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::move(group));
}

void DeviceQueue::remove(const WatchedGroup& group) {
  const std::lock_guard round(round_);
  const std::lock_guard lock(mutex_);
  SR_CHECK(std::none_of(ops_.begin(), ops_.end(), [&](const auto& op) { return op.group.get() == &group; }));
  std::erase_if(groups_, [&](const auto& each) { return each.get() == &group; });
}

void DeviceQueue::push(QueuedOps one) noexcept {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    ops_.splice(ops_.end(), one);
    first = ops_.size() == 1;
    if (first) announce(ops_.front());  // at once: a peer may fail by it before the thread looks
  }
  if (first) changed_.notify_all();
}

void DeviceQueue::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

bool DeviceQueue::drain(const WatchedGroup& group, Deadline deadline) {
  const auto empty = [&] {
    return !completing_ &&
           std::none_of(ops_.begin(), ops_.end(), [&](const auto& op) { return op.group.get() == &group; });
  };
  std::unique_lock lock(mutex_);
  while (!empty()) {
    if (deadline.expired()) return false;
    changed_.wait_for(lock, deadline.left());
  }
  return true;
}

bool DeviceQueue::idle_watch() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group->captured.load(); });
}

void DeviceQueue::run() {
  microseconds pause = kPauseMin;
  std::unique_lock lock(mutex_);
  while (!stopping_ || !ops_.empty()) {
    const bool dead = core_->verdict.dead();
    const auto awake = [this] { return stopping_ || woken_ || !ops_.empty(); };
    if (ops_.empty() && (dead || !idle_watch())) {
      changed_.wait(lock, awake);
    } else if (ops_.empty()) {
      changed_.wait_for(lock, kVerdictPeriod, awake);
    }
    woken_ = false;
    lock.unlock();
    QueuedOps done;
    auto looked = without_exceptions("device.queue", [&]() -> Result<void> {
      look(done);
      return {};
    });
    if (!looked) core_->die(std::move(looked).error());
    pause = done.empty() ? std::min(pause * 2, kPauseMax) : microseconds{0};
    if (!done.empty()) complete(std::move(done));
    lock.lock();
    if (std::exchange(completing_, false)) changed_.notify_all();
    if (ops_.empty()) continue;
    pause = awaited() ? std::clamp(pause, kAwaitedMin, kAwaitedMax) : std::max(pause, kPauseMin);
    changed_.wait_for(lock, pause, [this] { return stopping_ || woken_; });
  }
}

bool DeviceQueue::awaited() const {
  return std::any_of(ops_.begin(), ops_.end(), [](const QueuedOp& op) { return op.ticket->awaited.load(); });
}

void DeviceQueue::look(QueuedOps& done) {
  const std::lock_guard round(round_);
  const auto now = Clock::now();
  if (core_->verdict.dead()) return left_over(now, done);
  (void)front(now);  // told before its end: a diagnosis needs what this rank had called
  std::vector<std::shared_ptr<WatchedGroup>> groups;
  {
    const std::lock_guard lock(mutex_);
    groups = groups_;
  }
  for (const auto& group : groups) {
    if (auto asked = ask(*group, now); !asked) return die(std::move(asked).error(), *group);
  }
  ended(done);
  watch_front(now);
}

/// A verdict that was asked for after an op had ended vouches for that op.
Result<void> DeviceQueue::ask(WatchedGroup& group, Clock::time_point now) {
  SR_TRY(const DeviceProgress progress, group.device.progress());
  if (progress.finished == group.finished && now - group.looked < kVerdictPeriod) return {};
  SR_TRY(group.device.verdict());
  group.looked = now;
  group.finished = progress.finished;
  return {};
}

void DeviceQueue::ended(QueuedOps& done) {
  const std::lock_guard lock(mutex_);
  for (auto op = ops_.begin(); op != ops_.end();) {
    const auto next = std::next(op);
    if (op->serial <= op->group->finished) done.splice(done.end(), ops_, op);
    op = next;
  }
  completing_ = !done.empty();
}

QueuedOp* DeviceQueue::front(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (ops_.empty()) return nullptr;
  QueuedOp& front = ops_.front();
  if (!front.front_since) front.front_since = now;
  announce(front);
  return &front;  // only this thread takes it out
}

void DeviceQueue::watch_front(Clock::time_point now) {
  const QueuedOp* const op = front(now);
  if (op == nullptr) return;
  const auto waited = now - *op->front_since;
  if (waited < op->timeout + kGrace) return;
  Error error;
  error.code = Code::timeout;
  error.stage = "device.op";
  error.what =
      fmt::format("the device made no progress for {:.1f} s", std::chrono::duration<double>(waited).count());
  die(std::move(error), *op->group);
}

void DeviceQueue::announce(QueuedOp& op) {
  // As on CPUs, point-to-point numbers would mean something else on every rank.
  if (op.announced || op.context.op == Op::send || op.group->members.size() == 1) return;
  op.announced = true;
  core_->control->op_started(op.context, op.group->members);
}

void DeviceQueue::left_over(Clock::time_point now, QueuedOps& done) {
  if (!death_seen_) death_seen_ = now;
  const std::lock_guard lock(mutex_);
  for (auto op = ops_.begin(); op != ops_.end();) {
    const auto next = std::next(op);
    WatchedGroup& group = *op->group;
    const auto progress = op->serial == 0 ? DeviceProgress{} : group.device.progress();
    const bool over = !progress || progress->finished >= op->serial;
    // What has ended under a clean verdict is exact, whatever ended the session.
    if (over && progress && op->serial > group.finished && group.device.verdict()) {
      group.finished = std::max(group.finished, progress->finished);
    }
    if (over || now > std::max(*death_seen_, op->pushed) + SessionCore::kTeardownMax) {
      done.splice(done.end(), ops_, op);
    }
    op = next;
  }
  completing_ = !done.empty();
}

void DeviceQueue::complete(QueuedOps done) {
  for (QueuedOp& op : done) {
    const bool good = op.serial != 0 && op.serial <= op.group->finished;
    if (good) announce(op);
    if (op.announced) core_->control->op_finished(op.context.group_id, op.context.seq, good);
    op.group->ops.fetch_add(1, std::memory_order_relaxed);
    op.ticket->complete(good ? Result<void>() : fail(core_->final_error()));
  }
}

void DeviceQueue::die(Error error, const WatchedGroup& group) {
  const QueuedOp* at = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (const QueuedOp& op : ops_) {
      if (op.group.get() != &group) continue;
      at = &op;
      break;
    }
  }
  if (error.stage.empty()) error.stage = "device.op";
  std::string where = name_of(group.id);
  if (at != nullptr) {
    where = fmt::format("operation {} ({}) of {}", at->context.seq, at->context.describe(), where);
  } else if (group.captured) {
    where = "a replayed operation of " + where;
  }
  error.what = error.what.empty() ? where : fmt::format("{}: {}", where, error.what);
  if (error.code == Code::timeout && at != nullptr) {
    if (const std::string other = crossed(*at); !other.empty()) {
      error.code = Code::launch_order;
      error.what = fmt::format("{}; {}", error.what, other);
    }
  }
  core_->die(std::move(error));
}

/// gpu rule 10: the order of issue over all communicators of a device is the same on all ranks. It is not
/// where a peer has begun an op that waits here behind `op`, and has not begun `op`.
std::string DeviceQueue::crossed(const QueuedOp& op) const {
  if (op.context.op == Op::send || op.group->members.size() == 1) return {};
  const std::lock_guard lock(mutex_);
  for (const QueuedOp& later : ops_) {
    if (later.pushed < op.pushed || later.group == op.group || later.context.op == Op::send) continue;
    for (const Rank peer : later.group->members) {
      const auto& both = op.group->members;
      if (peer == core_->config.rank || !std::binary_search(both.begin(), both.end(), peer)) continue;
      const auto there = core_->control->last_heard(later.group->id, peer);
      const auto here = core_->control->last_heard(op.group->id, peer);
      if (!there || *there < later.context.seq || (here && *here >= op.context.seq)) continue;
      return fmt::format("rank {} has begun operation {} ({}) of {}, which waits behind it here", peer,
                         later.context.seq, later.context.describe(), name_of(later.group->id));
    }
  }
  return {};
}

}  // namespace sealring
