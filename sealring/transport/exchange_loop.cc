#include "sealring/transport/exchange_loop.h"

#include <algorithm>

namespace sealring {
namespace {

constexpr const char* kStage = "transport.exchange";
/// The most bytes that one direction moves before the other gets its turn: large enough that a system call
/// costs nothing beside its copy, small enough that what is under way stays in the cores' caches.
constexpr std::size_t kTurnBytes = 256 * 1024;
/// Up to so many streams a blocked direction is tried again in each pass; beyond, poll tells which are worth
/// it.
constexpr std::size_t kTriedWithoutAsking = 3;

/// One stream of this exchange with the moves that use it, in order.
struct Lanes {
  StreamId id;
  std::shared_ptr<DuplexStream> stream;
  std::vector<WireSource*> sources;
  std::vector<WireSink*> sinks;
  std::size_t source_at = 0, sink_at = 0;
  ByteView piece;
  std::span<std::byte> buffer;  ///< what is still to be filled of the sink's buffer
  bool write_blocked = false, read_blocked = false;
  bool held = false;  ///< the sink said nullopt

  bool sending() const { return source_at < sources.size(); }
  bool receiving() const { return sink_at < sinks.size(); }
};

Error ended(const Lanes& lanes, PipeStep::State state, const char* doing) {
  if (state == PipeStep::State::closed_here) return transport_aborted(kStage);
  const std::string rank = "rank " + std::to_string(lanes.id.peer);
  return peer_lost(lanes.id.peer, kStage, rank + " closed its stream while this rank " + doing);
}

/// One turn of sending on a stream. True when something moved.
Result<bool> send_turn(Lanes& lanes) {
  if (lanes.write_blocked) return false;
  while (lanes.piece.empty()) {
    if (!lanes.sending()) return false;
    SR_TRY(lanes.piece, lanes.sources[lanes.source_at]->next());
    if (!lanes.piece.empty()) break;
    if (++lanes.source_at == lanes.sources.size()) return true;
  }
  const ByteView turn = lanes.piece.first(std::min(lanes.piece.size(), kTurnBytes));
  const PipeStep step = lanes.stream->write_some(turn);
  switch (step.state) {
    case PipeStep::State::would_block:
      lanes.write_blocked = true;
      return false;
    case PipeStep::State::moved:
      break;
    default:
      return fail(ended(lanes, step.state, "was sending"));
  }
  lanes.piece = lanes.piece.subspan(step.bytes);
  lanes.write_blocked = step.bytes < turn.size();
  return true;
}

/// One turn of receiving: at most one buffer of the sink.
Result<bool> receive_turn(Lanes& lanes) {
  if (lanes.read_blocked) return false;
  lanes.held = false;
  while (lanes.buffer.empty()) {
    if (!lanes.receiving()) return false;
    SR_TRY(const auto offered, lanes.sinks[lanes.sink_at]->buffer());
    if (!offered) {
      lanes.held = true;
      return false;
    }
    lanes.buffer = *offered;
    if (!lanes.buffer.empty()) break;
    if (++lanes.sink_at == lanes.sinks.size()) return true;
  }
  const auto turn = lanes.buffer.first(std::min(lanes.buffer.size(), kTurnBytes));
  const PipeStep step = lanes.stream->read_some(turn);
  switch (step.state) {
    case PipeStep::State::would_block:
      lanes.read_blocked = true;
      return false;
    case PipeStep::State::moved:
      break;
    default:
      return fail(ended(lanes, step.state, "was receiving"));
  }
  lanes.buffer = lanes.buffer.subspan(step.bytes);
  if (lanes.buffer.empty()) {
    SR_TRY(lanes.sinks[lanes.sink_at]->filled());
  } else {
    lanes.read_blocked = step.bytes < turn.size();
  }
  return true;
}

Result<std::vector<Lanes>> gather(std::span<const Send> sends, std::span<const Recv> recvs,
                                  const ExchangeHooks& hooks) {
  std::vector<Lanes> all;
  const auto lanes_of = [&](const StreamId& id) -> Result<Lanes*> {
    for (Lanes& lanes : all) {
      if (lanes.id == id) return &lanes;
    }
    auto stream = hooks.find(id);
    if (!stream) {
      if (hooks.aborted->load(std::memory_order_acquire)) return fail(transport_aborted(kStage));
      return fail(Code::invalid_argument, kStage,
                  "there is no open " + std::string(to_string(id.kind)) + " stream to rank " +
                      std::to_string(id.peer),
                  "open the group first");
    }
    Lanes lanes;
    lanes.id = id;
    lanes.stream = std::move(stream);
    all.push_back(std::move(lanes));
    return &all.back();
  };
  for (const Send& send : sends) {
    SR_CHECK(send.source != nullptr);
    SR_TRY(Lanes * lanes, lanes_of(send.stream));
    lanes->sources.push_back(send.source);
  }
  for (const Recv& recv : recvs) {
    SR_CHECK(recv.sink != nullptr);
    SR_TRY(Lanes * lanes, lanes_of(recv.stream));
    lanes->sinks.push_back(recv.sink);
  }
  return all;
}

/// Whom the exchange waits for, told apart by direction.
Error exchange_timed_out(const std::vector<Lanes>& all) {
  std::vector<Rank> silent, full, both;
  for (const Lanes& lanes : all) {
    if (lanes.receiving() && !lanes.held) silent.push_back(lanes.id.peer);
    if (lanes.sending()) full.push_back(lanes.id.peer);
  }
  std::string what;
  if (!silent.empty()) what = "no more bytes came from " + name_ranks(silent);
  if (!full.empty()) {
    what += what.empty() ? "" : "; ";
    what += name_ranks(full) + " took no more bytes";
  }
  if (what.empty()) what = "the exchange did not end";
  // Who sends nothing is the likelier cause than who merely takes nothing.
  return timed_out(kStage, what, silent.empty() ? full : silent);
}

/// After a pass that moved something: what would block then may go on now. A few streams are simply tried
/// again, a try costs less than asking; of many, one look says which to try.
Result<void> look_again(std::vector<Lanes>& all, std::vector<Interest>& interests, StreamWaiter& waiter) {
  if (all.size() <= kTriedWithoutAsking) {
    for (Lanes& lanes : all) lanes.read_blocked = lanes.write_blocked = false;
    return {};
  }
  bool wanted = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    interests[i] = {all[i].stream.get(), all[i].read_blocked, all[i].write_blocked, false, false};
    wanted = wanted || all[i].read_blocked || all[i].write_blocked;
  }
  if (!wanted) return {};
  SR_TRY(waiter.wait(interests, Deadline::at(Clock::time_point::min())));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].read_blocked = all[i].read_blocked && !interests[i].can_read;
    all[i].write_blocked = all[i].write_blocked && !interests[i].can_write;
  }
  return {};
}

