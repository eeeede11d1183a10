// The sessions of this process: the first group makes one (a handshake), later groups of its ranks split it.
#pragma once

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/sealring/torch_store.h"
#include "python/sealring/torch_tensors.h"
#include "sealring/base/log.h"
#include "sealring/base/process_mark.h"
#include "sealring/collective/communicator.h"
#include "sealring/collective/schedule.h"
#include "sealring/session/identity.h"

namespace sealring::torch_backend {

/// What the study's second backend is made of. Absent: the secured backend, which has no such settings.
struct StudySettings {
  Suite suite = Suite::plain;
  std::optional<Algorithm> algorithm;
  std::optional<std::uint32_t> segment_bytes;
  std::optional<Emulation> emulation;
  std::string job_key_file;  ///< of the study's run
};

/// Destroys nothing in a forked child: the parent's threads and sockets are not the child's to end.
template <class T>
class ParentOnly {
 public:
  ParentOnly() = default;
  explicit ParentOnly(std::shared_ptr<T> object) : object_(std::move(object)) {}
  ParentOnly(ParentOnly&&) noexcept = default;
  ParentOnly& operator=(ParentOnly&&) noexcept = default;
  ~ParentOnly() {
    if (object_ && process_.forked()) new std::shared_ptr<T>(std::move(object_));  // left alone on purpose
  }
  T* operator->() const { return object_.get(); }
  explicit operator bool() const { return object_ != nullptr; }
  void reset() { object_.reset(); }

 private:
  std::shared_ptr<T> object_;
  ProcessMark process_;
};

struct LiveSession {
  ParentOnly<Session> session;
  std::string backend_name;               ///< "sealring" and "sealring_study" never share a session
  std::vector<std::int64_t> torch_ranks;  ///< torch's global rank of each session rank
  std::string fingerprint;                ///< of the job key
  bool closed = false;                    ///< guarded by the registry
  const ProcessMark process;
};

/// Threads for crypto: the cores that this rank has beyond the one that trains.
inline unsigned spare_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
  const char* local = std::getenv("LOCAL_WORLD_SIZE");
  int ranks = 1;
  if (local != nullptr) (void)std::from_chars(local, local + std::strlen(local), ranks);
  return static_cast<unsigned>(std::clamp(CPU_COUNT(&set) / std::max(1, ranks) - 1, 0, 4));
}

struct SessionRequest {
  std::string backend_name;
  std::optional<StudySettings> study;
  int rank = 0, size = 1;
  std::vector<std::int64_t> torch_ranks;
  bool is_world = false;  ///< torch's default group
  std::chrono::milliseconds timeout{0};
  bool blocking_wait = false;
};

class SessionRegistry {
 public:
  static SessionRegistry& instance() {
    static auto* registry = new SessionRegistry;
    return *registry;
  }
  /// The oldest open session of this backend that has all of `torch_ranks`; all its members find the same
  /// one, because they made their sessions in the same order. Errors: FORKED where only the parent process
  /// has it; a forked child may make a world of its own.
  Result<std::shared_ptr<LiveSession>> holding(const SessionRequest& request) {
    const std::lock_guard lock(mutex_);
    for (const auto& weak : sessions_) {
      auto live = weak.lock();
      if (!live || live->closed || live->backend_name != request.backend_name) continue;
      const auto has = [&](std::int64_t rank) {
        return std::find(live->torch_ranks.begin(), live->torch_ranks.end(), rank) != live->torch_ranks.end();
      };
      if (!std::all_of(request.torch_ranks.begin(), request.torch_ranks.end(), has)) continue;
      if (!live->process.forked()) return live;
      if (!request.is_world)
        return fail(
            Code::forked, "new_group", "this process was forked from the one that made the session",
            "make groups in the parent, or destroy_process_group() and init_process_group() here first");
    }
    return nullptr;
  }
  void add(const std::shared_ptr<LiveSession>& live) {
    const std::lock_guard lock(mutex_);
    std::erase_if(sessions_, [](const auto& weak) { return weak.expired(); });
    sessions_.push_back(live);
  }
  /// Tells the peers and closes; waits at most `span`. Nothing in a forked child.
  Result<void> close(LiveSession& live, std::chrono::milliseconds span) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(live.closed, true) || live.process.forked()) return {};
    }
    return live.session->close(Deadline::in(span));
  }
  void close_all(std::chrono::milliseconds span) {
    std::vector<std::shared_ptr<LiveSession>> open;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& weak : sessions_)
        if (auto live = weak.lock()) open.push_back(std::move(live));
    }
    for (const auto& live : open) (void)close(*live, span);
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<LiveSession>> sessions_;
};

inline Result<Identity> make_identity(const Environment& env, const std::optional<StudySettings>& study,
                                      std::uint32_t world) {
  const std::string& path = study ? study->job_key_file : env.job_key_file;
  if (path.empty())
    return fail(Code::no_identity, "identity", "no job key: SEALRING_JOB_KEY_FILE is not set",
                "make one with `sealring keygen FILE`, copy it to every machine (mode 0600), and set "
                "SEALRING_JOB_KEY_FILE=FILE for every rank");
  SR_TRY(const JobKey key, JobKey::read(path));
  if (key.world() && *key.world() != world)
    return fail(Code::roster_size, "identity",
                "the job key is for " + std::to_string(*key.world()) + " ranks and this job has " +
                    std::to_string(world),
                "start that many ranks, or make a key without a world size");
  return study ? make_study_identity(key) : make_job_key_identity(key);
}

