#include "tests/collective/host_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sealring/crypto/aead.h"
#include "sealring/device/bulk_cipher.h"
#include "sealring/wire/nonce_sequence.h"
#include "sealring/wire/record.h"

namespace sealring::testing {

void HostWire::push(const Path& path, Bytes piece) {
  {
    const std::lock_guard lock(mutex_);
    pieces_[path].push_back(std::move(piece));
  }
  changed_.notify_all();
}

std::optional<Bytes> HostWire::pop(const Path& path, Deadline until, const std::function<bool()>& left) {
  std::unique_lock lock(mutex_);
  auto& waiting = pieces_[path];
  while (waiting.empty()) {
    if (left() || until.expired()) return std::nullopt;
    changed_.wait_for(lock, std::min(until.left(), std::chrono::milliseconds(50)));
  }
  Bytes out = std::move(waiting.front());
  waiting.pop_front();
  return out;
}

void HostWire::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

HostDevice::HostDevice(std::shared_ptr<HostWire> wire) : wire_(std::move(wire)) {
  worker_ = std::thread([this] { run(); });
}

HostDevice::~HostDevice() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

void HostDevice::enqueue(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void HostDevice::replay(const HostStream& stream) {
  for (const auto& work : stream.graph) enqueue(work);
}

void HostDevice::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !running_; });
}

DeviceGroup* HostDevice::group(std::size_t index) {
  const std::lock_guard lock(mutex_);
  return groups_.at(index);
}

std::vector<DeviceWireKind> HostDevice::wires_made() {
  const std::lock_guard lock(mutex_);
  return wires_;
}

void HostDevice::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    while (faults.stalled) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    work();
    work = nullptr;
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

/// One direction's keys and numbers, of the device's worker alone.
struct HostDirection {
  std::unique_ptr<KeySource> source;
  std::optional<Aead> aead;
  Epoch epoch = 0;
  Nonce iv{};
  std::unique_ptr<NonceSequence> numbers;
  std::uint64_t messages = 0;  ///< ops of kind send

  /// [protocol A.3] Both ends enter an epoch at the same record.
  Result<void> enter_epoch_if_due(Suite suite, const KeyBudget& budget) {
    if (numbers && !numbers->rotation_due()) return {};
    const EpochKey key = source->next();
    SR_TRY(Aead next, Aead::make(suite, key.key.view()));
    aead.emplace(std::move(next));
    epoch = key.epoch;
    std::copy_n(key.iv.data(), iv.size(), iv.begin());
    numbers = std::make_unique<NonceSequence>(budget);
    return {};
  }
};

class HostGroup final : public DeviceGroup {
 public:
  HostGroup(HostDevice& device, const DeviceGroupConfig& config, DeviceGroupKeys keys)
      : device_(device), config_(config), to_(config.members.size()), from_(config.members.size()) {
    for (std::size_t i = 0; i < config.members.size(); ++i) {
      to_[i].source = std::move(keys.to[i]);
      from_[i].source = std::move(keys.from[i]);
    }
    const std::lock_guard lock(device_.mutex_);
    index_ = device_.groups_.size();
    device_.groups_.push_back(this);
    device_.wires_.push_back(config.wire);
  }
  ~HostGroup() override {
    device_.drain();
    const std::lock_guard lock(device_.mutex_);
    device_.groups_[index_] = nullptr;
  }

  Result<Bytes> offer() override {
    if (device_.faults.bad_offer) return Bytes(kOfferBytesMax, std::byte{0x5a});
    return offer_of(config_.rank);
  }
  Result<void> connect(std::span<const Bytes> offers, Deadline) override {
    if (device_.faults.unmappable.contains(config_.wire))
      return fail(Code::gpu_unsupported, "host.connect",
                  std::string(to_string(config_.wire)) + " windows cannot be mapped here");
    for (std::size_t i = 0; i < config_.members.size(); ++i) {
      if (offers[i] != offer_of(static_cast<Rank>(i)))
        return fail(Code::malformed, "host.connect", "an offer that no rank makes");
    }
    return {};
  }

