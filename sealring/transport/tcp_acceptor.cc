#include "sealring/transport/tcp_acceptor.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>

namespace sealring {
namespace {

constexpr std::chrono::seconds kUnprovenAgeMax{5};
constexpr std::chrono::milliseconds kYieldAge{100};
constexpr std::chrono::milliseconds kFdLimitPause{100};

}  // namespace

Result<std::unique_ptr<TcpAcceptor>> TcpAcceptor::start(Fd listener, TcpStreams& streams) {
  SR_TRY(Fd wake, make_event("transport.accept"));
  std::unique_ptr<TcpAcceptor> acceptor(new TcpAcceptor(std::move(listener), std::move(wake), streams));
  try {
    acceptor->thread_ = std::thread([self = acceptor.get()] { self->run(); });
  } catch (const std::system_error& problem) {
    return fail(Code::out_of_memory, "transport.accept",
                std::string("no thread could be started: ") + problem.what());
  }
  return acceptor;
}

TcpAcceptor::TcpAcceptor(Fd listener, Fd wake, TcpStreams& streams)
    : listener_(std::move(listener)), wake_(std::move(wake)), streams_(streams) {}

TcpAcceptor::~TcpAcceptor() {
  stop_.store(true);
  raise_event(wake_);
  if (thread_.joinable()) thread_.join();
}

void TcpAcceptor::run() noexcept {
  while (!stop_.load()) {
    try {
      poll_once();
    } catch (const std::exception&) {  // memory: it comes back, or the ranks run into their deadlines
      accept_after_ = Clock::now() + kFdLimitPause;
    }
    const auto now = Clock::now();
    for (Unproven& unproven : unproven_) {
      if (unproven.fd.valid() && now - unproven.since >= kUnprovenAgeMax) {
        // A rank that is much earlier than this one knocks again and again: no cause for alarm.
        const bool early = unproven.waits_for_group;
        drop(unproven, early ? "its group is not open yet" : "no proof within 5 s",
             early ? LogLevel::debug : LogLevel::warning);
      }
    }
  }
}

/// Waits for and serves one round of events.
void TcpAcceptor::poll_once() {
  std::array<pollfd, kUnprovenMax + 2> polled;
  auto next_event = Clock::time_point::max(), oldest = Clock::time_point::max();
  bool full = true;
  for (std::size_t i = 0; i < kUnprovenMax; ++i) {
    polled[i] = {unproven_[i].fd.get(), POLLIN, 0};
    full = full && unproven_[i].fd.valid();
    if (unproven_[i].fd.valid()) oldest = std::min(oldest, unproven_[i].since);
  }
  if (oldest != Clock::time_point::max()) next_event = oldest + kUnprovenAgeMax;
  const auto accept_at = full ? std::max(accept_after_, oldest + kYieldAge) : accept_after_;
  const bool accepting = accept_at <= Clock::now();
  if (!accepting) next_event = std::min(next_event, accept_at);
  polled[kUnprovenMax] = {accepting ? listener_.get() : -1, POLLIN, 0};
  polled[kUnprovenMax + 1] = {wake_.get(), POLLIN, 0};
  const auto wait = next_event == Clock::time_point::max() ? Deadline::never() : Deadline::at(next_event);
  const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(wait.left().count()));
  if (ready <= 0 || stop_.load()) return;
  const bool woken = polled[kUnprovenMax + 1].revents != 0;
  if (woken) clear_event(wake_);
  for (std::size_t i = 0; i < kUnprovenMax; ++i) {
    if (unproven_[i].fd.valid() && polled[i].revents != 0) read_answer(unproven_[i]);
    if (unproven_[i].fd.valid() && woken && unproven_[i].waits_for_group) judge(unproven_[i]);
  }
  if (polled[kUnprovenMax].revents != 0) accept_some();
}

/// A place that is free, or that its holder must give up by now.
TcpAcceptor::Unproven* TcpAcceptor::free_place() {
  Unproven* oldest = unproven_.data();
  for (Unproven& unproven : unproven_) {
    if (!unproven.fd.valid()) return &unproven;
    if (unproven.since < oldest->since) oldest = &unproven;
  }
  return Clock::now() - oldest->since >= kYieldAge ? oldest : nullptr;
}

void TcpAcceptor::accept_some() {
  while (free_place() != nullptr) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      greet(std::move(fd));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The connection stays in the queue: trying again at once would only burn the processor.
      accept_after_ = Clock::now() + kFdLimitPause;
      fd_limit_met_.store(true);
      limiter_.log(LogLevel::warning, "accept_failed", {{"reason", errno_text(errno)}});
    }
    if (errno == ECONNABORTED || errno == EINTR) continue;
    return;
  }
}

void TcpAcceptor::greet(Fd fd) {
  Unproven& place = *free_place();
  if (place.fd.valid()) drop(place, "too many unproven connections");
  set_nodelay(fd);
  place.fd = std::move(fd);
  place.since = Clock::now();
  place.read_bytes = 0;
  place.waits_for_group = false;
  random_bytes(place.challenge);
  if (send_some(place.fd, place.challenge) != static_cast<std::ptrdiff_t>(place.challenge.size())) {
    drop(place, "it closed at once");
  }
}

void TcpAcceptor::read_answer(Unproven& unproven) {
  const std::ptrdiff_t got = recv_some(unproven.fd, std::span(unproven.read).subspan(unproven.read_bytes));
  if (got == 0) return;
  if (got < 0) return drop(unproven, "it closed before it had proved anything");
  unproven.read_bytes += static_cast<std::size_t>(got);
  if (unproven.read_bytes > kProofAnswerBytes) return drop(unproven, "it sent more than a proof");
  if (unproven.read_bytes == kProofAnswerBytes) judge(unproven);
}

void TcpAcceptor::judge(Unproven& unproven) {
  ProofAnswer answer;
  std::copy_n(unproven.read.begin(), answer.size(), answer.begin());
  const auto fields = parse_answer(answer);
  if (!fields) return drop(unproven, "malformed proof");
  switch (streams_.offer(unproven.fd, answer, *fields, unproven.challenge)) {
    case TcpStreams::Offer::filled:
      return;
    case TcpStreams::Offer::refused:
      return drop(unproven, "wrong proof, or its place is taken");
    case TcpStreams::Offer::unknown_group:
      unproven.waits_for_group = true;
      return;
  }
}

void TcpAcceptor::drop(Unproven& unproven, const char* reason, LogLevel level) {
  limiter_.log(level, "connection_refused", {{"reason", reason}});
  unproven.fd.reset();
}

}  // namespace sealring
