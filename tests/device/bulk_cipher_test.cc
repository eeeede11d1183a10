// Claim: the CPU bulk cipher is the standard AEAD over [C.3]'s context, and releases nothing of a refused
// segment. How: differential against crypto's one-shot Aead for sizes 0..300 and around segment edges, bits
// flipped everywhere.
#include "sealring/device/bulk_cipher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "sealring/crypto/aead.h"
#include "sealring/device/backend.h"

namespace sealring {
namespace {

using Memory = std::vector<std::byte>;

Memory random_memory(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Memory out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

SecretBytes secret(std::size_t bytes, std::uint64_t seed) {
  return SecretBytes::copy_of(random_memory(bytes, seed));
}

// The cipher behind a suite: chained-gmac is GCM at chain size [protocol C.3].
Suite cipher_of(Suite suite) { return suite == Suite::chained_gmac ? Suite::aes_256_gcm : suite; }

struct Rig {
  explicit Rig(Suite with, Epoch epoch = 3)
      : suite(with),
        key(secret(with == Suite::plain ? 32 : suite_key_bytes(cipher_of(with)), 1)),
        iv(secret(12, 2)) {
    auto loaded = cipher->load(suite, epoch, key, iv);
    EXPECT_TRUE(loaded.has_value());
    device_key = *std::move(loaded);
  }

  Suite suite;
  SecretBytes key, iv;
  std::unique_ptr<BulkCipher> cipher = make_cpu_bulk_cipher();
  std::unique_ptr<DeviceKey> device_key;
  Stream stream;
};

RecordContext some_context() {
  RecordContext context;
  context.th3 = {1, 2, 3, 4, 5, 6, 7, 8};
  context.sender = 5;
  context.receiver = 2;
  context.group_id = {9, 8, 7, 6};
  context.seq = 77;
  context.op = Op::all_reduce;
  context.redop = RedOp::sum;
  context.dtype = DType::u8;
  context.step = 4;
  context.elements = 1 << 20;
  context.element_offset = 1000;
  context.group_size = 6;
  return context;
}

// Numbers [first, first + segments) of a sequence.
SealPermit permit_from(std::uint64_t first, std::uint32_t segments) {
  NonceSequence sequence{KeyBudget{}};
  EXPECT_TRUE(sequence.advance(first, 0).has_value());
  return *sequence.take(segments, 0);
}

constexpr std::uint64_t kFirstNumber = 41;

// Seals the segments [from, from + count) of a record into `wire`, which begins at the record's first
// segment.
Result<void> seal(Rig& rig, const RecordContext& context, RecordLayout layout, const Memory& payload,
                  Memory& wire, std::uint32_t from, std::uint32_t count) {
  SealJob job{rig.device_key.get(),
              permit_from(kFirstNumber + from, count),
              context,
              layout,
              count,
              nullptr,
              nullptr};
  job.context.segment = from;
  job.context.element_offset += layout.payload_offset(from) / dtype_bytes(context.dtype);
  job.plaintext = payload.data() + layout.payload_offset(from);
  job.wire = wire.data() + layout.wire_offset(from);
  return rig.cipher->seal(std::move(job), rig.stream);
}

Memory seal_all(Rig& rig, const RecordContext& context, RecordLayout layout, const Memory& payload) {
  Memory wire(layout.wire_bytes());
  EXPECT_TRUE(seal(rig, context, layout, payload, wire, 0, layout.segments()).has_value());
  return wire;
}

OpenJob open_job(const Rig& rig, const RecordContext& context, RecordLayout layout, const Memory& wire,
                 Memory& out) {
  OpenJob job;
  job.key = rig.device_key.get();
  job.first_number = kFirstNumber;
  job.context = context;
  job.layout = layout;
  job.segments = layout.segments();
  job.wire = wire.data();
  job.combine.dtype = context.dtype;
  job.combine.dst = out.data();
  return job;
}

// The same record by the one-shot Aead, segment by segment.
Memory oracle(const Rig& rig, RecordContext context, RecordLayout layout, const Memory& payload) {
  const Aead aead = *Aead::make(cipher_of(rig.suite), rig.key.view());
  Nonce iv;
  std::memcpy(iv.data(), rig.iv.data(), iv.size());
  context.suite = rig.suite;
  context.epoch = rig.device_key->epoch();
  const std::uint64_t offset = context.element_offset;
  Memory wire(layout.wire_bytes());
  for (std::uint32_t k = 0; k < layout.segments(); ++k) {
    context.segment = k;
    context.segments = layout.segments();
    context.payload_bytes = layout.payload_of(k);
    context.element_offset = offset + layout.payload_offset(k) / dtype_bytes(context.dtype);
    const Aad aad = aad_of(context);
    std::byte* const at = wire.data() + layout.wire_offset(k);
    const Tag tag = *aead.seal(nonce_of(iv, kFirstNumber + k), std::as_bytes(std::span(aad)),
                               ByteView(payload).subspan(layout.payload_offset(k), layout.payload_of(k)),
                               {at, layout.payload_of(k)});
    std::memcpy(at + layout.payload_of(k), tag.data(), tag.size());
  }
  return wire;
}

class Suites : public testing::TestWithParam<Suite> {};

TEST_P(Suites, EqualsTheOracleAndOpensForEveryLength) {
  Rig rig(GetParam());
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t bytes = 0; bytes <= 300; ++bytes) lengths.push_back(bytes);
  for (const std::uint64_t edge : {4096u, 8192u, 65536u}) {
    for (const int delta : {-17, -16, -1, 0, 1, 15, 16, 17}) lengths.push_back(edge + delta);
  }
  for (const std::uint64_t bytes : lengths) {
    for (const std::uint32_t segment_bytes : {64u, 4096u, 65536u}) {
      if (bytes / segment_bytes > 200) continue;
      const RecordLayout layout = RecordLayout::of(bytes, segment_bytes);
      const Memory payload = random_memory(bytes, bytes);
      const Memory wire = seal_all(rig, some_context(), layout, payload);
      if (rig.suite != Suite::plain) {
        ASSERT_EQ(oracle(rig, some_context(), layout, payload), wire) << bytes << " by " << segment_bytes;
      }
      Memory out(bytes + 1, std::byte{0x5A});
      ASSERT_TRUE(rig.cipher->open(open_job(rig, some_context(), layout, wire, out), rig.stream).has_value());
      ASSERT_TRUE(std::equal(payload.begin(), payload.end(), out.begin()));
      ASSERT_EQ(std::byte{0x5A}, out.back());
    }
  }
}

TEST_P(Suites, JobsOfPartsMakeTheSameRecord) {
  Rig rig(GetParam());
  RecordContext context = some_context();
  context.dtype = DType::f32;
  const RecordLayout layout = RecordLayout::of(1000, 128);  // 8 segments, the last of 104 bytes
  const Memory payload = random_memory(1000, 5);
  const Memory whole = seal_all(rig, context, layout, payload);
  Memory parts(layout.wire_bytes());
  for (std::uint32_t from = 0; from < 8;) {
    const std::uint32_t count = std::min(3u, 8 - from);
    ASSERT_TRUE(seal(rig, context, layout, payload, parts, from, count).has_value());
    from += count;
  }
  EXPECT_EQ(whole, parts);

  Memory out(1000);
  for (std::uint32_t from = 0; from < 8; ++from) {
    OpenJob job = open_job(rig, context, layout, whole, out);
    job.first_number += from;
    job.context.segment = from;
    job.context.element_offset += layout.payload_offset(from) / 4;
    job.segments = 1;
    job.wire = whole.data() + layout.wire_offset(from);
    job.combine.dst = out.data() + layout.payload_offset(from);
    ASSERT_TRUE(rig.cipher->open(job, rig.stream).has_value());
  }
  EXPECT_EQ(payload, out);
}

// Of equal operands min takes the later: +0 and -0 show which that was.
TEST_P(Suites, ReceivedFirstReversesAReduction) {
  Rig rig(GetParam());
  RecordContext context = some_context();
  context.dtype = DType::f32;
  const RecordLayout layout = RecordLayout::of(400, 128);
  Memory local(400);
  for (std::size_t i = 3; i < 400; i += 4) local[i] = std::byte{0x80};  // -0
  const Memory wire = seal_all(rig, context, layout, Memory(400));
  for (const bool received_first : {false, true}) {
    Memory out = local;
    OpenJob job = open_job(rig, context, layout, wire, out);
    job.combine.redop = RedOp::min;
    job.combine.local = out.data();
    job.combine.received_first = received_first;
    ASSERT_TRUE(rig.cipher->open(job, rig.stream).has_value());
    EXPECT_EQ(out, received_first ? local : Memory(400));
  }
}

TEST_P(Suites, OpenReducesIntoDst) {
  Rig rig(GetParam());
  RecordContext context = some_context();
  context.dtype = DType::i32;
  const RecordLayout layout = RecordLayout::of(4 * 300, 512);
  Memory payload(4 * 300), local(4 * 300 + 1), out(4 * 300 + 3, std::byte{0x5A});
  for (std::int32_t i = 0; i < 300; ++i) {
    const std::int32_t sent = 10 * i, mine = 3 - i;
    std::memcpy(payload.data() + 4 * i, &sent, 4);
    std::memcpy(local.data() + 1 + 4 * i, &mine, 4);
  }
  const Memory wire = seal_all(rig, context, layout, payload);
  OpenJob job = open_job(rig, context, layout, wire, out);
  job.combine.redop = RedOp::avg;
  job.combine.local = local.data() + 1;
  job.combine.dst = out.data() + 2;
  job.combine.divisor = 4;
  ASSERT_TRUE(rig.cipher->open(job, rig.stream).has_value());
  for (std::int32_t i = 0; i < 300; ++i) {
    std::int32_t got = 0;
    std::memcpy(&got, out.data() + 2 + 4 * i, 4);
    ASSERT_EQ((9 * i + 3) / 4, got) << i;
  }
  EXPECT_EQ(std::byte{0x5A}, out[1]);
  EXPECT_EQ(std::byte{0x5A}, out.back());
}

// Opens a record of 4 segments whose byte `at` has been changed by `flip`, and expects the segment `bad`
// refused.
void expect_refused(Rig& rig, const Memory& good, const Memory& payload, RecordLayout layout, std::size_t at,
                    std::byte flip, std::uint32_t bad) {
  Memory wire = good;
  wire[at] ^= flip;
  Memory out(payload.size(), std::byte{0x5A});
  const Result<void> result = rig.cipher->open(open_job(rig, some_context(), layout, wire, out), rig.stream);
  ASSERT_FALSE(result.has_value()) << at;
  EXPECT_EQ(Code::data_tag, result.error().code);
  EXPECT_EQ(5, result.error().peer);
  EXPECT_EQ("data.open", result.error().stage);
  const std::size_t accepted = layout.payload_offset(bad);
  ASSERT_EQ(0, std::memcmp(payload.data(), out.data(), accepted));
  for (std::size_t i = accepted; i < out.size(); ++i)
    ASSERT_EQ(std::byte{0x5A}, out[i]) << "released at " << i;
}

TEST_P(Suites, ABadTagReleasesNothingFromItsSegmentOn) {
  Rig rig(GetParam());
  const RecordLayout layout = RecordLayout::of(4 * 64 - 10, 64);
  const Memory payload = random_memory(layout.payload_bytes, 6);
  const Memory good = seal_all(rig, some_context(), layout, payload);
  for (std::uint32_t bad = 0; bad < 4; ++bad) {
    const std::size_t tag = layout.wire_offset(bad) + layout.payload_of(bad);
    for (std::size_t bit = 0; bit < 128; ++bit) {  // [protocol D.1] each bit of the tag
      ASSERT_NO_FATAL_FAILURE(expect_refused(rig, good, payload, layout, tag + bit / 8,
                                             static_cast<std::byte>(1u << (bit % 8)), bad));
    }
    if (rig.suite == Suite::plain) continue;  // no authentication
    for (std::size_t at = layout.wire_offset(bad); at < tag; ++at) {
      ASSERT_NO_FATAL_FAILURE(expect_refused(rig, good, payload, layout, at, std::byte{0x80}, bad));
    }
  }
}

TEST_P(Suites, ADifferentContextNumberOrKeyIsRefused) {
  if (GetParam() == Suite::plain) return;  // no authentication: nothing is claimed
  Rig rig(GetParam());
  const RecordLayout layout = RecordLayout::of(100, 64);
  const Memory payload = random_memory(100, 7);
  const Memory wire = seal_all(rig, some_context(), layout, payload);
  Memory out(100, std::byte{0x5A});
  const Memory untouched = out;
  const auto refused = [&](auto change) {
    OpenJob job = open_job(rig, some_context(), layout, wire, out);
    change(job);
    const Result<void> result = rig.cipher->open(job, rig.stream);
    return !result.has_value() && result.error().code == Code::data_tag && out == untouched;
  };
  EXPECT_TRUE(refused([](OpenJob& job) { ++job.first_number; }));
  EXPECT_TRUE(refused([](OpenJob& job) { ++job.context.seq; }));
  EXPECT_TRUE(refused([](OpenJob& job) { ++job.context.step; }));
  EXPECT_TRUE(refused([](OpenJob& job) { ++job.context.lane; }));
  EXPECT_TRUE(refused([](OpenJob& job) { ++job.context.sender; }));
  EXPECT_TRUE(refused([](OpenJob& job) { job.context.receiver = kMulticast; }));
  EXPECT_TRUE(refused([](OpenJob& job) { ++job.context.element_offset; }));
  EXPECT_TRUE(refused([](OpenJob& job) { job.context.op = Op::all_gather; }));
  const Rig other_epoch(GetParam(), 4);
  EXPECT_TRUE(refused([&](OpenJob& job) { job.key = other_epoch.device_key.get(); }));
  // The two segments of a record in each other's place.
  const RecordLayout even = RecordLayout::of(128, 64);
  const Memory pair = seal_all(rig, some_context(), even, random_memory(128, 8));
  Memory swapped(pair.begin() + 80, pair.end());
  swapped.insert(swapped.end(), pair.begin(), pair.begin() + 80);
  Memory both(128, std::byte{0x5A});
  EXPECT_FALSE(rig.cipher->open(open_job(rig, some_context(), even, swapped, both), rig.stream).has_value());
  EXPECT_EQ(Memory(128, std::byte{0x5A}), both);
}

TEST_P(Suites, ThreadsShareAKey) {
  Rig rig(GetParam());
  const RecordLayout layout = RecordLayout::of(5000, 1024);
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (std::uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      Stream stream;
      for (std::uint64_t round = 0; round < 20; ++round) {
        const std::uint64_t first = (t * 20 + round) * layout.segments();
        const Memory payload = random_memory(5000, first);
        Memory wire(layout.wire_bytes()), out(5000);
        SealJob job{rig.device_key.get(), permit_from(first, layout.segments()),
                    some_context(),       layout,
                    layout.segments(),    payload.data(),
                    wire.data()};
        if (!rig.cipher->seal(std::move(job), stream)) return;
        OpenJob opening = open_job(rig, some_context(), layout, wire, out);
        opening.first_number = first;
        if (!rig.cipher->open(opening, stream) || out != payload) return;
      }
      ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(8, good.load());
}

std::string name_of(const testing::TestParamInfo<Suite>& tested) {
  std::string name(to_string(tested.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, Suites, testing::ValuesIn(all_suites().begin(), all_suites().end()), name_of);

TEST(BulkCipher, PlainIsACopyWithAZeroTag) {
  Rig rig(Suite::plain);
  const RecordLayout layout = RecordLayout::of(100, 64);
  const Memory payload = random_memory(100, 9);
  Memory wanted(payload.begin(), payload.begin() + 64);
  wanted.resize(80);
  wanted.insert(wanted.end(), payload.begin() + 64, payload.end());
  wanted.resize(132);
  EXPECT_EQ(wanted, seal_all(rig, some_context(), layout, payload));
}

TEST(BulkCipher, LoadRefusesWrongSizes) {
  const auto cipher = make_cpu_bulk_cipher();
  const auto code = [&](Suite suite, std::size_t key_bytes, std::size_t iv_bytes) {
    const auto loaded = cipher->load(suite, 0, secret(key_bytes, 1), secret(iv_bytes, 2));
    return loaded ? Code::ok : loaded.error().code;
  };
  EXPECT_EQ(Code::ok, code(Suite::aes_128_gcm, 16, 12));
  EXPECT_EQ(Code::invalid_argument, code(Suite::aes_128_gcm, 32, 12));
  EXPECT_EQ(Code::invalid_argument, code(Suite::aes_256_gcm, 16, 12));
  EXPECT_EQ(Code::invalid_argument, code(Suite::chacha20_poly1305, 32, 8));
  EXPECT_EQ(Code::suite, code(static_cast<Suite>(0x1234), 0, 12));
}

TEST_P(Suites, TheCallsHaveSaidAllThatAVerdictCould) {
  Rig rig(GetParam());
  for (const Await await : {Await::stream, Await::nothing})
    EXPECT_TRUE(rig.cipher->verdict(*rig.device_key, rig.stream, await));
}

TEST(BulkCipher, CudaIsAbsentByName) {
  if (cuda_built()) return;
  EXPECT_EQ(0u, cuda_device_count());
  const auto cipher = make_cuda_bulk_cipher(0);
  ASSERT_FALSE(cipher.has_value());
  EXPECT_EQ(Code::gpu_absent, cipher.error().code);
}

}  // namespace
}  // namespace sealring
