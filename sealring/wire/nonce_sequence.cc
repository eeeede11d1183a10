#include "sealring/wire/nonce_sequence.h"

#include <utility>

namespace sealring {

SealPermit::SealPermit(SealPermit&& other) noexcept
    : first_(other.first_), segments_(std::exchange(other.segments_, 0)) {}

SealPermit& SealPermit::operator=(SealPermit&& other) noexcept {
  first_ = other.first_;
  segments_ = std::exchange(other.segments_, 0);
  return *this;
}

SealPermit SealPermit::split(std::uint64_t segments) {
  SR_CHECK(segments <= segments_, "asked", segments, "left", segments_);
  SealPermit front(first_, segments);
  first_ += segments;
  segments_ -= segments;
  return front;
}

std::uint64_t SealPermit::spend() {
  SR_CHECK(segments_ > 0);
  --segments_;
  return first_++;
}

bool NonceSequence::rotation_due() const {
  return bytes_ >= budget_.bytes_rotate || segments_ >= budget_.segments_rotate || ops_ >= budget_.ops_rotate;
}

Result<SealPermit> NonceSequence::take(std::uint64_t segments, std::uint64_t bytes) {
  SR_TRY(const std::uint64_t first, advance(segments, bytes));
  return SealPermit(first, segments);
}

Result<std::uint64_t> NonceSequence::advance(std::uint64_t segments, std::uint64_t bytes) {
  // Compared by what is left, so that no sum can wrap. [protocol A.3] the hard stop comes before anything is
  // sealed.
  if (segments > budget_.segments_max - segments_ || bytes > budget_.bytes_max - bytes_) {
    return fail(Code::key_limit, "wire.nonce", "one operation would pass the hard limit of its key",
                "split the operation: no single one may seal more than 1 TiB under one key");
  }
  const std::uint64_t first = segments_;
  segments_ += segments;
  bytes_ += bytes;
  ++ops_;
  return first;
}

}  // namespace sealring
