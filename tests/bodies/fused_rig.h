// The ranks of a group whose steps run fused, as threads of this process: their windows, their states, and a
// scheduler that lets one block run at a time and picks the next by chance whenever a block looks at a word
// or posts one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/aes_key.h"
#include "sealring/device/cuda/fused_job.h"
#include "tests/bodies/crew.h"
#include "tests/bodies/cuda_body_rig.h"

namespace sealring::cuda::test {

/// One thread runs at a time. Also the clock: how often threads have looked in vain since a word was posted.
class Baton {
 public:
  Baton(int threads, std::uint64_t seed) : random_(seed), wakes_(static_cast<std::size_t>(threads)) {
    for (int i = 0; i < threads; ++i) alive_.push_back(i);
  }
  void begin(int me) {
    std::unique_lock lock(mutex_);
    ++begun_;
    if (begun_ == static_cast<int>(wakes_.size())) give(pick(-1));
    wait(me, lock);
  }
  /// Sometimes another thread goes on.
  void maybe_yield(int me) {
    std::unique_lock lock(mutex_);
    if (random_() % 4 != 0) return;
    give(pick(-1));
    wait(me, lock);
  }
  /// Another thread goes on.
  void yield(int me) {
    std::unique_lock lock(mutex_);
    give(pick(-1));
    wait(me, lock);
  }
  /// Another thread goes on, if there is one.
  void yield_in_vain(int me) {
    std::unique_lock lock(mutex_);
    ++idle_;
    give(alive_.size() == 1 ? me : pick(me));
    wait(me, lock);
  }
  void end(int me) {
    const std::unique_lock lock(mutex_);
    std::erase(alive_, me);
    if (!alive_.empty()) give(pick(-1));
  }
  void posted() { idle_ = 0; }
  std::uint64_t idle() const { return idle_; }

 private:
  int pick(int but) {
    while (true) {
      const int next = alive_[random_() % alive_.size()];
      if (next != but) return next;
    }
  }
  void give(int next) {
    turn_ = next;
    wakes_[static_cast<std::size_t>(next)].notify_one();
  }
  void wait(int me, std::unique_lock<std::mutex>& lock) {
    wakes_[static_cast<std::size_t>(me)].wait(lock, [&] { return turn_ == me; });
  }

  std::mt19937_64 random_;
  std::mutex mutex_;
  std::deque<std::condition_variable> wakes_;
  std::vector<int> alive_;
  int begun_ = 0, turn_ = -1;
  std::uint64_t idle_ = 0;  ///< of the thread whose turn it is
};

/// A post as the adversary sees it, before the word is written.
struct Post {
  Rank from, to;  ///< who posts, and in whose window
  bool flag;
  std::uint32_t column;
  std::uint64_t ticket;
  std::byte* word;
  std::uint64_t value;
};

/// What fused_prologue (fused.cu) does. False: another step is under way.
inline bool prologue(FusedState& state, const FusedReservation& step) {
  RingStart found[kFusedRings];
  for (std::uint32_t thread = 0; thread < kFusedRings; ++thread) found[thread] = take_ring(step, thread);
  StepStart start{};
  begin_step(state, step, 0, start);
  for (std::uint32_t thread = 0; thread < kFusedRings; ++thread)
    reserve_ring(state, step, thread, found[thread], start);
  settle_step(state, step, start);
  return start.begun != 0;
}

/// What a rank does in one step.
struct RankStep {
  std::vector<DeviceSend> sends;
  std::vector<DeviceRecv> recvs;
  DeviceStepRules rules;
};

inline std::string name_of_suite(const ::testing::TestParamInfo<Suite>& tested) {
  std::string out(to_string(tested.param));
  std::ranges::replace(out, '-', '_');
  return out;
}

/// How often a test of chance is run: of AES-GCM, whose matrices take the host long, a quarter as often.
inline std::uint64_t times_of(Suite suite, std::uint64_t times) {
  return suite_has_gcm_key(suite) ? times / 4 : times;
}
/// Numbers of fp32 up to 4096: all; of AES-GCM every one of the first 512 bytes, those around a tile's end,
/// and some between.
inline std::vector<std::uint64_t> sizes_up_to_4096(Suite suite) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t n = 0; n <= 4096; ++n) {
    const bool at_tile = (n + 2) % 512 <= 4;  // 2 KiB
    if (!suite_has_gcm_key(suite) || n <= 130 || at_tile || n % 61 == 0) out.push_back(n);
  }
  return out;
}

