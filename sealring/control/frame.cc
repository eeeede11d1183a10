#include "sealring/control/frame.h"

#include <algorithm>
#include <cstring>

#include "sealring/crypto/kdf.h"

namespace sealring {

Result<std::uint32_t> parse_frame_length(ByteView head) {
  if (head.size() != kFrameHeadBytes)
    return fail(Code::malformed, "control.frame", "a frame head is cut short");
  const auto length_bytes = load_be<std::uint32_t>(head.data());
  if (length_bytes == 0 || length_bytes > kFrameBytesMax) {
    Error error;
    error.code = Code::malformed;
    error.stage = "control.frame";
    error.what = "a control frame announces a length that does not exist";
    error.expected = "1.." + std::to_string(kFrameBytesMax);
    error.got = std::to_string(length_bytes);
    return fail(std::move(error));
  }
  return length_bytes;
}

Bytes frame_aad(const FrameDirection& direction, Epoch epoch, std::uint64_t number,
                std::uint32_t length_bytes) {
  ByteWriter out;  // [protocol A.4] control plane
  out.put(label("ctl")).put(ByteView(direction.th3));
  out.put(std::uint32_t{direction.from}).put(std::uint32_t{direction.to});
  out.put(epoch).put(number).put(length_bytes);
  return out.take();
}

Result<void> FrameKey::prepare() {
  if (numbers_ && !numbers_->rotation_due()) return {};
  TrafficKey traffic = chain_.next();  // [protocol A.3] rotation needs no message: both ends count alike
  SR_TRY(Aead aead, Aead::make(traffic.suite, traffic.key.view()));
  SR_CHECK(traffic.iv.size() == kNonceBytes, "iv bytes", traffic.iv.size());
  aead_.emplace(std::move(aead));
  iv_ = std::move(traffic.iv);
  epoch_ = traffic.epoch;
  numbers_ = std::make_unique<NonceSequence>(budget_);
  return {};
}

Nonce FrameKey::nonce(std::uint64_t number) const {
  Nonce iv{};
  std::memcpy(iv.data(), iv_.data(), iv.size());
  const Nonce out = nonce_of(iv, number);
  secure_wipe(iv);
  return out;
}

void FrameKey::wipe() noexcept {
  chain_.wipe();
  aead_.reset();
  iv_.wipe();
}

Result<Bytes> FrameSealer::seal(ByteView payload) {
  SR_CHECK(!payload.empty() && payload.size() <= kFrameBytesMax, "payload bytes", payload.size());
  SR_TRY(key_.prepare());
  SR_TRY(SealPermit permit, key_.numbers().take(1, payload.size()));
  const std::uint64_t number = permit.spend();
  const auto length_bytes = static_cast<std::uint32_t>(payload.size());
  const Bytes aad = frame_aad(direction_, key_.epoch(), number, length_bytes);
  Bytes frame(kFrameHeadBytes + payload.size() + kTagBytes);
  store_be(frame.data(), length_bytes);
  const std::span<std::byte> body(frame.data() + kFrameHeadBytes, payload.size());
  SR_TRY(const Tag tag, key_.aead().seal(key_.nonce(number), aad, payload, body));
  std::memcpy(frame.data() + kFrameHeadBytes + payload.size(), tag.data(), tag.size());
  return frame;
}

void FrameOpener::feed(ByteView bytes) {
  if (failed_) return;
  if (taken_bytes_ != 0) {
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(taken_bytes_));
    taken_bytes_ = 0;
  }
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Bytes>> FrameOpener::next() {
  if (failed_) return fail(*failed_);
  auto out = open_next();
  if (!out) {
    failed_ = out.error();
    pending_.clear();
    taken_bytes_ = 0;
  }
  return out;
}

Result<std::optional<Bytes>> FrameOpener::open_next() {
  const ByteView rest = ByteView(pending_).subspan(taken_bytes_);
  if (rest.size() < kFrameHeadBytes) return std::optional<Bytes>{};
  SR_TRY(const std::uint32_t length_bytes, parse_frame_length(rest.first(kFrameHeadBytes)));
  const std::size_t frame_bytes = kFrameHeadBytes + length_bytes + kTagBytes;
  if (rest.size() < frame_bytes) return std::optional<Bytes>{};
  SR_TRY(key_.prepare());
  SR_TRY(const std::uint64_t number, key_.numbers().advance(1, length_bytes));
  const Bytes aad = frame_aad(direction_, key_.epoch(), number, length_bytes);
  Tag tag{};
  std::memcpy(tag.data(), rest.data() + kFrameHeadBytes + length_bytes, tag.size());
  Bytes payload(length_bytes);
  SR_TRY(
      key_.aead().open(key_.nonce(number), aad, rest.subspan(kFrameHeadBytes, length_bytes), tag, payload));
  taken_bytes_ += frame_bytes;
  return std::optional<Bytes>(std::move(payload));
}

void FrameOpener::wipe() noexcept {
  key_.wipe();
  pending_.clear();
  taken_bytes_ = 0;
  if (!failed_) failed_ = Error{};
}

}  // namespace sealring
