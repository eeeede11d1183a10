#include "sealring/channel/device_channel.h"

#include <mutex>
#include <utility>

#include "sealring/crypto/kdf.h"

namespace sealring {

/// One direction's chain. Whoever erases it need not ask the thread that takes keys of it.
class DeviceKeys::Chain {
 public:
  Chain(KeyChain chain, Suite suite)
      : chain_(std::move(chain)), next_epoch_(chain_.next_epoch()), suite_(suite) {}

  Epoch next_epoch() const {
    const std::lock_guard lock(mutex_);
    return next_epoch_;
  }
  EpochKey next() {
    const std::lock_guard lock(mutex_);
    EpochKey out;
    out.epoch = next_epoch_++;
    if (wiped_) {
      out.key = SecretBytes(suite_key_bytes(suite_));
      out.iv = SecretBytes(kNonceBytes);
      random_bytes(out.key.span());
      random_bytes(out.iv.span());
      return out;
    }
    TrafficKey key = chain_.next();
    out.key = std::move(key.key);
    out.iv = std::move(key.iv);
    return out;
  }
  void wipe() noexcept {
    const std::lock_guard lock(mutex_);
    wiped_ = true;
    chain_.wipe();
  }

 private:
  mutable std::mutex mutex_;
  KeyChain chain_;
  Epoch next_epoch_;
  const Suite suite_;
  bool wiped_ = false;
};

class DeviceKeys::Source final : public KeySource {
 public:
  explicit Source(std::shared_ptr<Chain> chain) : chain_(std::move(chain)) {}
  ~Source() override { chain_->wipe(); }
  Epoch next_epoch() const override { return chain_->next_epoch(); }
  EpochKey next() override { return chain_->next(); }

 private:
  std::shared_ptr<Chain> chain_;
};

DeviceKeys::DeviceKeys(GroupKeys& keys) : to_(keys.members().size()), from_(keys.members().size()) {
  const Rank me = keys.me();
  for (std::size_t i = 0; i < keys.members().size(); ++i) {
    const Rank peer = keys.members()[i];
    if (peer == me) continue;
    to_[i] = std::make_shared<Chain>(keys.take_chain(Kind::pair, me, peer), keys.suite());
    from_[i] = std::make_shared<Chain>(keys.take_chain(Kind::pair, peer, me), keys.suite());
  }
}

DeviceGroupKeys DeviceKeys::sources() const {
  const auto all = [](const std::vector<std::shared_ptr<Chain>>& chains) {
    std::vector<std::unique_ptr<KeySource>> out;
    for (const auto& chain : chains) out.push_back(chain ? std::make_unique<Source>(chain) : nullptr);
    return out;
  };
  return {all(to_), all(from_)};
}

void DeviceKeys::wipe() noexcept {
  for (const auto* chains : {&to_, &from_}) {
    for (const auto& chain : *chains) {
      if (chain) chain->wipe();
    }
  }
}

DeviceChannel::DeviceChannel(std::unique_ptr<DeviceGroup> group, Rank rank, std::uint16_t size)
    : group_(std::move(group)), rank_(rank), size_(size) {
  SR_CHECK(group_ != nullptr && rank_ < size_, "rank", rank_, "size", size_);
}

Result<void> DeviceChannel::begin(const OpInfo& op, const OpTotals& totals) {
  SR_CHECK(!in_op_, "an op began inside another");
  for (const OpTotals::Key& key : totals.sender) {
    SR_CHECK(key.segments == 0, "a device has no sender keys: make schedules without them");
  }
  SR_TRY(group_->begin({op.op, op.redop, op.dtype, op.algorithm, op.root, op.elements, op.tag}, stream_));
  in_op_ = true;
  return {};
}

Result<void> DeviceChannel::exchange(std::span<const OutgoingMove> out, std::span<const IncomingMove> in,
                                     StepRules rules, Deadline /*deadline*/) {
  SR_CHECK(in_op_, "an exchange outside of an op");
  std::vector<DeviceSend> sends;
  for (const OutgoingMove& move : out) {
    SR_CHECK(!move.multicast && move.peers.size() == 1, "a multicast move on a device");
    sends.push_back({move.peers[0], move.step, move.data, move.elements, move.element_offset, move.scale});
  }
  std::vector<DeviceRecv> recvs;
  for (const IncomingMove& move : in) {
    SR_CHECK(!move.multicast, "a multicast move on a device");
    recvs.push_back({move.peer, move.step, move.dst, move.elements, move.element_offset, move.local,
                     move.local_scale, move.divisor});
  }
  return group_->exchange(sends, recvs, {rules.ordered, rules.lockstep});
}

Result<std::byte*> DeviceChannel::scratch(std::uint64_t bytes) {
  if (bytes == 0) return nullptr;
  return group_->scratch(bytes);
}

Result<void> DeviceChannel::copy(DType dtype, const std::byte* from, std::byte* to, std::uint64_t elements,
                                 double scale) {
  SR_CHECK(in_op_, "a copy outside of an op");
  if (elements == 0 || (from == to && scale == 1.0)) return {};
  return group_->copy(dtype, from, to, elements, scale);
}

Result<std::uint64_t> DeviceChannel::end(DType dtype, std::span<std::byte> output) {
  SR_CHECK(std::exchange(in_op_, false), "an op ended that had not begun");
  return group_->end(dtype, output);
}

}  // namespace sealring
