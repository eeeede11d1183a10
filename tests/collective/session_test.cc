// Claim: ranks that cannot become a session all learn why, and soon, also when the store ends with the first
// that gave up, gives wrong addresses or counts, or falls silent.
// How: ranks as threads with different keys or suites; one is slow at the store, which fails once another's
// connect has returned; stores that lie to one rank or do not answer it.
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <limits>

#include "tests/collective/local_job.h"

namespace sealring::testing {
namespace {

using ::testing::HasSubstr;

/// The store of rank 0's process, as another rank sees it.
class MortalStore final : public Store {
 public:
  MortalStore(std::shared_ptr<Store> store, std::shared_ptr<std::atomic<bool>> ended,
              std::chrono::milliseconds delay)
      : store_(std::move(store)), ended_(std::move(ended)), delay_(delay) {}
  Result<void> set(const std::string& key, ByteView value) override {
    SR_TRY(reach());
    return store_->set(key, value);
  }
  Result<std::optional<Bytes>> try_get(const std::string& key) override {
    SR_TRY(reach());
    return store_->try_get(key);
  }
  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    SR_TRY(reach());
    return store_->add(key, amount);
  }
  Result<void> remove(const std::string& key) override {
    SR_TRY(reach());
    return store_->remove(key);
  }
  std::string describe() const override { return "mortal"; }

 private:
  Result<void> reach() {
    std::this_thread::sleep_for(delay_);
    if (!*ended_) return {};
    return fail(Code::store, "test.store", "the store's process has ended");
  }

  std::shared_ptr<Store> store_;
  std::shared_ptr<std::atomic<bool>> ended_;
  std::chrono::milliseconds delay_;
};

struct Pair {
  Error first, second;  ///< of rank 0, with which the store ends, and of rank 1
  std::chrono::duration<double> seconds{};
};

Pair connect_pair(const JobKey& key0, const JobKey& key1, Suite suite1, std::chrono::milliseconds delay) {
  log_setup("off", -1);
  const std::shared_ptr<Store> store = make_memory_store();
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  const auto hub = LoopbackHub::make(2);
  const auto connect = [&](Rank rank) {
    CommConfig config;
    config.rank = rank;
    config.world = 2;
    config.connect_timeout = std::chrono::seconds(20);
    if (rank == 1) config.suite = suite1;
    const auto mine = rank == 0 ? store : std::make_shared<MortalStore>(store, ended, delay);
    auto session = Session::connect(config, make_job_key_identity(rank == 0 ? key0 : key1),
                                    hub->transport(rank), mine, "test");
    return session ? Error{} : session.error();
  };
  Pair out;
  const auto begin = Clock::now();
  std::thread other([&] { out.second = connect(1); });
  out.first = connect(0);
  *ended = true;
  other.join();
  out.seconds = Clock::now() - begin;
  return out;
}

TEST(Session, DifferentKeysAreToldToASlowRankToo) {
  const JobKey a = JobKey::generate(), b = JobKey::generate();
  for (const int delay_ms : {0, 2, 20}) {
    const Pair pair = connect_pair(a, b, Suite::aes_256_gcm, std::chrono::milliseconds(delay_ms));
    EXPECT_THAT(pair.first.message(), HasSubstr("SR-E210"));
    EXPECT_THAT(pair.second.message(), HasSubstr("SR-E210"));
    EXPECT_LT(pair.seconds.count(), 4.0 * slow_factor());
  }
}

TEST(Session, DifferentSuitesAreToldToASlowRankToo) {
  const JobKey key = JobKey::generate();
  for (const int delay_ms : {0, 20}) {
    const Pair pair = connect_pair(key, key, Suite::chacha20_poly1305, std::chrono::milliseconds(delay_ms));
    EXPECT_THAT(pair.first.message(), HasSubstr("SR-E205"));
    EXPECT_THAT(pair.second.message(), HasSubstr("SR-E205"));
  }
}

TEST(Session, ADeathWhileOthersStillConnectIsTheirErrorToo) {
  log_setup("off", -1);
  const JobKey key = JobKey::generate();
  const std::shared_ptr<Store> store = make_memory_store();
  const auto hub = LoopbackHub::make(2);
  const auto connect = [&](Rank rank, const std::shared_ptr<Store>& mine) {
    CommConfig config;
    config.rank = rank;
    config.world = 2;
    return Session::connect(config, make_job_key_identity(key), hub->transport(rank), mine, "test");
  };
  // Rank 1 is slow at the store, also after its control plane has started: rank 0 ends the session meanwhile.
  const auto slow = std::make_shared<MortalStore>(store, std::make_shared<std::atomic<bool>>(false),
                                                  std::chrono::milliseconds(20));
  Error second;
  std::thread other([&] {
    const auto session = connect(1, slow);
    if (!session) second = session.error();
  });
  const auto session = connect(0, store);
  ASSERT_TRUE(session) << session.error().message();
  Error death;
  death.code = Code::data_tag;
  death.stage = "test";
  death.what = "made up";
  (*session)->abort(death);
  other.join();
  EXPECT_EQ(second.code, Code::aborted) << second.message();
}

/// The same store but for one kind of call.
std::shared_ptr<Store> changed_store(const std::shared_ptr<Store>& store,
                                     const std::function<void(StoreCallbacks&)>& change) {
  StoreCallbacks calls{
      [store](const std::string& key, ByteView value) { return store->set(key, value); },
      [store](const std::string& key) { return store->try_get(key); },
      [store](const std::string& key, std::int64_t amount) { return store->add(key, amount); },
      [store](const std::string& key) { return store->remove(key); }, "changed"};
  change(calls);
  return make_callback_store(std::move(calls));
}

Error connect_over_tcp(Rank rank, const JobKey& key, std::shared_ptr<Store> store,
                       std::chrono::milliseconds timeout) {
  log_setup("off", -1);
  CommConfig config;
  config.rank = rank;
  config.world = 2;
  config.connect_timeout = timeout;
  auto transport = make_tcp_transport({"127.0.0.1", 0, 0, ""});
  if (!transport) return transport.error();
  auto session =
      Session::connect(config, make_job_key_identity(key), std::move(*transport), std::move(store), "test");
  return session ? Error{} : session.error();
}

TEST(Session, AnAddressThatIsNoneEndsBothRanksAtOnce) {
  const JobKey key = JobKey::generate();
  const std::shared_ptr<Store> store = make_memory_store();
  const auto lying = changed_store(store, [&](StoreCallbacks& calls) {
    calls.try_get = [store](const std::string& name) -> Result<std::optional<Bytes>> {
      if (name.ends_with("/address/0")) return to_bytes(as_bytes("127.0.0.1:0"));
      return store->try_get(name);
    };
  });
  const auto begin = Clock::now();
  Error second;
  std::thread other([&] { second = connect_over_tcp(1, key, lying, std::chrono::seconds(20)); });
  const Error first = connect_over_tcp(0, key, store, std::chrono::seconds(20));
  other.join();
  EXPECT_EQ(second.code, Code::peer_lost) << second.message();
  EXPECT_EQ(second.rank, 1);
  EXPECT_EQ(second.peer, 0);
  EXPECT_EQ(first.code, Code::aborted) << first.message();
  EXPECT_EQ(first.rank, 0);
  EXPECT_THAT(first.what, HasSubstr("reported by rank 1, unauthenticated: SR-E603"));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(3 * slow_factor()));
}

