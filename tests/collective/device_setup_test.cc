// Claim: members of a group on a device come to one outcome: the wire they asked for, where it does not work
//   for one another for all (other windows, then NCCL), or the same failure, named; what members say is
//   parsed within its bounds; keys that were erased give nothing that a peer has.
// How: the double of a device refuses, loses or garbles at one rank; records are harmed byte by byte.
#include "sealring/collective/device_setup.h"

#include <gmock/gmock.h>

#include "tests/collective/device_job.h"

namespace sealring::testing {
namespace {

using ::testing::HasSubstr;

using Made = Result<std::shared_ptr<Communicator>>;

/// Splits on all ranks; the communicators are given up on all of them at once.
void split_all(DeviceJob& job, const std::function<DevicePlace(Rank)>& place,
               const std::function<void(Rank, Made&)>& look) {
  ASSERT_TRUE(job.job.connected()) << job.job.first_error();
  job.job.each([&](Rank rank) {
    Made made = job.split(rank, job.everybody(), place(rank), "setup");
    look(rank, made);
  });
}

void expect_works(Communicator& comm) {
  Floats data(2000);
  const auto result = run(comm.all_reduce(data.tensor(), data.tensor(), {}));
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_TRUE(data.all(static_cast<float>(comm.size())));
}

JobOptions options(std::uint16_t world) {
  JobOptions out;
  out.world = world;
  return out;
}

TEST(DeviceSetup, OneRankWithoutTheWireTakesAllToNccl) {
  DeviceJob job(options(3));
  job.faults(1).unmappable = {DeviceWireKind::local};
  split_all(
      job, [&](Rank rank) { return job.place(rank); },
      [&](Rank rank, Made& made) {
        ASSERT_TRUE(made) << made.error().message();
        EXPECT_THAT((*made)->describe(), HasSubstr("nccl"));
        EXPECT_EQ(job.device(rank).wires_made(), (std::vector{DeviceWireKind::local, DeviceWireKind::nccl}));
        expect_works(**made);
      });
}

TEST(DeviceSetup, WithoutIpcTheFabricIsTriedAndBehindItNccl) {
  using enum DeviceWireKind;
  struct Case {
    std::set<DeviceWireKind> unmappable;
    const char* path;
    std::vector<DeviceWireKind> tried;
    const char* outcome;  ///< the wire, or what the failure says
  };
  const Case cases[] = {
      {{ipc}, "", {ipc, fabric}, "fabric"},
      {{ipc}, "fused", {ipc, fabric}, "fabric"},
      {{ipc, fabric}, "", {ipc, fabric, nccl}, "nccl"},
      {{ipc, fabric}, "fused", {ipc, fabric}, "ipc windows cannot be mapped here"},
      {{ipc, fabric, nccl}, "", {ipc, fabric, nccl}, "nccl windows cannot be mapped here"},
      {{ipc, fabric},
       "fused",
       {ipc, fabric},
       "; over the fabric: rank 1: fabric windows cannot be mapped here"},
  };
  for (const Case& c : cases) {
    DeviceJob job(options(3));
    job.faults(1).unmappable = c.unmappable;
    Environment environment;
    environment.path = c.path;
    split_all(
        job,
        [&](Rank rank) {
          DevicePlace place = job.place(rank);
          place.wire = ipc;
          return place.under(environment);
        },
        [&](Rank rank, Made& made) {
          EXPECT_EQ(job.device(rank).wires_made(), c.tried);
          // Nobody has written yet, so what was made is freed, but for what NCCL may hold.
          EXPECT_EQ(job.device(rank).aborts(), c.unmappable.contains(nccl) ? 1 : 0);
          if (!made) {
            EXPECT_EQ(made.error().code, Code::gpu_unsupported);
            EXPECT_THAT(made.error().what, HasSubstr(c.outcome));
            return;
          }
          EXPECT_THAT((*made)->describe(), HasSubstr(c.outcome));
          expect_works(**made);
        });
  }
}

TEST(DeviceSetup, AWireThatLosesEverythingIsFoundByTheProbe) {
  JobOptions slow = options(2);
  slow.config.connect_timeout = std::chrono::seconds(8 * slow_factor());
  slow.config.timeout = std::chrono::seconds(1 * slow_factor());
  DeviceJob job(std::move(slow));
  job.faults(0).lossy = {DeviceWireKind::local};
  split_all(
      job, [&](Rank rank) { return job.place(rank); },
      [&](Rank, Made& made) {
        ASSERT_TRUE(made) << made.error().message();
        EXPECT_THAT((*made)->describe(), HasSubstr("nccl"));
        expect_works(**made);
      });
}

TEST(DeviceSetup, WithoutStagingItIsTheSameFailureOnAllRanks) {
  DeviceJob job(options(3));
  job.faults(1).unmappable = {DeviceWireKind::local};
  Environment fused;
  fused.path = "fused";
  split_all(
      job, [&](Rank rank) { return job.place(rank).under(fused); },
      [&](Rank rank, Made& made) {
        ASSERT_FALSE(made);
        EXPECT_EQ(made.error().code, Code::gpu_unsupported);
        EXPECT_EQ(made.error().rank, rank);
        EXPECT_EQ(made.error().peer, 1);
        EXPECT_EQ(made.error().stage, "device.connect");
        EXPECT_THAT(made.error().what, HasSubstr("rank 1: local windows cannot be mapped here"));
        EXPECT_TRUE(run(job.job.comm(rank).barrier())) << "the session lives on";
      });
}

TEST(DeviceSetup, TheEnvironmentCanForceStaging) {
  DeviceJob job(options(2));
  Environment staged;
  staged.path = "staged";
  split_all(
      job, [&](Rank rank) { return job.place(rank).under(staged); },
      [&](Rank rank, Made& made) {
        ASSERT_TRUE(made) << made.error().message();
        EXPECT_EQ(job.device(rank).wires_made(), (std::vector{DeviceWireKind::nccl}));
        expect_works(**made);
      });
}

TEST(DeviceSetup, MembersThatWantDifferentThingsAreNamed) {
  DeviceJob job(options(3));
  split_all(
      job,
      [&](Rank rank) {
        DevicePlace place = job.place(rank);
        if (rank == 2) place.columns = 16;
        return place;
      },
      [&](Rank rank, Made& made) {
        ASSERT_FALSE(made);
        EXPECT_EQ(made.error().code, Code::config) << made.error().message();
        if (rank != 2) {
          EXPECT_EQ(made.error().peer, 2);
        }
      });
}

TEST(DeviceSetup, AnOfferThatNobodyMakesIsMalformedAndNotTriedAgain) {
  DeviceJob job(options(2));
  job.faults(0).bad_offer = true;
  split_all(
      job, [&](Rank rank) { return job.place(rank); },
      [&](Rank rank, Made& made) {
        ASSERT_FALSE(made);
        EXPECT_EQ(made.error().code, Code::malformed) << made.error().message();
        EXPECT_EQ(job.device(rank).wires_made().size(), 1u);
      });
}

TEST(DeviceSetup, ABadTagInTheProbeEndsTheSession) {
  DeviceJob job(options(2));
  job.faults(1).flip_in = 3;
  split_all(
      job, [&](Rank rank) { return job.place(rank); },
      [&](Rank rank, Made& made) {
        ASSERT_FALSE(made);
        EXPECT_THAT((std::vector{Code::data_tag, Code::aborted}), ::testing::Contains(made.error().code));
        EXPECT_EQ(job.device(rank).wires_made().size(), 1u);
        EXPECT_FALSE(run(job.job.comm(rank).barrier()));
      });
  EXPECT_THAT(job.job.session(0).error()->message(), HasSubstr("SR-E602"));
}

TEST(DeviceSetup, AFactoryThatHasNoDeviceIsToldToAll) {
  DeviceJob job(options(2));
  split_all(
      job,
      [&](Rank rank) {
        DevicePlace place = job.place(rank);
        if (rank == 0) {
          place.factory = [](const DeviceGroupConfig&,
                             DeviceGroupKeys) -> Result<std::unique_ptr<DeviceGroup>> {
            return fail(Code::gpu_absent, "host.make", "this rank has no device");
          };
        }
        return place;
      },
      [&](Rank rank, Made& made) {
        ASSERT_FALSE(made);
        EXPECT_EQ(made.error().code, Code::gpu_absent);
        EXPECT_EQ(made.error().peer, 0);
        EXPECT_TRUE(run(job.job.comm(rank).barrier()));
      });
}

TEST(DeviceSetup, RanksThatAreNoMembersAreRefused) {
  DeviceJob job(options(2));
  ASSERT_TRUE(job.job.connected()) << job.job.first_error();
  EXPECT_EQ(job.split(0, {1}, job.place(0), "b").error().code, Code::invalid_argument);
}

TEST(SetupRecord, OnlyWhatIsEncodedParses) {
  const SetupRecord record{DeviceWireKind::nccl, WireFallback::windows, 48, Code::cuda,
                           to_bytes(as_bytes("no kernel"))};
  const Bytes good = record.encode();
  ASSERT_EQ(good.size(), SetupRecord::kBytes);
  const auto parsed = SetupRecord::parse(good);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->wire, record.wire);
  EXPECT_EQ(parsed->fallback, WireFallback::windows);
  EXPECT_EQ(parsed->columns, 48u);
  EXPECT_EQ(parsed->code, Code::cuda);
  EXPECT_EQ(parsed->body, record.body);
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const auto change : {std::byte{1}, std::byte{0x80}, std::byte{0xff}}) {
      Bytes bad = good;
      bad[at] ^= change;
      const auto again = SetupRecord::parse(bad);
      if (again) {
        EXPECT_EQ(again->encode(), bad) << at;
      } else {
        EXPECT_EQ(again.error().code, Code::malformed) << at;
      }
    }
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(SetupRecord::parse(ByteView(good).first(size)).error().code, Code::malformed);
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_EQ(SetupRecord::parse(longer).error().code, Code::malformed);
}

