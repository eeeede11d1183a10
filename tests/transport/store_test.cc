// Claim: all four stores keep one contract (write-once, absence, counters, limits); ours admits only its key.
// How: one suite over memory, file, tcp and callback; strangers and wrong keys knock at a real server.
#include "sealring/transport/store.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "sealring/crypto/kdf.h"
#include "sealring/transport/socket.h"
#include "sealring/transport/tcp_store_wire.h"
#include "tests/transport/ranks.h"

namespace sealring::testing {
namespace {

SecretBytes secret_of(std::uint8_t number) {
  SecretBytes secret(64);
  secret.span()[0] = static_cast<std::byte>(number);
  return secret;
}

std::uint16_t port_of(const Store& store) {
  const std::string text = store.describe();
  return static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
}

/// A store of one kind, with a second view of it as another rank would have.
struct Views {
  explicit Views(const std::string& kind) {
    if (kind == "memory") {
      owned.push_back(make_memory_store());
    } else if (kind == "file") {
      directory = ::testing::TempDir() + "sealring_store_" + std::to_string(::getpid());
      std::filesystem::remove_all(directory);
      for (int i = 0; i < 2; ++i) owned.push_back(*make_file_store(directory));
    } else if (kind == "callback") {
      inner = make_memory_store();
      owned.push_back(
          make_callback_store({[this](const std::string& k, ByteView v) { return inner->set(k, v); },
                               [this](const std::string& k) { return inner->try_get(k); },
                               [this](const std::string& k, std::int64_t n) { return inner->add(k, n); },
                               [this](const std::string& k) { return inner->remove(k); }, "theirs"}));
    } else {
      TcpStoreConfig config{"127.0.0.1", 0, true, "job"};
      auto served = make_tcp_store(config, secret_of(1), seconds(10));
      EXPECT_TRUE(served.has_value()) << served.error().message();
      config.serve = false;
      config.port = port_of(**served);
      auto client = make_tcp_store(config, secret_of(1), seconds(10));
      EXPECT_TRUE(client.has_value()) << client.error().message();
      owned.push_back(std::move(*served));
      owned.push_back(std::move(*client));
      if (kind == "tcp_clients") owned[0].swap(owned[1]);
    }
  }
  ~Views() {
    owned.clear();
    if (!directory.empty()) std::filesystem::remove_all(directory);
  }
  Store& mine() { return *owned.front(); }
  Store& theirs() { return *owned.back(); }

  std::string directory;
  std::unique_ptr<Store> inner;
  std::vector<std::unique_ptr<Store>> owned;
};

class StoreContract : public ::testing::TestWithParam<const char*> {};

TEST_P(StoreContract, SetOnceGetOften) {
  Views views(GetParam());
  const auto absent = views.theirs().try_get("job/0/hello/1");
  ASSERT_TRUE(absent.has_value());
  EXPECT_FALSE(absent->has_value());
  ASSERT_TRUE(views.mine().set("job/0/hello/1", as_bytes("value")).has_value());
  EXPECT_EQ(**views.theirs().try_get("job/0/hello/1"), to_bytes(as_bytes("value")));
  EXPECT_TRUE(views.theirs().set("job/0/hello/1", as_bytes("value")).has_value());
  for (const char* other : {"valuf", "valu", "values", ""}) {
    const auto again = views.theirs().set("job/0/hello/1", as_bytes(other));
    ASSERT_FALSE(again.has_value()) << other;
    EXPECT_EQ(again.error().code, Code::store);
  }
  EXPECT_EQ(**views.mine().try_get("job/0/hello/1"), to_bytes(as_bytes("value")));
}

TEST_P(StoreContract, EmptyAndLargestValues) {
  Views views(GetParam());
  ASSERT_TRUE(views.mine().set("empty", {}).has_value());
  ASSERT_TRUE(views.theirs().try_get("empty")->has_value());
  EXPECT_TRUE((*views.theirs().try_get("empty"))->empty());
  Bytes large(Store::kValueBytesMax);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = pattern(3, i);
  ASSERT_TRUE(views.mine().set("large", large).has_value());
  EXPECT_EQ(**views.theirs().try_get("large"), large);
  large.push_back(std::byte{1});
  const auto over = views.theirs().set("over", large);
  ASSERT_FALSE(over.has_value());
  EXPECT_EQ(over.error().code, Code::invalid_argument);
}

TEST_P(StoreContract, RemoveMakesRoomForAnotherValue) {
  Views views(GetParam());
  ASSERT_TRUE(views.mine().set("a", as_bytes("1")).has_value());
  ASSERT_TRUE(views.theirs().remove("a").has_value());
  EXPECT_FALSE(views.mine().try_get("a")->has_value());
  ASSERT_TRUE(views.mine().remove("a").has_value()) << "removing what is not there is no error";
  ASSERT_TRUE(views.theirs().set("a", as_bytes("2")).has_value());
  EXPECT_EQ(**views.mine().try_get("a"), to_bytes(as_bytes("2")));
}

TEST_P(StoreContract, CountersCountEveryAdd) {
  Views views(GetParam());
  EXPECT_EQ(*views.mine().add("n", 5), 5);
  EXPECT_EQ(*views.theirs().add("n", -7), -2);
  EXPECT_EQ(*views.mine().add("n", 0), -2);
  ASSERT_TRUE(views.mine().remove("n").has_value());
  EXPECT_EQ(*views.theirs().add("n", 1), 1);
  EXPECT_EQ(*views.mine().add("limit", std::numeric_limits<std::int64_t>::max()),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(views.theirs().add("limit", 1).error().code, Code::store);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 100; ++j)
        ASSERT_TRUE((i % 2 == 0 ? views.mine() : views.theirs()).add("many", 1).has_value());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*views.mine().add("many", 0), 400);
}

TEST_P(StoreContract, KeysAreCheckedAndKeptApart) {
  Views views(GetParam());
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("a\nb"),
                                 std::string("\xC3\xA9"), std::string(513, 'k'), std::string("a\0b", 3)}) {
    EXPECT_EQ(views.mine().set(bad, {}).error().code, Code::invalid_argument);
    EXPECT_EQ(views.mine().try_get(bad).error().code, Code::invalid_argument);
    EXPECT_EQ(views.mine().add(bad, 1).error().code, Code::invalid_argument);
    EXPECT_EQ(views.mine().remove(bad).error().code, Code::invalid_argument);
  }
  const std::string keys[] = {"a/b",
                              "a%2fb",
                              "a%2Fb",
                              "a/b/",
                              "../a",
                              ".",
                              "A/b",
                              std::string(512, '/'),
                              std::string(511, '/') + "x"};
  for (const std::string& key : keys) ASSERT_TRUE(views.mine().set(key, as_bytes(key)).has_value()) << key;
  for (const std::string& key : keys)
    EXPECT_EQ(**views.theirs().try_get(key), to_bytes(as_bytes(key))) << key;
}

