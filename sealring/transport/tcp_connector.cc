#include "sealring/transport/tcp_connector.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace sealring {
namespace {

constexpr const char* kStage = "transport.open";
constexpr std::chrono::seconds kConnectMax{5};
constexpr std::chrono::milliseconds kBackoffMax{500};
static_assert(kProofChallengeBytes == kProofReplyBytes);

}  // namespace

Result<void> TcpConnector::prepare() {
  for (const PeerLink& link : links_.peers) {
    if (link.peer > links_.me) continue;  // the higher rank connects
    const auto address = parse_address(link.address);
    if (!address) {
      // The address came through the store: its text is not repeated.
      return fail(
          peer_lost(link.peer, kStage, "rank " + std::to_string(link.peer) + " published no usable address"));
    }
    for (const Kind kind : links_.kinds) {
      const Lane lanes = kind == Kind::pair ? links_.lanes : Lane{1};
      for (Lane lane = 0; lane < lanes; ++lane) {
        Attempt attempt;
        attempt.link = &link;
        attempt.fields = {links_.me, link.peer, links_.group, kind, lane};
        attempt.address = *address;
        attempts_.push_back(std::move(attempt));
      }
    }
  }
  return {};
}

Result<void> TcpConnector::run(const Fd& filled_event, const Fd& abort_event, Deadline deadline) {
  std::vector<pollfd> polled(attempts_.size() + 2);
  auto check_at = links_.check ? Clock::now() + GroupLinks::kCheckPeriod : Clock::time_point::max();
  while (true) {
    auto next_event = check_at;
    for (std::size_t i = 0; i < attempts_.size(); ++i) {
      Attempt& attempt = attempts_[i];
      const auto now = Clock::now();
      if (attempt.state == Attempt::State::connecting && now - attempt.connecting_since > kConnectMax) {
        retry(attempt, "no answer to connecting");
      }
      if (attempt.state == Attempt::State::waiting && now >= attempt.retry_at) SR_TRY(begin(attempt));
      if (attempt.state == Attempt::State::waiting) next_event = std::min(next_event, attempt.retry_at);
      const bool connecting = attempt.state == Attempt::State::connecting;
      if (connecting) next_event = std::min(next_event, attempt.connecting_since + kConnectMax);
      polled[i] = {attempt.fd.get(), static_cast<short>(connecting ? POLLOUT : POLLIN), 0};
    }
    if (streams_.missing(links_.group).empty()) return {};
    if (deadline.expired()) return fail(timeout_error());
    if (Clock::now() >= check_at) {
      SR_TRY(links_.check());
      check_at = Clock::now() + GroupLinks::kCheckPeriod;
      continue;
    }
    polled[attempts_.size()] = {filled_event.get(), POLLIN, 0};
    polled[attempts_.size() + 1] = {abort_event.get(), POLLIN, 0};
    const auto wait = Deadline::at(next_event).earlier(deadline).left();
    if (::poll(polled.data(), polled.size(), static_cast<int>(wait.count())) <= 0) continue;
    if (polled[attempts_.size()].revents != 0) clear_event(filled_event);
    if (polled[attempts_.size() + 1].revents != 0) return fail(transport_aborted(kStage));
    for (std::size_t i = 0; i < attempts_.size(); ++i) {
      if (polled[i].revents != 0) advance(attempts_[i]);
    }
  }
}

Result<void> TcpConnector::begin(Attempt& attempt) {
  SR_TRY(attempt.fd, begin_connect(attempt.address, kStage));
  if (!attempt.fd.valid()) {
    retry(attempt, "connecting failed");
    return {};
  }
  attempt.state = Attempt::State::connecting;
  attempt.connecting_since = Clock::now();
  return {};
}

void TcpConnector::advance(Attempt& attempt) {
  if (attempt.state == Attempt::State::connecting) {
    if (const int problem = connect_error(attempt.fd)) return retry(attempt, errno_text(problem));
    if (connected_to_itself(attempt.fd)) return retry(attempt, "nobody listens there");
    attempt.state = Attempt::State::expecting_challenge;
    attempt.read_bytes = 0;
    return;
  }
  const std::ptrdiff_t got = recv_some(attempt.fd, std::span(attempt.read).subspan(attempt.read_bytes));
  if (got < 0) return retry(attempt, "it closed the connection");
  attempt.read_bytes += static_cast<std::size_t>(got);
  if (attempt.read_bytes == attempt.read.size()) take_message(attempt);
}

/// 32 bytes have come: the challenge, or the reply to the answer.
void TcpConnector::take_message(Attempt& attempt) {
  attempt.read_bytes = 0;
  if (attempt.state == Attempt::State::expecting_challenge) {
    attempt.challenge = attempt.read;
    attempt.answer = make_answer(attempt.fields, attempt.challenge, attempt.link->mac_to_peer.view());
    if (send_some(attempt.fd, attempt.answer) != static_cast<std::ptrdiff_t>(attempt.answer.size())) {
      return retry(attempt, "it closed the connection");
    }
    attempt.state = Attempt::State::expecting_reply;
    return;
  }
  const Hash256 wanted = make_reply(attempt.answer, attempt.challenge, attempt.link->mac_from_peer.view());
  if (!constant_time_equal(wanted, attempt.read)) return retry(attempt, "it did not prove to be that rank");
  attempt.state = Attempt::State::done;
  streams_.fill({links_.group, attempt.fields.to, attempt.fields.kind, attempt.fields.lane},
                std::move(attempt.fd));
}

void TcpConnector::retry(Attempt& attempt, std::string problem) {
  attempt.fd.reset();
  attempt.state = Attempt::State::waiting;
  attempt.retry_at = Clock::now() + attempt.backoff;
  attempt.backoff = std::min(attempt.backoff * 2, kBackoffMax);
  attempt.last_problem = std::move(problem);
}

Error TcpConnector::timeout_error() const {
  const std::vector<Rank> missing = streams_.missing(links_.group);
  std::string what = name_ranks(missing) + " did not connect";
  for (const Attempt& attempt : attempts_) {
    if (attempt.state == Attempt::State::done || attempt.last_problem.empty()) continue;
    what += "; rank " + std::to_string(attempt.fields.to) + " at " + attempt.address.text() + ": " +
            attempt.last_problem;
    break;
  }
  return timed_out(kStage, what, missing);
}

}  // namespace sealring
