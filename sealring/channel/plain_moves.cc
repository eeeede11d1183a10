#include "sealring/channel/plain_moves.h"

namespace sealring {
namespace {

constexpr std::array<std::byte, kTagBytes> kZeroTag{};

}  // namespace

PlainSource::PlainSource(MoveTools tools, const RecordLayout& layout, const std::byte* data)
    : tools_(tools), layout_(layout), data_(data), limit_(layout.segments()) {
  tools_.counters.seals.fetch_add(1, std::memory_order_relaxed);
}

Result<ByteView> PlainSource::next() {
  if (segment_ >= limit_) return ByteView{};
  const std::uint32_t payload_bytes = layout_.payload_of(segment_);
  if (!tag_next_ && payload_bytes > 0) {
    tag_next_ = true;
    return ByteView(data_ + layout_.payload_offset(segment_), payload_bytes);
  }
  if (tools_.verdict.dead()) return fail(*tools_.verdict.error());
  tag_next_ = false;
  ++segment_;
  tools_.counters.sealed_segments.fetch_add(1, std::memory_order_relaxed);
  tools_.counters.sealed_bytes.fetch_add(payload_bytes, std::memory_order_relaxed);
  return ByteView(kZeroTag);
}

PlainSink::PlainSink(MoveTools tools, const RecordLayout& layout, std::byte* dst)
    : tools_(tools), layout_(layout), dst_(dst), limit_(layout.segments()) {
  tools_.counters.opens.fetch_add(1, std::memory_order_relaxed);
}

Result<std::optional<std::span<std::byte>>> PlainSink::buffer() {
  if (segment_ >= limit_) return std::optional(std::span<std::byte>{});
  const std::uint32_t payload_bytes = layout_.payload_of(segment_);
  tag_next_ = tag_next_ || payload_bytes == 0;
  if (tag_next_) return std::optional(std::span<std::byte>(tag_));
  return std::optional(std::span<std::byte>(dst_ + layout_.payload_offset(segment_), payload_bytes));
}

Result<void> PlainSink::filled() {
  if (!tag_next_) {
    tag_next_ = true;
    return {};
  }
  if (tag_ != kZeroTag)
    return fail(Code::data_tag, "data.open", "a plain segment does not end with a zero tag");
  tools_.counters.opened_segments.fetch_add(1, std::memory_order_relaxed);
  tools_.counters.opened_bytes.fetch_add(layout_.payload_of(segment_), std::memory_order_relaxed);
  tag_next_ = false;
  ++segment_;
  return {};
}

}  // namespace sealring
