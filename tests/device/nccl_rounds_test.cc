// Claim: over NCCL, no buffer is sealed into before what it held was sent, none is received into before it
// was opened, and none is opened before it was received, whatever streams do; within captures as outside;
// an exchange that takes too long is found; and offers that do not fit are refused.
// How: streams and events are modelled by vector clocks, NCCL by a table of functions that record their
// calls.
#include "sealring/device/cuda/nccl_rounds.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "sealring/device/device_group.h"
#include "tests/device/fake_nccl.h"

namespace sealring::cuda::test {
namespace {

using ::testing::ElementsAre;

using Stream = std::uintptr_t;
constexpr Stream kSeal = 1, kOpen = 2, kNccl = 7, kNcclCaptured = 8;

/// What is known to have happened: how many steps of each stream.
using Known = std::map<Stream, int>;
bool behind(const Known& later, Stream stream, int step) {
  const auto found = later.find(stream);
  return found != later.end() && found->second >= step;
}

class ModelStreams final : public RoundStreams {
 public:
  explicit ModelStreams(FakeNccl& fake) : fake_(fake) {}
  static Stream number(void* stream) { return reinterpret_cast<Stream>(stream); }

  Result<std::uint64_t> capture_of(void*) override { return capture; }
  void* nccl_stream(bool captured) override {
    return reinterpret_cast<void*>(captured ? kNcclCaptured : kNccl);
  }
  Result<void> record(RoundEvent event, std::uint8_t slot, void* stream) override {
    note("record", event, slot, stream);
    events_[{event, slot}] = {clocks[number(stream)], capture};
    return {};
  }
  Result<void> wait(void* stream, RoundEvent event, std::uint8_t slot) override {
    note("wait", event, slot, stream);
    const auto found = events_.find({event, slot});
    EXPECT_NE(found, events_.end()) << "never recorded";
    if (found == events_.end()) return {};
    EXPECT_EQ(found->second.capture, capture) << "CUDA refuses to wait for an event of another capture";
    for (const auto& [other, steps] : found->second.known) {
      int& mine = clocks[number(stream)][other];
      mine = std::max(mine, steps);
    }
    return {};
  }
  Result<void> mark(NcclMark which, void* stream) override {
    fake_.note(which == NcclMark::begun ? "begun" : "ended");
    step(number(stream));
    return {};
  }
  Result<void> gate(void* stream) override {
    fake_.note("gate on " + std::to_string(number(stream)));
    return {};
  }
  /// Work in a stream: what is known when it begins; its number is the stream's count.
  Known step(Stream stream) {
    ++clocks[stream][stream];
    return clocks[stream];
  }

  std::map<Stream, Known> clocks;
  std::uint64_t capture = 0;

 private:
  struct Recorded {
    Known known;
    std::uint64_t capture = 0;
  };
  void note(const char* what, RoundEvent event, int slot, void* stream) {
    static const char* const kNames[] = {"sealed", "moved", "taken"};
    fake_.note(std::string(what) + " " + kNames[static_cast<int>(event)] + " " + std::to_string(slot) +
               " on " + std::to_string(number(stream)));
  }

  FakeNccl& fake_;
  std::map<std::pair<RoundEvent, int>, Recorded> events_;
};

class NcclRoundsTest : public ::testing::Test {
 protected:
  NcclRoundsTest() {
    comm = *NcclComm::make(fake.api, NcclUniqueId{}, 0, 2, Deadline::in(std::chrono::seconds(20)));
    fake.take_calls();
    staging.data = memory.data();
    staging.slot_bytes = 256;
    rounds = std::make_unique<NcclRounds>(*comm, streams, staging, std::chrono::seconds(20));
  }
  void begin(bool out, bool in, Stream seal) {
    static const WireChunk kOut[] = {{1, 100}}, kIn[] = {{1, 200}};
    round = WireRound{out ? std::span(kOut) : std::span<const WireChunk>(),
                      in ? std::span(kIn) : std::span<const WireChunk>()};
    ASSERT_TRUE(rounds->ready(round, reinterpret_cast<void*>(seal)));
  }
  void run(bool out, bool in, Stream seal, Stream open) {
    begin(out, in, seal);
    sealed.push_back(streams.step(seal));
    ASSERT_TRUE(rounds->sent(round, reinterpret_cast<void*>(seal)));
    const Stream nccl = streams.capture != 0 ? kNcclCaptured : kNccl;
    exchanged.push_back(streams.clocks[nccl]);
    // As the group does it: the opens of a round wait for its seals.
    for (const auto& [stream, steps] : streams.clocks[seal])
      streams.clocks[open][stream] = std::max(streams.clocks[open][stream], steps);
    ASSERT_TRUE(rounds->arrived(round, reinterpret_cast<void*>(open)));
    opened.push_back(streams.step(open));
    ASSERT_TRUE(rounds->taken(round, reinterpret_cast<void*>(open)));
  }

