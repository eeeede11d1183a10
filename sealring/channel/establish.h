// Establish: runs a handshake over a store. The only place where session messages meet I/O.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sealring/base/deadline.h"
#include "sealring/session/handshake.h"
#include "sealring/transport/store.h"
#include "sealring/transport/transport.h"

namespace sealring {

/// A finished handshake, with what the store said besides (hints, not believed).
struct Established {
  std::unique_ptr<SessionKeys> keys;
  std::vector<std::string> addresses;  ///< by rank, as each rank posted it
  std::string prefix;                  ///< of this incarnation, for cleanup()
};

/// Roster-KK for the world (protocol A.2). `address` is posted for the others' connections.
///
/// The incarnation in every key, floor((arrivals-1)/n), keeps the entries of an earlier session in the same
/// store apart; it is a hint: a wrong one ends in TIMEOUT, never in a join. Errors: 2xx..5xx, with rank and
/// peer; TIMEOUT(stage) naming the missing ranks; what another rank noted, as "reported by rank 2,
/// unauthenticated". On an error of my own a note is posted for the others.
Result<Established> establish_world(const HandshakeConfig& config, const Identity& identity, Store& store,
                                    const std::string& prefix, const std::string& address, Deadline deadline);

/// The subgroup exchange from `machine` on, of rank `me` of `world`. A prefix is for one group. Errors: as
/// above, and the machine's own.
Result<std::unique_ptr<GroupKeys>> establish_group(Result<SubgroupHandshake> machine, Rank me,
                                                   std::uint16_t world, const std::vector<Rank>& members,
                                                   Store& store, const std::string& prefix,
                                                   Deadline deadline);

/// Transport::open_group, for a group that was established below `prefix`: what another member noted there
/// ends it ("reported by rank 2, unauthenticated"), and on an error of my own a note is posted for the
/// others. Errors: open_group's, with rank.
Result<void> connect_group(Transport& transport, GroupLinks links, Store& store, const std::string& prefix,
                           std::uint16_t world, Deadline deadline);

/// Removes what this rank posted. Only after every peer has proved READY (its connections carry keys): an
/// entry that somebody still waits for must stay.
void cleanup(Store& store, const std::string& prefix, Rank rank, std::uint16_t world) noexcept;

}  // namespace sealring
