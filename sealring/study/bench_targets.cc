#include "sealring/study/bench_targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sealring/study/bench_table.h"
#include "sealring/study/bench_values.h"
#include "sealring/study/cases.h"
#include "sealring/study/cipher_rate.h"

namespace sealring {
namespace {

using nlohmann::json;

constexpr std::uint64_t kSmallBytes = 4096;
constexpr std::uint64_t kMib = 1u << 20;
constexpr unsigned kWorkers = 2;
constexpr std::uint64_t kMemoryProbeBytes = 64 * kMib;
constexpr std::uint64_t kRateBytesMax = 64 * kMib;
constexpr unsigned kSamples = 4;
constexpr unsigned kSmallCalls = 256;

class TargetsRun {
 public:
  TargetsRun(const BenchSpec& spec, const RankPlace& place, const JobKey& key)
      : spec_(spec), place_(place), key_(key) {}

  Result<TargetsResult> run() {
    const std::vector<unsigned> share = usable_cpus();
    SR_TRY(pin_process({share[0]}));  // threads and children made from now on stay on this core
    SR_TRY(measure_memory());
    SR_TRY(add_engine({.gloo = false, .suite = Suite::plain, .algorithm = {}}));
    if (!spec_.python.empty()) SR_TRY(add_engine({.gloo = true, .suite = Suite::plain, .algorithm = {}}));
    for (const std::uint64_t bytes : target_sizes(spec_)) SR_TRY(run_size(bytes));
    if (share.size() > kWorkers) {
      SR_TRY(pin_process(share));
      engines_.clear();
      spec_.workers = kWorkers;
      SR_TRY(add_engine({.gloo = false, .suite = Suite::aes_256_gcm, .algorithm = {}}));
      SR_TRY(add_engine({.gloo = false, .suite = Suite::plain, .algorithm = {}}));
      SR_TRY(run_size(std::min(kMemoryProbeBytes, target_sizes(spec_).back())));
    }
    result_.rows = judge_targets(spec_, result_.sizes, result_.memory_mib);
    return std::move(result_);
  }

 private:
  Result<void> add_engine(const BenchCase& bench_case) {
    if (bench_case.gloo) {
      SR_TRY(auto engine, make_gloo_engine(spec_, place_));
      engines_.push_back(std::move(engine));
      return {};
    }
    SR_TRY(auto engine, SealringEngine::make(spec_, bench_case, next_session_++, place_, key_, nullptr));
    if (engines_.empty()) meeting_ = engine.get();
    engines_.push_back(std::move(engine));
    return {};
  }

  BenchCall call_of(std::uint64_t bytes) {
    const BenchSize size = bench_size(spec_, bytes);
    memory_.resize(size.size_bytes);
    fill_input({spec_.seed, spec_.ranks, spec_.dtype, spec_.redop}, place_.rank, 0, memory_);
    return BenchCall{size, true, nullptr, memory_.data()};
  }

  /// The sealed session is made first and alone, so that what the process grows by is its memory.
  Result<void> measure_memory() {
    const BenchCall call = call_of(std::min(kMemoryProbeBytes, target_sizes(spec_).back()));
    const std::uint64_t before = resident_bytes();
    reset_peak_resident();
    SR_TRY(add_engine({.gloo = false, .suite = Suite::aes_256_gcm, .algorithm = {}}));
    SR_TRY(engines_[0]->run(call, 2));
    const double mib =
        static_cast<double>(peak_resident_bytes() - std::min(before, peak_resident_bytes())) / kMib;
    SR_TRY(const std::vector<double> all, meeting_->gather({mib}));
    if (place_.rank == 0) result_.memory_mib = *std::max_element(all.begin(), all.end());
    return {};
  }

  /// Engines stand in the order sealed, plain, Gloo.
  Result<void> run_size(std::uint64_t bytes) {
    const BenchCall call = call_of(bytes);
    const unsigned calls = bytes == kSmallBytes ? kSmallCalls : 1;
    TargetBlocks out;
    out.size_bytes = bytes;
    out.workers = spec_.workers;
    for (auto& engine : engines_) SR_TRY(engine->run(call, std::min(calls, 2u)));
    for (std::uint32_t block = 0; block < spec_.target_blocks; ++block) {
      std::vector<std::vector<double>> samples(engines_.size());
      for (unsigned sample = 0; sample < kSamples; ++sample) {
        const std::string name = fmt::format("targets/{}/{}/{}", bytes, block, sample);
        for (const std::size_t i : block_order(spec_.seed, name, engines_.size())) {
          SR_TRY(const std::uint64_t ns, engines_[i]->run(call, calls));
          SR_TRY(const std::vector<double> all, meeting_->gather({static_cast<double>(ns) / calls / 1000}));
          if (place_.rank == 0) samples[i].push_back(*std::max_element(all.begin(), all.end()));
        }
      }
      if (place_.rank == 0) {
        out.sealed_us.push_back(median(samples[0]));
        out.plain_us.push_back(median(samples[1]));
        if (samples.size() > 2) out.gloo_us.push_back(median(samples[2]));
        if (bytes != kSmallBytes) SR_TRY(add_rates(out));
      }
      SR_TRY(meeting_->wait(meeting_->communicator->barrier()));
    }
    if (place_.rank == 0) result_.sizes.push_back(std::move(out));
    return {};
  }

