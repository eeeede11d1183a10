// Claim: another process reaches a window and nothing else of its owner; what it writes is seen; a window
// outlives its owner for whoever has mapped it; what is no offer of this window is refused.
// How: a second process of this binary maps windows and runs kernels on them; one of them is killed
// meanwhile.
#include <unistd.h>

#include <filesystem>
#include <set>

#include "sealring/device/cuda/mapped_memory.h"
#include "sealring/device/cuda/window.h"
#include "tests/gpu/gpu_rig.h"
#include "tests/gpu/second_process.h"
#include "tests/gpu/window_kernel.h"

namespace sealring::cuda::test {
namespace {

constexpr std::uint64_t kBytes = (5u << 20) + 4096;
constexpr Rank kFirst = 0, kSecond = 1;
constexpr std::uint16_t kWorld = 2;

enum class Ask : std::uint8_t { map, fill, offer, write_for_ever };

Deadline soon() { return Deadline::in(std::chrono::seconds(30)); }

/// The first two bytes of an answer: how it went; behind them what was asked for.
Bytes answer_of(Code code, ByteView text = {}) {
  return ByteWriter().put(static_cast<std::uint16_t>(code)).put(text).take();
}
Code code_in(const Bytes& answer) {
  return answer.size() < 2 ? Code::aborted : static_cast<Code>(load_be<std::uint16_t>(answer.data()));
}
Code status_code(cudaError_t status) { return status == cudaSuccess ? Code::ok : Code::cuda; }

struct Asked {
  Ask what{};
  std::uint8_t device = 0;
  DeviceWireKind kind{};
  std::uint64_t value = 0;  ///< the window's bytes, or the pattern's seed
  Bytes offer;

  Bytes text() const {
    return ByteWriter()
        .put(static_cast<std::uint8_t>(what))
        .put(device)
        .put(static_cast<std::uint8_t>(kind))
        .put(value)
        .put(ByteView(offer))
        .take();
  }
  static Asked of(const Bytes& text) {
    ByteReader reader(text);
    Asked out;
    out.what = static_cast<Ask>(reader.get<std::uint8_t>());
    out.device = reader.get<std::uint8_t>();
    out.kind = static_cast<DeviceWireKind>(reader.get<std::uint8_t>());
    out.value = reader.get<std::uint64_t>();
    out.offer = to_bytes(reader.take(reader.remaining()));
    return out;
  }
};

/// What the second process has.
class Second {
 public:
  Bytes answer(const Asked& asked, int out) {
    if (asked.what == Ask::fill)
      return answer_of(status_code(fill_pattern(peer_->data(), kBytes, asked.value)));
    if (asked.what == Ask::write_for_ever) {
      if (!send_message(out, answer_of(Code::ok))) return {};
      while (fill_pattern(peer_->data(), kBytes, asked.value) == cudaSuccess) {
      }
      return answer_of(Code::cuda);
    }
    if (!own_) {
      cudaSetDevice(asked.device);
      auto made = Window::make(asked.device, kBytes, asked.kind, kSecond, kWorld);
      if (!made) return answer_of(made.error().code, as_bytes(made.error().message()));
      own_ = std::move(*made);
    }
    if (asked.what == Ask::offer) {
      const auto offer = own_->offer();
      const cudaError_t filled = fill_pattern(own_->data(), kBytes, asked.value);
      return offer ? answer_of(status_code(filled), *offer) : answer_of(offer.error().code);
    }
    auto mapped = own_->map(asked.offer, asked.value, soon());
    if (!mapped) return answer_of(mapped.error().code, as_bytes(mapped.error().message()));
    peer_ = std::move(*mapped);
    return answer_of(Code::ok);
  }

