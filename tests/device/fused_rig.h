// Two ranks of the fused all_reduce as threads of this process: their windows, their states, and a scheduler
// that lets one block run at a time and picks the next by chance whenever a block looks at a word or posts
// one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "sealring/device/bulk_cipher.h"
#include "sealring/device/cuda/fused_body.h"
#include "tests/device/cuda_body_rig.h"

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
  Rank to;  ///< whose window
  bool flag;
  std::uint32_t column;
  std::uint64_t ticket;
  std::byte* word;
  std::uint64_t value;
};

struct FusedOp {
  std::uint64_t elements = 0;
  DType dtype = DType::f32;
  RedOp redop = RedOp::sum;
  std::uint32_t columns = 1, resident = 1024;
  std::uint32_t segment_bytes = kFusedSegmentMin;
  bool in_place = false;
  std::uint64_t seed = 1;
};

class FusedPair {
 public:
  static constexpr std::uint64_t kPatience = 300;  ///< looks in vain, until the deadline

  FusedPair(std::uint32_t columns, std::uint32_t segment_bytes, std::uint64_t seed)
      : shape(WindowShape::of(columns, segment_bytes)), random(seed) {
    for (Rank rank : {Rank{0}, Rank{1}}) {
      windows.push_back(std::make_unique<Shifted>(shape.bytes(), 0));
      std::ranges::fill(windows.back()->span(), std::byte{0});
      states.push_back(std::make_unique<FusedState>());
      out_keys.push_back(std::make_unique<KeyState>());
      in_keys.push_back(std::make_unique<KeyState>());
      reads[rank].begin = windows[rank]->data();
      reads[rank].counts.assign(shape.bytes(), 0);
      outputs.emplace_back();
    }
    for (Rank from : {Rank{0}, Rank{1}}) {
      for (Epoch epoch = 0; epoch < kSlots; ++epoch) {
        KeySlot slot{};
        slot.epoch = epoch;
        slot.state = static_cast<std::uint32_t>(SlotState::live);
        slot.canary = canary_of(epoch);
        for (std::uint32_t& word : slot.words.key) word = static_cast<std::uint32_t>(random());
        for (std::uint32_t& word : slot.words.iv) word = static_cast<std::uint32_t>(random());
        out_keys[from]->slots[epoch] = in_keys[1 - from]->slots[epoch] = slot;
      }
    }
  }

