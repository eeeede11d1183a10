// A group of ranks on one device, in one process: their keys, streams and groups, and the executor's walk of
// a schedule over a DeviceGroup.
#pragma once

#include <cstdlib>
#include <thread>

#include "sealring/collective/schedule.h"
#include "sealring/device/cuda/cuda_group.h"
#include "sealring/device/cuda/window_wire.h"
#include "tests/gpu/gpu_rig.h"

namespace sealring::cuda::test {

/// The keys of one direction of a pair, which both ends make alike.
class PairChain final : public KeySource {
 public:
  PairChain(Suite suite, Rank from, Rank to) : suite_(suite), seed_(1000u * from + to) {}
  Epoch next_epoch() const override { return next_; }
  EpochKey next() override {
    std::mt19937_64 random(seed_ + 1'000'000u * next_);
    const Bytes key = random_bytes(random, suite_key_bytes(suite_));
    return EpochKey{next_++, secret(key), secret(random_bytes(random, kNonceBytes))};
  }

 private:
  Suite suite_;
  std::uint64_t seed_;
  Epoch next_ = 0;
};

/// One collective as all ranks call it.
struct GroupCall {
  Op op = Op::all_reduce;
  Algorithm algorithm = Algorithm::one_shot;
  RedOp redop = RedOp::sum;
  DType dtype = DType::f32;
  std::uint64_t elements = 0;
  Rank root = 0;
  double factor = 1.0;
  bool in_place = false;
  std::size_t shift = 0;  ///< of the memory, in bytes

  bool reduces() const { return op == Op::all_reduce || op == Op::reduce_scatter || op == Op::reduce; }
  /// Elements of a rank's input and output.
  std::uint64_t in_elements(Rank rank, std::uint32_t world) const {
    if (op == Op::barrier || (op == Op::scatter && rank != root)) return 0;
    return op == Op::reduce_scatter || op == Op::all_to_all || op == Op::scatter ? elements * world
                                                                                 : elements;
  }
  std::uint64_t out_elements(Rank rank, std::uint32_t world) const {
    if (op == Op::barrier || ((op == Op::reduce || op == Op::gather) && rank != root)) return 0;
    return op == Op::all_gather || op == Op::all_to_all || op == Op::gather ? elements * world : elements;
  }
};

/// Walks the schedule as collective/executor.cc does.
inline Result<std::uint64_t> run_call(DeviceGroup& group, const GroupCall& call, Rank rank,
                                      std::uint32_t world, const std::byte* in, std::byte* out,
                                      cudaStream_t native) {
  const std::uint32_t size = dtype_bytes(call.dtype);
  const bool premul = call.redop == RedOp::premul_sum;
  const Schedule schedule = make_schedule(ScheduleRequest{
      call.op, call.algorithm, rank, static_cast<std::uint16_t>(world), call.elements, call.root, false});
  Stream stream{native};
  const bool rooted =
      call.op == Op::broadcast || call.op == Op::reduce || call.op == Op::gather || call.op == Op::scatter;
  SR_TRY(group.begin(DeviceOp{call.op, call.reduces() ? call.redop : RedOp::none, call.dtype, call.algorithm,
                              rooted ? call.root : kNoRoot, call.elements, 0},
                     stream));
  SR_TRY(std::byte* const scratch, group.scratch(schedule.scratch_elements * size));
  const auto read = [&](const Range& range) -> const std::byte* {
    const std::byte* const base = range.buffer == Buffer::input    ? in
                                  : range.buffer == Buffer::output ? out
                                                                   : scratch;
    return base + range.offset * size;
  };
  const auto write = [&](const Range& range) {
    return (range.buffer == Buffer::scratch ? scratch : out) + range.offset * size;
  };
  for (const Copy& copy : schedule.before)
    SR_TRY(group.copy(call.dtype, read(copy.from), write(copy.to), copy.from.elements,
                      copy.scale && premul ? call.factor : 1.0));
  std::uint16_t index = 0;
  for (const Step& step : schedule.steps) {
    std::vector<DeviceSend> sends;
    std::vector<DeviceRecv> recvs;
    for (const Move& move : step.sends)
      sends.push_back({move.peer, index, read(move.data), move.data.elements, move.element_offset,
                       move.raw && premul ? call.factor : 1.0});
    for (const Move& move : step.recvs) {
      DeviceRecv recv{move.peer, index, write(move.data), move.data.elements, move.element_offset, nullptr,
                      1.0,       1};
      if (step.combine != Combine::replace) {
        recv.local = read(move.local);
        recv.local_scale = move.raw && premul ? call.factor : 1.0;
        recv.divisor = move.last && call.redop == RedOp::avg ? world : 1;
      }
      recvs.push_back(recv);
    }
    SR_TRY(group.exchange(sends, recvs, {step.combine == Combine::ordered, step.lockstep}));
    ++index;
  }
  return group.end(call.dtype, {out, call.out_elements(rank, world) * size});
}

struct GroupOptions {
  std::uint32_t world = 2;
  Suite suite = Suite::chacha20_poly1305;
  bool fused = true;
  KeyBudget budget;
  std::chrono::nanoseconds timeout = std::chrono::seconds(5);
};

class GroupGpu : public OnGpu {
 protected:
  void TearDown() override { close(); }
  void open(const GroupOptions& options) {
    close();
    options_ = options;
    if (std::getenv("SR_TEST_SANITIZER") != nullptr) options_.timeout *= 50;
    std::vector<Bytes> offers;
    for (Rank rank = 0; rank < options_.world; ++rank) {
      DeviceGroupConfig config;
      config.suite = options_.suite;
      config.fused = options_.fused;
      config.rank = rank;
      for (Rank i = 0; i < options_.world; ++i) config.members.push_back(static_cast<Rank>(3 * i + 1));
      config.budget = options_.budget;
      config.timeout = options_.timeout;
      config.wire = DeviceWireKind::local;
      DeviceGroupKeys keys;
      for (Rank peer = 0; peer < options_.world; ++peer) {
        const bool mine = peer == rank;
        keys.to.push_back(mine ? nullptr : std::make_unique<PairChain>(options_.suite, rank, peer));
        keys.from.push_back(mine ? nullptr : std::make_unique<PairChain>(options_.suite, peer, rank));
      }
      auto made = CudaGroup::make(config, std::move(keys));
      ASSERT_TRUE(made) << made.error().message();
      groups.push_back(std::move(*made));
      auto offer = groups.back()->offer();
      ASSERT_TRUE(offer) << offer.error().message();
      ASSERT_LE(offer->size(), DeviceGroup::kOfferBytesMax);
      offers.push_back(std::move(*offer));
      // Made once for all tests: see lent_stream.h.
      static cudaStream_t made_once[kGroupRanksMax] = {};
      cudaStream_t& stream = made_once[rank];
      if (stream == nullptr) {
        ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
      }
      streams.push_back(stream);
    }
    for (auto& group : groups) {
      const auto connected = group->connect(offers, Deadline::in(std::chrono::seconds(5)));
      ASSERT_TRUE(connected) << connected.error().message();
    }
  }
  void close() {
    if (!groups.empty()) cudaDeviceSynchronize();  // nobody writes into a window that is freed
    groups.clear();
    streams.clear();
    in_.clear();
    out_.clear();
  }
  std::uint32_t world() const { return options_.world; }

