#include "sealring/channel/key_line.h"

#include <utility>

namespace sealring {

KeyLine::KeyLine(KeyChain chain, Suite suite, KeyBudget budget, BulkCipher& cipher)
    : chain_(std::move(chain)), suite_(suite), budget_(budget), cipher_(cipher) {}

Result<void> KeyLine::enter_epoch_if_due() {
  if (wiped_) return fail(Code::aborted, "channel.key", "the keys of this session have been erased");
  if (key_ && !numbers_->rotation_due()) return {};
  // [protocol A.3] numbers of each new key start at 0; the old key is erased with its object.
  TrafficKey next = chain_.next();
  SR_TRY(key_, cipher_.load(suite_, next.epoch, next.key, next.iv));
  numbers_.emplace(budget_);
  return {};
}

Result<SealPermit> KeyLine::take(std::uint64_t segments, std::uint64_t bytes) {
  SR_TRY(enter_epoch_if_due());
  return numbers_->take(segments, bytes);
}

Result<std::uint64_t> KeyLine::advance(std::uint64_t segments, std::uint64_t bytes) {
  SR_TRY(enter_epoch_if_due());
  return numbers_->advance(segments, bytes);
}

void KeyLine::wipe() noexcept {
  wiped_ = true;
  key_.reset();
  chain_.wipe();
}

}  // namespace sealring
