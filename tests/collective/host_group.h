// HostGroup: a whole DeviceGroup in host memory. Ranks are threads of one process; each has a HostDevice,
// whose worker runs what was enqueued by all of the rank's groups, one op after the other, as a device does.
//
//   rank 0: HostDevice --- HostWire --- HostDevice :rank 1
//
// Records are sealed and opened by crypto/aead.h with the keys, contexts and numbers of the protocol; the
// wire holds any amount. Harm is done where HostFaults says so.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "sealring/collective/communicator.h"

namespace sealring::testing {

/// What lies between the devices of a job. Thread-safe.
class HostWire {
 public:
  using Path = std::tuple<std::array<std::byte, 32>, Rank, Rank>;  ///< group, from, to (global)
  void push(const Path& path, Bytes piece);
  /// nullopt when `until` passed or `left()` came true first.
  std::optional<Bytes> pop(const Path& path, Deadline until, const std::function<bool()>& left);
  void wake();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Path, std::deque<Bytes>> pieces_;
};

/// Of one rank's device. May be set at any time.
struct HostFaults {
  std::atomic<int> flip_in{-1};        ///< flips a bit of the segment that is sealed after so many others
  std::atomic<bool> stalled{false};    ///< the device works on nothing
  std::atomic<int> delay_us{0};        ///< before each op
  std::atomic<bool> bad_offer{false};  ///< offers what no build makes
  std::atomic<bool> refuse_exchange{false};  ///< enqueueing fails
  std::set<DeviceWireKind> unmappable;       ///< connect() fails
  std::set<DeviceWireKind> lossy;            ///< nothing that is sent arrives
};

/// What Stream::native points to. While `captured`, work is kept instead of run.
struct HostStream {
  bool captured = false;
  std::vector<std::function<void()>> graph;
};

class HostDevice {
 public:
  explicit HostDevice(std::shared_ptr<HostWire> wire);
  ~HostDevice();
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  void enqueue(std::function<void()> work);
  void replay(const HostStream& stream);
  /// Waits until everything enqueued so far has run.
  void drain();
  /// Makes groups on this device; it outlives them.
  DeviceGroupFactory factory();
  HostWire& wire() { return *wire_; }
  /// The groups that were made, in order; null where one has ended.
  DeviceGroup* group(std::size_t index);
  std::vector<DeviceWireKind> wires_made();
  /// Of its groups: how many were told to abort.
  int aborts() const { return aborts_; }

  HostFaults faults;

 private:
  friend class HostGroup;
  void run();

  std::shared_ptr<HostWire> wire_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool running_ = false, stopping_ = false;
  std::vector<DeviceGroup*> groups_;
  std::vector<DeviceWireKind> wires_;
  std::atomic<int> aborts_{0};
  std::thread worker_;
};

}  // namespace sealring::testing
