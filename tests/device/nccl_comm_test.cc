// Claim: an exchange is one group with all sends and receives; nothing waits beyond its deadline; and after
// an error or an abort, from whatever thread, NCCL is not called any more.
// How: a table of functions that record their calls stands in for NCCL and fails where the test says.
#include "sealring/device/cuda/nccl_comm.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <thread>

#include "tests/device/fake_nccl.h"

namespace sealring::cuda::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr auto kWorking = NcclStatus::in_progress;
NcclStream stream_numbered(std::uintptr_t number) { return reinterpret_cast<NcclStream>(number); }
int slowness() {
  const char* text = std::getenv("SR_TEST_SLOW");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}
Deadline soon() { return Deadline::in(std::chrono::seconds(20 * slowness())); }

class NcclCommTest : public ::testing::Test {
 protected:
  void make() {
    auto made = NcclComm::make(fake.api, NcclUniqueId{}, 1, 3, soon());
    ASSERT_TRUE(made) << made.error().message();
    comm = std::move(*made);
    fake.take_calls();
  }
  Code exchange(Deadline deadline = soon()) {
    const NcclSend sends[] = {{0, memory, 100}, {2, memory, 200}};
    const NcclRecv recvs[] = {{0, memory, 300}, {2, memory, 400}};
    const auto out = comm->exchange(sends, recvs, stream_numbered(7), deadline);
    return out ? Code::ok : out.error().code;
  }

  FakeNccl fake;
  std::unique_ptr<NcclComm> comm;
  std::byte memory[8]{};
};

TEST_F(NcclCommTest, IsMadeNonblockingAndPolledFor) {
  fake.answer("init", kWorking);
  fake.states({kWorking, kWorking, kWorking, NcclStatus::success});
  NcclUniqueId id;
  id.bytes[5] = 'x';
  const auto made = NcclComm::make(fake.api, id, 2, 4, soon());
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_THAT(fake.take_calls(), ElementsAre("init 4 2"));
  EXPECT_EQ(fake.looks(), 4);
  EXPECT_EQ(fake.id.bytes, id.bytes);
  EXPECT_EQ(fake.config.size, 48u);
  EXPECT_EQ(fake.config.magic, 0xCAFEBEEFu);
  EXPECT_EQ(fake.config.version, 21800u);
  EXPECT_EQ(fake.config.blocking, 0);
  EXPECT_EQ(fake.config.min_ctas, NcclComm::kBlocks);
  EXPECT_EQ(fake.config.max_ctas, NcclComm::kBlocks);
  for (const int untouched : {fake.config.cga_cluster_size, fake.config.split_share})
    EXPECT_EQ(untouched, NcclConfig::kUndefined);
}

TEST_F(NcclCommTest, IsNotMadeWithMulticastOn) {
  ::unsetenv("NCCL_NVLS_ENABLE");
  EXPECT_EQ(NcclComm::make(fake.api, NcclUniqueId{}, 0, 2, soon()).error().code, Code::environment);
  EXPECT_THAT(fake.take_calls(), IsEmpty());
}

TEST_F(NcclCommTest, MakingOneKeepsTheDeadline) {
  fake.states({kWorking}, true);
  const auto begin = Clock::now();
  const auto wait = std::chrono::milliseconds(50);
  EXPECT_EQ(NcclComm::make(fake.api, NcclUniqueId{}, 0, 2, Deadline::in(wait)).error().code, Code::timeout);
  EXPECT_GE(Clock::now() - begin, wait);
  EXPECT_LT(Clock::now() - begin, wait + std::chrono::seconds(2 * slowness()));
  EXPECT_THAT(fake.take_calls(), ElementsAre("init 2 0", "abort"));
}

TEST_F(NcclCommTest, MakingOneThatFailsLeavesNothing) {
  for (const bool gives : {true, false}) {
    fake.gives_comm = gives;
    fake.answer("init", NcclStatus::system_error);
    EXPECT_EQ(NcclComm::make(fake.api, NcclUniqueId{}, 0, 2, soon()).error().code, Code::cuda);
    std::vector<std::string> expected = {"init 2 0"};
    if (gives) expected.push_back("abort");
    EXPECT_EQ(fake.take_calls(), expected);
  }
  fake.gives_comm = true;
  fake.states({kWorking, NcclStatus::remote_error});
  EXPECT_EQ(NcclComm::make(fake.api, NcclUniqueId{}, 0, 2, soon()).error().code, Code::peer_lost);
  EXPECT_THAT(fake.take_calls(), ElementsAre("init 2 0", "abort"));
}

