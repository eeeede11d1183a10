#include "sealring/study/bench_run.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "sealring/study/bench_memory.h"
#include "sealring/study/bench_values.h"
#include "sealring/study/statistics.h"

namespace sealring {
namespace {

/// A sample lasts at least about this long, so that the skew of leaving the barrier does not show at small
/// sizes.
constexpr double kSampleNs = 2e6;
constexpr unsigned kCallsMax = 64;
/// What a rank reports beside its samples.
constexpr std::size_t kTotals = 9;

/// An engine's totals when the samples of a size begin.
struct Before {
  Counters spent;
  std::uint64_t cpu_ns = 0;
};

class RankRun {
 public:
  RankRun(const BenchSpec& spec, const RankPlace& place, const BenchReporter& reporter)
      : spec_(spec), place_(place), reporter_(reporter) {}

  Result<void> connect(const JobKey& key) {
    SR_TRY(memory_, make_bench_memory(spec_, place_.local_rank));
    engines_.resize(spec_.cases.size());
    sealring_.resize(spec_.cases.size());
    for (std::size_t i = 0; i < spec_.cases.size(); ++i) {
      if (!spec_.cases[i].sealring()) continue;
      SR_TRY(auto engine, SealringEngine::make(spec_, spec_.cases[i], i, place_, key, memory_->runtime()));
      sealring_[i] = engine.get();
      engines_[i] = std::move(engine);
      if (meeting_ == nullptr) meeting_ = sealring_[i];
    }
    SR_CHECK(meeting_ != nullptr);
    for (std::size_t i = 0; i < spec_.cases.size(); ++i) {
      const BenchCase& bench_case = spec_.cases[i];
      if (bench_case.gloo) {
        SR_TRY(engines_[i], make_gloo_engine(spec_, place_));
      }
      if (bench_case.nccl) {
        SR_TRY(engines_[i], make_nccl_engine(spec_, *bench_case.nccl, *meeting_, *memory_->runtime()));
      }
    }
    if (place_.rank == 0 && reporter_.start) reporter_.start(sealring_);
    return {};
  }

  Result<void> run() {
    for (const std::uint64_t bytes : spec_.sizes_bytes) {
      const BenchSize size = bench_size(spec_, bytes);
      if (size.has_out_of_place) SR_TRY(run_size(size, false));
      if (size.has_in_place) SR_TRY(run_size(size, true));
    }
    return {};
  }

  Result<void> close() {
    for (SealringEngine* engine : sealring_) {
      if (engine != nullptr) SR_TRY(engine->session->close(Deadline::in(std::chrono::seconds(10))));
    }
    return {};
  }

 private:
  Result<BenchCall> call_on_memory(const BenchSize& size, bool in_place) {
    const std::uint64_t width = dtype_bytes(spec_.dtype);
    const std::uint64_t in_bytes = size.in_elements * width;
    SR_TRY(memory_->reserve(in_place ? 0 : in_bytes, std::max(in_bytes, size.out_elements * width)));
    host_.resize(in_bytes);
    fill_input(value_spec(), place_.rank, 0, host_);
    SR_TRY(memory_->write(in_place ? in_place_input(size) : memory_->in(), host_));
    return BenchCall{size, in_place, memory_->in(), memory_->out()};
  }

  std::byte* in_place_input(const BenchSize& size) {
    const std::uint64_t own = place_.rank * size.count * dtype_bytes(spec_.dtype);
    return spec_.op == Op::all_gather ? memory_->out() + own : memory_->out();
  }

  ValueSpec value_spec() const {
    const bool reduces =
        spec_.op == Op::all_reduce || spec_.op == Op::reduce || spec_.op == Op::reduce_scatter;
    return {spec_.seed, spec_.ranks, spec_.dtype, reduces ? spec_.redop : RedOp::none};
  }

