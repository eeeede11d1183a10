#include "sealring/collective/device_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "sealring/base/log.h"
#include "sealring/channel/establish.h"

namespace sealring {
namespace {

/// What one step on the device may take, so that its failure is told before the others give up.
constexpr std::chrono::seconds kConnectMax{60}, kProbeMax{20};
/// Of each member in the probe: several segments a thread block.
constexpr std::uint64_t kProbeBytes = 256 * 1024;

Deadline step_deadline(Deadline whole, std::chrono::milliseconds most) {
  return Deadline::in(std::min(most, whole.left() / 2));
}

/// A death of the session wakes whoever waits on the device.
class AbortOnDeath {
 public:
  AbortOnDeath(SessionCore& core, DeviceGroup& group)
      : core_(core), hook_(core.add_death_hook([&group] { group.abort(); })) {}
  ~AbortOnDeath() { core_.remove_death_hook(hook_); }
  AbortOnDeath(const AbortOnDeath&) = delete;
  AbortOnDeath& operator=(const AbortOnDeath&) = delete;

 private:
  SessionCore& core_;
  SessionCore::HookId hook_;
};

/// One wire tried by all members. `failure`: what they agreed on instead of parts.
struct Attempt {
  DeviceParts parts;
  std::optional<Error> failure;
};

/// Another wire may do where this one did not; nothing is wrong with the members or with what they want.
bool wire_is_at_fault(Code code) {
  return code == Code::cuda || code == Code::gpu_unsupported || code == Code::unsupported ||
         code == Code::timeout || code == Code::peer_lost || code == Code::aborted;
}

class Prober {
 public:
  Prober(SessionCore& core, DeviceParts& parts) : core_(core), parts_(parts) {}

  /// Every member's words go to every other. They are whatever lies in the device's private memory: the tags
  /// say that they have come as they were.
  Result<void> run(Deadline deadline) {
    DeviceChannel& channel = *parts_.channel;
    if (channel.size() == 1) return {};
    auto enqueued = enqueue();
    if (!enqueued) {
      channel.group().abort();
      if (channel.in_op()) (void)channel.end(DType::u8, {});
      return tl::unexpected(std::move(enqueued).error());
    }
    auto ended = wait(*enqueued, deadline);
    if (!ended) channel.group().abort();
    return ended;
  }

 private:
  Result<std::uint64_t> enqueue() {
    DeviceChannel& channel = *parts_.channel;
    OpInfo op;
    op.op = Op::all_gather;
    op.algorithm = Algorithm::one_hop;
    op.elements = kProbeBytes;
    channel.set_stream(channel.group().own_stream());
    SR_TRY(channel.begin(op, {}));
    SR_TRY(std::byte* const words, channel.scratch(channel.size() * kProbeBytes));
    std::vector<OutgoingMove> out;
    std::vector<IncomingMove> in;
    const std::uint64_t mine = channel.rank() * kProbeBytes;
    for (Rank peer = 0; peer < channel.size(); ++peer) {
      if (peer == channel.rank()) continue;
      out.push_back({{peer}, false, 0, words + mine, kProbeBytes, mine, 1.0});
      IncomingMove move;
      move.peer = peer;
      move.dst = words + peer * kProbeBytes;
      move.elements = kProbeBytes;
      move.element_offset = peer * kProbeBytes;
      in.push_back(move);
    }
    SR_TRY(channel.exchange(out, in, {}, Deadline::never()));
    return channel.end(DType::u8, {});
  }