TEST_P(StoreContract, OneOfManyWritersWins) {
  Views views(GetParam());
  std::atomic<int> wins{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Store& store = i % 2 == 0 ? views.mine() : views.theirs();
      if (store.set("slot", as_bytes(std::to_string(i)))) ++wins;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wins.load(), 1);
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract,
                         ::testing::Values("memory", "file", "callback", "tcp", "tcp_clients"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(CallbackStore, PassesErrorsOnAndDistrustsSizes) {
  const auto failing = [] { return fail(Code::store, "theirs", "broken"); };
  const auto store = make_callback_store(
      {[&](const std::string&, ByteView) -> Result<void> { return failing(); },
       [](const std::string&) -> Result<std::optional<Bytes>> {
         return std::optional<Bytes>(Bytes(Store::kValueBytesMax + 1));
       },
       [&](const std::string&, std::int64_t) -> Result<std::int64_t> { return failing(); },
       [&](const std::string&) -> Result<void> { return failing(); }, "theirs"});
  EXPECT_EQ(store->set("a", {}).error().what, "broken");
  EXPECT_EQ(store->try_get("a").error().code, Code::store);
  EXPECT_EQ(store->add("a", 1).error().what, "broken");
  EXPECT_EQ(store->remove("a").error().what, "broken");
  EXPECT_EQ(store->describe(), "theirs");
}

class TcpStoreServing : public ::testing::Test {
 protected:
  TcpStoreServing() {
    TcpStoreConfig config{"127.0.0.1", 0, true, "job"};
    served_ = *make_tcp_store(config, secret_of(1), seconds(10));
    port_ = port_of(*served_);
  }
  Result<std::unique_ptr<Store>> connect(std::uint8_t secret, const std::string& prefix = "job") const {
    return make_tcp_store({"127.0.0.1", port_, false, prefix}, secret_of(secret), seconds(10));
  }
  Fd stranger() const {
    Fd fd = *begin_connect(*parse_address("127.0.0.1:" + std::to_string(port_)), "test");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return fd;
  }
  std::unique_ptr<Store> served_;
  std::uint16_t port_ = 0;
};

TEST_F(TcpStoreServing, AnotherKeyOrPrefixIsToldSo) {
  const auto wrong = connect(2);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, Code::rdv_key);
  EXPECT_NE(wrong.error().what.find("uses another job key"), std::string::npos);
  EXPECT_EQ(connect(1, "other job").error().code, Code::rdv_key);
  EXPECT_TRUE(connect(1).has_value());
}

TEST_F(TcpStoreServing, APortThatIsTakenIsNamed) {
  const auto second = make_tcp_store({"127.0.0.1", port_, true, "job"}, secret_of(1), seconds(1));
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::port);
  EXPECT_NE(second.error().what.find(std::to_string(port_)), std::string::npos);
}

