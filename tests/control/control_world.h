// A world of control planes on in-memory streams, with keys made up from fixed secrets.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sealring/control/control.h"
#include "tests/control/memory_streams.h"

namespace sealring::testing {

inline std::array<std::byte, 32> group_id_of(std::uint8_t number) {
  std::array<std::byte, 32> out{};
  out.fill(static_cast<std::byte>(number));
  return out;
}

inline std::unique_ptr<GroupKeys> keys_for(Rank me, std::uint16_t world) {
  std::array<std::byte, 64> th3{};
  th3.fill(std::byte{0x33});
  std::vector<Rank> members;
  std::map<Rank, SecretBytes> pairs;
  for (Rank rank = 0; rank < world; ++rank) {
    members.push_back(rank);
    if (rank == me) continue;
    SecretBytes secret(64);
    secret.data()[0] = static_cast<std::byte>(std::min(rank, me));
    secret.data()[1] = static_cast<std::byte>(std::max(rank, me));
    pairs.emplace(rank, std::move(secret));
  }
  return std::make_unique<GroupKeys>(Suite::chacha20_poly1305, me, members, group_id_of(0xAA), th3,
                                     SecretBytes(64), std::move(pairs));
}

/// SR_TEST_SLOW: how much slower than a quiet machine this one may be.
inline std::chrono::milliseconds patient(std::chrono::milliseconds span) {
  const char* factor = std::getenv("SR_TEST_SLOW");
  const long times = factor != nullptr ? std::max(1l, std::strtol(factor, nullptr, 10)) : 1;
  return span * times;
}

/// True once `condition` holds, false when `span` (times SR_TEST_SLOW) has passed before.
template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds span = std::chrono::milliseconds(2000)) {
  const Deadline deadline = Deadline::in(patient(span));
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

struct World {
  using MakeStreams = std::function<std::unique_ptr<ControlStreams>(Rank)>;
  /// Without `make_streams` the streams are the hub's.
  explicit World(std::uint16_t ranks, ControlConfig common = {}, const MakeStreams& make_streams = {})
      : hub(ranks), verdicts(ranks) {
    for (Rank rank = 0; rank < ranks; ++rank) {
      keys.push_back(keys_for(rank, ranks));
      members.push_back(rank);
    }
    for (Rank rank = 0; rank < ranks; ++rank) {
      ControlConfig config = common;
      config.rank = rank;
      config.world = ranks;
      auto started = Control::start(config, *keys[rank],
                                    make_streams ? make_streams(rank) : hub.streams(rank), verdicts[rank]);
      SR_CHECK(started.has_value());
      controls.push_back(*std::move(started));
    }
  }
  OpContext op(std::uint64_t seq) const {
    OpContext out;
    out.group_id = group_id_of(0xAA);
    out.seq = seq;
    out.op = Op::all_reduce;
    out.redop = RedOp::sum;
    out.dtype = DType::bf16;
    out.elements = 4096;
    return out;
  }
  void begin(Rank rank, const OpContext& context) { controls[rank]->op_started(context, members); }
  void begin_all(const OpContext& context) {
    for (const Rank rank : members) begin(rank, context);
  }
  void finish_all(const OpContext& context) {
    for (const Rank rank : members) controls[rank]->op_finished(context.group_id, context.seq, true);
  }
  /// What a communicator does when its own op fails.
  void fail_op(Rank rank, Error error) {
    error.rank = rank;
    verdicts[rank].set(error);
    controls[rank]->announce_death(error, Deadline::in(std::chrono::seconds(2)));
  }
  /// Waits until the teardown of a rank is over, whoever began it.
  Error ending(Rank rank) {
    if (!eventually([&] { return verdicts[rank].dead(); })) return {};
    const Error error = *verdicts[rank].error();
    controls[rank]->announce_death(error, Deadline::in(std::chrono::seconds(2)));
    return *verdicts[rank].error();
  }

  MemoryHub hub;
  std::vector<Verdict> verdicts;
  std::vector<std::unique_ptr<GroupKeys>> keys;
  std::vector<Rank> members;
  std::vector<std::unique_ptr<Control>> controls;  ///< destroyed first
};

inline Error make_error(Code code, std::string what, std::string stage = "data.open",
                        std::int32_t peer = -1) {
  Error error;
  error.code = code;
  error.peer = peer;
  error.stage = std::move(stage);
  error.what = std::move(what);
  return error;
}

/// Beats often, so that tests are short.
inline ControlConfig quick() {
  ControlConfig config;
  config.heartbeat = std::chrono::milliseconds(20);
  return config;
}

inline void leave_all(World& world) {
  std::vector<std::future<Result<void>>> ends;
  for (auto& control : world.controls) {
    ends.push_back(std::async(std::launch::async, [&control] {
      return control->leave(Deadline::in(patient(std::chrono::seconds(2))));
    }));
  }
  for (auto& end : ends) {
    const auto result = end.get();
    EXPECT_TRUE(result.has_value()) << result.error().message();
  }
}

}  // namespace sealring::testing