  Result<void> begin(const DeviceOp& op, Stream& stream) override {
    auto* const native = static_cast<HostStream*>(stream.native);
    capture_ = native != nullptr && native->captured ? native : nullptr;
    run([this, op] { start(op); });
    return {};
  }
  Result<void> exchange(std::span<const DeviceSend> sends, std::span<const DeviceRecv> recvs,
                        DeviceStepRules rules) override {
    if (device_.faults.refuse_exchange) return fail(Code::cuda, "host.exchange", "nothing can be enqueued");
    run([this, out = std::vector(sends.begin(), sends.end()), in = std::vector(recvs.begin(), recvs.end()),
         rules] {
      if (!alive()) return;
      for (const DeviceSend& move : out) note(seal(move));
      if (alive()) note(receive(in, rules));
    });
    return {};
  }
  Result<std::byte*> scratch(std::uint64_t bytes) override {
    if (scratch_.empty() || scratch_.back().size() < bytes) scratch_.emplace_back(bytes);
    return scratch_.back().data();  // older ones may still be in use
  }
  Result<void> copy(DType dtype, const std::byte* from, std::byte* to, std::uint64_t elements,
                    double scale) override {
    run([this, dtype, from, to, elements, scale] {
      if (alive()) note(scaled(dtype, from, to, elements, scale));
    });
    return {};
  }
  Result<std::uint64_t> end(DType dtype, std::span<std::byte> output) override {
    const std::uint64_t serial = capture_ == nullptr ? ++serial_ : 0;
    run([this, dtype, output, serial] {
      if (!alive()) poison(dtype, output);
      if (serial != 0) finished_ = serial;
    });
    return serial;
  }

  Result<DeviceProgress> progress() override { return DeviceProgress{finished_}; }
  Result<void> verdict() override {
    const std::lock_guard lock(mutex_);
    if (error_) return fail(*error_);
    return {};
  }
  void abort() noexcept override {
    if (!aborted_.exchange(true)) ++device_.aborts_;
    device_.wire().wake();
  }
  DeviceGroupCounters counters() const override {
    return {seals_, opens_, sealed_segments_, opened_segments_, sealed_bytes_, opened_bytes_};
  }
  Stream own_stream() const override { return {}; }
  std::string describe() const override {
    return std::string(to_string(config_.wire)) + " in host memory, double";
  }

 private:
  static constexpr std::uint32_t kSegmentBytes = 1024;

  Bytes offer_of(Rank rank) const {
    ByteWriter out;
    return out.put(as_bytes("HOST")).put(static_cast<std::uint8_t>(config_.wire)).put(rank).take();
  }
  void run(std::function<void()> work) {
    if (capture_ != nullptr) return capture_->graph.push_back(std::move(work));
    device_.enqueue(std::move(work));
  }

  // ---- the worker's side ----

