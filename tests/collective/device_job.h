// DeviceJob: a LocalJob whose ranks have a HostDevice each, and groups on them.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/collective/host_group.h"
#include "tests/collective/local_job.h"

namespace sealring::testing {

class DeviceJob {
 public:
  explicit DeviceJob(JobOptions options)
      : world_(options.world), job(std::move(options)), wire_(std::make_shared<HostWire>()) {
    for (Rank rank = 0; rank < world_; ++rank) devices_.push_back(std::make_unique<HostDevice>(wire_));
  }
  ~DeviceJob() {
    for (auto& device : devices_) device->faults.stalled = false;
    while (!groups_.empty()) {  // on all ranks at once, as a program does
      job.each([&](Rank rank) { groups_.back()[rank].reset(); });
      groups_.pop_back();
    }
  }

  std::vector<Rank> everybody() const {
    std::vector<Rank> out;
    for (Rank rank = 0; rank < world_; ++rank) out.push_back(rank);
    return out;
  }
  DevicePlace place(Rank rank) {
    DevicePlace out;
    out.wire = DeviceWireKind::local;
    out.factory = devices_[rank]->factory();
    return out;
  }
  Result<std::shared_ptr<Communicator>> split(Rank rank, const std::vector<Rank>& members, DevicePlace place,
                                              const std::string& prefix) {
    return job.session(rank).split_on_device(members, std::move(place), job.store(), prefix);
  }
  /// A group of all ranks, kept here; its index.
  std::size_t add_group() {
    EXPECT_TRUE(job.connected()) << job.first_error();
    groups_.emplace_back(world_);
    const std::size_t index = groups_.size() - 1;
    job.each([&](Rank rank) {
      auto made = split(rank, everybody(), place(rank), "device" + std::to_string(index));
      EXPECT_TRUE(made) << made.error().message();
      if (made) groups_[index][rank] = *made;
    });
    return index;
  }
  Communicator& comm(Rank rank, std::size_t index = 0) { return *groups_.at(index)[rank]; }
  HostDevice& device(Rank rank) { return *devices_[rank]; }
  HostFaults& faults(Rank rank) { return devices_[rank]->faults; }
  std::uint16_t world() const { return world_; }

 private:
  std::uint16_t world_;

 public:
  LocalJob job;

 private:
  std::shared_ptr<HostWire> wire_;
  std::vector<std::unique_ptr<HostDevice>> devices_;
  std::vector<std::vector<std::shared_ptr<Communicator>>> groups_;
};

/// Memory as a device has it, with the tensor over it.
struct Floats {
  std::vector<float> data;
  explicit Floats(std::size_t elements, float value = 1.0f) : data(elements, value) {}
  Tensor tensor() { return {data.data(), data.size(), DType::f32}; }
  bool all(float value) const {
    return std::all_of(data.begin(), data.end(), [value](float each) { return each == value; });
  }
  bool poisoned() const {
    return std::all_of(data.begin(), data.end(), [](float each) { return std::isnan(each); });
  }
};

}  // namespace sealring::testing
