#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "sealring/base/boundary.h"
#include "sealring/base/log.h"
#include "sealring/channel/establish.h"
#include "sealring/collective/communicator.h"
#include "sealring/collective/device_communicator.h"
#include "sealring/collective/group_communicator.h"
#include "sealring/collective/session_core.h"

namespace sealring {
namespace {

Result<void> check_nodes(const CommConfig& config) {
  if (config.node_ranks > 0 && config.world % config.node_ranks != 0) {
    return fail(Code::invalid_argument, "session.config",
                fmt::format("{} ranks do not lie on nodes of {} ranks each", config.world, config.node_ranks),
                "start equally many ranks on every node, or leave node_ranks (SEALRING_NODE_RANKS) out");
  }
  if (config.algorithm == Algorithm::two_level && config.node_ranks == 0) {
    return fail(Code::invalid_argument, "session.config",
                "algorithm two-level needs to know how many ranks lie on a node",
                "give node_ranks (SEALRING_NODE_RANKS), or another algorithm");
  }
  return {};
}

Result<void> check_config(const CommConfig& config, const Identity& identity) {
  const auto bad = [](std::string what) {
    return fail(Code::invalid_argument, "session.config", std::move(what));
  };
  if (config.world == 0 || config.world > kRanksMax)
    return bad(fmt::format("world {} is not 1..{}", config.world, kRanksMax));
  if (config.rank >= config.world)
    return bad(fmt::format("rank {} is not below world {}", config.rank, config.world));
  if (config.segment_bytes < 64 || config.segment_bytes > (1u << 20) || config.segment_bytes % 64 != 0) {
    return bad(
        fmt::format("segment of {} bytes: a multiple of 64 up to 1 MiB is needed", config.segment_bytes));
  }
  SR_TRY(check_nodes(config));
  if (config.emulation && config.suite != Suite::plain) return bad("an emulated cost needs suite plain");
  if (identity.attester == nullptr || identity.verifier == nullptr) {
    return fail(Code::no_identity, "session.config", "no identity is configured");
  }
  // Decision 8: the study's suites exist for the study's identity alone.
  if (suite_is_study(config.suite) && identity.attester->kind() != IdentityKind::study) {
    return fail(Code::suite, "session.config",
                fmt::format("suite {} exists for the study only", to_string(config.suite)),
                "use aes-256-gcm, aes-128-gcm or chacha20-poly1305");
  }
  return {};
}

class SessionImpl final : public Session {
 public:
  SessionImpl(std::shared_ptr<SessionCore> core, Identity identity)
      : core_(std::move(core)), identity_(std::move(identity)) {}
  ~SessionImpl() override {
    if (!core_->forked()) (void)close(Deadline::in(SessionCore::kTeardownMax));
  }

  /// From nothing to a world communicator; on an error everything made so far is undone by the destructors.
  Result<void> start(std::shared_ptr<Store> store, const std::string& prefix) {
    const std::uint64_t start_ns = now_ns();
    const CommConfig& config = core_->config;
    const Deadline deadline = Deadline::in(config.connect_timeout);
    HandshakeConfig handshake;
    handshake.rank = config.rank;
    handshake.world = config.world;
    handshake.suite = config.suite;
    handshake.config_text = config.canonical();
    // Whatever the store is, it may fall silent.
    SR_TRY(const auto bounded, make_bounded_store(std::move(store), deadline));
    SR_TRY(Established established,
           establish_world(handshake, identity_, *bounded, prefix, core_->transport->address(), deadline));
    core_->adopt(std::move(established.keys), std::move(established.addresses), identity_.description);
    GroupKeys& world_keys = core_->keys->world_group();
    if (config.world > 1) {
      SR_TRY(GroupLinks links, core_->with_keys([&]() -> Result<GroupLinks> {
        return core_->links_for(world_keys, {Kind::ctl, Kind::pair, Kind::p2p});
      }));
      SR_TRY(connect_group(*core_->transport, std::move(links), *bounded, established.prefix, config.world,
                           deadline));
      SR_TRY(auto streams, core_->transport->control_streams());
      const ControlConfig control{
          config.rank, config.world, config.heartbeat, std::chrono::milliseconds(0), {}};
      SR_TRY(auto started, core_->with_keys([&] {
        return Control::start(control, world_keys, std::move(streams), core_->verdict);
      }));
      core_->adopt(std::move(started));
      // Every peer has proved keys by its connection, so every peer is past the handshake: nobody reads these
      // now.
      cleanup(*bounded, established.prefix, config.rank, config.world);
    }
    // From the start of the control plane on, another rank may end the session at any time.
    SR_TRY(world_, core_->with_keys([&]() -> Result<std::shared_ptr<GroupCommunicator>> {
      return std::make_shared<GroupCommunicator>(core_, nullptr, world_keys);
    }));
    setup_ns_ = now_ns() - start_ns;
    log(LogLevel::info, "session ready",
        {{"world", std::to_string(config.world)},
         {"suite", std::string(to_string(config.suite))},
         {"identity", identity_.description},
         {"key", identity_.fingerprint},
         {"transport", core_->transport->describe()},
         {"setup_ms", fmt::format("{:.1f}", static_cast<double>(setup_ns_) / 1e6)}});
    return {};
  }