TEST(Session, ACounterThatCountsWrongIsAnErrorOfThisRank) {
  const std::shared_ptr<Store> store = make_memory_store();
  for (const std::int64_t count : {std::int64_t{0}, std::numeric_limits<std::int64_t>::min()}) {
    const auto lying = changed_store(store, [&](StoreCallbacks& calls) {
      calls.add = [count](const std::string&, std::int64_t) -> Result<std::int64_t> { return count; };
    });
    const Error error = connect_over_tcp(1, JobKey::generate(), lying, std::chrono::seconds(5));
    EXPECT_EQ(error.code, Code::store) << error.message();
    EXPECT_EQ(error.rank, 1);
    EXPECT_EQ(error.stage, "handshake.arrivals");
  }
}

TEST(Session, AStoreThatFallsSilentIsATimeoutInTime) {
  const auto release = std::make_shared<std::promise<void>>();
  const auto released = release->get_future().share();
  for (const char* slot : {"arrivals", "hello", "note"}) {
    const std::shared_ptr<Store> store = make_memory_store();
    const auto silent = changed_store(store, [&](StoreCallbacks& calls) {
      const auto wait_at = [released, slot](const std::string& key) {
        if (key.find(slot) != std::string::npos) released.wait();
      };
      calls.add = [=](const std::string& key, std::int64_t amount) {
        wait_at(key);
        return store->add(key, amount);
      };
      calls.try_get = [=](const std::string& key) {
        wait_at(key);
        return store->try_get(key);
      };
    });
    const auto begin = Clock::now();
    const Error error = connect_over_tcp(1, JobKey::generate(), silent, std::chrono::milliseconds(1000));
    EXPECT_EQ(error.code, Code::timeout) << error.message();
    EXPECT_EQ(error.rank, 1);
    EXPECT_THAT(error.what, HasSubstr("changed did not answer"));
    EXPECT_THAT(error.what, HasSubstr(slot));
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(3 * slow_factor()));
  }
  release->set_value();
}

}  // namespace
}  // namespace sealring::testing
