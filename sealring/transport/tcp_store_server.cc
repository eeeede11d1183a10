#include "sealring/transport/tcp_store_server.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <exception>

namespace sealring {
namespace {

constexpr std::chrono::seconds kUnprovenAgeMax{5};
constexpr std::chrono::milliseconds kYieldAge{100};
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(Fd listener, SecretBytes key) {
  SR_TRY(Fd wake, make_event("store.serve"));
  std::unique_ptr<TcpStoreServer> server(
      new TcpStoreServer(std::move(listener), std::move(wake), std::move(key)));
  try {
    server->thread_ = std::thread([self = server.get()] { self->run(); });
  } catch (const std::exception& problem) {
    return fail(Code::out_of_memory, "store.serve",
                std::string("no thread could be started: ") + problem.what());
  }
  return server;
}

TcpStoreServer::TcpStoreServer(Fd listener, Fd wake, SecretBytes key)
    : listener_(std::move(listener)), wake_(std::move(wake)), key_(std::move(key)) {}

TcpStoreServer::~TcpStoreServer() {
  stop_.store(true);
  raise_event(wake_);
  if (thread_.joinable()) thread_.join();
}

void TcpStoreServer::run() noexcept {
  while (!stop_.load()) {
    try {
      poll_once();
      drop_where_over();
    } catch (const std::exception& problem) {  // memory: everybody is sent away, the entries stay
      limiter_.log(LogLevel::error, "store_failed", {{"reason", problem.what()}});
      clients_.clear();
    }
  }
}

std::size_t TcpStoreServer::unproven() const {
  return static_cast<std::size_t>(
      std::count_if(clients_.begin(), clients_.end(), [](const auto& client) { return !client->proven; }));
}

void TcpStoreServer::poll_once() {
  std::vector<pollfd> polled;
  auto next_event = Clock::time_point::max(), oldest = Clock::time_point::max();
  for (const auto& client : clients_) {
    polled.push_back({client->fd.get(), static_cast<short>(client->out.empty() ? POLLIN : POLLOUT), 0});
    if (!client->proven) oldest = std::min(oldest, client->since);
  }
  if (oldest != Clock::time_point::max()) next_event = oldest + kUnprovenAgeMax;
  const bool full = unproven() >= kUnprovenMax || clients_.size() >= kClientsMax;
  const bool accepting = !full && accept_after_ <= Clock::now();
  // A full house is looked at again when somebody has become too old.
  if (full && oldest != Clock::time_point::max()) next_event = std::min(next_event, oldest + kYieldAge);
  if (!accepting && !full) next_event = std::min(next_event, accept_after_);
  polled.push_back({accepting ? listener_.get() : -1, POLLIN, 0});
  polled.push_back({wake_.get(), POLLIN, 0});
  const auto wait = next_event == Clock::time_point::max() ? Deadline::never() : Deadline::at(next_event);
  if (::poll(polled.data(), polled.size(), static_cast<int>(wait.left().count())) <= 0) return;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    if (polled[i].revents != 0 && !serve(*clients_[i])) clients_[i]->fd.reset();
  }
  if (accepting && polled[polled.size() - 2].revents != 0) accept_some();
}

/// Unproven clients have 5 s, and 100 ms when they stand in others' way.
void TcpStoreServer::drop_where_over() {
  const auto now = Clock::now();
  const bool full = unproven() >= kUnprovenMax || clients_.size() >= kClientsMax;
  std::erase_if(clients_, [&](const std::unique_ptr<Client>& client) {
    const bool late = !client->proven && now - client->since >= (full ? kYieldAge : kUnprovenAgeMax);
    if (late)
      limiter_.log(LogLevel::warning, "store_client_refused",
                   {{"reason", "no proof of the job key in time"}});
    return late || !client->fd.valid();
  });
}

void TcpStoreServer::accept_some() {
  while (unproven() < kUnprovenMax && clients_.size() < kClientsMax) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        accept_after_ = Clock::now() + kAcceptPause;
        limiter_.log(LogLevel::warning, "accept_failed", {{"reason", errno_text(errno)}});
      }
      return;
    }
    set_nodelay(fd);
    auto client = std::make_unique<Client>();
    client->since = Clock::now();
    random_bytes(client->challenge);
    const Bytes greeting = ByteWriter().put(as_bytes(kStoreMagic)).put(ByteView(client->challenge)).take();
    if (send_some(fd, greeting) != static_cast<std::ptrdiff_t>(greeting.size())) continue;
    client->fd = std::move(fd);
    clients_.push_back(std::move(client));
  }
}

