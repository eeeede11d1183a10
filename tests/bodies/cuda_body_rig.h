// What the tests of kernel bodies share: one record, sealed by the oracle (crypto/aead.h) and by a body on
// the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "sealring/crypto/aead.h"
#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/host_run.h"
#include "sealring/device/cuda/kernel_list.h"
#include "sealring/device/cuda/make_job.h"

namespace sealring::cuda::test {

inline Bytes random_bytes(std::mt19937_64& random, std::size_t bytes) {
  Bytes out(bytes);
  for (std::size_t at = 0; at < bytes; at += 8) {  // a word a number: the tests of all kernels need gigabytes
    const std::uint64_t word = random();
    std::memcpy(out.data() + at, &word, std::min<std::size_t>(8, bytes - at));
  }
  return out;
}

/// Of floats small finite numbers, so that every byte of what is made of them is defined.
inline Bytes random_elements(std::mt19937_64& random, DType dtype, std::uint64_t elements) {
  const std::size_t size = dtype_bytes(dtype);
  Bytes out = random_bytes(random, elements * size);
  for (std::size_t at = size - 1; dtype_is_float(dtype) && at < out.size(); at += size)
    out[at] &= std::byte{0xBB};
  return out;
}

/// Memory whose first byte lies `shift` bytes behind a multiple of 16, with a margin that must stay as it
/// was.
class Shifted {
 public:
  static constexpr std::size_t kMargin = 64;
  Shifted(std::size_t bytes, std::size_t shift)
      : memory_(bytes + 2 * kMargin + 32, std::byte{0xA5}), bytes_(bytes) {
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.data()) + kMargin;
    offset_ = (base + 15) / 16 * 16 + shift - reinterpret_cast<std::uintptr_t>(memory_.data());
  }
  std::byte* data() { return memory_.data() + offset_; }
  std::span<std::byte> span() { return {data(), bytes_}; }
  void set(ByteView bytes) {
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
  }
  /// As it was made: nothing was written there.
  bool untouched(std::size_t at, std::size_t bytes) {
    return std::ranges::all_of(span().subspan(at, bytes), [](std::byte b) { return b == std::byte{0xA5}; });
  }
  bool margin_untouched() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if ((i < offset_ || i >= offset_ + bytes_) && memory_[i] != std::byte{0xA5}) return false;
    }
    return true;
  }

 private:
  Bytes memory_;
  std::size_t bytes_, offset_;
};

/// A record with random key, numbers, context and payload, and what the oracle makes of it.
struct Record {
  Record(Suite suite_in, std::uint64_t payload_bytes, std::uint32_t segment_bytes, std::uint64_t seed,
         DType dtype = DType::u8)
      : suite(suite_in), layout(RecordLayout::of(payload_bytes, segment_bytes)) {
    std::mt19937_64 random(seed);
    key_bytes = random_bytes(random, suite_key_bytes(suite));
    iv_bytes = random_bytes(random, kNonceBytes);
    plaintext = random_bytes(random, payload_bytes);
    std::memcpy(key.key, key_bytes.data(), key_bytes.size());
    std::memcpy(key.iv, iv_bytes.data(), iv_bytes.size());
    op = OpView{static_cast<Epoch>(random()), random(), random()};
    context.suite = suite;
    context.dtype = dtype;
    context.sender = 3;
    context.receiver = 5;
    context.elements = payload_bytes / dtype_bytes(dtype);
    context.element_offset = random();
    context.step = 7;
    seal_by_oracle();
  }

  void seal_by_oracle() {
    wire.resize(layout.wire_bytes());
    Nonce iv;
    std::memcpy(iv.data(), iv_bytes.data(), iv.size());
    const Aead aead = *Aead::make(kernel_suite(suite), key_bytes);
    for (std::uint32_t k = 0; k < layout.segments(); ++k) {
      RecordContext c = context;
      c.epoch = op.epoch;
      c.seq = op.seq;
      c.segment = k;
      c.segments = layout.segments();
      c.payload_bytes = layout.payload_of(k);
      c.element_offset += layout.payload_offset(k) / dtype_bytes(c.dtype);
      const Aad aad = aad_of(c);
      std::byte* const at = wire.data() + layout.wire_offset(k);
      const Tag tag = *aead.seal(nonce_of(iv, op.first_number + k), std::as_bytes(std::span(aad)),
                                 ByteView(plaintext).subspan(layout.payload_offset(k), c.payload_bytes),
                                 {at, c.payload_bytes});
      std::memcpy(at + c.payload_bytes, tag.data(), tag.size());
    }
  }
  SegmentJob job() const { return segment_job_of(suite, context, layout, layout.segments()); }