TEST_F(TcpStoreServing, ANameWithoutAnAddressIsAStoreError) {
  const auto lost = make_tcp_store({"no-such-host.invalid", 1, false, "job"}, secret_of(1),
                                   Deadline::in(std::chrono::milliseconds(50)));
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, Code::store);
}

TEST_F(TcpStoreServing, ClientsWaitForAServerThatComesLater) {
  const std::uint16_t port = port_;
  served_.reset();
  const auto early = make_tcp_store({"127.0.0.1", port, false, "job"}, secret_of(1),
                                    Deadline::in(std::chrono::milliseconds(100)));
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().code, Code::store);
  Result<std::unique_ptr<Store>> client = fail(Code::store, "", "");
  std::thread waiting([&] {
    client = make_tcp_store({"127.0.0.1", port, false, "job"}, secret_of(1), seconds(20));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  served_ = *make_tcp_store({"127.0.0.1", port, true, "job"}, secret_of(1), seconds(10));
  waiting.join();
  ASSERT_TRUE(client.has_value()) << client.error().message();
  EXPECT_TRUE((*client)->set("a", {}).has_value());
}

TEST_F(TcpStoreServing, OutlivesItsClientsAndTellsThemWhenItEnds) {
  for (int i = 0; i < 20; ++i) ASSERT_TRUE((*connect(1))->add("arrivals", 1).has_value());
  EXPECT_EQ(*served_->add("arrivals", 0), 20);
  auto client = connect(1);
  ASSERT_TRUE(client.has_value());
  served_.reset();
  const auto lost = (*client)->try_get("arrivals");
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, Code::store);
  EXPECT_EQ((*client)->add("arrivals", 1).error().code, Code::store);
}

TEST_F(TcpStoreServing, StrangersDoNotKeepRanksOut) {
  std::vector<Fd> strangers;
  for (int i = 0; i < 300; ++i)
    strangers.push_back(*begin_connect(*parse_address("127.0.0.1:" + std::to_string(port_)), ""));
  const Bytes junk(100000, std::byte{0x55});
  for (int i = 0; i < 50; ++i) send_some(strangers[static_cast<std::size_t>(i)], junk);
  const auto client = connect(1);
  ASSERT_TRUE(client.has_value()) << client.error().message();
  EXPECT_EQ(*(*client)->add("n", 1), 1);
}

TEST_F(TcpStoreServing, AStrangerWithoutTheKeyGetsNothingMadeWithIt) {
  const Fd fd = stranger();
  std::array<std::byte, kStoreGreetingBytes> greeting;
  ASSERT_EQ(recv_some(fd, greeting), static_cast<std::ptrdiff_t>(greeting.size()));
  send_some(fd, Bytes(kStoreAnswerBytes, std::byte{7}));
  std::this_thread::sleep_for(std::chrono::milliseconds(50 * slowness()));
  std::array<std::byte, 64> welcome;
  ASSERT_EQ(recv_some(fd, welcome), static_cast<std::ptrdiff_t>(kStoreWelcomeBytes));
  EXPECT_EQ(welcome[0], std::byte{static_cast<std::uint8_t>(StoreStatus::wrong_key)});
  for (std::size_t i = 1; i < kStoreWelcomeBytes; ++i) EXPECT_EQ(welcome[i], std::byte{0});
  EXPECT_EQ(recv_some(fd, welcome), -1);
}

