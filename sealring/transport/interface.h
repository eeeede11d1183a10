// Which interface a rank listens on: SEALRING_SOCKET_IFNAME's grammar, or the way to the rendezvous host.
//
//   "eth,ib"      interfaces whose names begin with eth or ib, in this order of preference
//   "=eth0,ib1"   exactly these names
//   "^lo,docker"  any but those whose names begin so; "^=lo": any but exactly this
//   "10.0.0.2", "fd00::2"   the interface that has this address
// Without a wish: loopback when the rendezvous host is this machine's loopback; else the address from which
// the system reaches that host; else the first interface that is not loopback.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sealring/transport/socket.h"

namespace sealring {

struct InterfaceAddress {
  std::string name;
  SocketAddress address;  ///< port 0
};

/// What is known of the rendezvous host.
struct Reach {
  bool known = false;           ///< a host was given and could be resolved
  bool means_loopback = false;  ///< "localhost", 127.x, ::1 by the user's own words
  std::string source_host;      ///< the local address that routes to it; empty: no route
};

/// Addresses of all interfaces that are up; IPv4 before IPv6 within an interface, no link-local IPv6.
Result<std::vector<InterfaceAddress>> list_interfaces();
/// Never fails: an unknown host gives known == false.
Reach find_reach(const std::string& host);
/// Chooses by the grammar above. Errors: INTERFACE_NAME with the candidates.
Result<InterfaceAddress> choose_interface(const std::string& wish,
                                          std::span<const InterfaceAddress> candidates, const Reach& reach);

}  // namespace sealring
