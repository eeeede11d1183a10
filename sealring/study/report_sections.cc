#include "sealring/study/report_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "sealring/study/cases.h"
#include "sealring/study/deployment.h"
#include "sealring/study/report_data.h"
#include "sealring/study/report_marks.h"

namespace sealring {
namespace {

using nlohmann::json;

constexpr double kMib = 1 << 20;

std::string ms(double value) { return fmt::format("{:.1f}", value); }

std::string cap_text(double cap_mib) { return fmt::format("{:g} MiB", cap_mib); }

std::string engine_text(const CaseSummary& summary) {
  std::string out = summary.engine_name;
  if (summary.record->suite != "-" && summary.record->suite != "plain") out += ", " + summary.record->suite;
  return out;
}

std::string buckets_text(const CaseSummary& summary) {
  return fmt::format("{} -> {}", summary.buckets_before.size(), summary.buckets_after.size());
}

bool is_baseline(const CaseSummary& summary, const std::string& engine) {
  return summary.record->engine == engine && summary.record->best;
}

std::string model_name(const StudyResults& results, const std::string& id) {
  for (const ModelRecord& each : results.models) {
    if (each.id == id) return each.name;
  }
  return id;
}

std::string place_of(const StudyResults& results) {
  return fmt::format("n = {} CPU ranks on {} core{} each, {}", results.ranks, results.cpus_per_rank,
                     results.cpus_per_rank == 1 ? "" : "s", results.machines.front().cc);
}

const CaseSummary* best_sealed(const std::vector<CaseSummary>& summaries) {
  const CaseSummary* ring = best_of(summaries, "sealed-ring");
  const CaseSummary* hop = best_of(summaries, "sealed-one-hop");
  if (ring == nullptr || hop == nullptr) return ring == nullptr ? hop : ring;
  return hop->iteration_ms < ring->iteration_ms ? hop : ring;
}

/// Decided only where the whole interval lies on one side.
std::string within_ten_percent(const RatioSummary& ratio) {
  if (!ratio.interval) return "undecided (preview)";
  if (ratio.interval->low >= 0.9 && ratio.interval->high <= 1.1) return "yes";
  return ratio.interval->high < 0.9 || ratio.interval->low > 1.1 ? "no" : "undecided";
}

/// Stage 1, in the order of the cases.
std::vector<std::pair<const CaseRecord*, const RunRecord*>> search_runs(const StudyResults& results) {
  std::vector<std::pair<const CaseRecord*, const RunRecord*>> out;
  for (const BlockRecord& block : results.blocks) {
    if (block.stage != 1) continue;
    for (const CaseRecord& record : results.cases) {
      for (const RunRecord& run : block.runs) {
        if (run.case_id == record.id) out.emplace_back(&record, &run);
      }
    }
  }
  return out;
}

constexpr const char* kLostInNoise = "~0";

/// The picture's parts of an iteration, without overlap: seal and open as far as they fit into the exposed
/// time, the rest of it is wire and waiting.
json breakdown_parts(const CaseSummary& summary) {
  const double exposed = std::max(0.0, summary.exposed_ms), crypto = summary.seal_ms + summary.open_ms;
  const double fit = crypto > 0 ? std::min(1.0, exposed / crypto) : 0;
  const std::pair<const char*, double> parts[] = {{"1 compute", summary.iteration_ms - exposed},
                                                  {"2 seal", fit * summary.seal_ms},
                                                  {"3 open and add", fit * summary.open_ms},
                                                  {"4 wire and waiting", exposed - fit * crypto}};
  json out = json::array();
  for (const auto& [part, value] : parts) {
    out.push_back({{"engine", summary.engine_name},
                   {"part", part},
                   {"ms", value},
                   {"total", summary.iteration_ms},
                   {"lost", summary.exposed_ms <= 0},
                   {"origin", summary.record->origin}});
  }
  return out;
}

/// "9 x 1.6, 5.1": equal neighbours are counted.
std::string sizes_text(const std::vector<std::uint64_t>& bytes) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::string size = fmt::format("{:.1f}", static_cast<double>(bytes[i]) / kMib);
    std::size_t same = 1;
    while (i + same < bytes.size() &&
           fmt::format("{:.1f}", static_cast<double>(bytes[i + same]) / kMib) == size)
      ++same;
    parts.push_back(same == 1 ? size : fmt::format("{} x {}", same, size));
    i += same;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

ReportSection short_section(const StudyResults& results, const ModelSummaries& models) {
  ReportSection out;
  out.title = "In short";
  if (models.empty()) {
    out.paragraphs.push_back(
        "These results hold no finished block of the final stage, so there is no result yet. "
        "`sealring study --resume FILE` goes on from them.");
    return out;
  }
  std::vector<double> to_gloo, to_plain;
  for (const auto& [model, summaries] : models) {
    const CaseSummary* sealed = best_sealed(summaries);
    const CaseSummary* gloo = best_of(summaries, "gloo");
    const CaseSummary* plain = best_of(summaries, "plain-ring");
    if (sealed == nullptr || gloo == nullptr || plain == nullptr) continue;
    const auto same = same_against_same(summaries);
    out.paragraphs.push_back(fmt::format(
        "{}, every gradient message sealed ({}, cap {}): the time of an iteration is {} of that with "
        "Gloo (cap {}), and {} of that with our own plain ring (cap {}).{} {}, inter-rank messages "
        "only, best against best, {}, measured.",
        model->name, engine_text(*sealed), cap_text(sealed->record->cap_mib),
        ratio_text(sealed->to_gloo, same), cap_text(gloo->record->cap_mib),
        ratio_text(sealed->to_plain, same), cap_text(plain->record->cap_mib),
        caution_text(*sealed, *gloo, *plain, same), place_of(results), counted(sealed->blocks, "block")));
    to_gloo.push_back(sealed->to_gloo ? sealed->to_gloo->ratio : NAN);
    to_plain.push_back(sealed->to_plain ? sealed->to_plain->ratio : NAN);
  }
  if (to_gloo.size() > 1) {
    out.paragraphs.push_back(
        fmt::format("Over the {} models: to Gloo {:.2f}x (geometric mean), {:.2f}x (arithmetic mean); to own "
                    "plain {:.2f}x and {:.2f}x. A mean is no better than the ratios that it is made of.",
                    to_gloo.size(), geometric_mean(to_gloo), arithmetic_mean(to_gloo),
                    geometric_mean(to_plain), arithmetic_mean(to_plain)));
  }
  if (results.cpus_per_rank == 1) {
    out.paragraphs.push_back(
        "Each rank has one core for training, sealing and the network together. Sealing cannot run beside "
        "computation then, so it costs more here than where a rank has cores to spare.");
  }
  return out;
}

ReportSection slowdown_section(const StudyResults& results, const ModelSummaries& models) {
  ReportSection out;
  out.title = "Slowdown";
  out.chart = "slowdown";
  json data = json::array();
  for (const auto& [model, summaries] : models) {
    const auto same = same_against_same(summaries);
    ReportTable table;
    table.columns = {model->name,    "cap",    "k",         "ms / iteration", "to Gloo",
                     "to own plain", "CPU ms", "same bits", "origin"};
    for (const CaseSummary& each : summaries) {
      const bool check = each.record->engine == "plain-ring-again" || each.record->engine == "emulated-ring";
      if (!each.record->best && !check) continue;
      const std::string bits = each.same_bits ? (*each.same_bits ? "yes" : "no") : "-";
      table.rows.push_back({engine_text(each), cap_text(each.record->cap_mib), buckets_text(each),
                            iteration_text(each),
                            is_baseline(each, "gloo") ? "1" : ratio_text(each.to_gloo, same),
                            is_baseline(each, "plain-ring") ? "1" : ratio_text(each.to_plain, same),
                            ms(each.cpu_ms), bits, each.record->origin});
      for (const bool gloo : {true, false}) {
        const auto& ratio = gloo ? each.to_gloo : each.to_plain;
        if (!ratio) continue;
        json point{{"model", model->name},
                   {"engine", each.engine_name},
                   {"cap", each.record->cap_mib},
                   {"baseline", gloo ? "to Gloo" : "to own plain"},
                   {"ratio", ratio->ratio},
                   {"low", nullptr},
                   {"high", nullptr},
                   {"origin", each.record->origin},
                   {"noisy", noisy(each)}};
        if (ratio->interval) {
          point["low"] = ratio->interval->low;
          point["high"] = ratio->interval->high;
        }
        data.push_back(point);
      }
    }
    table.note = fmt::format(
        "{}; {} of {} iterations. {}. n.s.: not distinguishable from the baseline; *: noisy (median "
        "deviation "
        "above {:g} %). k: all-reduces an iteration before -> after DDP's rebuild. CPU ms: of a rank, all "
        "threads. same bits: parameters equal to own plain's after the same iterations.",
        place_of(results), counted(summaries.empty() ? 0 : summaries.front().blocks, "block"),
        results.iterations, ratio_caption(), kNoisyPercent);
    out.tables.push_back(std::move(table));
  }
  out.data = data.dump();
  return out;
}

ReportSection equal_cap_section(const StudyResults& results, const ModelSummaries& models) {
  ReportSection out;
  out.title = "Slowdown at equal bucket cap, 25 MiB";
  for (const auto& [model, summaries] : models) {
    const auto same = same_against_same(summaries);
    ReportTable table;
    table.columns = {model->name, "k", "ms / iteration", "to Gloo", "to own plain", "origin"};
    for (const CaseSummary& each : summaries) {
      const EngineSpec* engine = find_engine(each.record->engine);
      if (each.record->cap_mib != 25 || engine == nullptr || !engine->searched) continue;
      table.rows.push_back({engine_text(each), buckets_text(each), iteration_text(each),
                            each.record->engine == "gloo" ? "1" : ratio_text(each.to_gloo_25, same),
                            each.record->engine == "plain-ring" ? "1" : ratio_text(each.to_plain_25, same),
                            each.record->origin});
    }
    table.note = fmt::format("{}; PyTorch's default cap for every engine.", place_of(results));
    out.tables.push_back(std::move(table));
  }
  return out;
}

ReportSection breakdown_section(const StudyResults& results, const ModelSummaries& models) {
  ReportSection out;
  out.title = "Where the time goes";
  out.chart = "breakdown";
  json data = json::array();
  for (const auto& [model, summaries] : models) {
    ReportTable table;
    table.columns = {model->name, "cap",     "iteration ms",    "compute ms",  "exposed ms", "seal ms",
                     "open ms",   "wire ms", "records out, in", "MiB out, in", "origin"};
    for (const CaseSummary& each : summaries) {
      if (!each.record->best && each.record->engine != "emulated-ring") continue;
      const bool gloo = each.record->engine == "gloo";
      const auto own = [&](const std::string& text) { return gloo ? std::string("-") : text; };
      table.rows.push_back(
          {engine_text(each), cap_text(each.record->cap_mib), ms(each.iteration_ms), ms(each.compute_ms),
           each.exposed_ms > 0 ? ms(each.exposed_ms) : kLostInNoise, own(ms(each.seal_ms)),
           own(ms(each.open_ms)), own(ms(each.wire_ms)),
           own(fmt::format("{:.0f}, {:.0f}", each.seals, each.opens)),
           own(fmt::format("{:.1f}, {:.1f}", each.sealed_bytes / kMib, each.opened_bytes / kMib)),
           each.record->origin});
      for (json part : breakdown_parts(each)) {
        part["model"] = model->name;
        data.push_back(std::move(part));
      }
    }
    table.note = fmt::format(
        "{}; per rank and iteration. compute: the iteration without communication (no_sync), as measured; "
        "exposed: iteration - compute. {} for exposed: the iteration without communication took no less "
        "time, "
        "so what communication adds is lost in the noise of the two. seal, open (with the addition) and wire "
        "are timers of the communication thread: they run beside computation and hold the waiting for the "
        "other ranks, so they may exceed what is exposed. In the picture the exposed time is split without "
        "overlap, so that the parts sum to the iteration; where it is {}, all of the iteration is drawn as "
        "compute. An emulated row is plain with a cost added; nothing is sealed in it. A record is one "
        "crypto "
        "operation where the suite seals; with plain it is moved unsealed.",
        place_of(results), kLostInNoise, kLostInNoise);
    out.tables.push_back(std::move(table));
  }
  out.data = data.dump();
  return out;
}

ReportSection buckets_section(const StudyResults& results) {
  ReportSection out;
  out.title = "Bucket size";
  out.chart = "buckets";
  json data = json::array();
  ReportTable table;
  table.columns = {"model",          "engine", "cap",   "k", "MiB after the rebuild",
                   "ms / iteration", "best",   "origin"};
  for (const auto& [record, run] : search_runs(results)) {
    const std::string model = model_name(results, record->model);
    const EngineSpec* engine = find_engine(record->engine);
    const std::string name = engine == nullptr ? record->engine : engine->name;
    const double middle = median(run->iteration_ms);
    table.rows.push_back({model, name, cap_text(record->cap_mib),
                          fmt::format("{} -> {}", run->buckets_before.size(), run->buckets_after.size()),
                          sizes_text(run->buckets_after), ms(middle), record->best ? "yes" : "",
                          engine == nullptr ? record->origin : origin_of(*engine)});
    if (engine == nullptr || !engine->searched) continue;
    data.push_back({{"model", model}, {"engine", name}, {"cap", record->cap_mib}, {"ms", middle}});
  }
  table.note =
      "The search: one block, a preview; it only chooses each engine's cap, the results come from fresh "
      "samples. The cap is not an upper limit: the first bucket is closed at 1 MiB, the others when they "
      "have "
      "reached the cap, and a parameter is never split. Plain with copies moves its data as a sealed run "
      "does, "
      "without sealing; the emulation's cost is fitted against it.";
  out.tables.push_back(std::move(table));
  out.data = data.dump();
  return out;
}

ReportSection emulation_section(const StudyResults& results, const ModelSummaries& models) {
  ReportSection out;
  out.title = "Does emulation foretell sealing?";
  out.paragraphs.push_back(
      fmt::format("The published study (Lee et al., arXiv 2501.11771v3) emulated its multi-GPU numbers. Here "
                  "the same method is put to the test: our own measured cost of a crypto operation, {:.1f} "
                  "us + {:.1f} ns per KiB ({}), is added to every operation of "
                  "the plain ring, inline, "
                  "and compared with the ring that really seals.",
                  results.emulation.a_us, results.emulation.b_ns_per_kib, results.emulation.source));
  ReportTable table;
  table.columns = {"model", "emulated / sealed", "within 10 %", "origin"};
  for (const auto& [model, summaries] : models) {
    const auto check = emulation_check(results, model->id);
    if (!check) continue;
    table.rows.push_back(
        {model->name, ratio_text(check, std::nullopt), within_ten_percent(*check), "emulated over measured"});
  }
  table.note = "Sealed ring at its best cap, same cap on both sides. n.s.: not distinguishable from 1.";
  out.tables.push_back(std::move(table));
  return out;
}

ReportSection counts_section(const StudyResults& results) {
  ReportSection out;
  out.title = "The count law";
  out.chart = "counts";
  out.paragraphs.push_back(
      "A ring all-reduce among n ranks costs each rank 4(n-1) crypto operations, so k all-reduces an "
      "iteration cost 4k(n-1) "
      "per rank; the cluster's total is n times that. Counted here from real seals and opens on loopback; "
      "nothing is timed.");
  json data = json::array();
  ReportTable table;
  table.columns = {"algorithm",        "n",     "k",     "counted per rank", "schedule says", "4k(n-1)",
                   "counted, cluster", "agree", "origin"};
  for (const CountRecord& each : results.counts) {
    const std::uint64_t law = 4ull * each.all_reduces * (each.ranks - 1);
    const bool ring = each.algorithm == "ring";
    table.rows.push_back(
        {each.algorithm, fmt::format("{}", each.ranks), fmt::format("{}", each.all_reduces),
         fmt::format("{}", each.counted_per_rank), fmt::format("{}", each.predicted_per_rank),
         ring ? fmt::format("{}", law) : "-", fmt::format("{}", each.counted_cluster),
         each.counted_per_rank == each.predicted_per_rank && (!ring || law == each.counted_per_rank) ? "yes"
                                                                                                     : "NO",
         kMeasured});
    if (each.all_reduces != 5) continue;
    data.push_back({{"ranks", each.ranks},
                    {"series", each.algorithm + ", counted"},
                    {"operations", each.counted_per_rank}});
  }
  table.note = "k = 142 is what the published study's 1704 operations at n = 4 imply.";
  out.tables.push_back(std::move(table));
  out.data = data.dump();
  return out;
}

ReportSection setup_section(const StudyResults& results) {
  ReportSection out;
  out.title = "Starting a session, and one core's rates";
  ReportTable table;
  table.columns = {"ranks", "handshake and connections, ms", "below 1 % of jobs longer than", "samples",
                   "origin"};
  for (const SetupRecord& each : results.setups) {
    const double middle = median(each.setup_ms);
    table.rows.push_back({fmt::format("{}", each.ranks), ms(middle), fmt::format("{:.1f} s", middle / 10),
                          fmt::format("{}", each.setup_ms.size()), kMeasured});
  }
  table.note =
      "Median of the slowest rank; all ranks are threads of one process over tcp on this machine's cores.";
  out.tables.push_back(std::move(table));
  ReportTable ciphers;
  ciphers.columns = {"suite", "seal GB/s", "open GB/s", "64-byte record, us", "origin"};
  for (const CipherRecord& each : results.ciphers) {
    ciphers.rows.push_back({each.suite, fmt::format("{:.2f}", each.seal_gb_s),
                            fmt::format("{:.2f}", each.open_gb_s), fmt::format("{:.2f}", each.record_us),
                            kMeasured});
  }
  ciphers.note = "One core, 64 MiB walked through in 256 KiB segments, 1 GB = 1e9 bytes.";
  out.tables.push_back(std::move(ciphers));
  return out;
}

ReportSection deployment_section(const StudyResults& results) {
  ReportSection out;
  out.title = "What this protects, and where";
  const DeploymentGuess guess = deployment_of(results.machines.front());
  out.paragraphs.push_back(fmt::format("Measured under: {} ({}).", guess.row->name, guess.why));
  ReportTable table;
  table.columns = {"deployment", "path", "protects the messages against", "notes"};
  for (const Deployment& each : deployments()) {
    table.rows.push_back({std::string(each.name) + (&each == guess.row ? " (here)" : ""),
                          std::string(each.path), std::string(each.protects),
                          std::string(each.notes) + (each.available ? "" : "; not in this release")});
  }
  table.note =
      "A job key protects the wire from whoever does not hold the key, not from those who administer the "
      "machines: that takes "
      "attestation.";
  out.tables.push_back(std::move(table));
  return out;
}

ReportSection method_section(const StudyResults& results) {
  ReportSection out;
  out.title = "How it was measured";
  out.paragraphs.push_back(
      fmt::format("Preset {}, seed {}, {} ranks, {}, commit {}, PyTorch {}, Python {}, {:.0f} s in "
                  "all. In a block every case "
                  "of a model runs once, in the same processes, in an order drawn from the seed; a case is "
                  "{} iterations after 3 to warm "
                  "up (DDP rebuilds its buckets after the first), and 5 without communication. Fewer than {} "
                  "blocks are a preview.",
                  results.preset, results.seed, results.ranks, when_text(results),
                  results.commit.empty() ? "unknown" : results.commit, results.torch, results.python,
                  results.wall_s, results.iterations, kBlocksForResult));
  ReportTable machines;
  machines.columns = {"machine", "kernel", "crypto instructions", "OpenSSL", "load before"};
  for (const Machine& each : results.machines) {
    machines.rows.push_back({describe(each), each.kernel,
                             fmt::format("{}", fmt::join(each.crypto_features, " ")), each.openssl,
                             fmt::format("{:.1f}", each.load_before)});
  }
  out.tables.push_back(std::move(machines));
  ReportTable models;
  models.columns = {"model", "parameters", "batch a rank", "what it is"};
  for (const ModelRecord& each : results.models) {
    models.rows.push_back({each.name, fmt::format("{:.2f} M", static_cast<double>(each.parameters) / 1e6),
                           fmt::format("{}", each.batch), each.description});
  }
  out.tables.push_back(std::move(models));
  return out;
}

}  // namespace sealring