/// A window of zeros, of whose pages only those exist that are used.
class ZeroWindow {
 public:
  explicit ZeroWindow(std::size_t bytes)
      : memory_(static_cast<std::byte*>(std::calloc(bytes, 1))), bytes_(bytes) {
    SR_CHECK(memory_ != nullptr);
  }
  std::byte* data() { return memory_.get(); }
  std::span<std::byte> span() { return {data(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;  ///< 16-byte aligned, as calloc gives it
  std::size_t bytes_;
};

class FusedWorld {
 public:
  FusedWorld(std::uint32_t ranks, std::uint32_t columns, std::uint64_t seed,
             Suite suite = Suite::chacha20_poly1305)
      : random(seed), ranks_(ranks), columns_(columns), region_(fused_region(ranks, columns)) {
    group_.suite = suite;
    // Blocks of four columns, of which some have fewer.
    if (suite_has_gcm_key(suite)) blocks = (columns + kGcmColumns - 1) / kGcmColumns + columns % 2;
    for (std::byte& byte : group_.group_id) byte = static_cast<std::byte>(random());
    for (std::byte& byte : group_.th3) byte = static_cast<std::byte>(random());
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      group_.members.push_back(static_cast<Rank>(3 * rank + 1));  // global ranks
      windows.push_back(std::make_unique<ZeroWindow>(fused_window_bytes(ranks, columns)));
      states.push_back(std::make_unique<FusedState>());
      if (blocks != 0) private_tiles_.emplace_back(columns * kPrivateOfColumn);
    }
    for (std::uint32_t pair = 0; pair < ranks * ranks; ++pair) {
      sealing_.push_back(std::make_unique<KeyState>());
      opening_.push_back(std::make_unique<KeyState>());
      if (pair / ranks == pair % ranks) continue;
      for (Epoch epoch = 0; epoch < kSlots; ++epoch)
        sealing_[pair]->slots[epoch] = opening_[pair]->slots[epoch] = random_slot(epoch);
    }
  }

  std::uint32_t ranks() const { return ranks_; }
  std::uint32_t columns() const { return columns_; }
  const WindowShape& region() const { return region_; }
  const DeviceGroupConfig& group() const { return group_; }
  /// The state of the key from one rank to another, at either end.
  KeyState& sealing(std::uint32_t from, std::uint32_t to) { return *sealing_[from * ranks_ + to]; }
  KeyState& opening(std::uint32_t from, std::uint32_t to) { return *opening_[from * ranks_ + to]; }
  /// What `from` writes into in the window of `to`.
  std::byte* region_at(std::uint32_t from, std::uint32_t to) {
    return windows[to]->data() + peer_index(to, from) * fused_region_bytes(ranks_, columns_);
  }
  std::uint32_t verdict(std::uint32_t rank) const { return states[rank]->verdict; }

  FusedPeers peers_of(std::uint32_t rank) {
    FusedPeers out;
    out.count = ranks_ - 1;
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peer == rank) continue;
      const std::uint32_t at = peer_index(rank, peer);
      out.mine[at] = region_at(peer, rank);
      out.theirs[at] = region_at(rank, peer);
      out.out[at] = &sealing(rank, peer);
      out.in[at] = &opening(peer, rank);
    }
    return out;
  }
  Result<FusedJob> job_of(const DeviceOp& op, std::uint32_t rank, const RankStep& step) {
    DeviceGroupConfig mine = group_;
    mine.rank = static_cast<Rank>(rank);
    return fused_job_of(mine, op, step.sends, step.recvs, step.rules, peers_of(rank),
                        FusedTuning{columns_, small_bytes_max, segment_bytes, 0, blocks});
  }