TEST_F(TcpStoreServing, SomethingElseOnThePortIsNotTaken) {
  const auto address = *parse_address("127.0.0.1:" + std::to_string(port_));
  SocketAddress other = address;
  other.set_port(0);
  const Fd listener = *listen_on(other, "test");
  std::thread talker([&] {
    for (int i = 0; i < 400; ++i) {
      Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
      if (fd.valid()) send_some(fd, Bytes(100, std::byte{'x'}));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const auto lost = make_tcp_store({"127.0.0.1", local_address(listener).port(), false, "job"}, secret_of(1),
                                   Deadline::in(std::chrono::milliseconds(200)));
  talker.join();
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, Code::store);
  EXPECT_NE(lost.error().what.find("something else listens there"), std::string::npos) << lost.error().what;
}

TEST(TcpStoreWire, RequestsAreCutByTheirHeaders) {
  const Bytes good = StoreRequest{StoreVerb::set, "key", to_bytes(as_bytes("value"))}.encode();
  StoreRequest request;
  std::size_t used_bytes = 0;
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_EQ(parse_store_request(ByteView(good).first(cut), request, used_bytes), ParseState::incomplete)
        << cut;
  }
  Bytes two = good;
  two.insert(two.end(), good.begin(), good.end());
  ASSERT_EQ(parse_store_request(two, request, used_bytes), ParseState::complete);
  EXPECT_EQ(used_bytes, good.size());
  EXPECT_EQ(request.key, "key");
  EXPECT_EQ(request.value, to_bytes(as_bytes("value")));
  const auto state_of = [&](std::uint8_t verb, std::uint16_t key_bytes, std::uint32_t value_bytes) {
    Bytes header = ByteWriter().put(verb).put(key_bytes).put(value_bytes).take();
    return parse_store_request(header, request, used_bytes);
  };
  EXPECT_EQ(state_of(0, 1, 0), ParseState::malformed);
  EXPECT_EQ(state_of(5, 1, 0), ParseState::malformed);
  EXPECT_EQ(state_of(1, 0, 0), ParseState::malformed);
  EXPECT_EQ(state_of(1, 513, 0), ParseState::malformed);
  EXPECT_EQ(state_of(1, 512, 0), ParseState::incomplete);
  EXPECT_EQ(state_of(1, 1, Store::kValueBytesMax + 1), ParseState::malformed);
  EXPECT_EQ(state_of(1, 1, Store::kValueBytesMax), ParseState::incomplete);
  EXPECT_EQ(state_of(1, 1, 0xFFFFFFFF), ParseState::malformed);
  EXPECT_EQ(state_of(2, 1, 1), ParseState::malformed);
  EXPECT_EQ(state_of(3, 1, 7), ParseState::malformed);
  EXPECT_EQ(state_of(4, 1, 1), ParseState::malformed);
}

TEST(FileStore, ForeignFilesAreErrorsNotHangs) {
  Views views("file");
  ASSERT_EQ(::mkfifo((views.directory + "/v-pipe").c_str(), 0600), 0);
  std::ofstream(views.directory + "/v-large") << std::string(Store::kValueBytesMax + 1, 'x');
  std::filesystem::create_symlink("/etc/passwd", views.directory + "/v-link");
  std::ofstream(views.directory + "/c-short") << "123";
  ASSERT_EQ(::mkfifo((views.directory + "/c-pipe").c_str(), 0600), 0);
  EXPECT_EQ(views.mine().try_get("large").error().code, Code::store);
  EXPECT_EQ(views.mine().try_get("link").error().code, Code::store);
  EXPECT_EQ(views.mine().add("short", 1).error().code, Code::store);
  EXPECT_EQ(views.mine().add("pipe", 1).error().code, Code::store);
  const auto pipe = views.mine().try_get("pipe");  // reads as empty; the handshake then calls it malformed
  EXPECT_TRUE(!pipe || !*pipe || (*pipe)->empty());
}

TEST(FileStore, LeavesNoTemporaryFilesBehind) {
  Views views("file");
  ASSERT_TRUE(views.mine().set("a", as_bytes("1")).has_value());
  ASSERT_FALSE(views.mine().set("a", as_bytes("2")).has_value());
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(views.directory)) ++files;
  EXPECT_EQ(files, 1u);
}

TEST(FileStore, AFileInPlaceOfTheDirectoryIsAnError) {
  const std::string path = ::testing::TempDir() + "sealring_store_file_" + std::to_string(::getpid());
  std::ofstream(path) << "x";
  EXPECT_EQ(make_file_store(path).error().code, Code::store);
  EXPECT_EQ(make_file_store(path + "/below").error().code, Code::store);
  EXPECT_EQ(make_file_store("").error().code, Code::store);
  std::filesystem::remove(path);
}

TEST(FileStore, AFullDiskIsNoSpace) {
  const std::string directory = ::testing::TempDir() + "sealring_store_full_" + std::to_string(::getpid());
  std::filesystem::create_directory(directory);
  const pid_t child = ::fork();
  if (child == 0) {  // a small filesystem of its own, where the kernel lets an ordinary user have one
    const uid_t user = ::getuid();
    const gid_t group = ::getgid();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(77);
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
    if (::mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=16k") != 0) ::_exit(77);
    const auto store = make_file_store(directory);
    if (!store) ::_exit(1);
    for (int i = 0; i < 20; ++i) {
      const auto result = (*store)->set("entry" + std::to_string(i), Bytes(4096));
      if (!result && result.error().code != Code::no_space)
        std::fprintf(stderr, "%s\n", result.error().what.c_str());
      if (!result) ::_exit(result.error().code == Code::no_space ? 0 : 2);
    }
    ::_exit(3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  std::filesystem::remove_all(directory);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this system lets no user mount a filesystem";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace sealring::testing
