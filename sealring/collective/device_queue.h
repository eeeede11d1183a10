// DeviceQueue: what a session has enqueued on one device, over all its groups, in the order of issue; and the
// thread that finds out how it ended.
//
// On a device ops of all groups follow one another in issue order, so two ranks that issue two groups' ops in
// different orders wait for each other for ever. The queue announces to the control plane the op alone that
// the device is at: so a rank whose op ran out of time can see that a peer is at another group's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sealring/base/deadline.h"
#include "sealring/collective/session_core.h"
#include "sealring/collective/ticket.h"
#include "sealring/control/control.h"
#include "sealring/device/device_group.h"

namespace sealring {

/// A group as the queue sees it.
struct WatchedGroup {
  WatchedGroup(DeviceGroup& the_device, std::array<std::byte, 32> the_id, std::vector<Rank> the_members)
      : device(the_device), id(the_id), members(std::move(the_members)) {}
  DeviceGroup& device;  ///< alive until remove()
  const std::array<std::byte, 32> id;
  const std::vector<Rank> members;    ///< global
  std::atomic<std::uint64_t> ops{0};  ///< tickets that are done
  std::atomic<bool> captured{false};  ///< graphs may replay ops that no ticket stands for
  // Of the queue's thread:
  std::uint64_t finished = 0;               ///< the last serial that has ended
  Clock::time_point looked = Clock::now();  ///< at the verdict
};

/// An op that has been enqueued and whose end has not been seen.
struct QueuedOp {
  std::shared_ptr<WatchedGroup> group;
  std::uint64_t serial = 0;  ///< 0: nothing of it is on the device, and the session is dead
  OpContext context;
  std::chrono::nanoseconds timeout{};
  std::shared_ptr<TicketState> ticket;
  bool announced = false;
  Clock::time_point pushed = Clock::now();
  std::optional<Clock::time_point> front_since;  ///< its turn on the device
};
using QueuedOps = std::list<QueuedOp>;

/// Thread-safe. One a session and device.
class DeviceQueue {
 public:
  /// Beyond its timeout, for what the device itself finds out first.
  static constexpr std::chrono::milliseconds kGrace{1000};
  static constexpr std::chrono::milliseconds kVerdictPeriod{100};

  explicit DeviceQueue(std::shared_ptr<SessionCore> core);
  ~DeviceQueue();
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  void add(std::shared_ptr<WatchedGroup> group);
  /// Afterwards the group's device is not used from here. Nothing of it may be queued.
  void remove(const WatchedGroup& group);
  /// Held from the first call that enqueues an op until push(): so the order here is the device's.
  std::unique_lock<std::mutex> order() { return std::unique_lock(order_); }
  /// Appends the op that was made ready before it was enqueued: nothing can fail any more.
  void push(QueuedOps one) noexcept;
  /// Waits until nothing of the group is queued; false when the deadline passed first.
  bool drain(const WatchedGroup& group, Deadline deadline);
  /// Looks soon, also while nothing is queued. Does not block.
  void wake();

 private:
  void run();
  /// Takes out what has ended; on an error ends the session.
  void look(QueuedOps& done);
  void ended(QueuedOps& done);
  Result<void> ask(WatchedGroup& group, Clock::time_point now);
  /// The op that the device is at, announced; null when there is none.
  QueuedOp* front(Clock::time_point now);
  void watch_front(Clock::time_point now);
  /// After the death: takes out what the device has left, or was given time to leave.
  void left_over(Clock::time_point now, QueuedOps& done);
  void complete(QueuedOps done);
  /// Under mutex_, or where the op is in no other's hands.
  void announce(QueuedOp& op);
  bool idle_watch() const;
  /// Under mutex_.
  bool awaited() const;
  /// `error` as this session's: what it was at; LAUNCH_ORDER where that is why nothing moved.
  void die(Error error, const WatchedGroup& group);
  std::string crossed(const QueuedOp& op) const;

  const std::shared_ptr<SessionCore> core_;
  std::mutex order_;
  std::mutex round_;  ///< held while groups' devices are asked
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<WatchedGroup>> groups_;
  QueuedOps ops_;
  bool completing_ = false, stopping_ = false, woken_ = false;
  std::optional<Clock::time_point> death_seen_;
  std::thread thread_;
};

}  // namespace sealring