  /// Small whole numbers, so that every order of a sum or product gives the same bits; or, with `any_order`
  /// false, any finite ones.
  Bytes numbers(const GroupCall& call, std::uint64_t elements, bool any_order) {
    const std::size_t size = dtype_bytes(call.dtype);
    Bytes out = random_bytes(random, elements * size);
    if (!any_order) {
      for (std::size_t at = size - 1; dtype_is_float(call.dtype) && at < out.size(); at += size)
        out[at] &= std::byte{0xBB};
      for (std::byte& value : out) {
        if (call.dtype == DType::boolean) value &= std::byte{1};
      }
      return out;
    }
    for (std::uint64_t i = 0; i < elements; ++i) put_small(call.dtype, out.data() + i * size, random() % 4);
    return out;
  }

  void prepare(const GroupCall& call) {
    inputs.clear();
    in_.clear();
    out_.clear();
    for (Rank rank = 0; rank < world(); ++rank) {
      inputs.push_back(numbers(call, call.in_elements(rank, world()), call.algorithm == Algorithm::ring));
      const std::uint64_t size = dtype_bytes(call.dtype), out_bytes = call.out_elements(rank, world()) * size;
      out_.push_back(std::make_unique<DeviceMemory>(std::max(out_bytes, inputs[rank].size()), call.shift));
      in_.push_back(std::make_unique<DeviceMemory>(inputs[rank].size(), call.shift));
      if (call.in_place)
        out_[rank]->set(inputs[rank]);
      else
        in_[rank]->set(inputs[rank]);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  Result<std::uint64_t> enqueue(const GroupCall& call, Rank rank) {
    const std::byte* const in = call.in_place ? out_[rank]->data() : in_[rank]->data();
    return run_call(*groups[rank], call, rank, world(), in, out_[rank]->data(), streams[rank]);
  }
  /// All ranks, each from a thread of its own.
  void run(const GroupCall& call) {
    std::vector<std::thread> threads;
    std::vector<std::string> errors(world());
    for (Rank rank = 0; rank < world(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto serial = enqueue(call, rank);
        if (!serial) errors[rank] = serial.error().message();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) ASSERT_EQ(error, "");
    for (const cudaStream_t stream : streams) ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }
  Bytes output(const GroupCall& call, Rank rank) {
    Bytes out = out_[rank]->get();
    out.resize(call.out_elements(rank, world()) * dtype_bytes(call.dtype));
    return out;
  }
  Code verdict(Rank rank) {
    const auto found = groups[rank]->verdict();
    return found ? Code::ok : found.error().code;
  }

  /// What the CPU gives.
  Bytes expected(const GroupCall& call, Rank rank) {
    const std::size_t piece = call.elements * dtype_bytes(call.dtype);
    const auto part = [&](Rank of, std::size_t index) {
      return Bytes(inputs[of].begin() + static_cast<std::ptrdiff_t>(index * piece),
                   inputs[of].begin() + static_cast<std::ptrdiff_t>((index + 1) * piece));
    };
    Bytes out;
    if (call.out_elements(rank, world()) == 0) return out;
    if (call.reduces()) return reduced(call, call.op == Op::reduce_scatter ? rank : 0);
    if (call.op == Op::broadcast) return inputs[call.root];
    if (call.op == Op::scatter) return part(call.root, rank);
    for (Rank from = 0; from < world(); ++from) {
      const Bytes next = call.op == Op::all_to_all ? part(from, rank) : inputs[from];
      out.insert(out.end(), next.begin(), next.end());
    }
    return out;
  }
  void expect_right(const GroupCall& call) {
    for (Rank rank = 0; rank < world(); ++rank) {
      const auto found = groups[rank]->verdict();
      ASSERT_TRUE(found) << found.error().message() << text(call);
      ASSERT_TRUE(output(call, rank) == expected(call, rank)) << text(call) << " rank " << rank;
    }
  }
  void expect_poison(const GroupCall& call, Rank rank) {
    const Bytes found = output(call, rank);
    Bytes poisoned(found.size());
    poison(call.dtype, poisoned);
    EXPECT_TRUE(found == poisoned) << "rank " << rank;
  }
  void run_and_expect(const GroupCall& call) {
    ASSERT_NO_FATAL_FAILURE(prepare(call));
    ASSERT_NO_FATAL_FAILURE(run(call)) << text(call);
    ASSERT_NO_FATAL_FAILURE(expect_right(call));
  }
  std::string text(const GroupCall& call) const {
    return " " + std::string(to_string(call.op)) + " " + std::string(to_string(call.algorithm)) + " " +
           std::string(to_string(call.redop)) + " " + std::string(to_string(call.dtype)) + " x " +
           std::to_string(call.elements) + (call.in_place ? " in place" : "") + ", " +
           std::to_string(world()) + " ranks, " + std::string(to_string(options_.suite));
  }
  WindowWire& wire(Rank rank) { return dynamic_cast<WindowWire&>(*groups[rank]->wire()); }

  std::mt19937_64 random{21};
  std::vector<std::unique_ptr<CudaGroup>> groups;
  std::vector<cudaStream_t> streams;
  std::vector<Bytes> inputs;
  std::vector<std::unique_ptr<DeviceMemory>> in_, out_;

 private:
  static Bytes reduced_by(ReduceJob job) {
    Bytes out(job.elements * dtype_bytes(job.dtype));
    job.dst = out.data();
    EXPECT_TRUE(reduce_cpu(job));
    return out;
  }
  Bytes reduced(const GroupCall& call, std::size_t index) {
    const std::size_t piece = call.elements * dtype_bytes(call.dtype);
    ReduceJob job;
    job.dtype = call.dtype;
    job.elements = call.elements;
    std::vector<Bytes> scaled;
    std::vector<const std::byte*> sources;
    for (const Bytes& input : inputs) sources.push_back(input.data() + index * piece);
    if (call.redop == RedOp::premul_sum) {  // each input is rounded to the type before it is sealed
      job.redop = RedOp::premul_sum;
      job.scale = call.factor;
      for (const std::byte*& source : sources) {
        job.sources = {&source, 1};
        scaled.push_back(reduced_by(job));
      }
      for (std::size_t i = 0; i < scaled.size(); ++i) sources[i] = scaled[i].data();
    }
    job.redop = call.redop == RedOp::premul_sum ? RedOp::sum : call.redop;
    job.scale = 1.0;
    job.sources = sources;
    job.divisor = call.redop == RedOp::avg ? world() : 1;
    return reduced_by(job);
  }
  template <DType D>
  static void put(std::byte* at, int value) {
    using Element = reductions::Element<D>;
    const auto stored = Element::narrow(static_cast<typename Element::Value>(value));
    std::memcpy(at, &stored, sizeof stored);
  }
  static void put_small(DType dtype, std::byte* at, std::uint64_t choice) {
    constexpr int kSmall[] = {1, 2, -1, -2};
    const int value = dtype == DType::boolean ? static_cast<int>(choice % 2) : kSmall[choice];
    switch (dtype) {
      case DType::f32:
        return put<DType::f32>(at, value);
      case DType::f64:
        return put<DType::f64>(at, value);
      case DType::f16:
        return put<DType::f16>(at, value);
      case DType::bf16:
        return put<DType::bf16>(at, value);
      case DType::i8:
        return put<DType::i8>(at, value);
      case DType::i16:
        return put<DType::i16>(at, value);
      case DType::i32:
        return put<DType::i32>(at, value);
      case DType::i64:
        return put<DType::i64>(at, value);
      case DType::u8:
      case DType::boolean:
        return put<DType::u8>(at, value);
    }
  }

  GroupOptions options_;
};

}  // namespace sealring::cuda::test
