// A network in memory that delivers as early and takes as late as a transport may: a rank is handed all that
// has come for it before it is asked for another piece, and is asked only when nothing has come for a while.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "sealring/transport/transport.h"

namespace sealring::testing {

class LateSends : public std::enable_shared_from_this<LateSends> {
 public:
  /// `inner` does everything but exchange().
  std::unique_ptr<Transport> wrap(Rank rank, std::unique_ptr<Transport> inner) {
    return std::make_unique<End>(shared_from_this(), rank, std::move(inner));
  }

 private:
  static constexpr auto kQuiet = std::chrono::milliseconds(2);
  using PipeKey = std::tuple<std::array<std::byte, 8>, Rank, Rank, Kind, Lane>;  ///< group, from, to

  void push(const PipeKey& key, ByteView piece) {
    const std::lock_guard lock(mutex_);
    pipes_[key].insert(pipes_[key].end(), piece.begin(), piece.end());
    arrived_.notify_all();
  }
  bool pop(const PipeKey& key, std::span<std::byte> buffer) {
    const std::lock_guard lock(mutex_);
    Bytes& pipe = pipes_[key];
    if (pipe.size() < buffer.size()) return false;
    std::copy_n(pipe.begin(), buffer.size(), buffer.begin());
    pipe.erase(pipe.begin(), pipe.begin() + static_cast<std::ptrdiff_t>(buffer.size()));
    return true;
  }
  void wait_a_while() {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, kQuiet);
  }

  class End final : public Transport {
   public:
    End(std::shared_ptr<LateSends> net, Rank me, std::unique_ptr<Transport> inner)
        : net_(std::move(net)), me_(me), inner_(std::move(inner)) {}
    std::string address() const override { return inner_->address(); }
    Result<void> open_group(const GroupLinks& links, Deadline deadline) override {
      return inner_->open_group(links, deadline);
    }
    void close_group(const std::array<std::byte, 8>& group) noexcept override { inner_->close_group(group); }
    Result<void> exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream&,
                          Deadline deadline) override {
      std::vector<bool> sent(sends.size()), received(recvs.size());
      for (std::size_t turn = 0, quiet = 0;; ++quiet) {
        bool pending = false;
        for (std::size_t i = 0; i < recvs.size(); ++i) {
          while (!received[i]) {
            SR_TRY(const auto buffer, recvs[i].sink->buffer());
            if (buffer && buffer->empty()) {
              received[i] = true;
            } else if (buffer && net_->pop(key(recvs[i].stream.peer, me_, recvs[i].stream), *buffer)) {
              SR_TRY(recvs[i].sink->filled());
              quiet = 0;
            } else {
              break;
            }
          }
          pending = pending || !received[i];
        }
        for (std::size_t i = 0; i < sends.size(); ++i) pending = pending || !sent[i];
        if (!pending) return {};
        if (aborted_.load() || deadline.expired()) return fail(Code::aborted, "late_sends", "gave up");
        if (quiet >= 2 && !sends.empty()) {
          SR_TRY(send_one(sends, sent, turn));
          quiet = 0;
        } else {
          net_->wait_a_while();
        }
      }
    }
    Result<std::size_t> wait_readable(std::span<const StreamId> streams, std::size_t bytes,
                                      Deadline deadline) override {
      return inner_->wait_readable(streams, bytes, deadline);
    }
    Result<std::unique_ptr<ControlStreams>> control_streams() override { return inner_->control_streams(); }
    void abort() noexcept override {
      aborted_.store(true);
      inner_->abort();
    }
    std::string describe() const override { return "late sends"; }

   private:
    static PipeKey key(Rank from, Rank to, const StreamId& id) {
      return {id.group, from, to, id.kind, id.lane};
    }
    /// The next piece of one unfinished send, in turn.
    Result<void> send_one(std::span<const Send> sends, std::vector<bool>& sent, std::size_t& turn) {
      for (std::size_t tried = 0; tried < sends.size(); ++tried) {
        const std::size_t i = turn++ % sends.size();
        if (sent[i]) continue;
        SR_TRY(const ByteView piece, sends[i].source->next());
        if (!piece.empty()) {
          net_->push(key(me_, sends[i].stream.peer, sends[i].stream), piece);
          return {};
        }
        sent[i] = true;
      }
      return {};
    }

    std::shared_ptr<LateSends> net_;
    Rank me_;
    std::unique_ptr<Transport> inner_;
    std::atomic<bool> aborted_{false};
  };

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<PipeKey, Bytes> pipes_;
};

}  // namespace sealring::testing
