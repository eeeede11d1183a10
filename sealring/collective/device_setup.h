// Setting up a group on a device: fresh keys, offers, a probe, and one outcome for all members.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sealring/channel/device_channel.h"
#include "sealring/collective/communicator.h"
#include "sealring/collective/session_core.h"
#include "sealring/collective/setup_rounds.h"

namespace sealring {

/// What a communicator on a device is made of. Destroyed in reverse order: the device first.
struct DeviceParts {
  std::array<std::byte, 32> group_id{};
  std::vector<Rank> members;  ///< global
  DevicePlace place;          ///< with the wire that it came to
  std::unique_ptr<SetupRounds> rounds;
  std::unique_ptr<DeviceKeys> keys;
  std::unique_ptr<DeviceChannel> channel;
};

/// Collective over `members`, as Session::split_on_device. Each wire that is tried has a subgroup of its own,
/// with fresh keys. A bad tag, a malformed record or a lost round ends the session.
Result<DeviceParts> set_up_device_group(SessionCore& core, const std::vector<Rank>& members,
                                        const DevicePlace& place, Store& store, const std::string& prefix,
                                        Deadline deadline);

}  // namespace sealring
