// Claim: over sealed communicators two-level gives every rank the bits of node sums in rank order, added in
// the
//   order of the nodes; groups find their nodes; ranks must agree on them; nodes that cannot be are refused.
// How: values whose sum depends on the order and the rounding against a reference that adds in that order,
//   byte by byte, for every type and operation; counters against the schedule; wrong settings of one rank.
//
//   node 0: rank 0  rank 1        nodes are pretended: all ranks are threads of this process
//   node 1: rank 2  rank 3
#include <gmock/gmock.h>

#include "sealring/collective/schedule.h"
#include "tests/collective/device_job.h"
#include "tests/collective/rough_values.h"

namespace sealring::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kElements = 1003;
constexpr double kFactor = 0.3;

JobOptions options_of(std::uint16_t world, std::uint16_t node_ranks) {
  JobOptions out;
  out.world = world;
  out.config.node_ranks = node_ranks;
  out.config.algorithm = Algorithm::two_level;
  out.config.segment_bytes = 256;
  return out;
}

Bytes combined(DType dtype, RedOp redop, const std::vector<Bytes>& inputs, std::uint32_t divisor) {
  std::vector<const std::byte*> sources;
  for (const Bytes& input : inputs) sources.push_back(input.data());
  Bytes out(inputs[0].size());
  ReduceJob job;
  job.dtype = dtype;
  job.redop = redop;
  job.sources = sources;
  job.dst = out.data();
  job.elements = out.size() / dtype_bytes(dtype);
  job.divisor = divisor;
  job.scale = redop == RedOp::premul_sum ? kFactor : 1.0;
  EXPECT_TRUE(reduce_cpu(job));
  return out;
}

/// Node sums in rank order, each rounded to the type; those in the order of the nodes, rounded again.
Bytes two_level_sum(DType dtype, RedOp redop, std::uint16_t world, std::uint16_t node_ranks,
                    std::uint64_t elements) {
  const RedOp plain = redop == RedOp::avg || redop == RedOp::premul_sum ? RedOp::sum : redop;
  std::vector<Bytes> nodes;
  for (Rank first = 0; first < world; first = static_cast<Rank>(first + node_ranks)) {
    std::vector<Bytes> inputs;
    for (Rank rank = first; rank < first + node_ranks; ++rank) {
      inputs.push_back(rough_values(dtype, rank, elements));
      if (redop == RedOp::premul_sum) inputs.back() = combined(dtype, redop, {inputs.back()}, 1);
    }
    nodes.push_back(combined(dtype, plain, inputs, 1));
  }
  return combined(dtype, redop == RedOp::avg ? redop : plain, nodes, redop == RedOp::avg ? world : 1);
}

void every_type_and_operation(const std::function<void(DType, RedOp)>& body) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i16, DType::u8}) {
    for (const RedOp redop : all_redops()) {
      if (redop != RedOp::none && reduction_supported(dtype, redop)) body(dtype, redop);
    }
  }
}

struct Shape {
  std::uint16_t world, node_ranks;
};
class TwoLevelBits : public ::testing::TestWithParam<Shape> {};

TEST_P(TwoLevelBits, AllReduceAddsInTheStatedOrder) {
  const auto [world, node_ranks] = GetParam();
  LocalJob job(options_of(world, node_ranks));
  ASSERT_TRUE(job.connected()) << job.first_error();
  job.each([&, world = world, node_ranks = node_ranks](Rank rank) {
    every_type_and_operation([&](DType dtype, RedOp redop) {
      const Bytes wanted = two_level_sum(dtype, redop, world, node_ranks, kElements);
      for (const bool in_place : {false, true}) {
        Bytes in = rough_values(dtype, rank, kElements), apart(in.size());
        Bytes& out = in_place ? in : apart;
        const auto done =
            run(job.comm(rank).all_reduce(tensor_of(in, dtype), tensor_of(out, dtype), {redop, kFactor}));
        ASSERT_TRUE(done) << done.error().message();
        EXPECT_TRUE(out == wanted) << "rank " << rank << " " << to_string(dtype) << " " << to_string(redop);
      }
    });
  });
}