  std::shared_ptr<Communicator> world() override { return world_; }

  Result<std::shared_ptr<Communicator>> split(const std::vector<Rank>& members, Store& store,
                                              const std::string& prefix) override {
    SR_TRY(core_->check_process());
    if (core_->verdict.dead()) return fail(*core_->verdict.error());
    SR_TRY(check_members(members));
    const CommConfig& config = core_->config;
    return without_exceptions("session.split", [&]() -> Result<std::shared_ptr<Communicator>> {
      const Deadline deadline = Deadline::in(config.connect_timeout);
      auto started = core_->with_keys([&] { return SubgroupHandshake::start(*core_->keys, members); });
      SR_TRY(auto keys, establish_group(std::move(started), config.rank, config.world, members, store, prefix,
                                        deadline));
      if (members.size() > 1) {
        SR_TRY(connect_group(*core_->transport, core_->links_for(*keys, {Kind::pair, Kind::p2p}), store,
                             prefix, config.world, deadline));
      }
      GroupKeys& group_keys = *keys;
      auto group = std::make_shared<GroupCommunicator>(core_, std::move(keys), group_keys);
      groups_.push_back(group);
      return std::shared_ptr<Communicator>(group);
    });
  }

  Result<std::shared_ptr<Communicator>> split_on_device(const std::vector<Rank>& members, DevicePlace place,
                                                        Store& store, const std::string& prefix) override {
    SR_TRY(core_->check_process());
    if (core_->verdict.dead()) return fail(*core_->verdict.error());
    SR_TRY(check_members(members));
    return without_exceptions("session.split", [&]() -> Result<std::shared_ptr<Communicator>> {
      auto& queue = device_queues_[place.device];
      if (queue == nullptr) queue = std::make_shared<DeviceQueue>(core_);
      SR_TRY(auto parts, set_up_device_group(*core_, members, place, store, prefix,
                                             Deadline::in(core_->config.connect_timeout)));
      auto group = std::make_shared<DeviceCommunicator>(core_, queue, std::move(parts));
      groups_.push_back(group);
      log(LogLevel::info, "group on a device", {{"is", group->describe()}});
      return std::shared_ptr<Communicator>(group);
    });
  }

  void abort(Error error) noexcept override { core_->die(std::move(error)); }

  Result<void> close(Deadline deadline) override {
    SR_TRY(core_->check_process());
    if (std::exchange(closed_, true)) return {};
    core_->closed();
    bool drained = world_ == nullptr || world_->drain(deadline);
    for (const auto& weak : groups_) {
      if (const auto group = weak.lock()) drained = group->drain(deadline) && drained;
    }
    if (!drained) {
      Error error;
      error.code = Code::aborted;
      error.stage = "session.close";
      error.what = "the session was closed while operations were running";
      core_->die(error);
      return fail(core_->final_error());
    }
    for (const auto& weak : groups_) {
      if (const auto group = weak.lock()) group->leave(deadline);
    }
    if (core_->verdict.dead()) return fail(core_->final_error());
    if (core_->control) return core_->control->leave(deadline);
    return {};
  }

  std::optional<Error> error() const override { return core_->verdict.error(); }
  const CommConfig& config() const override { return core_->config; }
  std::string identity() const override { return core_->identity; }
  std::string transport() const override { return core_->transport->describe(); }
  std::uint64_t setup_ns() const override { return setup_ns_; }

 private:
  Result<void> check_members(const std::vector<Rank>& members) const {
    const bool valid = std::is_sorted(members.begin(), members.end()) &&
                       std::adjacent_find(members.begin(), members.end()) == members.end() &&
                       std::binary_search(members.begin(), members.end(), core_->config.rank) &&
                       members.back() < core_->config.world;
    if (valid) return {};
    return fail(Code::invalid_argument, "session.split",
                "members must be ascending global ranks of this session and hold this rank");
  }

  std::shared_ptr<SessionCore> core_;
  Identity identity_;
  std::shared_ptr<GroupCommunicator> world_;
  std::vector<std::weak_ptr<CheckedCommunicator>> groups_;
  std::map<unsigned, std::shared_ptr<DeviceQueue>> device_queues_;
  std::uint64_t setup_ns_ = 0;
  bool closed_ = false;
};

}  // namespace

Result<std::shared_ptr<Session>> Session::connect(const CommConfig& config, Identity identity,
                                                  std::unique_ptr<Transport> transport,
                                                  std::shared_ptr<Store> store, const std::string& prefix,
                                                  std::shared_ptr<BulkCipher> cipher) {
  SR_TRY(check_config(config, identity));
  return without_exceptions("session.connect", [&]() -> Result<std::shared_ptr<Session>> {
    if (cipher == nullptr) cipher = make_cpu_bulk_cipher();
    auto core = std::make_shared<SessionCore>(config, std::move(transport), std::move(cipher));
    auto session = std::make_shared<SessionImpl>(core, std::move(identity));
    SR_TRY(session->start(std::move(store), prefix));
    return std::shared_ptr<Session>(session);
  });
}

}  // namespace sealring