/// SEALRING_ON_ERROR=exit: how long a program may live on after its session has ended.
inline constexpr std::chrono::seconds kExitAfter{10};

inline Result<CommConfig> make_config(const Environment& env, const std::optional<StudySettings>& study,
                                      int rank, int size, std::chrono::milliseconds timeout) {
  CommConfig config;
  if (size < 1)
    return fail(Code::invalid_argument, "config", "PyTorch gave no number of ranks for this group",
                "start with torchrun, or give init_process_group world_size and rank");
  if (size > static_cast<int>(kRanksMax))
    return fail(Code::unsupported, "config", std::to_string(size) + " ranks are not supported",
                "use at most " + std::to_string(kRanksMax));
  config.rank = static_cast<Rank>(rank);
  config.world = static_cast<std::uint16_t>(size);
  config.timeout = timeout;
  config.connect_timeout = std::min(timeout, config.connect_timeout);
  config.workers = spare_cores();
  config.node_ranks = env.node_ranks;
  if (env.on_error == OnError::exit) config.exit_after = kExitAfter;
  if (env.suite) config.suite = *env.suite;
  if (!study) return config;
  config.suite = study->suite;
  config.algorithm = study->algorithm;
  config.emulation = study->emulation;
  if (study->segment_bytes) config.segment_bytes = *study->segment_bytes;
  return config;
}

/// Of a session that is not of torch's whole world: a variable that says how the world lies.
inline std::uint16_t session_node_ranks(const std::vector<std::int64_t>& torch_ranks,
                                        std::uint16_t node_ranks) {
  std::vector<Rank> ranks;
  for (const std::int64_t rank : torch_ranks) ranks.push_back(static_cast<Rank>(rank));
  return node_ranks_of(ranks, node_ranks);
}

/// The handshake; every rank of the group calls it. Blocks: without the GIL.
inline Result<std::shared_ptr<LiveSession>> open_session(const SessionRequest& request,
                                                         c10::intrusive_ptr<c10d::Store> store) {
  SR_TRY(const Environment env, Environment::read());
  log_setup(env.log, request.rank);
  harden_process(env.harden);
  SR_TRY(auto config, make_config(env, request.study, request.rank, request.size, request.timeout));
  if (!request.is_world) config.node_ranks = session_node_ranks(request.torch_ranks, env.node_ranks);
  SR_TRY(auto identity, make_identity(env, request.study, config.world));
  const std::string key_file = request.study ? request.study->job_key_file : env.job_key_file;
  const std::string fingerprint = identity.fingerprint;
  log(LogLevel::info, "session begins",
      {{"world", std::to_string(config.world)}, {"key", fingerprint}, {"key_file", key_file}});
  const char* master = std::getenv("MASTER_ADDR");
  const TcpConfig tcp{env.socket_ifname, env.port_min, env.port_max, master == nullptr ? "" : master};
  SR_TRY(auto transport, make_tcp_transport(tcp));
  auto live = std::make_shared<LiveSession>();
  live->backend_name = request.backend_name;
  live->torch_ranks = request.torch_ranks;
  live->fingerprint = fingerprint;
  auto session = Session::connect(config, std::move(identity), std::move(transport),
                                  make_torch_store(std::move(store), "PyTorch's store"), "sealring");
  if (!session) {
    Error error = session.error();
    if (error.code == Code::job_key || error.code == Code::rdv_key)
      error.what += "; the key of this rank has fingerprint " + fingerprint + " (" + key_file + ")";
    return fail(std::move(error));
  }
  live->session = ParentOnly<Session>(*std::move(session));
  SessionRegistry::instance().add(live);
  return live;
}

/// A communicator of the request's ranks out of a session that has them all.
inline Result<std::shared_ptr<Communicator>> split_session(LiveSession& live, const SessionRequest& request,
                                                           c10::intrusive_ptr<c10d::Store> store) {
  std::vector<Rank> members;
  for (const std::int64_t rank : request.torch_ranks) {
    const auto at = std::find(live.torch_ranks.begin(), live.torch_ranks.end(), rank);
    members.push_back(static_cast<Rank>(at - live.torch_ranks.begin()));
  }
  if (!std::is_sorted(members.begin(), members.end()))
    return fail(Code::unsupported, "new_group", "the group's ranks are not in ascending order",
                "pass sorted ranks (new_group's default)");
  SR_TRY(const auto shared, make_bounded_store(make_torch_store(std::move(store), "PyTorch's store"),
                                               Deadline::in(live.session->config().connect_timeout)));
  // A world that is destroyed and made again uses the same names in the same store: earlier entries must not
  // be met.
  auto arrived = shared->add("sealring/split/arrivals", 1);
  if (arrived && *arrived < 1)
    arrived = fail(Code::store, "new_group.arrivals", "the store's arrival counter is not a count",
                   "another program writes to PyTorch's store");
  if (!arrived) {
    arrived.error().rank = live.session->config().rank;
    return fail(std::move(arrived).error());
  }
  const auto turn = (*arrived - 1) / static_cast<std::int64_t>(members.size());
  return live.session->split(members, *shared, "sealring/split/" + std::to_string(turn));
}

}  // namespace sealring::torch_backend