TEST_P(TwoLevelBits, ReduceScatterAddsInTheStatedOrderAndAllGatherCopies) {
  const auto [world, node_ranks] = GetParam();
  LocalJob job(options_of(world, node_ranks));
  ASSERT_TRUE(job.connected()) << job.first_error();
  constexpr std::uint64_t kPiece = 171;
  job.each([&, world = world, node_ranks = node_ranks](Rank rank) {
    every_type_and_operation([&](DType dtype, RedOp redop) {
      const Bytes sums = two_level_sum(dtype, redop, world, node_ranks, kPiece * world);
      const std::uint64_t bytes = kPiece * dtype_bytes(dtype);
      const auto* const mine = sums.data() + rank * bytes;
      for (const bool in_place : {false, true}) {
        Bytes in = rough_values(dtype, rank, kPiece * world), apart(bytes);
        std::byte* const out = in_place ? in.data() + rank * bytes : apart.data();
        auto done =
            run(job.comm(rank).reduce_scatter(tensor_of(in, dtype), {out, kPiece, dtype}, {redop, kFactor}));
        ASSERT_TRUE(done) << done.error().message();
        EXPECT_TRUE(std::equal(out, out + bytes, mine))
            << "rank " << rank << " " << to_string(dtype) << " " << to_string(redop);
        Bytes all(bytes * world);
        std::byte* const from = in_place ? all.data() + rank * bytes : out;
        std::copy_n(out, in_place ? bytes : 0, from);
        done = run(job.comm(rank).all_gather({from, kPiece, dtype}, tensor_of(all, dtype)));
        ASSERT_TRUE(done) << done.error().message();
        EXPECT_TRUE(all == sums) << "rank " << rank << " " << to_string(dtype) << " " << to_string(redop);
      }
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, TwoLevelBits, ::testing::Values(Shape{4, 2}, Shape{6, 3}, Shape{6, 2}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.world) + "ranks" +
                                  std::to_string(tested.param.node_ranks) + "aNode";
                         });

TEST(TwoLevelReference, IsNotTheSumInRankOrder) {
  std::vector<Bytes> inputs;
  for (Rank rank = 0; rank < 4; ++rank) inputs.push_back(rough_values(DType::bf16, rank, kElements));
  EXPECT_FALSE(combined(DType::bf16, RedOp::sum, inputs, 1) ==
               two_level_sum(DType::bf16, RedOp::sum, 4, 2, kElements));
}

void expect_cost(const Counters& counters, const ScheduleCost& cost) {
  EXPECT_EQ(counters.seals, cost.seals);
  EXPECT_EQ(counters.opens, cost.opens);
  EXPECT_EQ(counters.sealed_bytes, cost.sealed_bytes);
  EXPECT_EQ(counters.opened_bytes, cost.opened_bytes);
}

ScheduleCost cost(Communicator& comm, std::uint16_t node_ranks, bool sender_keys) {
  const ScheduleRequest request{
      Op::all_reduce, Algorithm::two_level, comm.rank(), comm.size(), kElements, 0, sender_keys, node_ranks};
  return cost_of(make_schedule(request), 4, 256);
}

TEST(TwoLevelGroups, FindTheirNodesAmongTheSessions) {
  LocalJob job(options_of(6, 3));
  ASSERT_TRUE(job.connected()) << job.first_error();
  const auto reduce = [](Communicator& comm, std::uint16_t node_ranks) {
    std::vector<float> data(kElements, static_cast<float>(comm.rank() + 1));
    const Tensor tensor{data.data(), data.size(), DType::f32};
    const auto done = run(comm.all_reduce(tensor, tensor, {}));
    ASSERT_TRUE(done) << done.error().message();
    EXPECT_EQ(data, std::vector<float>(kElements, static_cast<float>(comm.size() * (comm.size() + 1) / 2)));
    expect_cost(comm.counters(), cost(comm, node_ranks, true));
  };
  job.each([&](Rank rank) {
    reduce(job.comm(rank), 3);
    const auto in = [&](const std::vector<Rank>& members, std::uint16_t node_ranks) {
      if (std::find(members.begin(), members.end(), rank) == members.end()) return;
      const auto group = job.session(rank).split(members, job.store(), "of" + std::to_string(members.back()));
      ASSERT_TRUE(group) << group.error().message();
      reduce(**group, node_ranks);
    };
    in({0, 2, 3, 4}, 2);     // two of each node
    in({0, 1, 2, 3, 5}, 0);  // uneven: one hop
  });
}

TEST(TwoLevelGroups, OnADeviceToo) {
  DeviceJob job(options_of(4, 2));
  const std::size_t group = job.add_group();
  job.job.each([&](Rank rank) {
    Floats data(kElements, static_cast<float>(rank + 1));
    Communicator& comm = job.comm(rank, group);
    const Counters before = comm.counters();  // of the probe
    ASSERT_TRUE(run(comm.all_reduce(data.tensor(), data.tensor(), {})));
    EXPECT_TRUE(data.all(10.0f));
    const ScheduleCost wanted = cost(comm, 2, false);
    EXPECT_EQ(comm.counters().seals - before.seals, wanted.seals);
    EXPECT_EQ(comm.counters().sealed_bytes - before.sealed_bytes, wanted.sealed_bytes);
    EXPECT_NE(wanted.seals, cost(comm, 0, false).seals);
  });
}

TEST(NodeRanksSetting, MustBeAlikeOnAllRanks) {
  const auto hub = LoopbackHub::make(2);
  const std::shared_ptr<Store> store = make_memory_store();
  const JobKey key = JobKey::generate();
  log_setup("off", -1);
  std::vector<Error> errors(2);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      CommConfig config;
      config.rank = rank;
      config.world = 2;
      config.node_ranks = static_cast<std::uint16_t>(rank + 1);
      config.connect_timeout = std::chrono::seconds(20);
      const auto session =
          Session::connect(config, make_job_key_identity(key), hub->transport(rank), store, "test");
      if (!session) errors[rank] = session.error();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Error& error : errors) {
    EXPECT_EQ(error.code, Code::config);
    EXPECT_THAT(error.message(), HasSubstr("node_ranks"));
  }
}

Error refusal(std::uint16_t world, std::uint16_t node_ranks, std::optional<Algorithm> algorithm) {
  CommConfig config;
  config.world = world;
  config.node_ranks = node_ranks;
  config.algorithm = algorithm;
  const auto session = Session::connect(config, make_job_key_identity(JobKey::generate()),
                                        LoopbackHub::make(1)->transport(0), make_memory_store(), "test");
  return session ? Error{} : session.error();
}

TEST(NodeRanksSetting, NodesOfUnequalSizeAreRefused) {
  const Error error = refusal(5, 2, std::nullopt);
  EXPECT_EQ(error.code, Code::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("5 ranks do not lie on nodes of 2 ranks each"));
  EXPECT_THAT(error.message(), HasSubstr("SEALRING_NODE_RANKS"));
  EXPECT_EQ(refusal(1, 2, std::nullopt).code, Code::invalid_argument);
  EXPECT_EQ(refusal(1, 1, std::nullopt).code, Code::ok);
}

TEST(NodeRanksSetting, TwoLevelWithoutItIsRefused) {
  const Error error = refusal(4, 0, Algorithm::two_level);
  EXPECT_EQ(error.code, Code::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("how many ranks lie on a node"));
  EXPECT_EQ(refusal(1, 1, Algorithm::two_level).code, Code::ok);
}

}  // namespace
}  // namespace sealring::testing
