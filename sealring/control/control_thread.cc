#include "sealring/control/control_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <system_error>

namespace sealring {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDeathMax{2000};         // [protocol A.4] ABORT and recorder exchange, at most 2 s
constexpr milliseconds kCollectMax{1000};       // of it, for the recorders
constexpr milliseconds kCollectSilentMax{250};  // for peers that were silent already when the session died
constexpr milliseconds kSilentMin{500};

}  // namespace

void ControlThread::Bell::ring() noexcept {
  const std::lock_guard lock(mutex);
  if (streams != nullptr) streams->wake();
}

ControlThread::ControlThread(const ControlConfig& config, GroupKeys& keys,
                             std::unique_ptr<ControlStreams> streams, Verdict& verdict)
    : config_(config),
      world_group_(keys.group_id()),
      verdict_(verdict),
      streams_(std::move(streams)),
      bell_(std::make_shared<Bell>()),
      next_beat_(Clock::now()),
      book_(config.rank) {
  bell_->streams = streams_.get();
  FrameDirection direction;
  std::copy_n(keys.th3().begin(), direction.th3.size(), direction.th3.begin());
  for (const Rank rank : keys.members()) {
    if (rank == config_.rank) continue;
    Peer& peer = peers_[rank];
    direction.from = config_.rank;
    direction.to = rank;
    peer.out = std::make_unique<FrameSealer>(keys.take_chain(Kind::ctl, config_.rank, rank), direction,
                                             config_.budget);
    std::swap(direction.from, direction.to);
    peer.in = std::make_unique<FrameOpener>(keys.take_chain(Kind::ctl, rank, config_.rank), direction,
                                            config_.budget);
    peer.last_heard = next_beat_;
  }
}

ControlThread::~ControlThread() {
  SR_CHECK(std::this_thread::get_id() != thread_.get_id());
  {
    const std::lock_guard lock(mutex_);
    requests_.stop = true;
  }
  bell_->ring();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(bell_->mutex);
  bell_->streams = nullptr;
}

Result<void> ControlThread::launch() {
  verdict_.on_death([bell = bell_](const Error&) { bell->ring(); });
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& problem) {
    return fail(Code::out_of_memory, "control.start",
                fmt::format("no thread could be started: {}", problem.what()));
  }
  return {};
}

// ---- callers' side ----

void ControlThread::op_started(const OpContext& context, const std::vector<Rank>& members) {
  {
    const std::lock_guard lock(mutex_);
    recorder_.started(context);
    if (context.op == Op::send) return;  // its number counts per direction: nothing to compare it with
    const auto mismatch = book_.issued(context, members);
    if (!requests_.mismatch) requests_.mismatch = mismatch;
    if (!mismatch && !book_.deserted()) return;
  }
  bell_->ring();  // the thread sets the verdict: a callback must not meet locks that the caller may hold here
}

void ControlThread::op_finished(const std::array<std::byte, 32>& group_id, std::uint64_t seq, bool ok) {
  const std::lock_guard lock(mutex_);
  recorder_.finished(group_id, seq, ok);
}

std::optional<std::uint64_t> ControlThread::last_heard(const std::array<std::byte, 32>& group_id,
                                                       Rank peer) const {
  const std::lock_guard lock(mutex_);
  return book_.last_heard(group_id, peer);
}

void ControlThread::forget_group(const std::array<std::byte, 32>& group_id) {
  const std::lock_guard lock(mutex_);
  book_.forget(group_id);
}

void ControlThread::announce_death(const Error& error, Deadline deadline) noexcept {
  try {
    verdict_.set(error);  // already set, as a rule
    if (std::this_thread::get_id() == thread_.get_id())
      return;  // from a callback: the thread goes on by itself
    std::unique_lock lock(mutex_);
    requests_.death_until = requests_.death_until ? requests_.death_until->earlier(deadline) : deadline;
    lock.unlock();
    bell_->ring();
    lock.lock();
    finished_changed_.wait_until(lock, deadline.earlier(Deadline::in(kDeathMax)).when(),
                                 [this] { return finished_; });
  } catch (const std::exception&) {
    // Out of memory: the thread tears down all the same, only this caller does not wait for it.
  }
}