/// Reads, answers and writes as far as it goes; false when the connection is over.
bool TcpStoreServer::serve(Client& client) {
  std::array<std::byte, 16384> chunk;
  // A client that does not take its replies is not read either: `out` holds one reply beyond what the socket
  // takes. One client has at most 1 MiB read before the others get their turn.
  for (int turn = 0; turn < 64 && client.out.empty(); ++turn) {
    const std::size_t room = client.proven ? chunk.size() : kStoreAnswerBytes - client.in.size();
    const std::ptrdiff_t got = recv_some(client.fd, std::span(chunk).first(room));
    if (got < 0) return false;
    if (got == 0) return true;
    client.in.insert(client.in.end(), chunk.begin(), chunk.begin() + got);
    if (!client.proven && client.in.size() == kStoreAnswerBytes && !admit(client)) return false;
    if (client.proven && !answer_requests(client)) return false;
  }
  if (client.out.empty()) return true;
  const std::ptrdiff_t sent = send_some(client.fd, client.out);
  if (sent < 0) return false;
  client.out.erase(client.out.begin(), client.out.begin() + sent);
  return !client.out.empty() || answer_requests(client);
}

bool TcpStoreServer::admit(Client& client) {
  ByteReader reader(client.in);
  const auto theirs = reader.array<kStoreChallengeBytes>();
  const auto mac = reader.array<32>();
  const bool right = constant_time_equal(store_mac(key_, "store-client", client.challenge, theirs), mac);
  // The wrong client learns that its key is wrong, so that it can say so; and nothing made with ours.
  Hash256 proof{};
  if (right) proof = store_mac(key_, "store-server", client.challenge, theirs);
  const auto status = static_cast<std::uint8_t>(right ? StoreStatus::ok : StoreStatus::wrong_key);
  const Bytes welcome = ByteWriter().put(status).put(ByteView(proof)).take();
  const bool sent = send_some(client.fd, welcome) == static_cast<std::ptrdiff_t>(welcome.size());
  client.in.clear();
  client.proven = right;
  if (!right) limiter_.log(LogLevel::warning, "store_client_refused", {{"reason", "it has another job key"}});
  return right && sent;
}

/// Answers whole requests until one reply does not fit the socket.
bool TcpStoreServer::answer_requests(Client& client) {
  std::size_t used_bytes = 0;
  StoreRequest request;
  while (client.out.empty()) {
    switch (parse_store_request(client.in, request, used_bytes)) {
      case ParseState::incomplete:
        return true;
      case ParseState::malformed:
        return false;
      case ParseState::complete:
        break;
    }
    client.in.erase(client.in.begin(), client.in.begin() + static_cast<std::ptrdiff_t>(used_bytes));
    client.out = handle(request).encode();
    const std::ptrdiff_t sent = send_some(client.fd, client.out);
    if (sent < 0) return false;
    client.out.erase(client.out.begin(), client.out.begin() + sent);
  }
  return true;
}

StoreReply TcpStoreServer::handle(const StoreRequest& request) {
  StoreReply reply;
  switch (request.verb) {
    case StoreVerb::set: {
      const bool there = entries_.get(request.key).has_value();
      if (!entries_.set(request.key, request.value)) {
        reply.status = there ? StoreStatus::conflict : StoreStatus::refused;
      }
      break;
    }
    case StoreVerb::get: {
      std::optional<Bytes> value = entries_.get(request.key);
      if (!value) reply.status = StoreStatus::absent;
      if (value) reply.value = std::move(*value);
      break;
    }
    case StoreVerb::add: {
      const auto sum =
          entries_.add(request.key, static_cast<std::int64_t>(load_be<std::uint64_t>(request.value.data())));
      if (!sum) reply.status = StoreStatus::refused;
      if (sum) reply.value = ByteWriter().put(static_cast<std::uint64_t>(*sum)).take();
      break;
    }
    case StoreVerb::remove:
      entries_.remove(request.key);
      break;
  }
  return reply;
}

}  // namespace sealring
