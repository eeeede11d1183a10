// The ends of a move under the study's suite `plain`: user memory goes to the wire, and from it, without a
// copy.
//
// The baseline must be as good as this design can be without cryptography, or the cost of cryptography would
// look small. Layout, counters and order are those of sealed moves: each segment is its payload and a zero
// tag.
#pragma once

#include "sealring/channel/moves.h"

namespace sealring {

class PlainSource final : public WireSource, public SegmentReader {
 public:
  PlainSource(MoveTools tools, const RecordLayout& layout, const std::byte* data);
  void set_limit(std::uint32_t segments) { limit_ = segments; }
  std::uint32_t segments() const { return layout_.segments(); }
  Result<ByteView> next() override;
  /// The wire has taken a segment's payload when its tag is asked for.
  std::uint32_t segments_read() const override { return segment_; }

 private:
  MoveTools tools_;
  RecordLayout layout_;
  const std::byte* data_;
  std::uint32_t segment_ = 0, limit_ = 0;
  bool tag_next_ = false;
};

/// For moves that replace.
class PlainSink final : public WireSink {
 public:
  PlainSink(MoveTools tools, const RecordLayout& layout, std::byte* dst);
  void set_limit(std::uint32_t segments) { limit_ = segments; }
  std::uint32_t segments() const { return layout_.segments(); }
  Result<std::optional<std::span<std::byte>>> buffer() override;
  Result<void> filled() override;

 private:
  MoveTools tools_;
  RecordLayout layout_;
  std::byte* dst_;
  std::uint32_t segment_ = 0, limit_ = 0;
  bool tag_next_ = false;
  std::array<std::byte, kTagBytes> tag_{};
};

}  // namespace sealring
