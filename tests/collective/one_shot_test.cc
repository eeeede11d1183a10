// Claim: one-shot gives every rank the bits that one-hop gives; a transport that delivers early and takes
// late never makes an in-place reduction wrong.
// How: values whose sum depends on the order and the rounding, signed zeros and NaN, compared byte by byte; a
// network in memory that hands over all it has before it asks for another piece.
#include "tests/collective/late_sends.h"
#include "tests/collective/local_job.h"
#include "tests/collective/rough_values.h"

namespace sealring::testing {
namespace {

/// [rank][case]: the output of every supported type and operation.
std::vector<std::vector<Bytes>> all_reductions(std::uint16_t world, Algorithm algorithm, bool sender_keys) {
  JobOptions options;
  options.world = world;
  options.config.algorithm = algorithm;
  options.config.sender_keys = sender_keys;
  options.config.segment_bytes = 256;
  LocalJob job(std::move(options));
  EXPECT_TRUE(job.connected()) << job.first_error();
  std::vector<std::vector<Bytes>> out(world);
  job.each([&](Rank rank) {
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i16}) {
      for (const RedOp redop : all_redops()) {
        if (!reduction_supported(dtype, redop)) continue;
        Bytes data = rough_values(dtype, rank, 1003);
        const Tensor tensor{data.data(), 1003, dtype};
        auto ticket = job.comm(rank).all_reduce(tensor, tensor, {redop, 0.3});
        ASSERT_TRUE(ticket) << ticket.error().message();
        const auto result = ticket->wait(Deadline::in(std::chrono::minutes(1)));
        ASSERT_TRUE(result) << result.error().message();
        out[rank].push_back(std::move(data));
      }
    }
  });
  return out;
}

TEST(OneShot, GivesTheBitsOfOneHopOnEveryRank) {
  for (const std::uint16_t world : {std::uint16_t{2}, std::uint16_t{3}, std::uint16_t{5}}) {
    const auto hop = all_reductions(world, Algorithm::one_hop, true);
    for (const bool sender_keys : {true, false}) {
      const auto shot = all_reductions(world, Algorithm::one_shot, sender_keys);
      for (Rank rank = 0; rank < world; ++rank) {
        ASSERT_EQ(hop[rank].size(), shot[rank].size());
        for (std::size_t i = 0; i < hop[rank].size(); ++i) {
          EXPECT_TRUE(hop[rank][i] == shot[rank][i])
              << "world " << world << " rank " << rank << " case " << i;
          EXPECT_TRUE(shot[0][i] == shot[rank][i]) << "world " << world << " rank " << rank << " case " << i;
        }
      }
    }
  }
}

void reduce_in_place(std::uint16_t world, Algorithm algorithm, Suite suite, unsigned workers) {
  SCOPED_TRACE(std::string(to_string(algorithm)) + " " + std::string(to_string(suite)) + " world " +
               std::to_string(world) + " workers " + std::to_string(workers));
  auto network = std::make_shared<LateSends>();
  JobOptions options;
  options.world = world;
  options.config.algorithm = algorithm;
  options.config.suite = suite;
  options.config.workers = workers;
  options.config.segment_bytes = 256;
  options.study = suite_is_study(suite);
  options.wrap = [network](Rank rank, std::unique_ptr<Transport> inner) {
    return network->wrap(rank, std::move(inner));
  };
  LocalJob job(std::move(options));
  ASSERT_TRUE(job.connected()) << job.first_error();
  constexpr std::uint64_t kElements = 700;
  job.each([&](Rank rank) {
    Bytes data = make_values(DType::f32, rank, kElements);
    const Tensor tensor{data.data(), kElements, DType::f32};
    auto ticket = job.comm(rank).all_reduce(tensor, tensor, {});
    ASSERT_TRUE(ticket) << ticket.error().message();
    const auto result = ticket->wait(Deadline::in(std::chrono::minutes(1)));
    ASSERT_TRUE(result) << result.error().message();
    for (std::uint64_t i = 0; i < kElements; ++i) {
      int sum = 0;
      for (Rank r = 0; r < world; ++r) sum += value_at(r, i);
      float got = 0;
      std::memcpy(&got, data.data() + 4 * i, 4);
      ASSERT_EQ(got, static_cast<float>(sum)) << "rank " << rank << " element " << i;
    }
  });
}

TEST(LateSends, LeaveEveryInPlaceReductionRight) {
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::one_hop, Algorithm::ring}) {
    for (const std::uint16_t world : {std::uint16_t{2}, std::uint16_t{3}}) {
      for (const Suite suite : {Suite::aes_256_gcm, Suite::plain}) {
        for (const unsigned workers : {0u, 2u}) reduce_in_place(world, algorithm, suite, workers);
      }
    }
  }
}

}  // namespace
}  // namespace sealring::testing