TEST_F(NcclCommTest, AnExchangeIsOneGroup) {
  make();
  fake.answer("group end", kWorking);
  fake.states({kWorking, kWorking, NcclStatus::success});
  const int before = fake.looks();
  EXPECT_EQ(exchange(), Code::ok);
  EXPECT_EQ(fake.looks() - before, 3);
  EXPECT_THAT(fake.take_calls(),
              ElementsAre("group start", "send 100 peer 0 stream 7", "send 200 peer 2 stream 7",
                          "recv 300 peer 0 stream 7", "recv 400 peer 2 stream 7", "group end"));
  EXPECT_EQ(exchange(), Code::ok);
  EXPECT_EQ(fake.take_calls().size(), 6u);
  comm.reset();
  EXPECT_THAT(fake.take_calls(), ElementsAre("destroy"));
}

TEST_F(NcclCommTest, AnErrorEndsItAndClosesTheGroup) {
  for (const std::string failing :
       {"group start", "send 100", "send 200", "recv 300", "recv 400", "group end"}) {
    make();
    fake.answer(failing, NcclStatus::remote_error);
    EXPECT_EQ(exchange(), Code::peer_lost) << failing;
    auto calls = fake.take_calls();
    ASSERT_GE(calls.size(), 2u);
    EXPECT_EQ(calls.back(), "abort");
    EXPECT_EQ(std::ranges::count(calls, "abort"), 1);
    // A group is ended as often as it was begun, and nothing follows what failed.
    EXPECT_EQ(std::ranges::count(calls, "group end"), failing == "group start" ? 0 : 1);
    const std::size_t behind = failing == "group start" || failing == "group end" ? 2 : 3;
    EXPECT_TRUE(calls[calls.size() - behind].starts_with(failing)) << failing;
    EXPECT_EQ(exchange(), Code::peer_lost);
    EXPECT_EQ(comm->status().error().code, Code::peer_lost);
    comm->abort();
    comm.reset();
    EXPECT_THAT(fake.take_calls(), IsEmpty()) << failing;
  }
}

TEST_F(NcclCommTest, AnErrorThatComesLaterIsFound) {
  make();
  EXPECT_TRUE(comm->status());
  fake.states({kWorking});
  EXPECT_TRUE(comm->status());
  fake.states({NcclStatus::unhandled_cuda_error});
  EXPECT_EQ(comm->status().error().code, Code::cuda);
  EXPECT_EQ(exchange(), Code::cuda);
  EXPECT_THAT(fake.take_calls(), ElementsAre("abort"));
}

TEST_F(NcclCommTest, AnExchangeKeepsTheDeadline) {
  make();
  fake.states({kWorking}, true);
  EXPECT_EQ(exchange(Deadline::in(std::chrono::milliseconds(30))), Code::timeout);
  EXPECT_EQ(fake.take_calls().back(), "abort");
  EXPECT_EQ(exchange(), Code::timeout);
  EXPECT_THAT(fake.take_calls(), IsEmpty());
}

TEST_F(NcclCommTest, NothingIsCalledAfterAnAbort) {
  make();
  comm->abort();
  comm->abort();
  EXPECT_THAT(fake.take_calls(), ElementsAre("abort"));
  EXPECT_EQ(exchange(), Code::aborted);
  EXPECT_EQ(comm->status().error().code, Code::aborted);
  comm.reset();
  EXPECT_THAT(fake.take_calls(), IsEmpty());
}

TEST_F(NcclCommTest, AnAbortFromAnotherThreadEndsAWait) {
  make();
  fake.states({kWorking}, true);
  const int before = fake.looks();
  std::thread other([&] {
    while (fake.looks() < before + 3) std::this_thread::yield();
    comm->abort();
  });
  EXPECT_EQ(exchange(), Code::aborted);
  other.join();
  const auto calls = fake.take_calls();
  EXPECT_EQ(calls.back(), "abort");
  EXPECT_EQ(std::ranges::count(calls, "abort"), 1);
}

}  // namespace
}  // namespace sealring::cuda::test
