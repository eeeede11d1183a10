#include "sealring/device/cuda/nccl_rounds.h"

#include <cstring>
#include <string>

#include "sealring/device/device_group.h"

namespace sealring::cuda {
namespace {

constexpr const char* kStage = "device.nccl";
constexpr auto kKind = static_cast<std::uint8_t>(DeviceWireKind::nccl);

bool empty(const WireRound& round) { return round.out.empty() && round.in.empty(); }

}  // namespace

// Buffers are handed on by events within an operation. From one operation to the next the group's own order
// does it: an operation begins behind the end of the one before, which is behind its last exchange. So an
// event of another capture is never waited for, which CUDA would not allow.
Result<void> NcclRounds::ready(const WireRound& round, void* stream) {
  slot_ = static_cast<std::uint8_t>(rounds_++ % kWireSlots);
  SR_TRY(capture_, streams_.capture_of(stream));
  if (round.out.empty() || slot().moved != capture_) return {};
  return streams_.wait(stream, RoundEvent::moved, slot_);
}

Result<void> NcclRounds::sent(const WireRound& round, void* stream) {
  if (empty(round)) return {};
  void* const nccl = streams_.nccl_stream(capture_ != 0);
  SR_TRY(streams_.record(RoundEvent::sealed, slot_, stream));
  SR_TRY(streams_.wait(nccl, RoundEvent::sealed, slot_));
  if (slot().taken == capture_) SR_TRY(streams_.wait(nccl, RoundEvent::taken, slot_));
  std::vector<NcclSend> sends;
  std::vector<NcclRecv> recvs;
  for (const WireChunk& chunk : round.out)
    sends.push_back({chunk.peer, staging_.out(chunk.peer, slot_), chunk.wire_bytes});
  for (const WireChunk& chunk : round.in)
    recvs.push_back({chunk.peer, staging_.in(chunk.peer, slot_), chunk.wire_bytes});
  SR_TRY(streams_.mark(NcclMark::begun, nccl));
  SR_TRY(comm_.exchange(sends, recvs, nccl, Deadline::in(timeout_)));
  SR_TRY(streams_.mark(NcclMark::ended, nccl));
  SR_TRY(streams_.record(RoundEvent::moved, slot_, nccl));
  slot().moved = capture_;
  return {};
}

Result<void> NcclRounds::arrived(const WireRound& round, void* stream) {
  if (empty(round)) return {};
  // Also where nothing arrives: what is sent ends before the operation does.
  SR_TRY(streams_.wait(stream, RoundEvent::moved, slot_));
  return streams_.gate(stream);
}

Result<void> NcclRounds::taken(const WireRound& round, void* stream) {
  if (round.in.empty()) return {};
  SR_TRY(streams_.record(RoundEvent::taken, slot_, stream));
  slot().taken = capture_;
  return {};
}

bool NcclWatch::expired(const NcclMarks& seen, Clock::time_point now) {
  const bool same = seen.begun == last_.begun && seen.ended == last_.ended;
  if (!same || seen.begun == seen.ended) {
    last_ = seen;
    since_ = now;
    return false;
  }
  return now - since_ >= timeout_;
}

Bytes nccl_offer(int version, Rank rank, const NcclUniqueId& id) {
  ByteWriter out;
  out.put(kKind).put(static_cast<std::uint32_t>(version));
  if (rank == 0) out.put(std::as_bytes(std::span(id.bytes)));
  return out.take();
}

Result<NcclUniqueId> accept_nccl_offers(std::span<const Bytes> offers, int version) {
  NcclUniqueId id;
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    ByteReader reader(offers[rank]);
    const auto kind = reader.get<std::uint8_t>();
    const auto theirs = reader.get<std::uint32_t>();
    const ByteView word = rank == 0 ? reader.take(id.bytes.size()) : ByteView{};
    if (!reader.finished() || kind != kKind)
      return fail(Code::malformed, kStage, "a peer's offer is not one of the path over NCCL",
                  "run the same build, with the same settings, on all ranks");
    if (theirs != static_cast<std::uint32_t>(version)) {
      Error error;
      error.code = Code::version_mismatch;
      error.stage = kStage;
      error.what =
          "the ranks have loaded different versions of NCCL (group rank " + std::to_string(rank) + ")";
      error.expected = nccl_version_text(version);
      error.got = nccl_version_text(static_cast<int>(theirs));
      error.next = "install one NCCL on all ranks";
      return fail(std::move(error));
    }
    if (rank == 0) std::memcpy(id.bytes.data(), word.data(), word.size());
  }
  return id;
}

}  // namespace sealring::cuda
