#include "sealring/study/cipher_rate.h"

#include <vector>

#include "sealring/base/deadline.h"
#include "sealring/crypto/kdf.h"
#include "sealring/device/bulk_cipher.h"
#include "sealring/study/statistics.h"

namespace sealring {
namespace {

/// One key, its numbers on both sides, and the buffers of a pass.
struct Bench {
  CipherRateSpec spec;
  std::unique_ptr<BulkCipher> cipher;
  std::unique_ptr<DeviceKey> key;
  NonceSequence sender, receiver;
  RecordLayout layout;
  RecordContext context;
  Bytes plaintext, wire, opened;

  explicit Bench(const CipherRateSpec& wanted)
      : spec(wanted),
        cipher(make_cpu_bulk_cipher()),
        sender(KeyBudget{}),
        receiver(KeyBudget{}),
        layout(RecordLayout::of(wanted.total_bytes, wanted.segment_bytes)),
        plaintext(wanted.total_bytes, std::byte{1}),
        wire(layout.wire_bytes()),
        opened(wanted.total_bytes) {
    context.suite = wanted.suite;
    context.segments = layout.segments();
    context.payload_bytes = layout.payload_of(0);
    context.elements = wanted.total_bytes;
    context.group_size = 2;
  }

  Result<std::uint64_t> seal() {
    SR_TRY(SealPermit permit, sender.take(layout.segments(), spec.total_bytes));
    Stream stream;
    const std::uint64_t start = now_ns();
    SR_TRY(cipher->seal(SealJob{key.get(), std::move(permit), context, layout, layout.segments(),
                                plaintext.data(), wire.data()},
                        stream));
    return now_ns() - start;
  }

  Result<std::uint64_t> open() {
    SR_TRY(const std::uint64_t first, receiver.advance(layout.segments(), spec.total_bytes));
    Stream stream;
    OpenJob job;
    job.key = key.get();
    job.first_number = first;
    job.context = context;
    job.layout = layout;
    job.segments = layout.segments();
    job.wire = wire.data();
    job.combine.dst = opened.data();
    const std::uint64_t start = now_ns();
    SR_TRY(cipher->open(job, stream));
    return now_ns() - start;
  }
};

}  // namespace

Result<CipherRate> measure_cipher_rate(const CipherRateSpec& spec) {
  SR_CHECK(spec.total_bytes > 0 && spec.segment_bytes > 0);
  Bench bench(spec);
  SecretBytes key(32), iv(kNonceBytes);
  random_bytes(key.span());
  random_bytes(iv.span());
  if (spec.suite == Suite::aes_128_gcm) key = SecretBytes::copy_of(key.view().first(16));
  SR_TRY(bench.key, bench.cipher->load(spec.suite, 0, key, iv));
  std::vector<double> seal_ns, open_ns;
  const std::uint64_t start = now_ns();
  for (int pass = 0; pass < 2 || now_ns() - start < spec.least_ns; ++pass) {
    SR_TRY(const std::uint64_t sealed, bench.seal());
    SR_TRY(const std::uint64_t opened, bench.open());
    if (pass == 0) continue;  // page faults and cold caches
    seal_ns.push_back(static_cast<double>(sealed));
    open_ns.push_back(static_cast<double>(opened));
  }
  const double bytes = static_cast<double>(spec.total_bytes);
  return CipherRate{bytes / median(seal_ns), bytes / median(open_ns)};
}

}  // namespace sealring
