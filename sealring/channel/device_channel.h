// DeviceChannel: one group's sealed exchange between devices, as Channel is between CPUs.
//
// Session keys and a DeviceGroup meet here: pair chains go in as KeySources, moves as sends and receives of
// device memory. Numbers, epochs and the verdict are the device's own [protocol A.3, "On CUDA"]; nothing here
// waits for it.
#pragma once

#include <memory>
#include <vector>

#include "sealring/base/stream.h"
#include "sealring/channel/exchange.h"
#include "sealring/device/device_group.h"
#include "sealring/session/keys.h"

namespace sealring {

/// The pair chains of a group, lent to a device and erased from here. Thread-safe.
class DeviceKeys {
 public:
  /// Takes the pair chains of `keys`.
  explicit DeviceKeys(GroupKeys& keys);
  ~DeviceKeys() { wipe(); }
  DeviceKeys(DeviceKeys&&) noexcept = default;
  DeviceKeys& operator=(DeviceKeys&&) noexcept = default;

  /// What make_cuda_group takes. Once.
  DeviceGroupKeys sources() const;
  /// Erases the chains, also while a device takes keys from them: what it takes later is random, so that
  /// nothing sealed with it can be opened by anybody, nor any record accepted.
  void wipe() noexcept;

 private:
  class Chain;
  class Source;
  std::vector<std::shared_ptr<Chain>> to_, from_;  ///< by group rank; mine is null
};

/// Ops are enqueued by one thread at a time. Between begin() and end() lies one op, on the stream that was
/// set before; an error in between ends nothing: the caller aborts the group and calls end() all the same.
class DeviceChannel final : public Exchange {
 public:
  /// `group` is connected, or will be before the first begin(). `rank`: mine in the group of `size`.
  DeviceChannel(std::unique_ptr<DeviceGroup> group, Rank rank, std::uint16_t size);

  Rank rank() const override { return rank_; }
  std::uint16_t size() const override { return size_; }
  /// A nominal number for the executor's totals: a device cuts records by a rule of its own, and counts them.
  std::uint32_t segment_bytes() const override { return 64 * 1024; }

  /// Of the ops that begin from here on. Not owned.
  void set_stream(Stream stream) { stream_ = stream; }
  /// Errors: those of DeviceGroup::begin; no op has begun then.
  Result<void> begin(const OpInfo& op, const OpTotals& totals) override;
  /// Enqueues. `deadline` is not looked at: the device has the group's timeout.
  Result<void> exchange(std::span<const OutgoingMove> out, std::span<const IncomingMove> in, StepRules rules,
                        Deadline deadline) override;
  Result<std::byte*> scratch(std::uint64_t bytes) override;
  Result<void> copy(DType dtype, const std::byte* from, std::byte* to, std::uint64_t elements,
                    double scale) override;
  bool in_op() const { return in_op_; }
  /// As DeviceGroup::end.
  Result<std::uint64_t> end(DType dtype, std::span<std::byte> output);

  DeviceGroup& group() { return *group_; }
  const DeviceGroup& group() const { return *group_; }

 private:
  std::unique_ptr<DeviceGroup> group_;
  Rank rank_;
  std::uint16_t size_;
  Stream stream_;
  bool in_op_ = false;
};

}  // namespace sealring