GroupKeys keys_of(Rank me) {
  std::map<Rank, SecretBytes> secrets;
  secrets.emplace(Rank(1 - me), SecretBytes(64));
  for (std::size_t i = 0; i < 64; ++i) secrets.begin()->second.data()[i] = std::byte(i + 1);
  return GroupKeys(Suite::aes_256_gcm, me, {0, 1}, {}, {}, SecretBytes(64), std::move(secrets));
}

TEST(DeviceKeys, BothEndsHaveTheSameKeysUntilTheyAreErased) {
  GroupKeys first = keys_of(0), second = keys_of(1);
  DeviceKeys here(first), there(second);
  DeviceGroupKeys mine = here.sources(), theirs = there.sources();
  EXPECT_EQ(mine.to[0], nullptr);
  EXPECT_EQ(theirs.from[1], nullptr);
  const auto same = [](const EpochKey& a, const EpochKey& b) {
    return a.epoch == b.epoch && constant_time_equal(a.key.view(), b.key.view()) &&
           constant_time_equal(a.iv.view(), b.iv.view());
  };
  for (Epoch epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(mine.to[1]->next_epoch(), epoch);
    const EpochKey seal = mine.to[1]->next(), open = theirs.from[0]->next();
    EXPECT_EQ(seal.epoch, epoch);
    EXPECT_TRUE(same(seal, open));
    EXPECT_FALSE(same(mine.from[1]->next(), seal)) << "directions have keys of their own";
  }
  here.wipe();
  const EpochKey after = mine.to[1]->next();
  EXPECT_EQ(after.epoch, 3u);
  EXPECT_EQ(after.key.size(), 32u);
  EXPECT_FALSE(same(after, theirs.from[0]->next()));
  EXPECT_FALSE(constant_time_equal(after.key.view(), SecretBytes(32).view()));
}

}  // namespace
}  // namespace sealring::testing