  Suite suite;
  RecordLayout layout;
  Bytes key_bytes, iv_bytes, plaintext, wire;
  KeyWords key{};
  OpView op;
  RecordContext context;
};

/// Seals the record's plaintext, `shift` bytes off a multiple of 16, with Body on the host; the wire must be
/// the oracle's.
template <class Body>
void expect_seals(const Record& record, std::size_t shift, std::uint32_t columns) {
  Shifted in(record.plaintext.size(), shift);
  Shifted wire(record.wire.size(), 0);
  in.set(record.plaintext);
  SegmentJob job = record.job();
  job.plaintext = in.data();
  job.wire = wire.data();
  run_on_host<Body>(job, record.op, record.key, columns);
  ASSERT_EQ(std::memcmp(wire.data(), record.wire.data(), record.wire.size()), 0)
      << record.plaintext.size() << " bytes, shift " << shift;
  ASSERT_TRUE(wire.margin_untouched());
  ASSERT_TRUE(in.margin_untouched());
}

/// What the CPU makes of two ranks' inputs.
inline Bytes reduced_by_cpu(DType dtype, RedOp redop, const Bytes& first, const Bytes& second) {
  Bytes out(first.size());
  const std::byte* const sources[] = {first.data(), second.data()};
  ReduceJob job;
  job.dtype = dtype;
  job.redop = redop;
  job.sources = sources;
  job.dst = out.data();
  job.elements = out.size() / dtype_bytes(dtype);
  job.divisor = redop == RedOp::avg ? 2 : 1;
  EXPECT_TRUE(reduce_cpu(job));
  return out;
}

/// Opens `wire` into dst by `combine` (its pointers are set here); gives what the body says. Every byte of
/// the window must have been read exactly once. `scratch`: room for job.private_tiles.
template <class Body>
BadTag open_record(const Record& record, ByteView wire_bytes, CombineOp combine, Shifted& dst,
                   std::uint32_t columns, std::byte* scratch = nullptr) {
  Shifted wire(wire_bytes.size(), 0);
  wire.set(wire_bytes);
  SegmentJob job = record.job();
  job.wire = wire.data();
  job.combine = combine;
  job.combine.dst = dst.data();
  job.combine.local = dst.data();
  job.private_tiles = scratch;
  WindowReads reads;
  reads.begin = wire.data();
  reads.counts.assign(wire_bytes.size(), 0);
  const BadTag bad = run_on_host<Body>(job, record.op, record.key, columns, &reads);
  EXPECT_EQ(reads.strays, 0u);
  EXPECT_TRUE(std::ranges::all_of(reads.counts, [](std::uint32_t count) { return count == 1; }))
      << "a byte of the window was not read exactly once; " << record.plaintext.size() << " bytes";
  EXPECT_TRUE(dst.margin_untouched());
  return bad;
}

/// The segments before `broken` are in dst, and from there on nothing was written of every `apart`th, which
/// are of the same column; the others are in dst.
inline void expect_opened_before(const Record& record, Shifted& dst, std::uint32_t broken,
                                 std::uint32_t apart = 1) {
  for (std::uint32_t k = 0; k < record.layout.segments(); ++k) {
    const std::uint64_t begin = record.layout.payload_offset(k), bytes = record.layout.payload_of(k);
    if (k < broken || (k - broken) % apart != 0)
      ASSERT_EQ(std::memcmp(dst.data() + begin, record.plaintext.data() + begin, bytes), 0) << k;
    else
      ASSERT_TRUE(dst.untouched(begin, bytes)) << k;
  }
}

template <class Body>
void expect_opens(const Record& record, std::size_t shift, std::uint32_t columns,
                  std::byte* scratch = nullptr) {
  Shifted dst(record.plaintext.size(), shift);
  const BadTag bad = open_record<Body>(record, record.wire, CombineOp{}, dst, columns, scratch);
  ASSERT_EQ(bad.refused, 0u) << record.plaintext.size() << " bytes";
  ASSERT_TRUE(record.plaintext.empty() ||
              std::memcmp(dst.data(), record.plaintext.data(), record.plaintext.size()) == 0)
      << record.plaintext.size() << " bytes, shift " << shift;
}

}  // namespace sealring::cuda::test
