#include "sealring/collective/setup_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sealring {
namespace {

/// Of the record, and of what members do alike without telling each other: how moves and steps are cut.
constexpr std::uint8_t kVersion = 3;

tl::unexpected<Error> malformed(std::string what) {
  return fail(Code::malformed, "device.setup", std::move(what), "run the same build on all ranks");
}

ChannelConfig config_of(const CommConfig& config) {
  ChannelConfig out;
  out.segment_bytes = 1024;  // a record is one segment
  out.budget = config.budget;
  out.collectives = false;
  return out;
}

}  // namespace

Bytes SetupRecord::encode() const {
  SR_CHECK(body.size() <= kBodyBytesMax, "bytes", body.size());
  ByteWriter out;
  out.put(kVersion).put(static_cast<std::uint8_t>(wire)).put(static_cast<std::uint8_t>(fallback));
  out.put(std::uint8_t{0});
  out.put(columns).put(static_cast<std::uint16_t>(code)).put(static_cast<std::uint16_t>(body.size()));
  out.put(ByteView(body));
  Bytes bytes = out.take();
  bytes.resize(kBytes);
  return bytes;
}

Result<SetupRecord> SetupRecord::parse(ByteView bytes) {
  if (bytes.size() != kBytes) return malformed("a set-up record has another size");
  ByteReader in(bytes);
  if (in.get<std::uint8_t>() != kVersion) return malformed("a set-up record of another version");
  const auto wire = in.get<std::uint8_t>(), fallback = in.get<std::uint8_t>(), zero = in.get<std::uint8_t>();
  SetupRecord out;
  out.columns = in.get<std::uint32_t>();
  const auto code = in.get<std::uint16_t>(), length = in.get<std::uint16_t>();
  if (wire > static_cast<std::uint8_t>(DeviceWireKind::fabric) ||
      fallback > static_cast<std::uint8_t>(WireFallback::staged) || zero != 0)
    return malformed("a set-up record with a value that does not exist");
  const auto known = all_codes();
  const auto same = [code](const CodeInfo& info) { return static_cast<std::uint16_t>(info.code) == code; };
  if (std::none_of(known.begin(), known.end(), same))
    return malformed("a set-up record with an unknown code");
  if (length > kBodyBytesMax) return malformed("a set-up record whose body is longer than the record");
  out.body = to_bytes(in.take(length));
  const ByteView rest = in.take(in.remaining());
  if (std::any_of(rest.begin(), rest.end(), [](std::byte each) { return each != std::byte{0}; }))
    return malformed("a set-up record with bytes behind its body");
  out.wire = static_cast<DeviceWireKind>(wire);
  out.fallback = static_cast<WireFallback>(fallback);
  out.code = static_cast<Code>(code);
  return out;
}

SetupRounds::SetupRounds(SessionCore& core, GroupKeys& keys)
    : core_(core),
      members_(keys.members()),
      channel_(config_of(core.config), keys, *core.cipher, *core.transport, core.verdict) {
  std::copy_n(keys.group_id().begin(), label_.size(), label_.begin());
}

SetupRounds::~SetupRounds() {
  if (!core_.forked()) core_.transport->close_group(label_);
}

Result<std::vector<SetupRecord>> SetupRounds::run(const SetupRecord& mine, Deadline deadline) {
  const Rank me = channel_.rank();
  const Bytes said = mine.encode();
  std::vector<Bytes> heard(members_.size(), Bytes(SetupRecord::kBytes));
  std::vector<OutgoingMove> out;
  std::vector<IncomingMove> in;
  for (Rank peer = 0; peer < members_.size(); ++peer) {
    if (peer == me) continue;
    out.push_back({{peer}, false, 0, said.data(), said.size(), 0, 1.0});
    IncomingMove move;
    move.peer = peer;
    move.dst = heard[peer].data();
    move.elements = heard[peer].size();
    in.push_back(move);
  }
  OpInfo op;
  op.seq = next_round_++;
  op.op = Op::send;
  op.elements = SetupRecord::kBytes;
  if (!out.empty()) SR_TRY(channel_.messages(op, out, in, deadline));
  std::vector<SetupRecord> records(members_.size());
  for (Rank peer = 0; peer < members_.size(); ++peer) {
    if (peer == me) {
      records[peer] = mine;
      continue;
    }
    auto record = SetupRecord::parse(heard[peer]);
    if (!record) {
      Error error = std::move(record).error();
      error.peer = members_[peer];
      return fail(std::move(error));
    }
    records[peer] = *std::move(record);
  }
  return records;
}

Result<std::vector<SetupRecord>> SetupRounds::share(const SetupRecord& mine, Deadline deadline) {
  auto records = [&] {
    const std::lock_guard lock(mutex_);
    return run(mine, deadline);
  }();
  wipe_if_wanted();
  return records;
}

void SetupRounds::wipe() noexcept {
  wipe_wanted_ = true;
  wipe_if_wanted();
}

/// Who does not get the mutex leaves it to the one who has it: that one looks here after it has let go.
void SetupRounds::wipe_if_wanted() noexcept {
  if (!wipe_wanted_) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (Rank peer = 0; peer < members_.size(); ++peer) {
    for (const bool outgoing : {true, false}) channel_.wipe_direction(peer, outgoing);
  }
}

}  // namespace sealring
