// All fused bodies, compiled once for all tests of them.
#include "tests/bodies/fused_rig.h"

#include "sealring/device/cuda/fused_body.h"
#include "sealring/device/cuda/fused_gcm.h"
#include "sealring/device/cuda/fused_small.h"

namespace sealring::cuda::test {

namespace {

/// Its threads end with the tests, not with the program: they must be gone before OpenSSL is, which keeps a
/// state for each.
class CrewOfAllTests : public ::testing::Environment {
 public:
  void TearDown() override { crew.dismiss(); }
  Crew crew;
};
auto* const environment =
    static_cast<CrewOfAllTests*>(::testing::AddGlobalTestEnvironment(new CrewOfAllTests));

}  // namespace

Crew& FusedWorld::crew() { return environment->crew; }

class FusedWorld::Fabric {
 public:
  Fabric(FusedWorld& world, Baton& baton, int me, std::uint32_t rank)
      : world_(world), baton_(baton), me_(me), rank_(rank) {}
  std::uint32_t wait(const std::byte* word, std::uint64_t expected) {
    baton_.maybe_yield(me_);
    while (true) {
      world_.on_look(static_cast<Rank>(rank_), const_cast<std::byte*>(word), expected);
      const std::uint64_t value = word_at(const_cast<std::byte*>(word)).load(std::memory_order_acquire);
      const FusedState& state = *world_.states[rank_];
      if (value == expected) return 0;
      if (value == kPoison || state.abort != 0) return status_of(Code::aborted);
      if (state.verdict != 0) return state.verdict;
      if (baton_.idle() > world_.patience_) return status_of(Code::timeout);
      baton_.yield_in_vain(me_);
    }
  }
  bool there(const std::byte* word, std::uint64_t expected) {
    baton_.maybe_yield(me_);
    world_.on_look(static_cast<Rank>(rank_), const_cast<std::byte*>(word), expected);
    return word_at(const_cast<std::byte*>(word)).load(std::memory_order_acquire) == expected;
  }
  void post(std::byte* word, std::uint64_t value) {
    if (world_.on_post(world_.seen(rank_, word, value)))
      word_at(word).store(value, std::memory_order_release);
    baton_.posted();
    baton_.maybe_yield(me_);
  }
  void send_line(std::byte* at, Chunk line) {
    if (world_.on_line(static_cast<Rank>(rank_), at, line)) std::memcpy(at, &line, sizeof line);
    baton_.posted();
    if (world_.lines_++ % 16 == 0) baton_.maybe_yield(me_);
  }
  std::uint32_t find_lines(const LinesOfALane& look, Chunk (&found)[kLinesOfALane]) {
    std::uint32_t got = 0;
    for (std::uint32_t i = 0; i < kLinesOfALane; ++i) {
      if ((look.wanted >> i & 1) == 0) continue;
      std::memcpy(&found[i], look.at(i), sizeof found[i]);
      if (found[i].words[3] != look.number) continue;
      if (WindowReads* const reads = world_.reads_of(rank_)) reads->note(look.at(i), sizeof found[i]);
      got |= 1u << i;
    }
    return got;
  }
  std::uint32_t look_again(std::uint32_t, const std::byte* poison_word) {
    const FusedState& state = *world_.states[rank_];
    if (word_at(const_cast<std::byte*>(poison_word)).load() == kPoison || state.abort != 0)
      return status_of(Code::aborted);
    if (state.verdict != 0) return state.verdict;
    if (baton_.idle() > world_.patience_) return status_of(Code::timeout);
    baton_.yield_in_vain(me_);
    return 0;
  }

 private:
  FusedWorld& world_;
  Baton& baton_;
  int me_;
  std::uint32_t rank_;
};

template <class Body>
void FusedWorld::run_body(Baton& baton, int me, std::uint32_t rank, const FusedJob& job, DType dtype) {
  Fabric fabric(*this, baton, me, rank);
  // A team's columns have it in turn, with what the one before has left.
  thread_local const auto shared = [] {
    static_assert(std::is_trivially_copyable_v<typename Body::Shared>);
    auto made = std::make_unique<typename Body::Shared>();
    std::memset(static_cast<void*>(made.get()), 0xA5, sizeof *made);
    return made;
  }();
  HostBlock block(Body::kThreads, reads_of(rank));
  Chunk pattern;
  poison(dtype, {reinterpret_cast<std::byte*>(&pattern), sizeof pattern});
  Body::run(block, *shared, fabric, narrowed<Body::kLinks>(job), *states[rank], pattern);
}

template <CombineKind K>
void FusedWorld::run_kind(Baton& baton, int me, std::uint32_t rank, const FusedJob& job, DType dtype) {
  if (fused_choice(job).gcm)
    run_body<FusedGcm<K>>(baton, me, rank, job, dtype);
  else if (fused_choice(job).small)
    run_body<FusedSmall<K>>(baton, me, rank, job, dtype);
  else if (fused_choice(job).many)
    run_body<FusedMany<K>>(baton, me, rank, job, dtype);
  else
    run_body<FusedSingle<K>>(baton, me, rank, job, dtype);
}

void FusedWorld::run_block(Baton& baton, int me, std::uint32_t rank, const FusedJob& job, DType dtype) {
  switch (fused_choice(job).combine) {
    case CombineKind::sum_f32:
      return run_kind<CombineKind::sum_f32>(baton, me, rank, job, dtype);
    case CombineKind::sum_bf16:
      return run_kind<CombineKind::sum_bf16>(baton, me, rank, job, dtype);
    case CombineKind::sum_f16:
      return run_kind<CombineKind::sum_f16>(baton, me, rank, job, dtype);
    case CombineKind::replace:
      return run_kind<CombineKind::replace>(baton, me, rank, job, dtype);
    case CombineKind::any:
      if (fused_choice(job).gcm) return run_body<FusedGcm<CombineKind::any>>(baton, me, rank, job, dtype);
      if (job.small != 0) return run_body<FusedSmall<CombineKind::any>>(baton, me, rank, job, dtype);
      return run_body<FusedMany<CombineKind::any>>(baton, me, rank, job, dtype);
  }
}

}  // namespace sealring::cuda::test