  /// False once the verdict is set: nothing is sealed or released any more.
  bool alive() {
    if (aborted_) note(fail(Code::aborted, "device.op", "the group was aborted"));
    const std::lock_guard lock(mutex_);
    return !error_.has_value();
  }
  void note(Result<void> result) {
    const std::lock_guard lock(mutex_);
    if (!result && !error_) error_ = std::move(result).error();
  }
  void start(const DeviceOp& op) {
    if (const int delay = device_.faults.delay_us; delay > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
    op_ = op;
    if (op.op != Op::send) ++seq_;
  }

  static Result<void> scaled(DType dtype, const std::byte* from, std::byte* to, std::uint64_t elements,
                             double scale) {
    if (elements == 0) return {};
    if (scale == 1.0) {
      std::memmove(to, from, elements * dtype_bytes(dtype));
      return {};
    }
    ReduceJob job;
    job.dtype = dtype;
    job.redop = RedOp::premul_sum;
    job.sources = std::span(&from, 1);
    job.dst = to;
    job.elements = elements;
    job.scale = scale;
    return reduce_cpu(job);
  }

  RecordContext context(std::uint16_t step, std::uint64_t elements, HostDirection& direction) {
    RecordContext out;
    out.suite = config_.suite;
    out.epoch = direction.epoch;
    std::memcpy(out.th3.data(), config_.th3.data(), out.th3.size());
    std::memcpy(out.group_id.data(), config_.group_id.data(), out.group_id.size());
    out.seq = op_.op == Op::send ? direction.messages++ : seq_;
    out.op = op_.op;
    out.redop = op_.redop;
    out.dtype = op_.dtype;
    out.algorithm = op_.algorithm;
    out.root = op_.root;
    out.step = step;
    out.tag = op_.tag;
    out.elements = op_.op == Op::send ? elements : op_.elements;
    out.group_size = static_cast<std::uint16_t>(config_.members.size());
    return out;
  }
  static void at_segment(RecordContext& context, const RecordLayout& layout, std::uint32_t segment,
                         std::uint64_t element_offset) {
    context.segment = segment;
    context.segments = layout.segments();
    context.payload_bytes = layout.payload_of(segment);
    context.element_offset = element_offset + layout.payload_offset(segment) / dtype_bytes(context.dtype);
  }

  Result<void> seal(const DeviceSend& move) {
    HostDirection& direction = to_[move.peer];
    const std::uint64_t bytes = move.elements * dtype_bytes(op_.dtype);
    const RecordLayout layout = RecordLayout::of(bytes, kSegmentBytes);
    Bytes plain(bytes);
    SR_TRY(scaled(op_.dtype, move.data, plain.data(), move.elements, move.scale));
    SR_TRY(direction.enter_epoch_if_due(config_.suite, config_.budget));
    SR_TRY(SealPermit permit, direction.numbers->take(layout.segments(), bytes));
    RecordContext context = this->context(move.step, move.elements, direction);
    context.sender = config_.members[config_.rank];
    context.receiver = config_.members[move.peer];
    for (std::uint32_t segment = 0; segment < layout.segments(); ++segment) {
      at_segment(context, layout, segment, move.element_offset);
      const Aad aad = aad_of(context);
      Bytes piece(context.payload_bytes + kTagBytes);
      const ByteView in(plain.data() + layout.payload_offset(segment), context.payload_bytes);
      SR_TRY(const Tag tag,
             direction.aead->seal(nonce_of(direction.iv, permit.spend()), std::as_bytes(std::span(aad)), in,
                                  std::span(piece).first(in.size())));
      std::copy(tag.begin(), tag.end(), piece.end() - static_cast<std::ptrdiff_t>(kTagBytes));
      if (device_.faults.flip_in >= 0 && device_.faults.flip_in-- == 0)
        piece[piece.size() / 2] ^= std::byte{8};
      if (device_.faults.lossy.contains(config_.wire)) continue;
      device_.wire().push({config_.group_id, context.sender, context.receiver}, std::move(piece));
    }
    ++seals_;
    sealed_segments_ += layout.segments();
    sealed_bytes_ += bytes;
    return {};
  }

  Result<Bytes> open(const DeviceRecv& move) {
    HostDirection& direction = from_[move.peer];
    const std::uint64_t bytes = move.elements * dtype_bytes(op_.dtype);
    const RecordLayout layout = RecordLayout::of(bytes, kSegmentBytes);
    SR_TRY(direction.enter_epoch_if_due(config_.suite, config_.budget));
    SR_TRY(std::uint64_t number, direction.numbers->advance(layout.segments(), bytes));
    RecordContext context = this->context(move.step, move.elements, direction);
    context.sender = config_.members[move.peer];
    context.receiver = config_.members[config_.rank];
    Bytes plain(bytes);
    for (std::uint32_t segment = 0; segment < layout.segments(); ++segment) {
      at_segment(context, layout, segment, move.element_offset);
      const Aad aad = aad_of(context);
      const auto piece =
          device_.wire().pop({config_.group_id, context.sender, context.receiver},
                             Deadline::in(config_.timeout), [this] { return aborted_.load(); });
      if (!piece && aborted_) return fail(Code::aborted, "device.open", "the group was aborted");
      if (!piece) return fail(Code::timeout, "device.open", "a record did not come");
      if (piece->size() != context.payload_bytes + kTagBytes)
        return fail(Code::data_tag, "device.open", "a record of another size");
      Tag tag;
      std::copy_n(piece->end() - static_cast<std::ptrdiff_t>(kTagBytes), kTagBytes, tag.begin());
      SR_TRY(direction.aead->open(
          nonce_of(direction.iv, number++), std::as_bytes(std::span(aad)),
          ByteView(*piece).first(context.payload_bytes), tag,
          std::span(plain).subspan(layout.payload_offset(segment), context.payload_bytes)));
    }
    ++opens_;
    opened_segments_ += layout.segments();
    opened_bytes_ += bytes;
    return plain;
  }

  /// All records of the step are opened before one is combined, so memory that is sent is never overwritten.
  Result<void> receive(std::vector<DeviceRecv> moves, DeviceStepRules rules) {
    std::vector<std::pair<DeviceRecv, Bytes>> opened;
    for (const DeviceRecv& move : moves) {
      SR_TRY(Bytes plain, open(move));
      opened.emplace_back(move, std::move(plain));
    }
    std::stable_sort(opened.begin(), opened.end(), [](const auto& a, const auto& b) {
      return std::make_pair(a.first.dst, a.first.peer) < std::make_pair(b.first.dst, b.first.peer);
    });
    for (std::size_t i = 0; i < opened.size();) {
      std::size_t next = i + 1;
      while (rules.ordered && next < opened.size() && opened[next].first.dst == opened[i].first.dst) ++next;
      SR_TRY(combine(std::span(opened).subspan(i, next - i), rules));
      i = next;
    }
    return {};
  }

  Result<void> combine(std::span<const std::pair<DeviceRecv, Bytes>> records, DeviceStepRules rules) {
    const DeviceRecv& move = records[0].first;
    if (move.elements == 0) return {};
    if (move.local == nullptr) {
      std::memcpy(move.dst, records[0].second.data(), records[0].second.size());
      return {};
    }
    Bytes local(records[0].second.size());
    SR_TRY(scaled(op_.dtype, move.local, local.data(), move.elements, move.local_scale));
    std::vector<const std::byte*> sources;
    bool placed = !rules.ordered;
    if (placed) sources.push_back(local.data());
    for (const auto& [from, plain] : records) {
      if (!placed && from.peer > config_.rank) {
        sources.push_back(local.data());
        placed = true;
      }
      sources.push_back(plain.data());
    }
    if (!placed) sources.push_back(local.data());
    ReduceJob job;
    job.dtype = op_.dtype;
    job.redop = op_.redop == RedOp::premul_sum || op_.redop == RedOp::avg ? RedOp::sum : op_.redop;
    job.sources = sources;
    job.dst = move.dst;
    job.elements = move.elements;
    job.divisor = move.divisor;
    return reduce_cpu(job);
  }

  HostDevice& device_;
  const DeviceGroupConfig config_;
  std::size_t index_ = 0;
  HostStream* capture_ = nullptr;
  std::uint64_t serial_ = 0;
  std::vector<HostDirection> to_, from_;
  DeviceOp op_;
  std::uint64_t seq_ = 0;
  std::deque<Bytes> scratch_;
  std::atomic<std::uint64_t> finished_{0};
  std::atomic<bool> aborted_{false};
  std::atomic<std::uint64_t> seals_{0}, opens_{0}, sealed_segments_{0}, opened_segments_{0}, sealed_bytes_{0},
      opened_bytes_{0};
  std::mutex mutex_;
  std::optional<Error> error_;
};

DeviceGroupFactory HostDevice::factory() {
  return
      [this](const DeviceGroupConfig& config, DeviceGroupKeys keys) -> Result<std::unique_ptr<DeviceGroup>> {
        return std::make_unique<HostGroup>(*this, config, std::move(keys));
      };
}

}  // namespace sealring::testing
