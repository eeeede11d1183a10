// Claim: no (key, nonce) is ever used twice in a job, whatever operations, groups, epochs and failures it
// has. How: a cipher decorator records (SHA-256 of key and iv, number) at every seal of every rank and every
// session.
#include <mutex>
#include <set>

#include "sealring/crypto/kdf.h"
#include "tests/collective/local_job.h"

namespace sealring::testing {
namespace {

class SealLog {
 public:
  void add(const Hash256& key, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    ++seals_;
    repeated_ = !seen_.emplace(key, number).second || repeated_;
  }
  bool repeated() const { return repeated_; }
  std::uint64_t seals() const { return seals_; }

 private:
  std::mutex mutex_;
  std::set<std::pair<Hash256, std::uint64_t>> seen_;
  bool repeated_ = false;
  std::uint64_t seals_ = 0;
};

struct RecordedKey final : DeviceKey {
  std::unique_ptr<DeviceKey> inner;
  Hash256 name{};
  Suite suite() const override { return inner->suite(); }
  Epoch epoch() const override { return inner->epoch(); }
};

class RecordingCipher final : public BulkCipher {
 public:
  explicit RecordingCipher(std::shared_ptr<SealLog> log)
      : inner_(make_cpu_bulk_cipher()), log_(std::move(log)) {}
  Result<std::unique_ptr<DeviceKey>> load(Suite suite, Epoch epoch, const SecretBytes& key,
                                          const SecretBytes& iv) override {
    auto out = std::make_unique<RecordedKey>();
    out->name = sha256({key.view(), iv.view()});
    SR_TRY(out->inner, inner_->load(suite, epoch, key, iv));
    return std::unique_ptr<DeviceKey>(std::move(out));
  }
  Result<void> seal(SealJob job, Stream& stream) override {
    const auto* key = static_cast<const RecordedKey*>(job.key);
    for (std::uint32_t i = 0; i < job.segments; ++i) log_->add(key->name, job.permit.first() + i);
    job.key = key->inner.get();
    return inner_->seal(std::move(job), stream);
  }
  Result<void> open(const OpenJob& job, Stream& stream) override {
    OpenJob inner = job;
    inner.key = static_cast<const RecordedKey*>(job.key)->inner.get();
    return inner_->open(inner, stream);
  }

 private:
  std::unique_ptr<BulkCipher> inner_;
  std::shared_ptr<SealLog> log_;
};

void work(LocalJob& job, std::uint16_t world, int rounds, const std::string& prefix) {
  job.each([&](Rank rank) {
    Communicator& comm = job.comm(rank);
    std::vector<Rank> all(world);
    for (Rank r = 0; r < world; ++r) all[r] = r;
    auto group = job.session(rank).split(all, job.store(), prefix);
    ASSERT_TRUE(group) << group.error().message();
    for (int i = 0; i < rounds; ++i) {
      std::vector<float> a(700, 1.0f), b(700, 1.0f), c(700 * world);
      const Tensor ta{a.data(), 700, DType::f32}, tb{b.data(), 700, DType::f32};
      std::vector<Result<Ticket>> tickets;
      tickets.push_back(comm.all_reduce(ta, ta, {}));
      tickets.push_back((*group)->all_reduce(tb, tb, {}));
      tickets.push_back(comm.send(tb, static_cast<Rank>((rank + 1) % world), 0));
      std::vector<float> got(700);
      tickets.push_back(
          comm.recv({got.data(), 700, DType::f32}, static_cast<Rank>((rank + world - 1) % world), 0));
      tickets.push_back(comm.all_gather(ta, {c.data(), c.size(), DType::f32}));
      tickets.push_back(comm.broadcast(ta, 0));
      for (auto& ticket : tickets) {
        ASSERT_TRUE(ticket) << ticket.error().message();
        const auto result = ticket->wait(Deadline::in(std::chrono::minutes(1)));
        ASSERT_TRUE(result) << result.error().message();
      }
    }
  });
}

TEST(NonceUniqueness, AcrossOperationsGroupsEpochsAndSessions) {
  auto log = std::make_shared<SealLog>();
  for (const Suite suite : {Suite::aes_256_gcm, Suite::chacha20_poly1305}) {
    for (const bool sender_keys : {true, false}) {
      JobOptions options;
      options.world = 3;
      options.config.suite = suite;
      options.config.sender_keys = sender_keys;
      options.config.algorithm = suite == Suite::aes_256_gcm ? Algorithm::one_hop : Algorithm::one_shot;
      options.config.segment_bytes = 512;
      options.config.workers = sender_keys ? 2 : 0;
      options.config.budget.segments_rotate = 40;
      options.cipher = [&](Rank) { return std::make_shared<RecordingCipher>(log); };
      LocalJob job(std::move(options));
      ASSERT_TRUE(job.connected()) << job.first_error();
      work(job, 3, 8, "again");
      EXPECT_GT(job.comm(0).counters().epoch, 0u);
    }
  }
  EXPECT_GT(log->seals(), 2000u);
  EXPECT_FALSE(log->repeated());
}

TEST(NonceUniqueness, TheLogFindsARepetition) {
  SealLog log;
  log.add(Hash256{}, 1);
  log.add(Hash256{}, 2);
  EXPECT_FALSE(log.repeated());
  log.add(Hash256{}, 1);
  EXPECT_TRUE(log.repeated());
}

}  // namespace
}  // namespace sealring::testing