Result<void> ControlThread::leave(Deadline deadline) {
  SR_CHECK(std::this_thread::get_id() != thread_.get_id());
  {
    const std::lock_guard lock(mutex_);
    if (!requests_.leave_until) requests_.leave_until = deadline;
  }
  bell_->ring();
  std::unique_lock lock(mutex_);
  const auto patience =
      deadline.when() == Clock::time_point::max() ? deadline.when() : deadline.when() + milliseconds(500);
  const bool finished = finished_changed_.wait_until(lock, patience, [this] { return finished_; });
  if (const auto error = verdict_.error()) return fail(*error);
  if (finished && stayed_.empty()) return {};
  Error error;
  error.code = Code::timeout;
  error.rank = config_.rank;
  error.stage = "control.leave";
  error.what = "these ranks had not left yet when the wait for an orderly end was over:";
  for (const Rank rank : stayed_) error.what += fmt::format(" {}", rank);
  if (!stayed_.empty()) error.peer = stayed_.front();
  return fail(std::move(error));
}

ControlThread::Requests ControlThread::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

// ---- the thread ----

void ControlThread::run() noexcept {
  try {
    while (step()) {
    }
  } catch (const std::exception& problem) {
    Error error;
    error.code = Code::out_of_memory;
    error.rank = config_.rank;
    error.stage = "control.thread";
    error.what = fmt::format("the control thread had to stop: {}", problem.what());
    verdict_.set(std::move(error));
  }
  finish();
}

/// One round; false when the thread's work is done.
bool ControlThread::step() {
  Requests wanted = requests();
  check_mismatch(wanted.mismatch);
  if (verdict_.dead() && !death_) begin_death();
  if (death_) {
    if (wanted.death_until) death_->end = std::min(death_->end, wanted.death_until->when());
    if (death_done()) return false;
  } else {
    if (wanted.stop) return false;
    if (wanted.leave_until && leave_done(*wanted.leave_until)) return false;
    if (!leave_said_ && Clock::now() >= next_beat_) beat();
    check_desertion();
    check_silence();
  }
  if (verdict_.dead() && !death_) return true;  // found just now: no wait before the teardown
  for (ControlEvent& event : streams_->wait(next_wake())) hear(std::move(event));
  return true;
}

Deadline ControlThread::next_wake() const {
  if (death_) {
    // The silent peers' time is looked at as well; death_done() decides which one counts.
    const auto now = Clock::now();
    auto when = death_->end;
    for (const auto moment : {death_->collect_until, death_->collect_silent_until}) {
      if (!death_->diagnosed && moment > now) when = std::min(when, moment);
    }
    return Deadline::at(when);
  }
  // Never later than a beat: a request that came between requests() and wait() is seen then at the latest.
  return Deadline::at(leave_said_ ? Clock::now() + config_.heartbeat : next_beat_);
}

void ControlThread::finish() noexcept {
  for (auto& [rank, peer] : peers_) {
    peer.out->wipe();
    peer.in->wipe();
  }
  {
    const std::lock_guard lock(bell_->mutex);
    bell_->streams = nullptr;
  }
  streams_->close();
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    for (const auto& [rank, peer] : peers_) {
      if (!peer.left && !peer.closed) stayed_.push_back(rank);
    }
  }
  finished_changed_.notify_all();
}

// ---- listening ----

void ControlThread::hear(ControlEvent event) {
  const auto at = peers_.find(event.peer);
  if (at == peers_.end() || at->second.closed) return;
  Peer& peer = at->second;
  if (!peer.unbelieved) hear_frames(event.peer, peer, event.bytes);
  if (!event.closed || peer.closed) return;
  peer.closed = true;
  // After a farewell it is orderly; check_desertion() sees to operations that still need that rank.
  if (!peer.left)
    lose(event.peer, fmt::format("the control stream of rank {} has ended without a farewell", event.peer));
}

