// Ranks as processes and hosts: one listener, proven connections, one poll per exchange.
#include <poll.h>

#include <cerrno>

#include "sealring/base/log.h"
#include "sealring/transport/interface.h"
#include "sealring/transport/stream_closer.h"
#include "sealring/transport/tcp_acceptor.h"
#include "sealring/transport/tcp_connector.h"
#include "sealring/transport/tcp_control.h"

namespace sealring {
namespace {

class TcpTransport final : public Transport, public StreamCloser {
 public:
  TcpTransport(std::string interface_name, std::string address, Fd abort_event,
               std::unique_ptr<TcpStreams> streams, std::unique_ptr<TcpAcceptor> acceptor)
      : interface_name_(std::move(interface_name)),
        address_(std::move(address)),
        abort_event_(std::move(abort_event)),
        streams_(std::move(streams)),
        acceptor_(std::move(acceptor)) {}
  ~TcpTransport() override {
    abort();
    acceptor_.reset();
    streams_->close_all();
  }

  std::string address() const override { return address_; }
  std::string describe() const override { return "tcp " + interface_name_ + " " + address_; }
  Result<void> open_group(const GroupLinks& links, Deadline deadline) override;
  void close_group(const std::array<std::byte, 8>& group) noexcept override { streams_->close_group(group); }
  Result<void> exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream&,
                        Deadline deadline) override {
    TcpWaiter waiter(abort_event_);
    return run_exchange(sends, recvs,
                        {[this](const StreamId& id) { return streams_->find(id); }, &waiter, &aborted_},
                        deadline);
  }
  Result<std::size_t> wait_readable(std::span<const StreamId> ids, std::size_t bytes,
                                    Deadline deadline) override;
  Result<std::unique_ptr<ControlStreams>> control_streams() override {
    SR_TRY(Fd wake, make_event("transport.control"));
    return std::make_unique<TcpControl>(std::move(wake), streams_->control_streams());
  }
  void abort() noexcept override {
    aborted_.store(true, std::memory_order_release);
    raise_event(abort_event_);  // stays raised: every wait from now on ends at once
  }
  void close_stream(const StreamId& id) noexcept override {
    if (const auto stream = streams_->find(id)) stream->shut();
  }

 private:
  const std::string interface_name_, address_;
  const Fd abort_event_;
  const std::unique_ptr<TcpStreams> streams_;
  std::unique_ptr<TcpAcceptor> acceptor_;
  std::atomic<bool> aborted_{false};
};

Result<void> TcpTransport::open_group(const GroupLinks& links, Deadline deadline) {
  SR_TRY(const Fd filled_event, make_event("transport.open"));
  TcpConnector connector(links, *streams_);
  SR_TRY(connector.prepare());
  acceptor_->take_fd_limit_met();
  streams_->add_group(links, filled_event);
  acceptor_->group_opened();
  Result<void> result = connector.run(filled_event, abort_event_, deadline);
  streams_->keys_done(links.group);
  if (result) return {};
  streams_->close_group(links.group);
  if (result.error().code == Code::timeout && acceptor_->take_fd_limit_met()) {
    return fail(socket_error(EMFILE, Code::fd_limit, "transport.open", "accepting connections"));
  }
  return result;
}

Result<std::size_t> TcpTransport::wait_readable(std::span<const StreamId> ids, std::size_t bytes,
                                                Deadline deadline) {
  const char* stage = "transport.wait";
  SR_CHECK(bytes <= kWaitBytesMax, bytes);
  std::vector<std::shared_ptr<TcpStream>> streams;
  std::vector<Rank> peers;
  for (const StreamId& id : ids) {
    streams.push_back(streams_->find(id));
    peers.push_back(id.peer);
    if (!streams.back())
      return fail(Code::invalid_argument, stage, "a stream is not open", "open the group first");
  }
  TcpWaiter waiter(abort_event_);
  std::vector<Interest> interests(streams.size());
  while (true) {
    if (aborted_.load(std::memory_order_acquire)) return fail(transport_aborted(stage));
    for (std::size_t i = 0; i < streams.size(); ++i) {
      bool ended = false;
      if (streams[i]->read_ahead(bytes, ended) >= bytes) return i;
      if (ended && streams[i]->closed_here()) return fail(transport_aborted(stage));
      if (ended) return fail(peer_lost(ids[i].peer, stage, "its stream has ended"));
      interests[i] = {streams[i].get(), true, false, false, false};
    }
    if (deadline.expired()) return fail(timed_out(stage, "nothing came from " + name_ranks(peers), peers));
    SR_TRY(waiter.wait(interests, deadline));
  }
}

/// The first free port of the range.
Result<Fd> listen_in_range(SocketAddress address, const TcpConfig& config) {
  const char* stage = "transport.listen";
  if (config.port_min > config.port_max)
    return fail(Code::port, stage, "the port range ends before it begins");
  std::uint32_t port = config.port_min;
  while (true) {
    address.set_port(static_cast<std::uint16_t>(port));
    Result<Fd> listener = listen_on(address, stage);
    if (listener || listener.error().code != Code::port) return listener;
    if (++port > config.port_max) {
      if (config.port_min == config.port_max) return listener;
      return fail(Code::port, stage,
                  "no port from " + std::to_string(config.port_min) + " to " +
                      std::to_string(config.port_max) + " is free on " + address.host() +
                      "; the last one: " + listener.error().what);
    }
  }
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpConfig& config) {
  SR_TRY(const auto candidates, list_interfaces());
  const Reach reach = find_reach(config.reach_host);
  SR_TRY(const InterfaceAddress chosen, choose_interface(config.interface_name, candidates, reach));
  if (chosen.address.loopback() && !reach.means_loopback) {
    log(LogLevel::warning, "loopback_only",
        {{"interface", chosen.name},
         {"reason",
          "ranks on other hosts cannot reach this one; set SEALRING_SOCKET_IFNAME to another interface"}});
  }
  SR_TRY(Fd listener, listen_in_range(chosen.address, config));
  const std::string address = local_address(listener).text();
  SR_TRY(Fd abort_event, make_event("transport.listen"));
  auto streams = std::make_unique<TcpStreams>();
  SR_TRY(auto acceptor, TcpAcceptor::start(std::move(listener), *streams));
  return std::make_unique<TcpTransport>(chosen.name, address, std::move(abort_event), std::move(streams),
                                        std::move(acceptor));
}

}  // namespace sealring