 private:
  std::unique_ptr<Window> own_;
  std::unique_ptr<PeerWindow> peer_;
};

/// No test: what the second process runs.
TEST(WindowSecondProcess, DoesWhatItIsTold) {
  const auto pipes = second_process_pipes();
  if (!pipes) GTEST_SKIP() << "the other tests start it";
  Second second;
  while (const auto text = receive_message(pipes->first))
    ASSERT_TRUE(send_message(pipes->second, second.answer(Asked::of(*text), pipes->second)));
}

class WindowGpu : public OnGpu {
 protected:
  static std::unique_ptr<Window> made(DeviceWireKind kind, Rank me = kFirst, std::uint64_t bytes = kBytes) {
    auto out = Window::make(0, bytes, kind, me, kWorld);
    EXPECT_TRUE(out) << out.error().message();
    return out ? std::move(*out) : nullptr;
  }
  static Bytes offer_of(Window& window) {
    auto out = window.offer();
    EXPECT_TRUE(out) << out.error().message();
    return out ? *out : Bytes{};
  }
  static Code map_code(Window& mine, const Bytes& offer, std::uint64_t bytes = kBytes) {
    const auto mapped = mine.map(offer, bytes, soon());
    return mapped ? Code::ok : mapped.error().code;
  }
  static void expect_pattern(const std::byte* data, std::uint64_t seed, std::uint64_t bytes = kBytes) {
    std::uint64_t wrong = ~0ull;
    ASSERT_EQ(count_wrong(data, bytes, seed, &wrong), cudaSuccess);
    EXPECT_EQ(wrong, 0u);
  }
  static Bytes ask(SecondProcess& second, Asked asked) {
    Bytes out = second.ask(asked.text());
    EXPECT_EQ(code_in(out), Code::ok) << std::string(reinterpret_cast<const char*>(out.data()), out.size());
    return out.empty() ? out : Bytes(out.begin() + 2, out.end());
  }
  void write_from(std::uint8_t device) {
    const auto window = made(DeviceWireKind::ipc);
    SecondProcess second("WindowSecondProcess.*");
    ask(second, {Ask::map, device, DeviceWireKind::ipc, kBytes, offer_of(*window)});
    for (const std::uint64_t seed : {11, 12}) {
      ask(second, {Ask::fill, device, DeviceWireKind::ipc, seed, {}});
      expect_pattern(window->data(), seed);
    }
  }
};

TEST_F(WindowGpu, IsZeroWhenMade) {
  for (const DeviceWireKind kind : {DeviceWireKind::local, DeviceWireKind::ipc}) {
    for (int round = 0; round < 2; ++round) {
      const auto window = made(kind);
      expect_pattern(window->data(), 0);
      EXPECT_EQ(window->bytes(), kBytes);
      ASSERT_EQ(fill_pattern(window->data(), kBytes, 77), cudaSuccess);
    }
  }
}

TEST_F(WindowGpu, AnotherProcessWritesAndIsSeen) { write_from(0); }

TEST_F(WindowGpu, AnotherDeviceWritesAndIsSeen) {
  int devices = 0, can = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices < 2) GTEST_SKIP() << "one device";
  ASSERT_EQ(cudaDeviceCanAccessPeer(&can, 1, 0), cudaSuccess);
  if (can == 0) GTEST_SKIP() << "the devices do not reach each other";
  write_from(1);
}

TEST_F(WindowGpu, AKilledProcessLeavesBothWindowsUsable) {
  const auto window = made(DeviceWireKind::ipc);
  SecondProcess second("WindowSecondProcess.*");
  const Bytes offer = ask(second, {Ask::offer, 0, DeviceWireKind::ipc, 21, {}});
  const auto theirs = window->map(offer, kBytes, soon());
  ASSERT_TRUE(theirs) << theirs.error().message();
  expect_pattern((*theirs)->data(), 21);
  ask(second, {Ask::map, 0, DeviceWireKind::ipc, kBytes, offer_of(*window)});
  ask(second, {Ask::write_for_ever, 0, DeviceWireKind::ipc, 22, {}});
  second.kill();
  expect_pattern((*theirs)->data(), 21);
  for (std::byte* const data : {window->data(), (*theirs)->data()}) {
    ASSERT_EQ(fill_pattern(data, kBytes, 23), cudaSuccess);
    expect_pattern(data, 23);
  }
  expect_pattern(made(DeviceWireKind::ipc)->data(), 0);
}

TEST_F(WindowGpu, IsMappedInItsOwnProcessToo) {
  const auto mine = made(DeviceWireKind::ipc), other = made(DeviceWireKind::ipc, kSecond);
  const auto mapped = other->map(offer_of(*mine), kBytes, soon());
  ASSERT_TRUE(mapped) << mapped.error().message();
  ASSERT_EQ(fill_pattern((*mapped)->data(), kBytes, 31), cudaSuccess);
  expect_pattern(mine->data(), 31);
}

// On one host the fabric is what lies between its GPUs; the handle is what would go to another host.
TEST_F(WindowGpu, AFabricOneIsMappedByItsHandleElsewhere) {
  auto mine = Window::make(0, kBytes, DeviceWireKind::fabric, kFirst, kWorld);
  if (!mine) {
    const Code code = mine.error().code;  // after each of them the product tries another wire
    EXPECT_TRUE(code == Code::gpu_unsupported || code == Code::cuda) << mine.error().message();
    GTEST_SKIP() << "no fabric: " << mine.error().message();
  }
  const Bytes offer = offer_of(**mine);
  EXPECT_EQ(offer, offer_of(**mine));
  EXPECT_LE(offer.size(), 200u);
  SecondProcess second("WindowSecondProcess.*");
  ask(second, {Ask::map, 0, DeviceWireKind::fabric, kBytes, offer});
  ask(second, {Ask::fill, 0, DeviceWireKind::fabric, 51, {}});
  expect_pattern((*mine)->data(), 51);
  const auto other = made(DeviceWireKind::fabric, kSecond), ipc = made(DeviceWireKind::ipc);
  ASSERT_TRUE(other && ipc);
  EXPECT_EQ(map_code(*other, offer, kBytes + 1), Code::malformed);
  EXPECT_EQ(map_code(*ipc, offer), Code::malformed);
  for (std::size_t bytes = 0; bytes < offer.size(); ++bytes)
    EXPECT_EQ(map_code(*other, Bytes(offer.begin(), offer.begin() + bytes)), Code::malformed) << bytes;
  Bytes forged = offer;
  std::fill(forged.end() - sizeof(FabricHandle), forged.end(), std::byte{0});
  EXPECT_NE(map_code(*other, forged), Code::ok);
  EXPECT_EQ(map_code(*other, offer), Code::ok);
}

TEST_F(WindowGpu, ALocalOneIsItsOwnMemory) {
  const auto mine = made(DeviceWireKind::local), other = made(DeviceWireKind::local, kSecond);
  const auto mapped = other->map(offer_of(*mine), kBytes, soon());
  ASSERT_TRUE(mapped) << mapped.error().message();
  EXPECT_EQ((*mapped)->data(), mine->data());
}

TEST_F(WindowGpu, ALocalOneIsRefusedInAnotherProcess) {
  const auto mine = made(DeviceWireKind::local);
  SecondProcess second("WindowSecondProcess.*");
  const Asked asked{Ask::map, 0, DeviceWireKind::local, kBytes, offer_of(*mine)};
  EXPECT_EQ(code_in(second.ask(asked.text())), Code::malformed);
}

TEST_F(WindowGpu, ARankMapsOnce) {
  const auto mine = made(DeviceWireKind::ipc), other = made(DeviceWireKind::ipc, kSecond);
  const Bytes offer = offer_of(*mine);
  EXPECT_EQ(offer, offer_of(*mine));
  EXPECT_LE(offer.size(), 200u);
  EXPECT_EQ(map_code(*other, offer), Code::ok);
  EXPECT_EQ(map_code(*other, offer), Code::peer_lost);
  EXPECT_EQ(map_code(*mine, offer), Code::peer_lost);  // no token is its own
}

TEST_F(WindowGpu, WhatIsNoOfferIsRefused) {
  for (const DeviceWireKind kind : {DeviceWireKind::local, DeviceWireKind::ipc}) {
    const auto mine = made(kind), other = made(kind, kSecond);
    const DeviceWireKind wrong = kind == DeviceWireKind::ipc ? DeviceWireKind::local : DeviceWireKind::ipc;
    const Bytes offer = offer_of(*mine);
    EXPECT_EQ(map_code(*other, offer, kBytes + 1), Code::malformed);
    EXPECT_EQ(map_code(*other, offer, kBytes - 4096), Code::malformed);
    EXPECT_EQ(map_code(*made(wrong), offer), Code::malformed);
    for (std::size_t bytes = 0; bytes < offer.size(); ++bytes)
      EXPECT_EQ(map_code(*other, Bytes(offer.begin(), offer.begin() + bytes)), Code::malformed) << bytes;
    Bytes longer = offer;
    longer.push_back(std::byte{0});
    EXPECT_EQ(map_code(*other, longer), Code::malformed);
    EXPECT_EQ(map_code(*other, offer), Code::ok);
  }
}

TEST_F(WindowGpu, WrongArgumentsAreRefused) {
  const auto code = [](std::uint64_t bytes, DeviceWireKind kind, Rank me) {
    const auto out = Window::make(0, bytes, kind, me, kWorld);
    return out ? Code::ok : out.error().code;
  };
  EXPECT_EQ(code(0, DeviceWireKind::ipc, 0), Code::invalid_argument);
  EXPECT_EQ(code(kBytes, DeviceWireKind::nccl, 0), Code::invalid_argument);
  EXPECT_EQ(code(kBytes, DeviceWireKind::ipc, kWorld), Code::invalid_argument);
  EXPECT_EQ(code(1ull << 39, DeviceWireKind::ipc, 0), Code::out_of_memory);
}

TEST_F(WindowGpu, AnOfferOpensOneDescriptorOfMemory) {
  const auto open_now = [] {
    std::multiset<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      out.insert(std::filesystem::read_symlink(entry, gone).string());
    }
    return out;
  };
  const auto window = made(DeviceWireKind::ipc);
  const auto before = open_now();
  offer_of(*window);
  auto added = open_now();
  for (const std::string& name : before) {
    if (const auto found = added.find(name); found != added.end()) added.erase(found);
  }
  std::size_t memory = 0;
  for (const std::string& name : added)
    memory += name.starts_with("socket:") || name.find("eventfd") != std::string::npos ? 0 : 1;
  EXPECT_EQ(memory, 1u);
  EXPECT_EQ(added.size(), 3u);
}

