// Claim: every collective on tensors of a device gives the exact result on every rank, in place and out of
//   place, in issue order, asynchronously, and from graphs; what does not exist there is refused by name.
// How: ranks as threads with real handshakes and keys, on the double of a device in host memory; small
// integers
//   make every sum exact.
#include "tests/collective/device_job.h"

namespace sealring::testing {
namespace {

class DeviceCommunicatorTest : public ::testing::TestWithParam<int> {
 protected:
  DeviceCommunicatorTest() : world(static_cast<std::uint16_t>(GetParam())) {}
  JobOptions options() const {
    JobOptions out;
    out.world = world;
    out.config.suite = world == 3 ? Suite::chacha20_poly1305 : Suite::aes_256_gcm;
    return out;
  }
  const std::uint16_t world;
};

TEST_P(DeviceCommunicatorTest, AllReduceOfEveryTypeAndOp) {
  DeviceJob job(options());
  job.add_group();
  for (const std::uint64_t elements : {0ull, 1ull, 257ull, 40'000ull}) {  // both sides of the one-shot size
    for (const DType dtype : all_dtypes()) {
      for (const RedOp redop : all_redops()) {
        if (redop == RedOp::none || redop == RedOp::avg || !reduction_supported(dtype, redop)) continue;
        if (elements > 1000 && dtype != DType::f32 && dtype != DType::bf16) continue;
        const Bytes expected = reduced(dtype, redop, world, 0, elements);
        job.job.each([&](Rank rank) {
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

TEST_P(DeviceCommunicatorTest, AverageIsSumOverWorld) {
  DeviceJob job(options());
  job.add_group();
  for (const std::size_t elements : {777u, 40'000u}) {
    job.job.each([&](Rank rank) {
      Floats data(elements);
      for (std::size_t i = 0; i < elements; ++i) data.data[i] = static_cast<float>(value_at(rank, i) * world);
      ASSERT_TRUE(run(job.comm(rank).all_reduce(data.tensor(), data.tensor(), {RedOp::avg, 1.0})));
      for (std::size_t i = 0; i < elements; ++i) {
        int sum = 0;
        for (Rank r = 0; r < world; ++r) sum += value_at(r, i);
        ASSERT_EQ(data.data[i], static_cast<float>(sum)) << i;
      }
    });
  }
}

TEST_P(DeviceCommunicatorTest, ReduceScatterAndAllGather) {
  DeviceJob job(options());
  job.add_group();
  for (const std::uint64_t elements : {0ull, 1ull, 1300ull}) {
    job.job.each([&](Rank rank) {
      Communicator& comm = job.comm(rank);
      for (const bool in_place : {false, true}) {
        Bytes in = make_values(DType::f32, rank, elements * world), apart(elements * 4);
        std::byte* const inside = in.data() + rank * elements * 4;
        const Tensor out{in_place ? inside : apart.data(), elements, DType::f32};
        auto result = run(comm.reduce_scatter(tensor_of(in, DType::f32), out, {}));
        ASSERT_TRUE(result) << result.error().message();
        const auto* got = static_cast<const std::byte*>(out.data);
        EXPECT_EQ(Bytes(got, got + elements * 4),
                  reduced(DType::f32, RedOp::sum, world, rank * elements, elements));

        Bytes mine = make_values(DType::f32, rank, elements), all(elements * 4 * world), expected;
        std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(rank * elements * 4));
        const Tensor piece{in_place ? all.data() + rank * elements * 4 : mine.data(), elements, DType::f32};
        result = run(comm.all_gather(piece, tensor_of(all, DType::f32)));
        ASSERT_TRUE(result) << result.error().message();
        for (Rank r = 0; r < world; ++r) {
          const Bytes values = make_values(DType::f32, r, elements);
          expected.insert(expected.end(), values.begin(), values.end());
        }
        EXPECT_EQ(all, expected);
      }
    });
  }
}

TEST_P(DeviceCommunicatorTest, RootedOps) {
  DeviceJob job(options());
  job.add_group();
  const std::uint64_t elements = 301;
  for (Rank root = 0; root < world; ++root) {
    job.job.each([&](Rank rank) {
      Communicator& comm = job.comm(rank);
      Bytes data = make_values(DType::i32, rank, elements);
      ASSERT_TRUE(run(comm.broadcast(tensor_of(data, DType::i32), root)));
      EXPECT_EQ(data, make_values(DType::i32, root, elements));
      Bytes in = make_values(DType::i32, rank, elements), out(in.size()), all(in.size() * world);
      for (const bool in_place : {false, true}) {
        const Tensor sum = tensor_of(in_place ? in : out, DType::i32);
        ASSERT_TRUE(run(comm.reduce(tensor_of(in, DType::i32), sum, {}, root)));
        if (rank == root) {
          EXPECT_EQ(in_place ? in : out, reduced(DType::i32, RedOp::sum, world, 0, elements));
        }
        in = make_values(DType::i32, rank, elements);
      }
      ASSERT_TRUE(run(comm.gather(tensor_of(in, DType::i32), tensor_of(all, DType::i32), root)));
      for (Rank r = 0; r < world && rank == root; ++r) {
        const Bytes piece(all.begin() + r * elements * 4, all.begin() + (r + 1u) * elements * 4);
        EXPECT_EQ(piece, make_values(DType::i32, r, elements));
      }
      Bytes pieces = make_values(DType::i32, root, elements * world), mine(elements * 4);
      ASSERT_TRUE(run(comm.scatter(tensor_of(pieces, DType::i32), tensor_of(mine, DType::i32), root)));
      EXPECT_EQ(mine, make_values(DType::i32, root, elements, rank * elements));
      ASSERT_TRUE(run(comm.barrier()));
    });
  }
}

TEST_P(DeviceCommunicatorTest, AllToAllAndMessagesAroundTheRing) {
  DeviceJob job(options());
  job.add_group();
  const std::uint64_t elements = 301;
  job.job.each([&](Rank rank) {
    Communicator& comm = job.comm(rank);
    Bytes in = make_values(DType::i32, rank, elements * world), out(in.size());
    ASSERT_TRUE(run(comm.all_to_all(tensor_of(in, DType::i32), tensor_of(out, DType::i32))));
    for (Rank r = 0; r < world; ++r) {
      const Bytes piece(out.begin() + r * elements * 4, out.begin() + (r + 1u) * elements * 4);
      EXPECT_EQ(piece, make_values(DType::i32, r, elements, rank * elements));
    }
    const Rank next = static_cast<Rank>((rank + 1) % world);
    const Rank before = static_cast<Rank>((rank + world - 1) % world);
    for (std::uint32_t turn = 0; turn < 3 && world > 1; ++turn) {
      Bytes mine = make_values(DType::bf16, rank, elements + turn), got(mine.size());
      auto sent = comm.send(tensor_of(mine, DType::bf16), next, turn);
      auto received = comm.recv(tensor_of(got, DType::bf16), before, turn);
      ASSERT_TRUE(run(std::move(sent)));
      ASSERT_TRUE(run(std::move(received)));
      EXPECT_EQ(got, make_values(DType::bf16, before, elements + turn));
      ASSERT_TRUE(run(comm.barrier()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, DeviceCommunicatorTest, ::testing::Values(1, 2, 3, 4),
                         [](const auto& tested) { return "n" + std::to_string(tested.param); });

TEST(DeviceCommunicator, TicketsAreDoneInOrderAndLater) {
  DeviceJob job(JobOptions{});
  job.add_group();
  job.faults(0).delay_us = job.faults(1).delay_us = 2000;
  job.job.each([&](Rank rank) {
    constexpr int kOps = 20;
    std::vector<Floats> data(kOps, Floats(1000));
    std::vector<Ticket> tickets;
    std::vector<int> order;
    HostStream first, second;
    for (int i = 0; i < kOps; ++i) {
      auto ticket =
          job.comm(rank).all_reduce(data[i].tensor(), data[i].tensor(), {}, {i % 2 == 0 ? &first : &second});
      ASSERT_TRUE(ticket);
      ticket->on_done([&order, i](const Result<void>& result) {
        EXPECT_TRUE(result);
        order.push_back(i);
      });
      tickets.push_back(*ticket);
    }
    EXPECT_FALSE(tickets.back().done()) << "issuing does not wait";
    for (const Ticket& ticket : tickets) ASSERT_TRUE(ticket.wait(Deadline::in(std::chrono::minutes(1))));
    ASSERT_TRUE(run(job.comm(rank).barrier()));  // its ticket is done after the last callback
    for (int i = 0; i < kOps; ++i) EXPECT_EQ(order.at(static_cast<std::size_t>(i)), i);
    for (const Floats& each : data) EXPECT_TRUE(each.all(2.0f));
    EXPECT_EQ(job.comm(rank).counters().ops, kOps + 1u);
    EXPECT_GT(job.comm(rank).counters().sealed_bytes, kOps * 4000u - 1);
  });
}

TEST(DeviceCommunicator, ManyGroupsOnOneDeviceBesideTheWorldOnCpus) {
  JobOptions options;
  options.world = 3;
  DeviceJob job(std::move(options));
  for (int i = 0; i < 3; ++i) job.add_group();
  job.job.each([&](Rank rank) {
    for (int turn = 0; turn < 10; ++turn) {
      std::vector<Floats> data(4, Floats(5000, static_cast<float>(rank + turn)));
      std::vector<Ticket> tickets;
      for (std::size_t group = 0; group < 3; ++group) {
        auto ticket = job.comm(rank, group).all_reduce(data[group].tensor(), data[group].tensor(), {});
        ASSERT_TRUE(ticket);
        tickets.push_back(*ticket);
      }
      ASSERT_TRUE(run(job.job.comm(rank).all_reduce(data[3].tensor(), data[3].tensor(), {})));
      for (const Ticket& ticket : tickets) {
        const auto result = ticket.wait(Deadline::in(std::chrono::minutes(1)));
        ASSERT_TRUE(result) << result.error().message();
      }
      for (const Floats& each : data) EXPECT_TRUE(each.all(static_cast<float>(3 + 3 * turn)));
    }
  });
}

TEST(DeviceCommunicator, AGroupOfSomeRanksAndKeysThatRotate) {
  JobOptions options;
  options.world = 4;
  options.config.budget.bytes_rotate = 10'000;
  DeviceJob job(std::move(options));
  ASSERT_TRUE(job.job.connected()) << job.job.first_error();
  job.job.each([&](Rank rank) {
    if (rank == 2) return;
    const auto group = job.split(rank, {0, 1, 3}, job.place(rank), "three");
    ASSERT_TRUE(group) << group.error().message();
    EXPECT_EQ((*group)->size(), 3);
    EXPECT_EQ((*group)->rank(), rank == 3 ? 2 : rank);
    for (int i = 0; i < 40; ++i) {
      Floats data(1500, static_cast<float>(rank));
      const auto result = run((*group)->all_reduce(data.tensor(), data.tensor(), {}));
      ASSERT_TRUE(result) << result.error().message();
      ASSERT_TRUE(data.all(4.0f));
    }
  });
}

TEST(DeviceCommunicator, WhatWasCapturedRunsWithEachReplay) {
  DeviceJob job(JobOptions{});
  job.add_group();
  std::vector<Floats> data(2, Floats(3000));
  std::vector<HostStream> streams(2);
  job.job.each([&](Rank rank) {
    streams[rank].captured = true;
    const Tensor tensor = data[rank].tensor();
    const auto ticket = job.comm(rank).all_reduce(tensor, tensor, {}, {&streams[rank]});
    ASSERT_TRUE(ticket);
    EXPECT_TRUE(ticket->done());
    EXPECT_TRUE(ticket->wait(Deadline::in(std::chrono::seconds(1))));
    EXPECT_TRUE(data[rank].all(1.0f)) << "nothing ran";
    streams[rank].captured = false;
    for (int i = 0; i < 5; ++i) job.device(rank).replay(streams[rank]);
    job.device(rank).drain();
    EXPECT_TRUE(data[rank].all(32.0f));
    Floats beside(10);
    EXPECT_TRUE(run(job.comm(rank).all_reduce(beside.tensor(), beside.tensor(), {})));
    EXPECT_TRUE(beside.all(2.0f));
  });
  job.faults(0).flip_in = 0;
  const auto begin = Clock::now();
  job.job.each([&](Rank rank) {
    job.device(rank).replay(streams[rank]);
    while (!job.job.session(rank).error() && Clock::now() - begin < std::chrono::seconds(10)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ASSERT_TRUE(job.job.session(rank).error()) << "no ticket stands for a replay: the session ends by itself";
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2 * slow_factor()));
  EXPECT_EQ(job.job.session(1).error()->code, Code::data_tag) << job.job.session(1).error()->message();
  EXPECT_NE(job.job.session(1).error()->what.find("replayed"), std::string::npos);
  job.job.each([&](Rank rank) { job.device(rank).drain(); });
  EXPECT_TRUE(data[1].poisoned());
}

TEST(DeviceCommunicator, WhatDoesNotExistIsRefusedAndHarmsNobody) {
  DeviceJob job(JobOptions{});
  job.add_group();
  job.job.each([&](Rank rank) {
    Communicator& comm = job.comm(rank);
    Communicator& cpu = job.job.comm(rank);
    Floats ten(10), nine(9);
    const auto refused = comm.recv_any(ten.tensor(), 0, std::make_shared<Rank>(Rank{0}));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::unsupported);
    EXPECT_NE(refused.error().what.find("recv_any"), std::string::npos);
    EXPECT_EQ(comm.all_reduce(ten.tensor(), nine.tensor(), {}).error().code, Code::invalid_argument);
    EXPECT_EQ(comm.send(ten.tensor(), rank, 0).error().code, Code::invalid_argument);
    EXPECT_EQ(comm.broadcast(ten.tensor(), 2).error().code, Code::invalid_argument);
    HostStream stream;
    const Stream native{&stream};
    const auto source = std::make_shared<Rank>(Rank{0});
    for (const Code code :
         {cpu.all_reduce(ten.tensor(), ten.tensor(), {}, native).error().code,
          cpu.barrier(native).error().code, cpu.send(ten.tensor(), 1 - rank, 0, native).error().code,
          cpu.recv(ten.tensor(), 1 - rank, 0, native).error().code,
          cpu.recv_any(ten.tensor(), 0, source, native).error().code}) {
      EXPECT_EQ(code, Code::invalid_argument);
    }
    EXPECT_TRUE(run(comm.all_reduce(ten.tensor(), ten.tensor(), {}, native)));
    EXPECT_TRUE(run(cpu.all_reduce(ten.tensor(), ten.tensor(), {})));
    EXPECT_TRUE(ten.all(4.0f));
    EXPECT_NE(comm.describe().find("device 0 \"local in host memory"), std::string::npos);
  });
}

}  // namespace
}  // namespace sealring::testing
