// What the transport tests share: ranks as threads over any transport, sources and sinks of known bytes.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "sealring/transport/transport.h"

namespace sealring::testing {

/// SR_TEST_SLOW stretches every bound on time (sanitizers, a busy machine).
inline int slowness() {
  const char* text = std::getenv("SR_TEST_SLOW");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}
inline Deadline seconds(int count) { return Deadline::in(std::chrono::seconds(count * slowness())); }

inline std::array<std::byte, 8> group_named(std::uint8_t number) {
  std::array<std::byte, 8> group{};
  group.fill(static_cast<std::byte>(number));
  return group;
}

/// The byte at `position` of the stream of `seed`: any shift, loss or mix-up shows.
inline std::byte pattern(std::uint64_t seed, std::uint64_t position) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15ull + (position >> 3) * 0xBF58476D1CE4E5B9ull;
  x ^= x >> 29;
  x *= 0x94D049BB133111EBull;
  return static_cast<std::byte>(x >> (8 * (position & 7)));
}

/// Gives `total` pattern bytes in pieces of at most `piece`.
class PatternSource final : public WireSource {
 public:
  PatternSource(std::uint64_t seed, std::uint64_t total, std::size_t piece)
      : seed_(seed), total_(total), piece_(piece) {}
  Result<ByteView> next() override {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(piece_, total_ - at_));
    held_.resize(count);
    for (std::size_t i = 0; i < count; ++i) held_[i] = pattern(seed_, at_ + i);
    at_ += count;
    return ByteView(held_);
  }

 private:
  std::uint64_t seed_, total_, at_ = 0;
  std::size_t piece_;
  Bytes held_;
};

/// Expects the same bytes, in buffers of at most `piece`. With `after`, holds until that sink is done.
class PatternSink final : public WireSink {
 public:
  PatternSink(std::uint64_t seed, std::uint64_t total, std::size_t piece, const PatternSink* after = nullptr)
      : seed_(seed), total_(total), piece_(piece), after_(after) {}
  Result<std::optional<std::span<std::byte>>> buffer() override {
    if (after_ != nullptr && !after_->done()) {
      ++holds_;
      return std::nullopt;
    }
    held_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(piece_, total_ - at_)));
    return std::span<std::byte>(held_);
  }
  Result<void> filled() override {
    for (std::size_t i = 0; i < held_.size(); ++i) {
      if (held_[i] != pattern(seed_, at_ + i)) ++wrong_;
    }
    at_ += held_.size();
    return {};
  }
  bool done() const { return at_ == total_; }
  std::uint64_t wrong() const { return wrong_; }
  std::uint64_t holds() const { return holds_; }

 private:
  std::uint64_t seed_, total_, at_ = 0, wrong_ = 0, holds_ = 0;
  std::size_t piece_;
  const PatternSink* after_;
  Bytes held_;
};

/// CONN[from->to] of tests: any 32 bytes that depend on both.
inline SecretBytes test_mac(Rank from, Rank to) {
  SecretBytes key(32);
  key.span()[0] = static_cast<std::byte>(from + 1);
  key.span()[1] = static_cast<std::byte>(to + 1);
  key.span()[2] = std::byte{0x5A};
  return key;
}

/// n transports of one kind ("loopback" or "tcp") in this process.
struct Cluster {
  Cluster(const std::string& kind, Rank world) {
    if (kind == "loopback") hub = LoopbackHub::make(world);
    for (Rank rank = 0; rank < world; ++rank) {
      if (hub) {
        transports.push_back(hub->transport(rank));
        continue;
      }
      TcpConfig config;
      config.reach_host = "127.0.0.1";
      auto made = make_tcp_transport(config);
      EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message());
      transports.push_back(std::move(*made));
    }
  }
  Rank world() const { return static_cast<Rank>(transports.size()); }
  Transport& at(Rank rank) { return *transports[rank]; }

  GroupLinks links(Rank me, std::array<std::byte, 8> group, std::vector<Kind> kinds, Lane lanes) const {
    GroupLinks out;
    out.me = me;
    out.group = group;
    out.kinds = std::move(kinds);
    out.lanes = lanes;
    for (Rank peer = 0; peer < world(); ++peer) {
      if (peer == me) continue;
      out.peers.push_back({peer, test_mac(me, peer), test_mac(peer, me), transports[peer]->address()});
    }
    return out;
  }
  void open(std::array<std::byte, 8> group, std::vector<Kind> kinds = {Kind::pair}, Lane lanes = 1) {
    each([&](Rank me) {
      const auto result = at(me).open_group(links(me, group, kinds, lanes), seconds(20));
      EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
    });
  }
  /// Runs `body` as every rank at once.
  void each(const std::function<void(Rank)>& body) const {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < world(); ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

  std::shared_ptr<LoopbackHub> hub;
  std::vector<std::unique_ptr<Transport>> transports;
};

}  // namespace sealring::testing