  FakeNccl fake;
  ModelStreams streams{fake};
  std::array<std::byte, NcclStaging::bytes(2, 256)> memory{};
  NcclStaging staging;
  std::unique_ptr<NcclComm> comm;
  std::unique_ptr<NcclRounds> rounds;
  WireRound round;
  std::vector<Known> sealed, exchanged, opened;  ///< by round: what was known then, itself included
};

TEST_F(NcclRoundsTest, EveryCallStandsInItsPlace) {
  run(true, true, kSeal, kOpen);
  EXPECT_THAT(fake.take_calls(),
              ElementsAre("record sealed 0 on 1", "wait sealed 0 on 7", "begun", "group start",
                          "send 100 peer 1 stream 7", "recv 200 peer 1 stream 7", "group end", "ended",
                          "record moved 0 on 7", "wait moved 0 on 2", "gate on 2", "record taken 0 on 2"));
  run(true, true, kSeal, kOpen);
  run(true, true, kSeal, kOpen);
  fake.take_calls();
  run(true, true, kSeal, kOpen);
  EXPECT_THAT(
      fake.take_calls(),
      ElementsAre("wait moved 0 on 1", "record sealed 0 on 1", "wait sealed 0 on 7", "wait taken 0 on 7",
                  "begun", "group start", "send 100 peer 1 stream 7", "recv 200 peer 1 stream 7", "group end",
                  "ended", "record moved 0 on 7", "wait moved 0 on 2", "gate on 2", "record taken 0 on 2"));
}

TEST_F(NcclRoundsTest, BuffersAreHandedOnInOrder) {
  for (const Stream open : {kSeal, kOpen}) {
    sealed.clear();
    exchanged.clear();
    opened.clear();
    for (int i = 0; i < 18; ++i) run(i % 5 != 3, i % 4 != 2, kSeal, open);
    for (std::size_t i = 0; i < sealed.size(); ++i) {
      EXPECT_TRUE(behind(exchanged[i], kSeal, sealed[i].at(kSeal))) << "sent before it was sealed";
      EXPECT_TRUE(behind(opened[i], kNccl, exchanged[i].at(kNccl))) << "opened before it arrived";
      if (i < kWireSlots) continue;
      EXPECT_TRUE(i % 5 == 3 || behind(sealed[i], kNccl, exchanged[i - kWireSlots].at(kNccl)))
          << "sealed into what was not sent, round " << i;
      EXPECT_TRUE(i % 4 == 2 || (i - kWireSlots) % 4 == 2 ||
                  behind(exchanged[i], open, opened[i - kWireSlots].at(open)))
          << "received into what was not opened, round " << i;
    }
  }
}

TEST_F(NcclRoundsTest, CapturesWaitForNothingOutside) {
  for (int i = 0; i < 5; ++i) run(true, true, kSeal, kOpen);
  for (const std::uint64_t capture : {5, 5, 6, 0}) {  // the model refuses to wait across
    streams.capture = capture;
    for (int i = 0; i < 4; ++i) run(true, true, kSeal, kOpen);
  }
  fake.take_calls();
  streams.capture = 9;
  run(true, true, kSeal, kOpen);
  const auto calls = fake.take_calls();
  EXPECT_THAT(calls, ::testing::Contains("send 100 peer 1 stream 8"));
  EXPECT_THAT(calls, ::testing::Not(::testing::Contains(::testing::HasSubstr("stream 7"))));
}

TEST_F(NcclRoundsTest, ARoundOfNothingAsksForNothing) {
  run(false, false, kSeal, kOpen);
  EXPECT_THAT(fake.take_calls(), ::testing::IsEmpty());
}

TEST_F(NcclRoundsTest, AnErrorStopsTheRoundWhereItIs) {
  fake.answer("recv", NcclStatus::remote_error);
  begin(true, true, kSeal);
  const auto sent = rounds->sent(round, reinterpret_cast<void*>(kSeal));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::peer_lost);
  const auto calls = fake.take_calls();
  EXPECT_EQ(calls.back(), "abort");
  EXPECT_THAT(calls, ::testing::Not(::testing::Contains("ended")));
}

TEST(NcclStagingTest, BuffersDoNotOverlap) {
  constexpr std::uint64_t kSlot = 1024;
  for (const std::uint32_t world : {2u, 3u, 8u}) {
    std::vector<std::byte> memory(NcclStaging::bytes(world, kSlot));
    for (Rank rank = 0; rank < world; ++rank) {
      NcclStaging staging;
      staging.data = memory.data();
      staging.slot_bytes = kSlot;
      staging.rank = rank;
      std::set<std::byte*> places;
      for (Rank peer = 0; peer < world; ++peer) {
        if (peer == rank) continue;
        for (std::uint8_t slot = 0; slot < kWireSlots; ++slot) {
          for (std::byte* const place : {staging.out(peer, slot), staging.in(peer, slot)}) {
            EXPECT_TRUE(places.insert(place).second);
            EXPECT_EQ((place - memory.data()) % kSlot, 0u);
            EXPECT_LE(place + kSlot, memory.data() + memory.size());
          }
        }
      }
      EXPECT_EQ(places.size() * kSlot, memory.size());
    }
  }
}

TEST(NcclWatchTest, AnExchangeThatRunsTooLongIsFound) {
  using namespace std::chrono_literals;
  NcclWatch watch(10s);
  auto now = Clock::now();
  const auto looks = [&](std::uint64_t begun, std::uint64_t ended, std::chrono::seconds later) {
    now += later;
    return watch.expired(NcclMarks{begun, ended}, now);
  };
  EXPECT_FALSE(looks(0, 0, 100s));
  EXPECT_FALSE(looks(0, 0, 100s));  // idle for long
  EXPECT_FALSE(looks(1, 0, 100s));
  EXPECT_FALSE(looks(1, 0, 9s));
  EXPECT_FALSE(looks(2, 1, 9s));  // another one
  EXPECT_FALSE(looks(2, 1, 9s));
  EXPECT_FALSE(looks(2, 2, 9s));
  EXPECT_FALSE(looks(3, 2, 9s));
  EXPECT_FALSE(looks(3, 2, 9s));
  EXPECT_TRUE(looks(3, 2, 1s));
  EXPECT_TRUE(looks(3, 2, 1s));
}

TEST(NcclOfferTest, AreAcceptedWhenTheyFit) {
  NcclUniqueId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<char>(i);
  std::vector<Bytes> offers;
  for (Rank rank = 0; rank < 3; ++rank) offers.push_back(nccl_offer(22809, rank, id));
  EXPECT_LE(offers[0].size(), DeviceGroup::kOfferBytesMax);
  const auto accepted = accept_nccl_offers(offers, 22809);
  ASSERT_TRUE(accepted) << accepted.error().message();
  EXPECT_EQ(accepted->bytes, id.bytes);
  const auto other = accept_nccl_offers(offers, 22703);
  EXPECT_EQ(other.error().code, Code::version_mismatch);
  EXPECT_EQ(other.error().expected, "2.27.3");
  EXPECT_EQ(other.error().got, "2.28.9");
}

TEST(NcclOfferTest, AreRefusedWhenTheyDoNotFit) {
  const auto code = [](const std::vector<Bytes>& offers) {
    const auto out = accept_nccl_offers(offers, 22809);
    return out ? Code::ok : out.error().code;
  };
  const std::vector<Bytes> right = {nccl_offer(22809, 0, {}), nccl_offer(22809, 1, {})};
  EXPECT_EQ(code(right), Code::ok);
  for (std::size_t rank = 0; rank < right.size(); ++rank) {
    for (std::size_t bytes = 0; bytes < right[rank].size(); ++bytes) {
      auto offers = right;
      offers[rank].resize(bytes);
      EXPECT_EQ(code(offers), Code::malformed);
    }
    auto offers = right;
    offers[rank].push_back(std::byte{0});
    EXPECT_EQ(code(offers), Code::malformed);
    offers = right;
    offers[rank][0] = static_cast<std::byte>(DeviceWireKind::ipc);
    EXPECT_EQ(code(offers), Code::malformed);
  }
  EXPECT_EQ(code({right[1], right[0]}), Code::malformed);
}

}  // namespace
}  // namespace sealring::cuda::test
