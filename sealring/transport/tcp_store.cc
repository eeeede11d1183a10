// The client of our tcp store, and rank 0's side, which reaches the entries without a socket.
#include <poll.h>

#include <algorithm>
#include <thread>

#include "sealring/transport/interface.h"
#include "sealring/transport/tcp_store_server.h"

namespace sealring {
namespace {

/// A request is answered at once, unless rank 0 is stopped or gone.
constexpr std::chrono::seconds kRequestMax{10};
constexpr std::chrono::milliseconds kBackoffMax{250};

/// Moves whole buffers over a nonblocking socket before a deadline; false when the connection is over or it
/// passed.
bool move_all(const Fd& fd, std::span<std::byte> in, ByteView out, Deadline deadline) {
  while (!in.empty() || !out.empty()) {
    if (!out.empty()) {
      const std::ptrdiff_t sent = send_some(fd, out);
      if (sent < 0) return false;
      out = out.subspan(static_cast<std::size_t>(sent));
    } else {
      const std::ptrdiff_t got = recv_some(fd, in);
      if (got < 0) return false;
      in = in.subspan(static_cast<std::size_t>(got));
    }
    if (in.empty() && out.empty()) return true;
    if (deadline.expired()) return false;
    pollfd polled{fd.get(), static_cast<short>(out.empty() ? POLLIN : POLLOUT), 0};
    ::poll(&polled, 1, static_cast<int>(deadline.left().count()));
  }
  return true;
}
bool send_all(const Fd& fd, ByteView out, Deadline deadline) { return move_all(fd, {}, out, deadline); }
bool recv_all(const Fd& fd, std::span<std::byte> in, Deadline deadline) {
  return move_all(fd, in, {}, deadline);
}

class ClientStore final : public Store {
 public:
  ClientStore(Fd fd, std::string description) : fd_(std::move(fd)), description_(std::move(description)) {}

  Result<void> set(const std::string& key, ByteView value) override {
    SR_TRY(check_store_key(key));
    SR_TRY(check_store_value(value));
    SR_TRY(const StoreReply reply, call({StoreVerb::set, key, to_bytes(value)}));
    if (reply.status == StoreStatus::ok) return {};
    if (reply.status == StoreStatus::conflict) {
      return fail(Code::store, "store.set", "the entry \"" + key + "\" is there already, with another value",
                  "another job uses the same prefix, or a rank was started twice");
    }
    return fail(Code::store, "store.set", "the store is full");
  }
  Result<std::optional<Bytes>> try_get(const std::string& key) override {
    SR_TRY(check_store_key(key));
    SR_TRY(StoreReply reply, call({StoreVerb::get, key, {}}));
    if (reply.status == StoreStatus::absent) return std::nullopt;
    if (reply.status != StoreStatus::ok)
      return fail(Code::store, "store.get", "the store refused to read an entry");
    return std::optional<Bytes>(std::move(reply.value));
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    SR_TRY(check_store_key(key));
    SR_TRY(const StoreReply reply,
           call({StoreVerb::add, key, ByteWriter().put(static_cast<std::uint64_t>(amount)).take()}));
    if (reply.status != StoreStatus::ok || reply.value.size() != sizeof(std::uint64_t)) {
      return fail(Code::store, "store.add", "the store refused to count");
    }
    return static_cast<std::int64_t>(load_be<std::uint64_t>(reply.value.data()));
  }
  Result<void> remove(const std::string& key) override {
    SR_TRY(check_store_key(key));
    SR_TRY(call({StoreVerb::remove, key, {}}));
    return {};
  }
  std::string describe() const override { return description_; }

 private:
  /// One request and its reply. After a failure the connection is given up: a late reply must not be taken
  /// for that of a later request.
  Result<StoreReply> call(const StoreRequest& request) {
    const std::lock_guard lock(mutex_);
    if (!fd_.valid()) return lost("the connection to it was lost before");
    const Deadline deadline = Deadline::in(kRequestMax);
    std::array<std::byte, kStoreReplyHeaderBytes> header;
    StoreReply reply;
    if (!send_all(fd_, request.encode(), deadline) || !recv_all(fd_, header, deadline)) {
      return lost(deadline.expired() ? "it did not answer for 10 s" : "it closed the connection");
    }
    const auto value_bytes = parse_store_reply_header(header, reply.status);
    if (!value_bytes) return lost("its answer has not the layout it must have");
    reply.value.resize(*value_bytes);
    if (!recv_all(fd_, reply.value, deadline)) return lost("it closed the connection");
    return reply;
  }
  tl::unexpected<Error> lost(const std::string& why) {
    fd_.reset();
    return fail(Code::store, "store.request", "the store at " + description_ + " is lost: " + why,
                "look at rank 0, which serves it");
  }

  std::mutex mutex_;
  Fd fd_;
  const std::string description_;
};

class ServingStore final : public Store {
 public:
  ServingStore(std::unique_ptr<TcpStoreServer> server, std::string description)
      : server_(std::move(server)), description_(std::move(description)) {}
  Result<void> set(const std::string& key, ByteView value) override {
    SR_TRY(check_store_key(key));
    SR_TRY(check_store_value(value));
    return server_->entries().set(key, value);
  }
  Result<std::optional<Bytes>> try_get(const std::string& key) override {
    SR_TRY(check_store_key(key));
    return server_->entries().get(key);
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    SR_TRY(check_store_key(key));
    return server_->entries().add(key, amount);
  }
  Result<void> remove(const std::string& key) override {
    SR_TRY(check_store_key(key));
    server_->entries().remove(key);
    return {};
  }
  std::string describe() const override { return description_; }