/// Waits until some direction that would block may go on.
Result<void> wait_for_any(std::vector<Lanes>& all, std::vector<Interest>& interests, StreamWaiter& waiter,
                          Deadline deadline) {
  bool wanted = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    interests[i] = {all[i].stream.get(), all[i].receiving() && !all[i].held, all[i].sending(), false, false};
    wanted = wanted || interests[i].want_read || interests[i].want_write;
  }
  if (!wanted) {
    return fail(Code::invalid_argument, kStage,
                "every remaining sink waits for another one and nothing is left to send",
                "a sink may hold only while another sink of the exchange can advance");
  }
  SR_TRY(waiter.wait(interests, deadline));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].read_blocked = all[i].read_blocked && !interests[i].can_read;
    all[i].write_blocked = all[i].write_blocked && !interests[i].can_write;
  }
  return {};
}

}  // namespace

Result<void> run_exchange(std::span<const Send> sends, std::span<const Recv> recvs,
                          const ExchangeHooks& hooks, Deadline deadline) {
  if (hooks.aborted->load(std::memory_order_acquire)) return fail(transport_aborted(kStage));
  SR_TRY(std::vector<Lanes> all, gather(sends, recvs, hooks));
  std::vector<Interest> interests(all.size());
  while (true) {
    hooks.waiter->begin_pass();
    if (hooks.aborted->load(std::memory_order_acquire)) return fail(transport_aborted(kStage));
    bool pending = false, moved = false;
    for (Lanes& lanes : all) {
      SR_TRY(const bool sent, send_turn(lanes));
      SR_TRY(const bool received, receive_turn(lanes));
      moved = moved || sent || received;
      pending = pending || lanes.sending() || lanes.receiving();
    }
    if (!pending) return {};
    if (deadline.expired()) return fail(exchange_timed_out(all));
    SR_TRY(moved ? look_again(all, interests, *hooks.waiter)
                 : wait_for_any(all, interests, *hooks.waiter, deadline));
  }
}

std::string name_ranks(std::vector<Rank> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == 16) return text + " and " + std::to_string(ranks.size() - i) + " more";
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

Error peer_lost(Rank peer, std::string stage, std::string what) {
  Error error;
  error.code = Code::peer_lost;
  error.peer = peer;
  error.stage = std::move(stage);
  error.what = std::move(what);
  return error;
}

Error timed_out(std::string stage, std::string what, const std::vector<Rank>& missing) {
  Error error;
  error.code = Code::timeout;
  const bool one = !missing.empty() && std::all_of(missing.begin(), missing.end(),
                                                   [&](Rank rank) { return rank == missing.front(); });
  if (one) error.peer = missing.front();
  error.stage = std::move(stage);
  error.what = std::move(what);
  return error;
}

Error transport_aborted(std::string stage) {
  Error error;
  error.code = Code::aborted;
  error.stage = std::move(stage);
  error.what = "the transport was shut down on this rank";
  return error;
}

}  // namespace sealring
