// The ctl streams over tcp: one poll over all peers, a bounded queue to each.
#pragma once

#include <map>

#include "sealring/transport/tcp_streams.h"

namespace sealring {

class TcpControl final : public ControlStreams {
 public:
  static constexpr std::size_t kQueuedBytesMax = 1024 * 1024;
  TcpControl(Fd wake, const std::map<Rank, std::shared_ptr<TcpStream>>& streams);
  ~TcpControl() override { close(); }
  std::vector<ControlEvent> wait(Deadline deadline) override;
  Result<void> send(Rank peer, ByteView bytes) override;
  void wake() noexcept override;
  void close() noexcept override;

 private:
  struct Peer {
    std::shared_ptr<TcpStream> stream;
    Bytes queued;
    bool ended = false;
  };
  void flush(Peer& peer);
  void read(Rank rank, Peer& peer, std::vector<ControlEvent>& events);

  const Fd wake_;
  std::mutex mutex_;  ///< queues and ended
  std::map<Rank, Peer> peers_;
  std::atomic<bool> woken_{false}, closed_{false};
};

}  // namespace sealring