  /// Each rank runs its steps one after the other, with so many blocks at a time; nobody waits for the others
  /// but in the kernels.
  void run(const DeviceOp& op, const std::vector<std::vector<RankStep>>& steps, std::uint32_t resident,
           std::uint64_t seed) {
    Run all{{}, resident, op.dtype};
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      RankRun& mine = all.ranks.emplace_back();
      for (const RankStep& step : steps[rank]) {
        if (step.sends.empty() && step.recvs.empty()) continue;
        const auto job = job_of(op, rank, step);
        ASSERT_TRUE(job) << job.error().message();
        mine.jobs.push_back(*job);
        FusedJob& made = mine.jobs.back();
        for (std::uint32_t i = 0; i < made.pulls && blocks != 0; ++i)
          made.pull[i].job.private_tiles = private_tiles_[rank].data();
      }
      start_step(all, rank);
    }
    const int each = static_cast<int>(std::min(resident, columns_));
    const int count = static_cast<int>(ranks_) * each;
    Baton baton(count, seed);
    patience_ = 150 * static_cast<std::uint64_t>(count);
    crew().run(count, [&](int me) {
      baton.begin(me);
      run_blocks(all, baton, me, static_cast<std::uint32_t>(me / each));
      baton.end(me);
    });
  }

  /// A step of fp32 of a rank beside the one that runs: its prologue and all its columns, on this thread.
  void run_refused(std::uint32_t rank, const RankStep& step) {
    DeviceOp op;
    op.dtype = DType::f32;
    auto job = job_of(op, rank, step);
    ASSERT_TRUE(job) << job.error().message();
    job->launch = kEagerLaunches;
    ASSERT_FALSE(prologue(*states[rank], FusedReservation::of(*job)));
    Baton own(1, 1);  // nobody waits
    for (std::uint32_t i = 0; i < job->units(); ++i) run_block(own, 0, rank, *job, op.dtype);
  }

  /// From now on the reads of each byte are counted, which takes long.
  void count_reads() {
    for (const auto& window : windows)
      reads.push_back({window->data(), std::vector<std::uint32_t>(window->span().size())});
  }

  static std::atomic_ref<std::uint64_t> word_at(std::byte* word) {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(word));
  }

  std::mt19937_64 random;
  std::uint64_t small_bytes_max = 0;  ///< see FusedTuning
  std::uint32_t segment_bytes = 0;    ///< likewise
  std::uint32_t blocks = 0;           ///< likewise
  std::vector<std::unique_ptr<ZeroWindow>> windows;
  std::vector<std::unique_ptr<FusedState>> states;
  std::vector<WindowReads> reads;  ///< a rank; empty without count_reads()
  bool begins = true;              ///< false: every step is to be refused
  /// Called before a word is posted; false: it is not.
  std::function<bool(const Post&)> on_post = [](const Post&) { return true; };
  /// Called before a line is sent by a rank; false: it is not.
  std::function<bool(Rank, std::byte*, Chunk&)> on_line = [](Rank, std::byte*, Chunk&) { return true; };
  /// Called whenever a block of a rank looks at a word of its window, with what it waits for.
  std::function<void(Rank, std::byte*, std::uint64_t)> on_look = [](Rank, std::byte*, std::uint64_t) {};

 private:
  /// Of one rank: the step that runs, and its blocks that have not begun, and not ended.
  struct RankRun {
    std::vector<FusedJob> jobs;
    std::size_t at = 0;
    std::uint32_t left = 0, unfinished = 0;
  };
  struct Run {
    std::vector<RankRun> ranks;
    std::uint32_t resident;
    DType dtype;
  };

  WindowReads* reads_of(std::uint32_t rank) { return reads.empty() ? nullptr : &reads[rank]; }

  static Crew& crew();  ///< of all worlds

  class Fabric;  // the words of a window, as one block reaches them

  KeySlot random_slot(Epoch epoch) {
    KeySlot slot{};
    slot.epoch = epoch;
    slot.state = static_cast<std::uint32_t>(SlotState::live);
    slot.canary = canary_of(epoch);
    for (std::uint32_t& word : slot.words.key) word = static_cast<std::uint32_t>(random());
    for (std::uint32_t& word : slot.words.iv) word = static_cast<std::uint32_t>(random());
    if (blocks != 0) {
      gcm_keys_.push_back(std::make_unique<GcmKey>());
      make_gcm_key(std::as_bytes(std::span(slot.words.key)).first(suite_key_bytes(group_.suite)),
                   *gcm_keys_.back());
      slot.words.gcm = gcm_keys_.back().get();
    }
    return slot;
  }
  Post seen(std::uint32_t from, std::byte* word, std::uint64_t value) {
    for (std::uint32_t to = 0; to < ranks_; ++to) {
      const std::ptrdiff_t offset = word - region_at(from, to);
      if (to == from || offset < 0 || offset >= static_cast<std::ptrdiff_t>(region_.bytes())) continue;
      const std::uint64_t index = (static_cast<std::uint64_t>(offset) - region_.words_begin()) / kWordBytes;
      const std::uint64_t words = region_.index(region_.columns, 0);
      return Post{static_cast<Rank>(from),
                  static_cast<Rank>(to),
                  index < words,
                  static_cast<std::uint32_t>(index % words / WindowShape::kSlots),
                  value - 1,
                  word,
                  value};
    }
    ADD_FAILURE() << "a word outside of the rank's regions was posted";
    return {};
  }

  void start_step(Run& all, std::uint32_t rank) {
    RankRun& mine = all.ranks[rank];
    if (mine.at == mine.jobs.size()) return;
    const FusedJob& job = mine.jobs[mine.at];
    const FusedReservation reservation = FusedReservation::of(job);
    ASSERT_EQ(prologue(*states[rank], reservation), begins);
    mine.left = mine.unfinished = job.units();
  }
  void run_blocks(Run& all, Baton& baton, int me, std::uint32_t rank) {
    RankRun& mine = all.ranks[rank];
    while (mine.at < mine.jobs.size()) {
      if (mine.left == 0) {  // the kernel's last blocks still run
        baton.yield(me);
        continue;
      }
      --mine.left;
      run_block(baton, me, rank, mine.jobs[mine.at], all.dtype);
      if (--mine.unfinished != 0) continue;
      ++mine.at;
      start_step(all, rank);
    }
  }
  /// One block of the body that fused.cu's kernel for this job has.
  void run_block(Baton& baton, int me, std::uint32_t rank, const FusedJob& job, DType dtype);
  template <CombineKind K>
  void run_kind(Baton& baton, int me, std::uint32_t rank, const FusedJob& job, DType dtype);
  template <class Body>
  void run_body(Baton& baton, int me, std::uint32_t rank, const FusedJob& job, DType dtype);

  std::uint32_t ranks_, columns_;
  WindowShape region_;
  DeviceGroupConfig group_;
  std::vector<std::unique_ptr<KeyState>> sealing_, opening_;  ///< by from * ranks + to
  std::vector<std::unique_ptr<GcmKey>> gcm_keys_;
  static constexpr std::uint64_t kPrivateOfColumn = 64 * 1024;
  std::vector<Bytes> private_tiles_;  ///< of AES-GCM, by rank
  std::uint64_t lines_ = 0;
  std::uint64_t patience_ = 0;  ///< looks in vain, until the deadline
};

}  // namespace sealring::cuda::test
