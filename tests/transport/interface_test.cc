// Claim: SEALRING_SOCKET_IFNAME chooses the interface it says, and loopback only where that is right.
// How: a table of wishes over invented interfaces; the real machine's list must fit its own addresses.
#include "sealring/transport/interface.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sealring {
namespace {

InterfaceAddress made(const std::string& name, const std::string& host) {
  return {name, resolve(host, 0, true, Code::interface_name, "test")->front()};
}

const std::vector<InterfaceAddress>& machine() {
  static const std::vector<InterfaceAddress> all = {made("lo", "127.0.0.1"),       made("eth0", "10.0.0.2"),
                                                    made("eth1", "10.1.0.2"),      made("ib0", "192.168.7.1"),
                                                    made("docker0", "172.17.0.1"), made("lo", "::1"),
                                                    made("eth0", "fd00::2")};
  return all;
}

Reach routed(const std::string& source) { return {true, false, source}; }
const Reach kUnknown{};
const Reach kLocal{true, true, "127.0.0.1"};
const Reach kLocalV6{true, true, "::1"};

struct Case {
  const char* wish;
  Reach reach;
  const char* host;  ///< chosen address; "" for INTERFACE_NAME
};

TEST(Interface, GrammarTable) {
  const Case cases[] = {
      {"", kUnknown, "10.0.0.2"},
      {"", kLocal, "127.0.0.1"},
      {"", kLocalV6, "::1"},
      {"", routed("192.168.7.1"), "192.168.7.1"},
      {"", routed("fd00::2"), "fd00::2"},
      {"", routed(""), "10.0.0.2"},
      {"eth", kUnknown, "10.0.0.2"},
      {"eth", routed("10.1.0.2"), "10.1.0.2"},
      {"eth", routed("192.168.7.1"), "10.0.0.2"},
      {"ib,eth", kUnknown, "192.168.7.1"},
      {"eth1,ib", kUnknown, "10.1.0.2"},
      {"wlan,ib", kUnknown, "192.168.7.1"},
      {"=eth1", kUnknown, "10.1.0.2"},
      {"=eth1,ib0", routed("192.168.7.1"), "192.168.7.1"},
      {"=eth", kUnknown, ""},
      {"eth0", routed("fd00::2"), "fd00::2"},
      {"^lo,eth", kUnknown, "192.168.7.1"},
      {"^eth,ib,docker", kUnknown, "127.0.0.1"},
      {"^eth0", routed("10.0.0.2"), "10.1.0.2"},
      {"^=eth0", routed("10.1.0.2"), "10.1.0.2"},
      {"^lo,docker", kLocal, "10.0.0.2"},
      {"^lo,eth,ib,docker", kUnknown, ""},
      {"lo", kUnknown, "127.0.0.1"},
      {"10.1.0.2", kLocal, "10.1.0.2"},
      {"fd00::2", kUnknown, "fd00::2"},
      {"10.9.9.9", kUnknown, ""},
      {"wlan0", kUnknown, ""},
      {"eth0,,ib", kUnknown, ""},
      {",", kUnknown, ""},
      {"^", kUnknown, ""},
      {"=", kUnknown, ""},
      {"=^eth0", kUnknown, ""},
      {"eth0 ,ib", kUnknown, ""},
  };
  for (const Case& test : cases) {
    const auto chosen = choose_interface(test.wish, machine(), test.reach);
    if (std::string_view(test.host).empty()) {
      ASSERT_FALSE(chosen.has_value()) << test.wish;
      EXPECT_EQ(chosen.error().code, Code::interface_name);
      EXPECT_NE(chosen.error().what.find("eth0 (10.0.0.2)"), std::string::npos) << chosen.error().what;
      continue;
    }
    ASSERT_TRUE(chosen.has_value()) << test.wish << ": " << chosen.error().message();
    EXPECT_EQ(chosen->address.host(), test.host) << test.wish;
  }
}

TEST(Interface, AMachineWithoutInterfacesIsAnError) {
  EXPECT_EQ(choose_interface("", {}, kUnknown).error().code, Code::interface_name);
}

TEST(Interface, OnlyLoopbackIsUsedWhenThereIsNothingElse) {
  const std::vector<InterfaceAddress> lone = {made("lo", "127.0.0.1")};
  EXPECT_EQ(choose_interface("", lone, kUnknown)->address.host(), "127.0.0.1");
}

TEST(Interface, ListsThisMachineWithLoopback) {
  const auto all = list_interfaces();
  ASSERT_TRUE(all.has_value());
  EXPECT_TRUE(std::any_of(all->begin(), all->end(),
                          [](const auto& one) { return one.address.host() == "127.0.0.1"; }));
}

TEST(Interface, ReachKnowsLoopbackWords) {
  for (const char* host : {"localhost", "127.0.0.1", "127.9.9.9", "::1"}) {
    const Reach reach = find_reach(host);
    EXPECT_TRUE(reach.known && reach.means_loopback) << host;
  }
  EXPECT_FALSE(find_reach("").known);
  EXPECT_FALSE(find_reach("no-such-host.invalid").known);
  const Reach outside = find_reach("192.0.2.77");  // a documentation address: routed like any, never ours
  EXPECT_TRUE(outside.known);
  EXPECT_FALSE(outside.means_loopback);
}

TEST(SocketAddress, ParsesOnlyNumericHostAndPort) {
  EXPECT_EQ(parse_address("10.0.0.2:29600")->text(), "10.0.0.2:29600");
  EXPECT_EQ(parse_address("[fd00::2]:1")->text(), "[fd00::2]:1");
  for (const char* bad :
       {"", ":", "10.0.0.2", "10.0.0.2:", ":80", "10.0.0.2:0", "10.0.0.2:65536", "10.0.0.2:8x",
        "localhost:80", "fd00::2:80", "[fd00::2]", "[]:80", "[fd00::2:80", "10.0.0.2:-1", "a b:80"}) {
    const auto result = parse_address(bad);
    ASSERT_FALSE(result.has_value()) << bad;
    EXPECT_EQ(result.error().code, Code::invalid_argument) << bad;
  }
  EXPECT_FALSE(parse_address(std::string(200, '1') + ":80").has_value());
}

}  // namespace
}  // namespace sealring