  /// Runs one op on both ranks; inputs and outputs stay in `inputs` and `outputs`.
  template <class Body>
  void run(const FusedOp& op) {
    const RecordLayout layout = RecordLayout::of(op.elements * dtype_bytes(op.dtype), op.segment_bytes);
    const std::uint32_t columns = std::min(op.columns, layout.segments());
    Baton baton(2 * static_cast<int>(std::min(op.resident, columns)), op.seed);
    std::vector<FusedJob> jobs;
    std::vector<std::uint32_t> left(2, columns);
    for (Rank rank : {Rank{0}, Rank{1}}) {
      jobs.push_back(job_of(op, layout, rank));
      OpRequest request;
      request.segments = layout.segments();
      request.payload_bytes = layout.payload_bytes;
      begin_fused(*states[rank], *out_keys[rank], *in_keys[rank], request, 0);
    }
    std::vector<std::thread> threads;
    const int resident = static_cast<int>(std::min(op.resident, columns));
    for (int me = 0; me < 2 * resident; ++me) {
      threads.emplace_back([&, me] {
        const auto rank = static_cast<Rank>(me / resident);
        baton.begin(me);
        while (left[rank] > 0) {
          --left[rank];
          run_block<Body>(baton, me, rank, jobs[rank], columns, op.dtype);
        }
        baton.end(me);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// What the CPU makes of the inputs.
  Bytes expected(const FusedOp& op) const { return reduced_by_cpu(op.dtype, op.redop, inputs[0], inputs[1]); }
  void fill_inputs(const FusedOp& op) {
    inputs.clear();
    for (int rank = 0; rank < 2; ++rank) {
      inputs.push_back(random_bytes(random, op.elements * dtype_bytes(op.dtype)));
      // Small finite numbers, so that every byte of a sum is defined.
      const std::size_t size = dtype_bytes(op.dtype);
      if (!dtype_is_float(op.dtype)) continue;
      for (std::size_t at = size - 1; at < inputs.back().size(); at += size)
        inputs.back()[at] &= std::byte{0xBB};
    }
  }
  std::uint32_t verdict(Rank rank) const { return states[rank]->verdict; }

  WindowShape shape;
  std::mt19937_64 random;
  std::vector<std::unique_ptr<Shifted>> windows;
  std::vector<std::unique_ptr<FusedState>> states;
  std::vector<std::unique_ptr<KeyState>> out_keys, in_keys;  ///< of the rank that has them
  WindowReads reads[2];
  std::vector<Bytes> inputs;
  std::vector<std::unique_ptr<Shifted>> outputs;
  /// May do anything to the windows. False: the word is not written (now).
  std::function<bool(const Post&)> on_post = [](const Post&) { return true; };
  /// Called whenever a block of a rank looks at a word of its window, with what it waits for.
  std::function<void(Rank, std::byte*, std::uint64_t)> on_look = [](Rank, std::byte*, std::uint64_t) {};

 private:
  class Fabric {
   public:
    Fabric(FusedPair& pair, Baton& baton, int me, Rank rank)
        : pair_(pair), baton_(baton), me_(me), rank_(rank) {}
    std::uint32_t wait(const std::byte* word, std::uint64_t expected) {
      baton_.maybe_yield(me_);
      while (true) {
        pair_.on_look(rank_, const_cast<std::byte*>(word), expected);
        const std::uint64_t value = word_at(const_cast<std::byte*>(word)).load(std::memory_order_acquire);
        const FusedState& state = *pair_.states[rank_];
        if (value == expected) return 0;
        if (value == kPoison || state.abort != 0) return status_of(Code::aborted);
        if (state.verdict != 0) return state.verdict;
        if (baton_.idle() > kPatience) return status_of(Code::timeout);
        baton_.yield_in_vain(me_);
      }
    }
    void post(std::byte* word, std::uint64_t value) {
      const auto to = static_cast<Rank>(1 - rank_);
      const auto offset = static_cast<std::uint64_t>(word - pair_.windows[to]->data());
      const std::uint64_t index = (offset - pair_.shape.words_begin()) / kWordBytes;
      const std::uint64_t words = pair_.shape.index(pair_.shape.columns, 0);
      const Post post{
          to,        index < words, static_cast<std::uint32_t>(index % words / WindowShape::kSlots),
          value - 1, word,          value};
      if (pair_.on_post(post)) word_at(word).store(value, std::memory_order_release);
      baton_.posted();
      baton_.maybe_yield(me_);
    }

   private:
    FusedPair& pair_;
    Baton& baton_;
    int me_;
    Rank rank_;
  };

 public:
  static std::atomic_ref<std::uint64_t> word_at(std::byte* word) {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(word));
  }

 private:
  FusedJob job_of(const FusedOp& op, const RecordLayout& layout, Rank rank) {
    RecordContext context;
    context.op = Op::all_reduce;
    context.redop = op.redop;
    context.dtype = op.dtype;
    context.algorithm = Algorithm::one_shot;
    context.elements = op.elements;
    context.group_size = 2;
    FusedJob job = fused_job_of(Suite::chacha20_poly1305, context, layout, rank, static_cast<Rank>(1 - rank));
    job.shape = shape;
    auto& output = outputs[rank];
    output = std::make_unique<Shifted>(inputs[rank].size(), op.seed % 2 == 0 ? 0 : op.seed % 16);
    if (op.in_place) output->set(inputs[rank]);
    const std::byte* const input = op.in_place ? output->data() : inputs[rank].data();
    job.push.plaintext = input;
    job.push.wire = windows[1 - rank]->data();
    job.pull.wire = windows[rank]->data();
    job.pull.combine.local = input;
    job.pull.combine.dst = output->data();
    job.pull.combine.divisor = op.redop == RedOp::avg ? 2 : 1;
    return job;
  }
  template <class Body>
  void run_block(Baton& baton, int me, Rank rank, const FusedJob& job, std::uint32_t columns, DType dtype) {
    Fabric fabric(*this, baton, me, rank);
    const auto shared = std::make_unique<typename Body::Shared>();
    HostBlock block(Body::kThreads, &reads[rank]);
    Chunk pattern;
    poison(dtype, {reinterpret_cast<std::byte*>(&pattern), sizeof pattern});
    Body::run(block, *shared, fabric, job, columns, *states[rank], *out_keys[rank], *in_keys[rank], 0,
              pattern);
  }
};

}  // namespace sealring::cuda::test