void ControlThread::hear_frames(Rank rank, Peer& peer, ByteView bytes) {
  peer.in->feed(bytes);
  while (true) {
    auto payload = peer.in->next();
    if (!payload) {
      peer.unbelieved = true;
      lose(rank, fmt::format("the control frames of rank {} are no longer authentic", rank));
      return;
    }
    if (!*payload) return;
    auto message = decode_control_message(**payload, config_.world);
    if (!message) {
      peer.unbelieved = true;
      lose(rank,
           fmt::format("rank {} sent a control message that does not exist: {}", rank, message.error().what));
      return;
    }
    peer.last_heard = Clock::now();
    take(rank, peer, *std::move(message));
  }
}

void ControlThread::take(Rank rank, Peer& peer, ControlMessage message) {
  if (auto* beat = std::get_if<Heartbeat>(&message)) {
    std::optional<Mismatch> mismatch;
    {
      const std::lock_guard lock(mutex_);
      mismatch = book_.heard(rank, *beat);
    }
    check_mismatch(mismatch);
  } else if (auto* report = std::get_if<AbortReport>(&message)) {
    take_abort(rank, peer, std::move(*report));
  } else if (auto* recorder = std::get_if<RecorderReport>(&message)) {
    peer.ops = std::move(recorder->ops);
    peer.answered = true;
  } else if (std::holds_alternative<Leave>(message)) {
    peer.left = true;
    {
      const std::lock_guard lock(mutex_);
      book_.left(rank);
    }
    send(rank, peer, LeaveSeen{});
  } else if (std::holds_alternative<LeaveSeen>(message)) {
    peer.knows_leave = true;
  }
}

void ControlThread::take_abort(Rank rank, Peer& peer, AbortReport report) {
  if (!peer.report) peer.report = report;
  Error error;
  error.code = Code::aborted;
  error.rank = config_.rank;
  error.peer = report.origin;
  error.stage = "control.abort";
  error.what = report_text(report, rank);
  error.next = report.code == Code::aborted ? std::string{} : std::string(code_info(report.code).hint);
  if (verdict_.dead()) return;
  first_report_ = report;  // before the callbacks run: begin_death passes it on
  if (!verdict_.set(std::move(error))) first_report_.reset();
}

void ControlThread::lose(Rank rank, std::string what) {
  Error error;
  error.code = Code::peer_lost;
  error.peer = rank;
  error.stage = "control.stream";
  error.what = std::move(what);
  end_session(std::move(error));
}

void ControlThread::end_session(Error error) {
  error.rank = config_.rank;
  verdict_.set(std::move(error));
}

// ---- speaking ----

void ControlThread::send(Rank rank, Peer& peer, const ControlMessage& message) {
  if (peer.closed) return;
  auto frame = peer.out->seal(encode(message));
  if (!frame) {
    peer.closed = true;
    end_session(frame.error());
    return;
  }
  if (auto sent = streams_->send(rank, *frame); !sent) {
    peer.closed = true;
    if (!peer.left) {
      lose(rank, fmt::format("rank {} takes no more control frames: {}", rank, sent.error().what));
    }
  }
}

void ControlThread::send_all(const ControlMessage& message) {
  for (auto& [rank, peer] : peers_) send(rank, peer, message);
}

void ControlThread::beat() {
  std::map<Rank, std::vector<Heartbeat>> beats;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [rank, peer] : peers_) {
      if (!peer.closed) beats.emplace(rank, book_.beats_for(rank));
    }
    book_.beat_sent();
  }
  for (const auto& [rank, messages] : beats) {
    for (const Heartbeat& message : messages) send(rank, peers_.at(rank), message);
  }
  next_beat_ = Clock::now() + config_.heartbeat;
}

void ControlThread::check_mismatch(std::optional<Mismatch> mismatch) {
  if (!mismatch || verdict_.dead()) return;
  Error error;
  error.code = Code::op_mismatch;
  error.peer = mismatch->peer;
  error.stage = "control.signature";
  error.what = fmt::format("rank {} called something else than this rank as operation {} of {}",
                           mismatch->peer, mismatch->seq, group_name(mismatch->group_id, world_group_));
  error.expected = to_hex(mismatch->mine);
  error.got = to_hex(mismatch->theirs);
  end_session(std::move(error));
}

void ControlThread::check_desertion() {
  std::optional<Desertion> found;
  {
    const std::lock_guard lock(mutex_);
    found = book_.deserted();
  }
  if (!found || verdict_.dead()) return;
  lose(found->peer, fmt::format("rank {} has left the session without operation {} of {}, which this rank "
                                "has called",
                                found->peer, found->seq, group_name(found->group_id, world_group_)));
}