 private:
  std::unique_ptr<TcpStoreServer> server_;
  const std::string description_;
};

/// Where to listen for a host name that everybody uses to reach rank 0: at that very address when it is one
/// of this machine's, else (a service name, a translated address, a name that /etc/hosts maps to loopback) at
/// all of them.
Result<SocketAddress> serving_address(const TcpStoreConfig& config) {
  SR_TRY(const auto addresses, resolve(config.host, config.port, false, Code::store, "store.serve"));
  SR_TRY(const auto interfaces, list_interfaces());
  const bool means_loopback = find_reach(config.host).means_loopback;
  for (const SocketAddress& address : addresses) {
    if (address.loopback()) {
      if (means_loopback) return address;
      continue;
    }
    for (const InterfaceAddress& own : interfaces) {
      if (own.address.host() == address.host()) return address;
    }
  }
  const bool v6 = addresses.front().storage.ss_family == AF_INET6;
  SR_TRY(const auto any, resolve(v6 ? "::" : "0.0.0.0", config.port, true, Code::store, "store.serve"));
  return any.front();
}

Result<std::unique_ptr<Store>> serve(const TcpStoreConfig& config, SecretBytes key) {
  SR_TRY(const SocketAddress address, serving_address(config));
  auto listener = listen_on(address, "store.serve");
  if (!listener) {
    Error error = listener.error();
    if (error.code == Code::port)
      error.next = "free the port, or set MASTER_PORT to another one on every rank";
    return fail(std::move(error));
  }
  SocketAddress named = local_address(*listener);
  const std::string description = "tcp://" + config.host + ":" + std::to_string(named.port());
  SR_TRY(auto server, TcpStoreServer::start(std::move(*listener), std::move(key)));
  return std::make_unique<ServingStore>(std::move(server), description);
}

enum class Joined : std::uint8_t { yes, try_again, wrong_key, foreign };

/// The proof of the job key, both ways.
Joined join(const Fd& fd, const SecretBytes& key, Deadline deadline) {
  std::array<std::byte, kStoreGreetingBytes> greeting;
  if (!recv_all(fd, greeting, deadline)) return Joined::try_again;
  const ByteView magic = as_bytes(kStoreMagic);
  if (!std::equal(magic.begin(), magic.end(), greeting.begin())) return Joined::foreign;
  StoreChallenge theirs, mine;
  std::copy(greeting.begin() + 8, greeting.end(), theirs.begin());
  random_bytes(mine);
  const Hash256 mac = store_mac(key, "store-client", theirs, mine);
  if (!send_all(fd, ByteWriter().put(ByteView(mine)).put(ByteView(mac)).take(), deadline))
    return Joined::try_again;
  std::array<std::byte, kStoreWelcomeBytes> welcome;
  if (!recv_all(fd, welcome, deadline)) return Joined::try_again;
  // A server that admits this rank but cannot prove the key itself has another one too.
  const bool proven =
      constant_time_equal(store_mac(key, "store-server", theirs, mine), ByteView(welcome).subspan(1));
  return welcome[0] == std::byte{0} && proven ? Joined::yes : Joined::wrong_key;
}

Result<std::unique_ptr<Store>> connect_client(const TcpStoreConfig& config, const SecretBytes& key,
                                              Deadline deadline) {
  const std::string description = "tcp://" + config.host + ":" + std::to_string(config.port);
  std::chrono::milliseconds backoff{10};
  std::string problem = "nobody listens there";
  bool foreign = false;
  for (std::size_t attempt = 0;; ++attempt) {
    // The name is asked for again each time: it may come into being after this rank has started.
    const auto addresses = resolve(config.host, config.port, false, Code::store, "store.connect");
    if (addresses) {
      SR_TRY(Fd fd, begin_connect((*addresses)[attempt % addresses->size()], "store.connect"));
      pollfd polled{fd.get(), POLLOUT, 0};
      const auto limit = Deadline::in(std::chrono::seconds(5)).earlier(deadline);
      const bool ended = fd.valid() && ::poll(&polled, 1, static_cast<int>(limit.left().count())) > 0;
      if (ended && connect_error(fd) == 0 && !connected_to_itself(fd)) {
        const Joined joined = join(fd, key, deadline);
        foreign = foreign || joined == Joined::foreign;
        switch (joined) {
          case Joined::yes:
            return std::make_unique<ClientStore>(std::move(fd), description);
          case Joined::wrong_key:
            return fail(Code::rdv_key, "store.connect",
                        "the store at rank 0 (" + description + ") uses another job key");
          case Joined::foreign:
            problem = "something else listens there";
            break;
          case Joined::try_again:
            if (!foreign) problem = "it did not answer, or closed the connection, before the proof";
            break;
        }
      }
    } else {
      problem = addresses.error().what;
    }
    if (deadline.expired()) {
      return fail(Code::store, "store.connect",
                  "the store at " + description + " was not reached before the deadline: " + problem);
    }
    std::this_thread::sleep_for(std::min(backoff, deadline.left()));
    backoff = std::min(backoff * 2, kBackoffMax);
  }
}

}  // namespace

Result<std::unique_ptr<Store>> make_tcp_store(const TcpStoreConfig& config, const SecretBytes& store_secret,
                                              Deadline deadline) {
  SecretBytes key = store_key(store_secret, config.prefix);
  if (config.serve) return serve(config, std::move(key));
  return connect_client(config, key, deadline);
}

}  // namespace sealring
