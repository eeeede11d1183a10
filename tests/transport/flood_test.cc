// Claim: thousands of idle connections delay ranks by a few seconds and keep none out; many live ones
// neither. How: one process opens 6000 sockets to a rank's port, or to the store's, and says nothing; then
// ranks meet.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "sealring/transport/socket.h"
#include "sealring/transport/store.h"
#include "tests/transport/ranks.h"

namespace sealring::testing {
namespace {

constexpr std::size_t kIdle = 6000;

/// Room for the idle connections and the accepted ones; false where this user may not have it.
bool raise_fd_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t wanted = kIdle + 1500;
  if (limit.rlim_cur >= wanted) return true;
  if (limit.rlim_max < wanted) return false;
  limit.rlim_cur = wanted;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

std::vector<Fd> idle_connections(const std::string& address) {
  std::vector<Fd> fds;
  for (std::size_t i = 0; i < kIdle; ++i) fds.push_back(*begin_connect(*parse_address(address), "test"));
  return fds;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

TEST(Flood, IdleConnectionsDelayRanksBySeconds) {
  if (!raise_fd_limit()) GTEST_SKIP() << "too few descriptors";
  Cluster cluster("tcp", 2);
  const std::vector<Fd> idle = idle_connections(cluster.at(0).address());
  const auto begin = Clock::now();
  cluster.open(group_named(1));
  const double took_s = seconds_since(begin);
  RecordProperty("seconds", std::to_string(took_s));
  EXPECT_LT(took_s, 8.0 * slowness());
}

TEST(Flood, IdleConnectionsDelayTheStoresClientsBySeconds) {
  if (!raise_fd_limit()) GTEST_SKIP() << "too few descriptors";
  SecretBytes secret(64);
  const auto served = make_tcp_store({"127.0.0.1", 0, true, "job"}, secret, seconds(10));
  ASSERT_TRUE(served.has_value());
  const std::string text = (*served)->describe();
  const std::string port = text.substr(text.rfind(':') + 1);
  const std::vector<Fd> idle = idle_connections("127.0.0.1:" + port);
  const auto begin = Clock::now();
  const auto client = make_tcp_store({"127.0.0.1", static_cast<std::uint16_t>(std::stoi(port)), false, "job"},
                                     secret, seconds(30));
  const double took_s = seconds_since(begin);
  ASSERT_TRUE(client.has_value()) << client.error().message();
  EXPECT_EQ(*(*client)->add("n", 1), 1);
  RecordProperty("seconds", std::to_string(took_s));
  EXPECT_LT(took_s, 8.0 * slowness());
}

}  // namespace
}  // namespace sealring::testing