void ControlThread::check_silence() {
  if (config_.silence_max.count() == 0) return;
  const auto now = Clock::now();
  for (auto& [rank, peer] : peers_) {
    if (peer.closed || peer.left || now - peer.last_heard <= config_.silence_max) continue;
    lose(rank, fmt::format("rank {} has been silent for {:.1f} s", rank,
                           std::chrono::duration<double>(now - peer.last_heard).count()));
    return;
  }
}

// ---- death and leave ----

void ControlThread::begin_death() {
  const Error error = verdict_.error().value_or(Error{});
  const auto now = Clock::now();
  death_ = Death{now, now + kCollectMax, now + kCollectSilentMax, now + kDeathMax, false};
  AbortReport report;
  if (first_report_) {
    report = *first_report_;
  } else {
    report.code = error.code == Code::ok ? Code::aborted : error.code;
    report.origin = config_.rank;
    report.peer = error.peer >= 0 && error.peer < config_.world ? error.peer : -1;
    report.stage = error.stage;
    report.what = error.what.empty() ? std::string(code_info(error.code).meaning) : error.what;
  }
  // Each word by itself to everybody first: the reason must not wait for the records.
  send_all(report);
  beat();
  RecorderReport recorder;
  {
    const std::lock_guard lock(mutex_);
    recorder.ops = recorder_.ops();
  }
  send_all(recorder);
}

bool ControlThread::death_done() {
  const auto now = Clock::now();
  if (!death_->diagnosed) {
    const auto silent = std::max<Clock::duration>(kSilentMin, 5 * config_.heartbeat);
    const bool collecting = std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
      const Peer& peer = entry.second;
      if (peer.mute() || peer.answered) return false;
      const bool was_silent = death_->began - peer.last_heard > silent;
      return now < (was_silent ? death_->collect_silent_until : death_->collect_until);
    });
    if (collecting && now < death_->end) return false;
    settle_diagnosis();
    death_->diagnosed = true;
    send_all(Leave{});  // "I have what I wanted": peers need not keep their streams open for this rank
  }
  // Whoever answered also takes its leave soon; the others have had their time.
  const bool awaited = std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    return !entry.second.mute() && entry.second.answered && !entry.second.left;
  });
  return !awaited || now >= death_->end;
}

void ControlThread::settle_diagnosis() {
  DiagnosisInput input;
  input.me = config_.rank;
  input.world_group = world_group_;
  input.error = verdict_.error().value_or(Error{});
  for (const auto& [rank, peer] : peers_) {
    PeerRecord& record = input.peers[rank];
    record.answered = peer.answered;
    record.gone = peer.mute();
    record.ops = peer.ops;
    record.report = peer.report;
    record.silent_for = std::chrono::duration_cast<milliseconds>(Clock::now() - peer.last_heard);
  }
  {
    const std::lock_guard lock(mutex_);
    input.mine = recorder_.ops();
    auto& world = input.members[world_group_];
    world.push_back(config_.rank);
    for (const auto& [rank, peer] : peers_) world.push_back(rank);
    std::sort(world.begin(), world.end());
    for (const OpContext& op : input.mine) {
      if (!input.members.contains(op.group_id)) input.members[op.group_id] = book_.members(op.group_id);
    }
    for (auto& [rank, record] : input.peers) {
      for (const auto& [group, members] : input.members) {
        if (const auto last = book_.last_heard(group, rank)) record.last_seq[group] = *last;
      }
    }
  }
  if (std::string line = diagnose(input); !line.empty()) verdict_.set_diagnosis(std::move(line));
}

/// True when everybody knows and has left too, or the time is over.
bool ControlThread::leave_done(Deadline until) {
  if (!leave_said_) {
    beat();  // the last ops, so that a difference in them is still found by those who stay
    send_all(Leave{});
    leave_said_ = true;
  }
  const bool awaited = std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    const Peer& peer = entry.second;
    return !peer.closed && !(peer.left && peer.knows_leave);
  });
  return !awaited || until.expired();
}

}  // namespace sealring