TEST_F(WindowGpu, ADescriptorReachesNoMoreThanItsMemory) {
  const auto memory = MappedMemory::make(0, kBytes);
  ASSERT_TRUE(memory) << memory.error().message();
  const auto descriptor = memory->export_descriptor();
  ASSERT_TRUE(descriptor) << descriptor.error().message();
  EXPECT_FALSE(MappedMemory::import_from(*descriptor, 2 * memory->mapped_bytes(), 0));
  const auto whole = MappedMemory::import_from(*descriptor, memory->mapped_bytes(), 0);
  ASSERT_TRUE(whole) << whole.error().message();
  // Its owner's granules hold nothing else: not a byte of an ordinary allocation lies between them.
  const DeviceMemory other(4096);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory->data());
  const auto at = reinterpret_cast<std::uintptr_t>(const_cast<DeviceMemory&>(other).data());
  EXPECT_TRUE(at + 4096 <= begin || at >= begin + memory->mapped_bytes());
}

TEST_F(WindowGpu, ALeakedOneStaysMapped) {
  auto window = made(DeviceWireKind::ipc);
  std::byte* const data = window->data();
  window->leak();
  window.reset();
  ASSERT_EQ(fill_pattern(data, kBytes, 41), cudaSuccess);
  expect_pattern(data, 41);
}

}  // namespace
}  // namespace sealring::cuda::test