  Result<void> wait(std::uint64_t serial, Deadline deadline) {
    DeviceGroup& group = parts_.channel->group();
    while (true) {
      SR_TRY(const DeviceProgress progress, group.progress());
      if (progress.finished >= serial) return group.verdict();
      if (core_.verdict.dead()) return fail(*core_.verdict.error());
      if (deadline.expired()) return fail(Code::timeout, "device.probe", "sealed words did not get through");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  SessionCore& core_;
  DeviceParts& parts_;
};

class Setup {
 public:
  Setup(SessionCore& core, const std::vector<Rank>& members, DevicePlace place, Deadline deadline)
      : core_(core), members_(members), place_(std::move(place)), deadline_(deadline) {}

  Result<Attempt> attempt(Store& store, const std::string& prefix) {
    const CommConfig& config = core_.config;
    auto started = core_.with_keys([&] { return SubgroupHandshake::start(*core_.keys, members_); });
    SR_TRY(auto keys, establish_group(std::move(started), config.rank, config.world, members_, store, prefix,
                                      deadline_));
    if (members_.size() > 1) {
      SR_TRY(connect_group(*core_.transport, core_.links_for(*keys, {Kind::p2p}), store, prefix, config.world,
                           deadline_));
    }
    Attempt out;
    out.parts.group_id = keys->group_id();
    out.parts.members = members_;
    out.parts.place = place_;
    out.parts.rounds = std::make_unique<SetupRounds>(core_, *keys);
    out.parts.keys = std::make_unique<DeviceKeys>(*keys);
    auto outcome = rounds(out.parts, *keys);
    // From the probe on a member may write into this one's window, which must not be freed then. Before it
    // none does, and who fails in agreement with the others frees it. NCCL is told that nobody comes.
    const bool in_use = probing_ || place_.wire == DeviceWireKind::nccl;
    if (out.parts.channel && (!outcome || (*outcome && in_use))) out.parts.channel->group().abort();
    if (!outcome) {
      core_.die(outcome.error());
      return tl::unexpected(std::move(outcome).error());
    }
    out.failure = *std::move(outcome);
    return out;
  }

 private:
  /// What all members failed by, if they did. Errors: those of the rounds.
  Result<std::optional<Error>> rounds(DeviceParts& parts, const GroupKeys& keys) {
    auto offer = make(parts, keys);
    SR_TRY(const auto offers, share(parts, "device.offer", offer));
    if (failure_) return failure_;
    const AbortOnDeath guard(core_, parts.channel->group());
    const auto connected = parts.channel->group().connect(offers, step_deadline(deadline_, kConnectMax));
    SR_TRY(share(parts, "device.connect", connected.map([] { return Bytes(); })));
    if (failure_) return failure_;
    probing_ = true;
    const auto probed = Prober(core_, parts).run(step_deadline(deadline_, kProbeMax));
    SR_TRY(share(parts, "device.probe", probed.map([] { return Bytes(); })));
    return failure_;
  }

  Result<Bytes> make(DeviceParts& parts, const GroupKeys& keys) {
    const auto at = std::lower_bound(members_.begin(), members_.end(), keys.me());
    DeviceGroupConfig config;
    config.device = place_.device;
    config.suite = keys.suite();
    config.rank = static_cast<Rank>(at - members_.begin());
    config.members = members_;
    config.group_id = keys.group_id();
    config.th3 = keys.th3();
    config.budget = core_.config.budget;
    config.timeout = core_.config.timeout;
    config.columns = place_.columns;
    config.wire = place_.wire;
    SR_TRY(auto group, place_.factory(config, parts.keys->sources()));
    SR_TRY(Bytes offer, group->offer());
    SR_CHECK(offer.size() <= DeviceGroup::kOfferBytesMax, "an offer of bytes", offer.size());
    parts.channel = std::make_unique<DeviceChannel>(std::move(group), config.rank,
                                                    static_cast<std::uint16_t>(members_.size()));
    return offer;
  }

  /// Tells the others how this rank fares, and gives what they offered. Sets failure_ where one does not.
  Result<std::vector<Bytes>> share(DeviceParts& parts, const char* stage, const Result<Bytes>& mine) {
    SetupRecord record{place_.wire, place_.fallback, place_.columns, Code::ok, {}};
    if (mine) {
      record.body = *mine;
    } else {
      record.code = mine.error().code;
      record.body = to_bytes(as_bytes(mine.error().what.substr(0, SetupRecord::kBodyBytesMax)));
    }
    SR_TRY(auto all, parts.rounds->share(record, deadline_));
    std::vector<Bytes> bodies;
    for (std::size_t i = 0; i < all.size(); ++i) {
      judge(all[i], members_[i], stage);
      bodies.push_back(std::move(all[i].body));
    }
    return bodies;
  }

  /// All members see the same records in the same order, and so come to the same failure. Who waits for a
  /// rank that fails runs out of time: that rank's own word says more.
  void judge(const SetupRecord& record, Rank member, const char* stage) {
    Error error;
    error.rank = core_.config.rank;
    error.peer = member;
    error.stage = stage;
    if (record.wire != place_.wire || record.fallback != place_.fallback ||
        record.columns != place_.columns) {
      error.code = Code::config;
      error.what = fmt::format("rank {} wants wire {}, columns {}, behind it {}; this rank {}, {}, {}",
                               member, to_string(record.wire), record.columns, to_string(record.fallback),
                               to_string(place_.wire), place_.columns, to_string(place_.fallback));
      failure_ = std::move(error);
      return;
    }
    if (record.code == Code::ok) return;
    const bool says_more = failure_ && failure_->code == Code::timeout && record.code != Code::timeout;
    if (failure_ && !says_more) return;
    error.code = record.code;
    error.what =
        fmt::format("rank {}: {}", member,
                    std::string_view(reinterpret_cast<const char*>(record.body.data()), record.body.size()));
    failure_ = std::move(error);
  }

  SessionCore& core_;
  const std::vector<Rank>& members_;
  const DevicePlace place_;
  const Deadline deadline_;
  std::optional<Error> failure_;
  bool probing_ = false;
};

/// What is tried where `wire` does not work.
std::optional<DeviceWireKind> wire_behind(DeviceWireKind wire, WireFallback fallback) {
  if (wire == DeviceWireKind::nccl || fallback == WireFallback::none) return std::nullopt;
  if (wire == DeviceWireKind::ipc) return DeviceWireKind::fabric;
  if (fallback == WireFallback::windows) return std::nullopt;
  return DeviceWireKind::nccl;
}

/// Whether the wire behind `tried` may be tried. One that nobody asked for may also lack memory, or a driver
/// that is ready: nothing is worse then than before.
bool may_go_on(Code failure, DeviceWireKind tried, DeviceWireKind asked) {
  const bool unasked = tried != asked && (failure == Code::out_of_memory || failure == Code::gpu_absent);
  return wire_is_at_fault(failure) || unasked;
}

void log_failure(DeviceWireKind tried, std::optional<DeviceWireKind> next, const Error& failure) {
  const char* const what = !next ? "device wire does not work"
                           : *next == DeviceWireKind::nccl
                               ? "device wire does not work, ciphertext goes through NCCL"
                               : "device wire does not work, another one is tried";
  log(LogLevel::warning, what, {{"wire", std::string(to_string(tried))}, {"reason", failure.message()}});
}

}  // namespace

DevicePlace DevicePlace::under(const Environment& environment) const {
  DevicePlace out = *this;
  if (environment.path == "staged") out.wire = DeviceWireKind::nccl;
  if (environment.path == "fused" && fallback == WireFallback::staged) out.fallback = WireFallback::windows;
  return out;
}

Result<DeviceParts> set_up_device_group(SessionCore& core, const std::vector<Rank>& members,
                                        const DevicePlace& place, Store& store, const std::string& prefix,
                                        Deadline deadline) {
  DevicePlace tried = place;
  std::string under = prefix;
  std::optional<Error> told;
  while (true) {
    SR_TRY(Attempt attempt, Setup(core, members, tried, deadline).attempt(store, under));
    if (!attempt.failure) return std::move(attempt.parts);
    Error& failure = *attempt.failure;
    // A bad tag is one wherever it is met [protocol C.1]: no other wire is tried under this session.
    if (failure.code == Code::data_tag) core.die(failure);
    const bool goes_on = may_go_on(failure.code, tried.wire, place.wire);
    const auto next = goes_on ? wire_behind(tried.wire, place.fallback) : std::nullopt;
    log_failure(tried.wire, next, failure);
    if (!goes_on) {
      if (told) failure.what += "; tried because: " + told->what;
      return fail(std::move(failure));
    }
    // Why there is no fabric says less than why what was asked for does not work.
    if (told && tried.wire == DeviceWireKind::fabric)
      told->what += fmt::format("; over the fabric: {}", failure.what);
    else
      told = std::move(failure);
    if (!next) return fail(*std::move(told));
    attempt.parts.channel.reset();  // the device first
    tried.wire = *next;
    under = prefix + "/" + std::string(to_string(*next));
  }
}

}  // namespace sealring