  /// Wrong elements of this rank's output after one operation on fresh inputs.
  Result<std::uint64_t> check(Engine& engine, const BenchSize& size, bool in_place) {
    SR_TRY(const BenchCall call, call_on_memory(size, in_place));
    SR_TRY(engine.run(call, 1));
    if (spec_.graph) {  // the operation was run and captured, maybe in place: what is checked is one replay
      SR_TRY([[maybe_unused]] const BenchCall again, call_on_memory(size, in_place));
      SR_TRY(engine.run(call, 1));
    }
    const ValueSpec values = value_spec();
    const std::uint64_t piece = size.count * dtype_bytes(spec_.dtype);
    const bool reduce_scatter = spec_.op == Op::reduce_scatter;
    host_.resize(size.out_elements * dtype_bytes(spec_.dtype));
    SR_TRY(memory_->read(host_, call.out + (reduce_scatter && in_place ? place_.rank * piece : 0)));
    const auto at = [&](std::uint64_t index) { return std::span(host_.data() + index * piece, piece); };
    switch (spec_.op) {
      case Op::all_reduce:
        return count_wrong_reduced(values, 0, at(0));
      case Op::reduce:
        return place_.rank == spec_.root ? count_wrong_reduced(values, 0, at(0)) : 0;
      case Op::reduce_scatter:
        return count_wrong_reduced(values, place_.rank * size.count, at(0));
      case Op::broadcast:
        return count_wrong_input(values, spec_.root, 0, at(0));
      case Op::send:
        return count_wrong_input(values, static_cast<Rank>((place_.rank + spec_.ranks - 1u) % spec_.ranks), 0,
                                 at(0));
      default:
        break;
    }
    std::uint64_t wrong = 0;
    for (Rank from = 0; from < spec_.ranks; ++from) {
      const std::uint64_t first = spec_.op == Op::all_to_all ? place_.rank * size.count : 0;
      wrong += count_wrong_input(values, from, first, at(from));
    }
    return wrong;
  }

  /// Warms a case up and settles, alike on all ranks, how many operations make a sample.
  Result<unsigned> warm_up(Engine& engine, const BenchCall& call) {
    std::uint64_t least = ~0ull;
    for (unsigned i = 0; i < std::max(1u, spec_.warmup); ++i) {
      SR_TRY(const std::uint64_t ns, engine.run(call, 1));
      least = std::min(least, ns);
    }
    const double wanted = std::ceil(kSampleNs / static_cast<double>(std::max<std::uint64_t>(least, 1)));
    SR_TRY(const double calls, meeting_->from_rank_0(std::clamp(wanted, 1.0, double{kCallsMax})));
    return static_cast<unsigned>(calls);
  }

  Result<void> run_size(const BenchSize& size, bool in_place) {
    const std::size_t cases = engines_.size();
    std::vector<double> wrong(cases, -1), calls(cases, 1);
    std::vector<std::vector<double>> samples(cases);
    std::vector<Before> totals(cases);
    for (std::size_t i = 0; spec_.check && i < cases; ++i) {
      if (!engines_[i]->checkable()) continue;
      SR_TRY(const std::uint64_t elements, check(*engines_[i], size, in_place));
      wrong[i] = static_cast<double>(elements);
    }
    SR_TRY(const BenchCall call, call_on_memory(size, in_place));
    for (std::size_t i = 0; i < cases; ++i) {
      SR_TRY(const unsigned each, warm_up(*engines_[i], call));
      calls[i] = each;
      totals[i] = {engines_[i]->spent(), engines_[i]->cpu_ns()};
    }
    std::mt19937_64 order_source(spec_.seed ^ (size.size_bytes * 2 + (in_place ? 1 : 0)));
    std::vector<std::size_t> order(cases);
    for (std::size_t i = 0; i < cases; ++i) order[i] = i;
    for (unsigned sample = 0; sample < spec_.iterations; ++sample) {
      std::shuffle(order.begin(), order.end(), order_source);
      for (const std::size_t i : order) {
        SR_TRY(const std::uint64_t ns, engines_[i]->run(call, static_cast<unsigned>(calls[i])));
        samples[i].push_back(static_cast<double>(ns) / calls[i] / 1000);
      }
    }
    return collect(size, in_place, wrong, calls, samples, totals);
  }

