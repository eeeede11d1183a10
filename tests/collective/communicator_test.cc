// Claim: every collective of a whole session gives the exact result on every rank, and costs what its
// schedule says. How: ranks as threads over loopback with real handshakes and keys; small integers make every
// sum exact.
#include "sealring/collective/communicator.h"

#include <cmath>
#include <map>

#include "sealring/collective/schedule.h"
#include "tests/collective/local_job.h"

namespace sealring::testing {
namespace {

struct Case {
  std::uint16_t world;
  Algorithm algorithm;
  Suite suite;
};

class CommunicatorTest : public ::testing::TestWithParam<Case> {
 protected:
  JobOptions options() const {
    JobOptions out;
    out.world = GetParam().world;
    out.config.suite = GetParam().suite;
    out.config.algorithm = GetParam().algorithm;
    out.config.segment_bytes = 256;  // many segments a move
    out.study = suite_is_study(GetParam().suite);
    return out;
  }
};

TEST_P(CommunicatorTest, AllReduceOfEveryTypeAndOp) {
  LocalJob job(options());
  ASSERT_TRUE(job.connected()) << job.first_error();
  for (const std::uint64_t elements : {0ull, 1ull, 3ull, 257ull, 1000ull}) {
    for (const DType dtype : all_dtypes()) {
      for (const RedOp redop : all_redops()) {
        if (redop == RedOp::none || redop == RedOp::avg || !reduction_supported(dtype, redop)) continue;
        const Bytes expected = reduced(dtype, redop, GetParam().world, 0, elements);
        job.each([&](Rank rank) {
          for (const bool in_place : {false, true}) {
            Bytes in = make_values(dtype, rank, elements);
            const Bytes before = in;
            Bytes out(in.size());
            Tensor source = tensor_of(in, dtype), target = in_place ? source : tensor_of(out, dtype);
            const auto result = run(job.comm(rank).all_reduce(source, target, {redop, 2.0}));
            ASSERT_TRUE(result) << result.error().message();
            EXPECT_EQ(in_place ? in : out, expected)
                << to_string(dtype) << " " << to_string(redop) << " x " << elements;
            if (!in_place) {
              EXPECT_EQ(in, before);
            }
          }
        });
      }
    }
  }
}

TEST_P(CommunicatorTest, AverageIsSumOverWorld) {
  LocalJob job(options());
  ASSERT_TRUE(job.connected()) << job.first_error();
  job.each([&](Rank rank) {
    std::vector<float> data(777);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>(value_at(rank, i) * GetParam().world);
    const Tensor tensor{data.data(), data.size(), DType::f32};
    ASSERT_TRUE(run(job.comm(rank).all_reduce(tensor, tensor, {RedOp::avg, 1.0})));
    for (std::size_t i = 0; i < data.size(); ++i) {
      int sum = 0;
      for (Rank r = 0; r < GetParam().world; ++r) sum += value_at(r, i);
      ASSERT_EQ(data[i], static_cast<float>(sum)) << i;
    }
  });
}

TEST_P(CommunicatorTest, ReduceScatterAndAllGather) {
  LocalJob job(options());
  ASSERT_TRUE(job.connected()) << job.first_error();
  const std::uint16_t world = GetParam().world;
  for (const std::uint64_t elements : {0ull, 1ull, 130ull}) {
    job.each([&](Rank rank) {
      Bytes in = make_values(DType::f32, rank, elements * world);
      Bytes out(elements * 4);
      auto result =
          run(job.comm(rank).reduce_scatter(tensor_of(in, DType::f32), tensor_of(out, DType::f32), {}));
      ASSERT_TRUE(result) << result.error().message();
      EXPECT_EQ(out, reduced(DType::f32, RedOp::sum, world, rank * elements, elements));
      Bytes all(elements * 4 * world);
      Bytes mine = make_values(DType::f32, rank, elements);
      result = run(job.comm(rank).all_gather(tensor_of(mine, DType::f32), tensor_of(all, DType::f32)));
      ASSERT_TRUE(result) << result.error().message();
      Bytes expected;
      for (Rank r = 0; r < world; ++r) {
        const Bytes piece = make_values(DType::f32, r, elements);
        expected.insert(expected.end(), piece.begin(), piece.end());
      }
      EXPECT_EQ(all, expected);
      // In place: the input is the rank's own piece of the output (FSDP2 does this).
      Bytes inside(elements * 4 * world);
      if (elements > 0) std::memcpy(inside.data() + rank * elements * 4, mine.data(), mine.size());
      const Tensor piece{inside.data() + rank * elements * 4, elements, DType::f32};
      result = run(job.comm(rank).all_gather(piece, tensor_of(inside, DType::f32)));
      ASSERT_TRUE(result) << result.error().message();
      EXPECT_EQ(inside, expected);
    });
  }
}

TEST_P(CommunicatorTest, RootedOpsAllToAllAndBarrier) {
  LocalJob job(options());
  ASSERT_TRUE(job.connected()) << job.first_error();
  const std::uint16_t world = GetParam().world;
  const std::uint64_t elements = 301;
  for (Rank root = 0; root < world; ++root) {
    job.each([&](Rank rank) {
      Communicator& comm = job.comm(rank);
      Bytes data = make_values(DType::i32, rank, elements);
      ASSERT_TRUE(run(comm.broadcast(tensor_of(data, DType::i32), root)));
      EXPECT_EQ(data, make_values(DType::i32, root, elements));
      Bytes in = make_values(DType::i32, rank, elements), out(in.size()), all(in.size() * world);
      ASSERT_TRUE(run(comm.reduce(tensor_of(in, DType::i32), tensor_of(out, DType::i32), {}, root)));
      if (rank == root) {
        EXPECT_EQ(out, reduced(DType::i32, RedOp::sum, world, 0, elements));
      }
      ASSERT_TRUE(run(comm.gather(tensor_of(in, DType::i32), tensor_of(all, DType::i32), root)));
      if (rank == root) {
        for (Rank r = 0; r < world; ++r) {
          const Bytes piece(all.begin() + r * elements * 4, all.begin() + (r + 1u) * elements * 4);
          EXPECT_EQ(piece, make_values(DType::i32, r, elements));
        }
      }
      Bytes pieces = make_values(DType::i32, root, elements * world), mine(elements * 4);
      ASSERT_TRUE(run(comm.scatter(tensor_of(pieces, DType::i32), tensor_of(mine, DType::i32), root)));
      EXPECT_EQ(mine, make_values(DType::i32, root, elements, rank * elements));
      ASSERT_TRUE(run(comm.barrier()));
    });
  }
  job.each([&](Rank rank) {
    Bytes in = make_values(DType::i32, rank, elements * world), out(in.size());
    ASSERT_TRUE(run(job.comm(rank).all_to_all(tensor_of(in, DType::i32), tensor_of(out, DType::i32))));
    for (Rank r = 0; r < world; ++r) {
      const Bytes piece(out.begin() + r * elements * 4, out.begin() + (r + 1u) * elements * 4);
      EXPECT_EQ(piece, make_values(DType::i32, r, elements, rank * elements));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, CommunicatorTest,
                         ::testing::Values(Case{1, Algorithm::ring, Suite::aes_256_gcm},
                                           Case{2, Algorithm::ring, Suite::aes_256_gcm},
                                           Case{2, Algorithm::one_hop, Suite::chacha20_poly1305},
                                           Case{2, Algorithm::one_shot, Suite::aes_256_gcm},
                                           Case{3, Algorithm::one_shot, Suite::chacha20_poly1305},
                                           Case{2, Algorithm::one_shot, Suite::plain},
                                           Case{4, Algorithm::one_shot, Suite::plain},
                                           Case{3, Algorithm::ring, Suite::aes_128_gcm},
                                           Case{3, Algorithm::one_hop, Suite::aes_256_gcm},
                                           Case{4, Algorithm::one_hop, Suite::aes_256_gcm},
                                           Case{4, Algorithm::ring, Suite::plain},
                                           Case{3, Algorithm::one_hop, Suite::chained_gmac}),
                         [](const auto& tested) {
                           std::string name = "n" + std::to_string(tested.param.world) + "_" +
                                              std::string(to_string(tested.param.algorithm)) + "_" +
                                              std::string(to_string(tested.param.suite));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Communicator, PointToPointInBothDirectionsAtOnce) {
  JobOptions options;
  options.world = 3;
  options.config.segment_bytes = 4096;
  LocalJob job(std::move(options));
  ASSERT_TRUE(job.connected()) << job.first_error();
  const std::uint64_t elements = 1 << 20;  // more than any socket or pipe holds
  job.each([&](Rank rank) {
    Communicator& comm = job.comm(rank);
    std::vector<Ticket> tickets;
    std::map<Rank, Bytes> received;
    Bytes mine = make_values(DType::f32, rank, elements);
    for (Rank peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      auto sent = comm.send(tensor_of(mine, DType::f32), peer, 5);  // all sends before all receives
      ASSERT_TRUE(sent);
      tickets.push_back(*sent);
    }
    for (Rank peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      received[peer].resize(elements * 4);
      auto got = comm.recv(tensor_of(received[peer], DType::f32), peer, 5);
      ASSERT_TRUE(got);
      tickets.push_back(*got);
    }
    for (const Ticket& ticket : tickets) {
      const auto result = ticket.wait(Deadline::in(std::chrono::minutes(1)));
      ASSERT_TRUE(result) << result.error().message();
    }
    for (const auto& [peer, bytes] : received) EXPECT_EQ(bytes, make_values(DType::f32, peer, elements));
  });
}

TEST(Communicator, ReceiveFromAnySource) {
  JobOptions options;
  options.world = 3;
  LocalJob job(std::move(options));
  ASSERT_TRUE(job.connected()) << job.first_error();
  job.each([&](Rank rank) {
    Communicator& comm = job.comm(rank);
    std::vector<std::int32_t> data(100000, rank);
    const Tensor tensor{data.data(), data.size(), DType::i32};
    if (rank != 0) {
      ASSERT_TRUE(run(comm.send(tensor, 0, 1)));
      return;
    }
    std::vector<int> seen(3);
    for (int i = 0; i < 2; ++i) {
      auto source = std::make_shared<Rank>(Rank{0});
      const auto result = run(comm.recv_any(tensor, 1, source));
      ASSERT_TRUE(result) << result.error().message();
      EXPECT_EQ(data[0], *source);
      EXPECT_EQ(data.back(), *source);
      ++seen[*source];
    }
    EXPECT_EQ(seen, (std::vector<int>{0, 1, 1}));
  });
}

TEST(Communicator, ReceivesFromOneAndFromAnySourceDoNotDisturbEachOther) {
  for (const bool tcp : {false, true}) {
    for (const std::uint64_t elements : {100ull, 400'000ull}) {
      JobOptions options;
      options.world = 3;
      options.tcp = tcp;
      LocalJob job(std::move(options));
      ASSERT_TRUE(job.connected()) << job.first_error();
      constexpr int kTurns = 20;
      job.each([&](Rank rank) {
        Communicator& comm = job.comm(rank);
        const auto tensor = [](std::vector<float>& data) {
          return Tensor{data.data(), data.size(), DType::f32};
        };
        std::vector<float> go(1), first(elements), any(elements);
        for (int turn = 0; turn < kTurns; ++turn) {
          ASSERT_TRUE(run(comm.barrier()));
          // What is taken from any source comes from rank 2 on even turns, and on odd ones from rank 1, which
          // sends again after it has got an answer.
          const Rank second_sender = turn % 2 == 0 ? 2 : 1;
          if (rank != 0) {
            std::fill(first.begin(), first.end(), static_cast<float>(10 * rank + turn));
            if (rank == 1) {
              ASSERT_TRUE(run(comm.send(tensor(first), 0, 0)));
              ASSERT_TRUE(run(comm.recv(tensor(go), 0, 0)));
            }
            if (rank == second_sender) {
              ASSERT_TRUE(run(comm.send(tensor(first), 0, 0)));
            }
            continue;
          }
          auto source = std::make_shared<Rank>(Rank{0});
          auto from_one = comm.recv(tensor(first), 1, 0);
          auto from_any = comm.recv_any(tensor(any), 0, source);
          const auto one = run(std::move(from_one));
          ASSERT_TRUE(one) << one.error().message();
          ASSERT_TRUE(run(comm.send(tensor(go), 1, 0)));
          const auto other = run(std::move(from_any));
          ASSERT_TRUE(other) << other.error().message();
          EXPECT_EQ(*source, second_sender);
          EXPECT_EQ(first.back(), static_cast<float>(10 + turn));
          EXPECT_EQ(any.back(), static_cast<float>(10 * second_sender + turn));
        }
      });
    }
  }
}

TEST(Communicator, SubgroupsHaveKeysOfTheirOwnAndRunBesideTheWorld) {
  JobOptions options;
  options.world = 4;
  options.config.segment_bytes = 512;
  LocalJob job(std::move(options));
  ASSERT_TRUE(job.connected()) << job.first_error();
  job.each([&](Rank rank) {
    const std::vector<Rank> members = rank % 2 == 0 ? std::vector<Rank>{0, 2} : std::vector<Rank>{1, 3};
    auto group = job.session(rank).split(members, job.store(), "split-" + std::to_string(rank % 2));
    ASSERT_TRUE(group) << group.error().message();
    EXPECT_EQ((*group)->size(), 2);
    EXPECT_EQ((*group)->rank(), rank / 2);
    for (int i = 0; i < 5; ++i) {
      std::vector<float> a(1000, static_cast<float>(rank + i)), b(1000, 1.0f);
      const Tensor ta{a.data(), a.size(), DType::f32}, tb{b.data(), b.size(), DType::f32};
      auto in_group = (*group)->all_reduce(ta, ta, {});
      auto in_world = job.comm(rank).all_reduce(tb, tb, {});
      ASSERT_TRUE(run(std::move(in_group)));
      ASSERT_TRUE(run(std::move(in_world)));
      EXPECT_EQ(a[999], static_cast<float>((rank % 2 == 0 ? 2 : 4) + 2 * i));
      EXPECT_EQ(b[0], 4.0f);
    }
  });
}

TEST(Communicator, CountersEqualTheSchedulesPrediction) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::one_hop, Algorithm::one_shot}) {
    JobOptions options;
    options.world = 4;
    options.config.algorithm = algorithm;
    options.config.segment_bytes = 1024;
    LocalJob job(std::move(options));
    ASSERT_TRUE(job.connected()) << job.first_error();
    job.each([&](Rank rank) {
      ScheduleCost predicted;
      for (const std::uint64_t elements : {1ull, 1000ull, 4096ull}) {
        std::vector<float> data(elements, 1.0f);
        const Tensor tensor{data.data(), elements, DType::f32};
        ASSERT_TRUE(run(job.comm(rank).all_reduce(tensor, tensor, {})));
        const ScheduleCost cost =
            cost_of(make_schedule({Op::all_reduce, algorithm, rank, 4, elements, 0, true}), 4, 1024);
        predicted.seals += cost.seals;
        predicted.opens += cost.opens;
        predicted.sealed_bytes += cost.sealed_bytes;
        predicted.opened_bytes += cost.opened_bytes;
        predicted.sealed_segments += cost.sealed_segments;
        predicted.opened_segments += cost.opened_segments;
      }
      const Counters counters = job.comm(rank).counters();
      EXPECT_EQ(counters.ops, 3u);
      EXPECT_EQ(counters.seals, predicted.seals);
      EXPECT_EQ(counters.opens, predicted.opens);
      EXPECT_EQ(counters.sealed_bytes, predicted.sealed_bytes);
      EXPECT_EQ(counters.opened_bytes, predicted.opened_bytes);
      EXPECT_EQ(counters.sealed_segments, predicted.sealed_segments);
      EXPECT_EQ(counters.opened_segments, predicted.opened_segments);
    });
  }
}

TEST(Communicator, KeysRotateByCountWithoutAMessage) {
  JobOptions options;
  options.world = 3;
  options.config.segment_bytes = 256;
  options.config.budget.bytes_rotate = 10'000;
  LocalJob job(std::move(options));
  ASSERT_TRUE(job.connected()) << job.first_error();
  job.each([&](Rank rank) {
    for (int i = 0; i < 60; ++i) {
      std::vector<float> data(1500, static_cast<float>(rank));
      const Tensor tensor{data.data(), data.size(), DType::f32};
      const auto result = run(job.comm(rank).all_reduce(tensor, tensor, {}));
      ASSERT_TRUE(result) << result.error().message();
      ASSERT_EQ(data[1499], 3.0f);
    }
    EXPECT_GT(job.comm(rank).counters().epoch, 5u);
  });
}

TEST(Communicator, HardLimitIsRefusedBeforeSealing) {
  JobOptions options;
  options.config.budget.bytes_max = 1000;
  LocalJob job(std::move(options));
  ASSERT_TRUE(job.connected()) << job.first_error();
  job.each([&](Rank rank) {
    std::vector<float> data(10'000, 1.0f);
    const Tensor tensor{data.data(), data.size(), DType::f32};
    const auto result = run(job.comm(rank).all_reduce(tensor, tensor, {}));
    ASSERT_FALSE(result);
    EXPECT_TRUE(result.error().code == Code::key_limit || result.error().code == Code::aborted)
        << result.error().message();
    EXPECT_EQ(job.comm(rank).counters().sealed_bytes, 0u);
  });
}

TEST(Communicator, LocalMistakesAreToldAtOnceAndHarmNobody) {
  LocalJob job(JobOptions{});
  ASSERT_TRUE(job.connected()) << job.first_error();
  job.each([&](Rank rank) {
    Communicator& comm = job.comm(rank);
    std::vector<float> data(10), other(9);
    const Tensor ten{data.data(), 10, DType::f32}, nine{other.data(), 9, DType::f32};
    EXPECT_EQ(comm.all_reduce(ten, nine, {}).error().code, Code::invalid_argument);
    EXPECT_EQ(comm.all_reduce(ten, {data.data(), 10, DType::i32}, {}).error().code, Code::invalid_argument);
    EXPECT_EQ(comm.all_reduce({nullptr, 10, DType::f32}, ten, {}).error().code, Code::invalid_argument);
    EXPECT_EQ(comm.broadcast(ten, 2).error().code, Code::invalid_argument);
    EXPECT_EQ(comm.all_to_all({data.data(), 8, DType::f32}, {data.data() + 2, 8, DType::f32}).error().code,
              Code::invalid_argument)
        << "overlapping";
    EXPECT_EQ(comm.send(ten, rank, 0).error().code, Code::invalid_argument);
    EXPECT_EQ(comm.reduce_scatter(nine, ten, {}).error().code, Code::invalid_argument);
    EXPECT_EQ(
        comm.all_reduce({data.data(), 10, DType::i32}, {data.data(), 10, DType::i32}, {RedOp::premul_sum, 2})
            .error()
            .code,
        Code::unsupported);
    const auto result = run(comm.all_reduce(ten, ten, {}));
    EXPECT_TRUE(result) << result.error().message();
  });
}

TEST(Communicator, WhatIsIssuedInADeadSessionFailsByItsTicketAndIsPoisoned) {
  LocalJob job(JobOptions{});
  ASSERT_TRUE(job.connected()) << job.first_error();
  Error death;
  death.code = Code::data_tag;
  death.stage = "test";
  death.what = "made up";
  job.session(0).abort(death);
  Communicator& comm = job.comm(0);
  const auto failed = [&](auto call) {
    std::vector<float> data(64, 1.0f);
    const auto ticket = call(Tensor{data.data(), data.size(), DType::f32});
    ASSERT_TRUE(ticket) << "a dead session is no mistake of the caller";
    const auto result = ticket->wait(Deadline::in(std::chrono::seconds(10)));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::data_tag);
    for (const float value : data) ASSERT_TRUE(std::isnan(value));
  };
  failed([&](Tensor data) { return comm.all_reduce(data, data, {}); });
  failed([&](Tensor data) { return comm.broadcast(data, 1); });
  failed([&](Tensor data) { return comm.recv(data, 1, 0); });
  failed([&](Tensor data) { return comm.recv_any(data, 0, std::make_shared<Rank>(Rank{0})); });
  std::vector<float> mine(64, 1.0f);
  const auto sent = run(comm.send({mine.data(), mine.size(), DType::f32}, 1, 0));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::data_tag);
  EXPECT_EQ(mine[63], 1.0f) << "what was to be sent is the caller's";
  EXPECT_FALSE(run(comm.barrier()));
}

}  // namespace
}  // namespace sealring::testing
