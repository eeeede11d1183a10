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
    // A member may still write into this one's window, which must not be freed then.
    if (out.parts.channel && (!outcome || *outcome)) out.parts.channel->group().abort();
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
    SetupRecord record{place_.wire, place_.allow_staged, place_.columns, Code::ok, {}};
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
    if (record.wire != place_.wire || record.allow_staged != place_.allow_staged ||
        record.columns != place_.columns) {
      error.code = Code::config;
      error.what = fmt::format("rank {} wants wire {}, columns {}, staging {}; this rank {}, {}, {}", member,
                               to_string(record.wire), record.columns, record.allow_staged,
                               to_string(place_.wire), place_.columns, place_.allow_staged);
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
};

/// What is tried where `wire` does not work.
std::optional<DeviceWireKind> wire_behind(DeviceWireKind wire, bool allow_staged) {
  if (wire == DeviceWireKind::ipc) return DeviceWireKind::fabric;
  if (wire == DeviceWireKind::nccl || !allow_staged) return std::nullopt;
  return DeviceWireKind::nccl;
}

}  // namespace

DevicePlace DevicePlace::under(const Environment& environment) const {
  DevicePlace out = *this;
  if (environment.path == "staged") out.wire = DeviceWireKind::nccl;
  if (environment.path == "fused") out.allow_staged = false;
  return out;
}

Result<DeviceParts> set_up_device_group(SessionCore& core, const std::vector<Rank>& members,
                                        const DevicePlace& place, Store& store, const std::string& prefix,
                                        Deadline deadline) {
  DevicePlace tried = place;
  std::string under = prefix;
  std::optional<Error> failure;
  while (true) {
    SR_TRY(Attempt attempt, Setup(core, members, tried, deadline).attempt(store, under));
    if (!attempt.failure) return std::move(attempt.parts);
    // A bad tag is one wherever it is met [protocol C.1]: no other wire is tried under this session.
    if (attempt.failure->code == Code::data_tag) core.die(*attempt.failure);
    const bool another_may_do = wire_is_at_fault(attempt.failure->code);
    const auto next = wire_behind(tried.wire, place.allow_staged);
    // That there is no fabric says less than why what was asked for does not work.
    if (!failure || !another_may_do || tried.wire != DeviceWireKind::fabric)
      failure = std::move(attempt.failure);
    if (!another_may_do || !next) return fail(*std::move(failure));
    const bool staged = *next == DeviceWireKind::nccl;
    log(staged ? LogLevel::warning : LogLevel::info,
        staged ? "device wire does not work, ciphertext goes through NCCL"
               : "device wire does not work, trying another",
        {{"wire", std::string(to_string(place.wire))}, {"reason", failure->message()}});
    attempt.parts.channel.reset();  // the device first
    tried.wire = *next;
    under = prefix + "/" + std::string(to_string(*next));
  }
}

}  // namespace sealring