  Result<void> collect(const BenchSize& size, bool in_place, const std::vector<double>& wrong,
                       const std::vector<double>& calls, const std::vector<std::vector<double>>& samples,
                       const std::vector<Before>& before) {
    std::vector<BenchRow> rows;
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      const Counters& now = engines_[i]->spent();
      const Counters& then = before[i].spent;
      const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
      std::vector<double> report{wrong[i],
                                 number(now.seals - then.seals),
                                 number(now.opens - then.opens),
                                 number(now.sealed_bytes - then.sealed_bytes),
                                 number(now.opened_bytes - then.opened_bytes),
                                 number(now.seal_ns - then.seal_ns),
                                 number(now.open_ns - then.open_ns),
                                 number(now.wire_ns - then.wire_ns),
                                 number(engines_[i]->cpu_ns() - before[i].cpu_ns)};
      report.insert(report.end(), samples[i].begin(), samples[i].end());
      SR_TRY(const std::vector<double> all, meeting_->gather(report));
      if (place_.rank != 0) continue;
      BenchRow row = combine(all, report.size(), calls[i]);
      row.size = size;
      row.case_index = i;
      row.in_place = in_place;
      row.algbw_gb_s = number(size.size_bytes) / (row.median_us * 1000);
      row.busbw_gb_s = row.algbw_gb_s * bus_factor(spec_.op, spec_.ranks);
      rows.push_back(std::move(row));
    }
    add_ratios(rows);
    for (const BenchRow& row : rows) reporter_.row(row);
    return {};
  }

  /// One row from the ranks' reports, which lie one after the other.
  BenchRow combine(const std::vector<double>& all, std::size_t each, double calls) const {
    BenchRow row;
    row.calls = static_cast<unsigned>(calls);
    const double operations = calls * spec_.iterations;
    double wrong = 0;
    const auto value = [&](std::size_t rank, std::size_t index) { return all[rank * each + index]; };
    for (std::size_t rank = 0; rank < spec_.ranks; ++rank) {
      wrong += value(rank, 0);
      row.seals = std::max(row.seals, value(rank, 1) / operations);
      row.opens = std::max(row.opens, value(rank, 2) / operations);
      row.sealed_bytes = std::max(row.sealed_bytes, value(rank, 3) / operations);
      row.opened_bytes = std::max(row.opened_bytes, value(rank, 4) / operations);
      row.seal_us += value(rank, 5) / operations / 1000 / spec_.ranks;
      row.open_us += value(rank, 6) / operations / 1000 / spec_.ranks;
      row.wire_us += value(rank, 7) / operations / 1000 / spec_.ranks;
      row.cpu_us += value(rank, 8) / operations / 1000 / spec_.ranks;
    }
    if (wrong >= 0) row.wrong = static_cast<std::uint64_t>(wrong);
    for (std::size_t sample = 0; sample < spec_.iterations; ++sample) {
      double slowest = 0;
      for (std::size_t rank = 0; rank < spec_.ranks; ++rank) {
        slowest = std::max(slowest, value(rank, kTotals + sample));
      }
      row.samples_us.push_back(slowest);
    }
    row.median_us = median(row.samples_us);
    row.mad_percent = 100 * median_absolute_deviation(row.samples_us) / row.median_us;
    return row;
  }

  static std::vector<double> ratios_of(const BenchRow& row, const BenchRow& base) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < row.samples_us.size(); ++i)
      ratios.push_back(row.samples_us[i] / base.samples_us[i]);
    return ratios;
  }

  void add_ratios(std::vector<BenchRow>& rows) const {
    const BenchRow *plain = nullptr, *nccl = nullptr;
    for (const BenchRow& row : rows) {
      const BenchCase& bench_case = spec_.cases[row.case_index];
      if (plain == nullptr && bench_case.sealring() && bench_case.suite == Suite::plain) plain = &row;
      if (bench_case.nccl && (nccl == nullptr || row.median_us < nccl->median_us)) nccl = &row;
    }
    for (BenchRow& row : rows) {
      if (plain != nullptr) row.ratio_to_plain = median(ratios_of(row, *plain));
      if (nccl == nullptr) continue;
      const std::vector<double> ratios = ratios_of(row, *nccl);
      row.ratio_to_nccl = median(ratios);
      row.nccl_interval = log_ratio_interval(ratios);
    }
  }

  const BenchSpec& spec_;
  const RankPlace& place_;
  const BenchReporter& reporter_;
  std::unique_ptr<BenchMemory> memory_;  ///< outlives the engines
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<SealringEngine*> sealring_;  ///< the same, nullptr for Gloo and NCCL
  SealringEngine* meeting_ = nullptr;      ///< carries the ranks' reports
  Bytes host_;
};

}  // namespace

Result<void> run_bench_rank(const BenchSpec& spec, const RankPlace& place, const JobKey& key,
                            const BenchReporter& reporter) {
  RankRun run(spec, place, reporter);
  SR_TRY(run.connect(key));
  SR_TRY(run.run());
  return run.close();
}

}  // namespace sealring
