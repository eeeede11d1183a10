#include "sealring/transport/interface.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "sealring/base/log.h"

namespace sealring {
namespace {

constexpr const char* kStage = "transport.interface";

/// "eth0 (10.0.0.2), lo (127.0.0.1)".
std::string name_candidates(std::span<const InterfaceAddress> candidates) {
  std::string text;
  for (const InterfaceAddress& candidate : candidates) {
    text += (text.empty() ? "" : ", ") + candidate.name + " (" + candidate.address.host() + ")";
  }
  return text.empty() ? "none" : text;
}

tl::unexpected<Error> no_interface(const std::string& what, std::span<const InterfaceAddress> candidates) {
  return fail(Code::interface_name, kStage, what + "; candidates: " + name_candidates(candidates));
}

struct Wish {
  bool exclude = false, exact = false;
  std::vector<std::string> names;

  bool fits(const std::string& interface, const std::string& name) const {
    return exact ? interface == name : interface.starts_with(name);
  }
};

/// nullopt for a list with an empty name or a sign in the wrong place.
std::optional<Wish> parse_wish(std::string_view text) {
  Wish wish;
  if (text.starts_with('^')) {
    wish.exclude = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    wish.exact = true;
    text.remove_prefix(1);
  }
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string name(text.substr(0, comma));
    if (name.empty() || name.find_first_of("^= \t") != std::string::npos) return std::nullopt;
    wish.names.push_back(name);
    if (comma == std::string_view::npos) return wish;
    text.remove_prefix(comma + 1);
  }
}

/// Those that fit, in the order of the wish's names.
std::vector<InterfaceAddress> filter(const Wish& wish, std::span<const InterfaceAddress> candidates) {
  std::vector<InterfaceAddress> out;
  if (wish.exclude) {
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(out),
                 [&](const InterfaceAddress& candidate) {
                   return std::none_of(wish.names.begin(), wish.names.end(), [&](const std::string& name) {
                     return wish.fits(candidate.name, name);
                   });
                 });
    return out;
  }
  for (const std::string& name : wish.names) {
    for (const InterfaceAddress& candidate : candidates) {
      const bool taken = std::any_of(out.begin(), out.end(), [&](const InterfaceAddress& other) {
        return other.name == candidate.name && other.address.host() == candidate.address.host();
      });
      if (!taken && wish.fits(candidate.name, name)) out.push_back(candidate);
    }
  }
  return out;
}

const InterfaceAddress* find_host(std::span<const InterfaceAddress> candidates, const std::string& host) {
  const auto found =
      std::find_if(candidates.begin(), candidates.end(),
                   [&](const InterfaceAddress& candidate) { return candidate.address.host() == host; });
  return found == candidates.end() ? nullptr : &*found;
}

const InterfaceAddress* find_loopback(std::span<const InterfaceAddress> candidates, bool loopback) {
  const auto found = std::find_if(
      candidates.begin(), candidates.end(),
      [&](const InterfaceAddress& candidate) { return candidate.address.loopback() == loopback; });
  return found == candidates.end() ? nullptr : &*found;
}

}  // namespace

Result<std::vector<InterfaceAddress>> list_interfaces() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) {
    return fail(socket_error(errno, Code::interface_name, kStage, "listing the network interfaces"));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
  std::vector<InterfaceAddress> out;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family || (at->ifa_flags & IFF_UP) == 0)
        continue;
      InterfaceAddress candidate;
      candidate.name = at->ifa_name;
      candidate.address.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&candidate.address.storage, at->ifa_addr, candidate.address.bytes);
      if (family == AF_INET6) {
        // A link-local address means nothing without a zone that only this machine knows.
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(candidate.address.storage);
        if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) continue;
      }
      out.push_back(std::move(candidate));
    }
  }
  return out;
}

Reach find_reach(const std::string& host) {
  Reach reach;
  if (host.empty()) return reach;
  const auto addresses = resolve(host, 9, false, Code::interface_name, kStage);
  if (!addresses) return reach;
  reach.known = true;
  const auto literal = resolve(host, 9, true, Code::interface_name, kStage);
  reach.means_loopback = host == "localhost" || (literal && literal->front().loopback());
  for (const SocketAddress& address : *addresses) {
    // Connecting a datagram socket sends nothing; it makes the system choose the way.
    const Fd fd(::socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd.valid()) continue;
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0)
      continue;
    const SocketAddress source = local_address(fd);
    if (source.loopback() && !reach.means_loopback) continue;
    reach.source_host = source.host();
    return reach;
  }
  return reach;
}

Result<InterfaceAddress> choose_interface(const std::string& wish_text,
                                          std::span<const InterfaceAddress> candidates, const Reach& reach) {
  if (!wish_text.empty()) {
    if (const auto literal = resolve(wish_text, 0, true, Code::interface_name, kStage)) {
      if (const auto* found = find_host(candidates, literal->front().host())) return *found;
      return no_interface("no interface has the address " + wish_text, candidates);
    }
    const std::optional<Wish> wish = parse_wish(wish_text);
    if (!wish) return no_interface("\"" + wish_text + "\" is not a list of interface names", candidates);
    const std::vector<InterfaceAddress> fitting = filter(*wish, candidates);
    if (fitting.empty()) return no_interface("no interface fits \"" + wish_text + "\"", candidates);
    if (!wish->exclude) {
      const auto* routed = find_host(fitting, reach.source_host);
      return routed != nullptr ? *routed : fitting.front();
    }
    return choose_interface("", fitting, reach);
  }
  if (candidates.empty()) return no_interface("there is no network interface", candidates);
  if (reach.means_loopback) {
    if (const auto* found = find_host(candidates, reach.source_host)) return *found;
    if (const auto* found = find_loopback(candidates, true)) return *found;
  }
  if (const auto* found = find_host(candidates, reach.source_host)) return *found;
  if (const auto* found = find_loopback(candidates, false)) return *found;
  return candidates.front();
}

}  // namespace sealring
