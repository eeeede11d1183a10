// The one thread of the control plane: beats, listens, tells everybody of a death, and takes leave.
//
// Locking: `mutex_` guards what callers and the thread share (book, recorder, requests). Peers, keys and
// streams belong to the thread alone. No lock is held while the verdict is set, because its callbacks run in
// the setter's thread and may call back into this object.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "sealring/control/control.h"
#include "sealring/control/diagnosis.h"
#include "sealring/control/frame.h"
#include "sealring/control/messages.h"
#include "sealring/control/recorder.h"
#include "sealring/control/signature_book.h"

namespace sealring {

class ControlThread final : public Control {
 public:
  ControlThread(const ControlConfig& config, GroupKeys& keys, std::unique_ptr<ControlStreams> streams,
                Verdict& verdict);
  ~ControlThread() override;
  /// Errors: OUT_OF_MEMORY when no thread can be had.
  Result<void> launch();

  void op_started(const OpContext& context, const std::vector<Rank>& members) override;
  void op_finished(const std::array<std::byte, 32>& group_id, std::uint64_t seq, bool ok) override;
  std::optional<std::uint64_t> last_heard(const std::array<std::byte, 32>& group_id,
                                          Rank peer) const override;
  void forget_group(const std::array<std::byte, 32>& group_id) override;
  void announce_death(const Error& error, Deadline deadline) noexcept override;
  Result<void> leave(Deadline deadline) override;

 private:
  /// What the verdict's callback needs; it may outlive this object, for a verdict forgets no callback.
  struct Bell {
    std::mutex mutex;
    ControlStreams* streams = nullptr;  ///< null once they are closed
    void ring() noexcept;
  };
  struct Peer {
    std::unique_ptr<FrameSealer> out;
    std::unique_ptr<FrameOpener> in;
    Clock::time_point last_heard;
    bool closed = false;       ///< the stream has ended: nothing more can be sent
    bool unbelieved = false;   ///< a frame was not authentic: nothing more is heard, but it is still told
    bool left = false;         ///< it said LEAVE
    bool knows_leave = false;  ///< it said LEAVE_SEEN
    bool answered = false;     ///< its recorder has come
    std::vector<OpContext> ops;
    std::optional<AbortReport> report;
    bool mute() const { return closed || unbelieved; }
  };
  /// Guarded by mutex_.
  struct Requests {
    bool stop = false;
    std::optional<Deadline> leave_until;
    std::optional<Deadline> death_until;
    std::optional<Mismatch> mismatch;
  };
  struct Death {
    Clock::time_point began, collect_until, collect_silent_until, end;
    bool diagnosed = false;
  };

  void run() noexcept;
  bool step();
  Deadline next_wake() const;
  void finish() noexcept;

  void hear(ControlEvent event);
  void hear_frames(Rank rank, Peer& peer, ByteView bytes);
  void take(Rank rank, Peer& peer, ControlMessage message);
  void take_abort(Rank rank, Peer& peer, AbortReport report);
  void send(Rank rank, Peer& peer, const ControlMessage& message);
  void send_all(const ControlMessage& message);
  void lose(Rank rank, std::string what);
  void end_session(Error error);

  void beat();
  void check_mismatch(std::optional<Mismatch> mismatch);
  void check_desertion();
  void check_silence();
  void begin_death();
  bool death_done();
  void settle_diagnosis();
  bool leave_done(Deadline until);
  Requests requests();

  const ControlConfig config_;
  const std::array<std::byte, 32> world_group_;
  Verdict& verdict_;
  std::unique_ptr<ControlStreams> streams_;
  std::shared_ptr<Bell> bell_;

  std::map<Rank, Peer> peers_;
  Clock::time_point next_beat_;
  std::optional<Death> death_;
  std::optional<AbortReport> first_report_;  ///< the abort that set the verdict: passed on as it is
  bool leave_said_ = false;

  mutable std::mutex mutex_;
  std::condition_variable finished_changed_;
  SignatureBook book_;
  FlightRecorder recorder_;
  Requests requests_;
  bool finished_ = false;
  std::vector<Rank> stayed_;  ///< peers that had not said LEAVE when this rank left

  std::thread thread_;
};

}  // namespace sealring