  /// Rank 0's core alone; the other ranks wait in a barrier.
  Result<void> add_rates(TargetBlocks& out) {
    CipherRateSpec rate_spec;
    rate_spec.segment_bytes = spec_.segment_bytes;
    rate_spec.total_bytes = std::min(out.size_bytes, kRateBytesMax);
    rate_spec.least_ns = 50'000'000;
    SR_TRY(const CipherRate rate, measure_cipher_rate(rate_spec));
    out.seal_gb_s.push_back(rate.seal_gb_s);
    out.open_gb_s.push_back(rate.open_gb_s);
    return {};
  }

  BenchSpec spec_;
  const RankPlace& place_;
  const JobKey& key_;
  std::vector<std::unique_ptr<Engine>> engines_;
  SealringEngine* meeting_ = nullptr;
  std::size_t next_session_ = 0;
  Bytes memory_;
  TargetsResult result_;
};

std::vector<double> ratios(const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> out;
  for (std::size_t i = 0; i < std::min(above.size(), below.size()); ++i) out.push_back(above[i] / below[i]);
  return out;
}

TargetRow target(const std::string& name, std::uint64_t size_bytes, bool at_most, double limit,
                 const std::vector<double>& block_ratios) {
  TargetRow row;
  row.name = name;
  row.size_bytes = size_bytes;
  row.at_most = at_most;
  row.limit = limit;
  if (block_ratios.empty()) {
    row.verdict = Verdict::not_run;
    return row;
  }
  row.ratio = summarize_ratios(block_ratios);
  row.verdict = at_most ? judge_at_most(row.ratio, limit) : judge_at_least(row.ratio, limit);
  return row;
}

/// own plain time + S / seal rate + S / open rate, block by block.
std::vector<double> predicted_us(const TargetBlocks& blocks) {
  std::vector<double> out;
  const double bytes = static_cast<double>(blocks.size_bytes);
  for (std::size_t i = 0; i < blocks.seal_gb_s.size(); ++i) {
    out.push_back(blocks.plain_us[i] + bytes / blocks.seal_gb_s[i] / 1000 +
                  bytes / blocks.open_gb_s[i] / 1000);
  }
  return out;
}

json to_json(const TargetRow& row) {
  json out{{"name", row.name},
           {"size_bytes", row.size_bytes},
           {"at_most", row.at_most},
           {"limit", row.limit},
           {"ratio", nullptr},
           {"interval", nullptr},
           {"blocks", row.ratio.blocks},
           {"verdict", std::string(to_string(row.verdict))},
           {"note", row.note}};
  if (row.verdict != Verdict::not_run) out["ratio"] = row.ratio.ratio;
  if (row.ratio.interval) out["interval"] = {row.ratio.interval->low, row.ratio.interval->high};
  return out;
}

}  // namespace

std::vector<std::uint64_t> target_sizes(const BenchSpec& spec) {
  std::vector<std::uint64_t> out{kSmallBytes};
  const std::uint64_t most = spec.sizes_bytes.empty() ? 256 * kMib : spec.sizes_bytes.back();
  for (const std::uint64_t mib : {16u, 64u, 256u}) {
    if (mib * kMib <= most) out.push_back(mib * kMib);
  }
  return out;
}

Result<TargetsResult> run_targets_rank(const BenchSpec& spec, const RankPlace& place, const JobKey& key) {
  SR_CHECK(spec.target_blocks > 0 && spec.op == Op::all_reduce);
  return TargetsRun(spec, place, key).run();
}

std::vector<TargetRow> judge_targets(const BenchSpec& spec, const std::vector<TargetBlocks>& sizes,
                                     double memory_mib) {
  std::vector<TargetRow> rows;
  bool workers_run = false;
  for (const TargetBlocks& each : sizes) {
    if (each.workers > 0) {
      workers_run = true;
      rows.push_back(
          target(fmt::format("sealed with {} crypto threads at least 0.6x own plain", each.workers),
                 each.size_bytes, false, 0.6, ratios(each.plain_us, each.sealed_us)));
    } else if (each.size_bytes == kSmallBytes) {
      rows.push_back(target("sealed at most 2x own plain's time", each.size_bytes, true, 2,
                            ratios(each.sealed_us, each.plain_us)));
    } else {
      rows.push_back(target("own plain at least 1.0x Gloo", each.size_bytes, false, 1,
                            ratios(each.gloo_us, each.plain_us)));
      rows.push_back(target("sealed at most 1.25x (own plain + S/seal + S/open)", each.size_bytes, true, 1.25,
                            ratios(each.sealed_us, predicted_us(each))));
      rows.push_back(target("sealed at least 0.6x Gloo", each.size_bytes, false, 0.6,
                            ratios(each.gloo_us, each.sealed_us)));
      rows.push_back(target("aim: sealed at least 0.7x Gloo", each.size_bytes, false, 0.7,
                            ratios(each.gloo_us, each.sealed_us)));
    }
  }
  if (!workers_run) {
    TargetRow row = target("sealed with 2 crypto threads at least 0.6x own plain", 0, false, 0.6, {});
    row.note = "needs 3 cores a rank";
    rows.push_back(row);
  }
  TargetRow memory;
  memory.name = "memory a rank beyond its tensors, MiB";
  memory.at_most = true;
  memory.limit = 64 + 2.0 * spec.lanes * spec.segment_bytes / kMib;
  memory.ratio.ratio = memory_mib;
  memory.ratio.blocks = 1;
  memory.verdict = memory_mib <= memory.limit ? Verdict::met : Verdict::missed;
  rows.push_back(memory);
  return rows;
}

std::string targets_text(const BenchSpec& spec, const Machine& machine, const TargetsResult& result) {
  std::string out = fmt::format(
      "# targets: all_reduce in place, fp32, aes-256-gcm, {} ranks over tcp, one pinned core "
      "each, {} blocks of {} samples, seed {}\n# {}; {}\n",
      spec.ranks, spec.target_blocks, kSamples, spec.seed, describe(machine), machine.openssl);
  out += "# median over blocks of the slowest rank's time; GB/s are 1e9 bytes a second of one core\n";
  out += fmt::format("{:>8} {:>8} {:>12} {:>12} {:>12} {:>10} {:>10}\n", "size", "workers", "gloo(us)",
                     "plain(us)", "sealed(us)", "seal GB/s", "open GB/s");
  const auto cell = [](const std::vector<double>& values, int digits) {
    return values.empty() ? std::string("-") : fmt::format("{:.{}f}", median(values), digits);
  };
  for (const TargetBlocks& each : result.sizes) {
    out += fmt::format("{:>8} {:>8} {:>12} {:>12} {:>12} {:>10} {:>10}\n", format_bytes(each.size_bytes),
                       each.workers, cell(each.gloo_us, 1), cell(each.plain_us, 1), cell(each.sealed_us, 1),
                       cell(each.seal_gb_s, 2), cell(each.open_gb_s, 2));
  }
  out += fmt::format("\n{:<52} {:>6} {:>8} {:>8} {:>18}  {}\n", "target", "size", "limit", "ratio",
                     "95 % interval", "verdict");
  for (const TargetRow& row : result.rows) {
    const bool run = row.verdict != Verdict::not_run;
    out += fmt::format("{:<52} {:>6} {:>8} {:>8} {:>18}  {}{}\n", row.name,
                       row.size_bytes == 0 ? "-" : format_bytes(row.size_bytes),
                       fmt::format("{} {:.4g}", row.at_most ? "<=" : ">=", row.limit),
                       run ? fmt::format("{:.3f}", row.ratio.ratio) : "-",
                       row.ratio.interval ? fmt::format("[{:.3f}, {:.3f}]", row.ratio.interval->low,
                                                        row.ratio.interval->high)
                                          : "-",
                       to_string(row.verdict), row.note.empty() ? "" : ": " + row.note);
  }
  return out;
}

std::string targets_json(const BenchSpec& spec, const Machine& machine, const TargetsResult& result) {
  json out{{"schema", "sealring-targets-1"},
           {"date", utc_now()},
           {"origin", "measured"},
           {"scope", "slowest rank"},
           {"spec", json::parse(spec.to_record())},
           {"machine", json::parse(machine_json(machine))},
           {"memory_mib", result.memory_mib},
           {"sizes", json::array()},
           {"targets", json::array()}};
  for (const TargetBlocks& each : result.sizes) {
    out["sizes"].push_back({{"size_bytes", each.size_bytes},
                            {"workers", each.workers},
                            {"gloo_us", each.gloo_us},
                            {"plain_us", each.plain_us},
                            {"sealed_us", each.sealed_us},
                            {"seal_gb_s", each.seal_gb_s},
                            {"open_gb_s", each.open_gb_s}});
  }
  for (const TargetRow& row : result.rows) out["targets"].push_back(to_json(row));
  return out.dump(1) + "\n";
}

}  // namespace sealring
