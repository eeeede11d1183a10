#include "sealring/study/bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace sealring {
namespace {

using nlohmann::json;

constexpr std::array kColumns{
    BenchColumn{"size", 8, "bytes of a rank's larger buffer, as in nccl-tests"},
    BenchColumn{"count", 10,
                "elements: of a rank's piece where the operation cuts the tensor, else of the tensor"},
    BenchColumn{"type", 6, "element type"},
    BenchColumn{"redop", 8, "reduction; - where nothing is reduced"},
    BenchColumn{
        "suite", 21,
        "cipher suite (a number behind it: thread blocks at most); plain is our own schedule without crypto, "
        "gloo is PyTorch's Gloo, nccl is NCCL"},
    BenchColumn{"algorithm", 10, "schedule that ran"},
    BenchColumn{"place", 5, "out: separate input and output; in: one buffer"},
    BenchColumn{"time(us)", 11, "of one operation: median over samples of the slowest rank's time"},
    BenchColumn{"mad%", 6,
                "median distance of the samples from that median; above 5 % (--mark-mad) it is marked *"},
    BenchColumn{"algbw", 8, "GB/s (1e9): size / time"},
    BenchColumn{
        "busbw", 8,
        "GB/s: algbw times the bytes a rank's link carries per byte of size: 2(n-1)/n for all_reduce, "
        "(n-1)/n for reduce_scatter, all_gather and all_to_all, 1 for the rest"},
    BenchColumn{"#wrong", 7,
                "elements, over all ranks, that differ from the exact result; - when not checked"},
    BenchColumn{"x plain", 8, "time over the plain case's, median over samples; 1.00 is no cost"},
    BenchColumn{"x nccl", 8, "time over that of the fastest NCCL case (GPUs only)"},
    BenchColumn{"seals", 6,
                "records sealed in one operation, on the busiest rank (a record: one move, any segments; "
                "with plain it is moved unsealed)"},
    BenchColumn{"opens", 6, "records opened in one operation, on the busiest rank"},
    BenchColumn{"sealed", 9, "payload bytes sealed in one operation, on the busiest rank"},
    BenchColumn{"opened", 9, "payload bytes opened in one operation, on the busiest rank"},
    BenchColumn{"seal(us)", 10, "time inside seal in one operation, mean over ranks"},
    BenchColumn{"open(us)", 10, "time inside open and combine, mean over ranks"},
    BenchColumn{"wire(us)", 10,
                "the rest of the exchange: sending, receiving, waiting for peers; mean over ranks"},
    BenchColumn{"cpu(us)", 10, "CPU time of the process in one operation, all threads, mean over ranks"},
};

/// What a GPU's operations have no number for is left out there, and the reverse.
bool shown(const BenchSpec& spec, const BenchColumn& column) {
  const std::string_view name = column.name;
  if (name == "x nccl") return spec.cuda;
  return !spec.cuda || (name != "seal(us)" && name != "open(us)" && name != "wire(us)");
}

bool reduces(Op op) { return op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter; }

std::string place_text(const BenchSpec& spec) {
  if (!spec.cuda) return spec.loopback ? "as threads over loopback" : "over tcp";
  const std::string timed = spec.graph ? "replayed graphs" : "back to back";
  if (spec.ranks_per_gpu == 0) return "on a GPU each, " + timed;
  return fmt::format("as threads, {} a GPU, {}", spec.ranks_per_gpu, timed);
}

/// As they were said to be: nothing here looks whether ranks share a machine.
std::string nodes_text(const BenchSpec& spec) {
  return spec.node_ranks == 0 ? std::string() : fmt::format(", said to be {} a node", spec.node_ranks);
}

std::string short_bytes(double bytes) {
  if (bytes >= 1e6) return fmt::format("{:.1f}M", bytes / (1 << 20));
  if (bytes >= 1e4) return fmt::format("{:.1f}K", bytes / 1024);
  return fmt::format("{:.0f}", bytes);
}

std::string count_text(double count) {
  return count == static_cast<double>(static_cast<std::uint64_t>(count)) ? fmt::format("{:.0f}", count)
                                                                         : fmt::format("{:.1f}", count);
}

json to_json(const Machine& machine) {
  return json{{"cpu", machine.cpu},
              {"architecture", machine.architecture},
              {"kernel", machine.kernel},
              {"packages", machine.packages},
              {"cores", machine.cores},
              {"threads", machine.threads},
              {"usable_threads", machine.usable_threads},
              {"memory_bytes", machine.memory_bytes},
              {"l3_bytes", machine.l3_bytes},
              {"crypto_features", machine.crypto_features},
              {"openssl", machine.openssl},
              {"virtualization", machine.virtualization},
              {"gpus", machine.gpus},
              {"cc", machine.cc},
              {"load_before", machine.load_before}};
}

json to_json(const BenchSpec& spec, const BenchRow& row) {
  const BenchCase& bench_case = spec.cases[row.case_index];
  json out{{"size_bytes", row.size.size_bytes},
           {"count", row.size.count},
           {"suite", suite_name(bench_case)},
           {"algorithm", algorithm_name(spec, bench_case, row.size.size_bytes)},
           {"in_place", row.in_place},
           {"calls_per_sample", row.calls},
           {"samples_us", row.samples_us},
           {"median_us", row.median_us},
           {"mad_percent", row.mad_percent},
           {"noisy", row.noisy(spec)},
           {"algbw_gb_s", row.algbw_gb_s},
           {"busbw_gb_s", row.busbw_gb_s},
           {"wrong", nullptr},
           {"ratio_to_plain", nullptr},
           {"ratio_to_nccl", nullptr},
           {"origin", "measured"}};
  if (row.wrong) out["wrong"] = *row.wrong;
  if (row.ratio_to_plain) out["ratio_to_plain"] = *row.ratio_to_plain;
  if (row.ratio_to_nccl) out["ratio_to_nccl"] = *row.ratio_to_nccl;
  if (row.nccl_interval) out["ratio_to_nccl_95"] = {row.nccl_interval->low, row.nccl_interval->high};
  if (bench_case.sealring()) {
    out["seals"] = row.seals;
    out["opens"] = row.opens;
    out["sealed_bytes"] = row.sealed_bytes;
    out["opened_bytes"] = row.opened_bytes;
    out["seal_us"] = row.seal_us;
    out["open_us"] = row.open_us;
    out["wire_us"] = row.wire_us;
  }
  out["cpu_us"] = row.cpu_us;
  return out;
}

}  // namespace

std::span<const BenchColumn> bench_columns() { return kColumns; }

std::string machine_json(const Machine& machine) { return to_json(machine).dump(); }

std::string bench_head(const BenchSpec& spec, const Machine& machine,
                       const std::vector<SealringEngine*>& engines) {
  std::string out =
      fmt::format("# {} {} ranks {}, {} samples after {} to warm up, seed {}, segments of {}, {}\n",
                  spec.op == Op::send ? "sendrecv" : to_string(spec.op), spec.ranks,
                  place_text(spec) + nodes_text(spec), spec.iterations, spec.warmup, spec.seed,
                  spec.cuda ? "the device's choice" : format_bytes(spec.segment_bytes),
                  spec.pin ? "ranks pinned" : "ranks not pinned");
  out += fmt::format("# {}; {}\n", describe(machine), machine.openssl);
  for (const SealringEngine* engine : engines) {
    if (engine == nullptr) continue;
    out += fmt::format("# {}: identity {}, {}\n", to_string(engine->session->config().suite),
                       engine->session->identity(),
                       spec.cuda ? engine->communicator->describe() : engine->session->transport());
  }
  const bool plain = std::any_of(spec.cases.begin(), spec.cases.end(), [](const BenchCase& each) {
    return each.sealring() && suite_is_study(each.suite);
  });
  if (plain)
    out +=
        "# plain and chained-gmac are for comparison only: they run under the study's identity, which "
        "secured ranks refuse\n";
  if (machine.load_before > 0.5)
    out += fmt::format("# load {:.1f} before the start: expect noise\n", machine.load_before);
  out += "#";
  for (const BenchColumn& column : kColumns) {
    if (shown(spec, column)) out += fmt::format("{:>{}}", column.name, column.width + 1);
  }
  return out + "\n";
}

std::string bench_line(const BenchSpec& spec, const BenchRow& row) {
  const BenchCase& bench_case = spec.cases[row.case_index];
  const auto number = [&](double value, int digits) { return fmt::format("{:.{}f}", value, digits); };
  const auto crypto = [&](const std::string& text) {
    return bench_case.sealring() ? text : std::string("-");
  };
  const std::array<std::string, kColumns.size()> cells{
      format_bytes(row.size.size_bytes),
      fmt::format("{}", row.size.count),
      std::string(to_string(spec.dtype)),
      reduces(spec.op) ? std::string(to_string(spec.redop)) : "-",
      suite_name(bench_case),
      algorithm_name(spec, bench_case, row.size.size_bytes),
      row.in_place ? "in" : "out",
      number(row.median_us, 1),
      number(row.mad_percent, 1) + (row.noisy(spec) ? "*" : " "),
      number(row.algbw_gb_s, 3),
      number(row.busbw_gb_s, 3),
      row.wrong ? fmt::format("{}", *row.wrong) : "-",
      row.ratio_to_plain ? number(*row.ratio_to_plain, 2) : "-",
      row.ratio_to_nccl ? number(*row.ratio_to_nccl, 3) : "-",
      crypto(count_text(row.seals)),
      crypto(count_text(row.opens)),
      crypto(short_bytes(row.sealed_bytes)),
      crypto(short_bytes(row.opened_bytes)),
      crypto(number(row.seal_us, 1)),
      crypto(number(row.open_us, 1)),
      crypto(number(row.wire_us, 1)),
      number(row.cpu_us, 1)};
  std::string out = " ";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (shown(spec, kColumns[i])) out += fmt::format("{:>{}}", cells[i], kColumns[i].width + 1);
  }
  return out + "\n";
}

std::string bench_foot(const BenchSpec& spec, const std::vector<BenchRow>& rows) {
  std::string out;
  const auto noisy =
      std::count_if(rows.begin(), rows.end(), [&](const BenchRow& row) { return row.noisy(spec); });
  if (noisy > 0)
    out += fmt::format("# {} of {} rows are noisy (*): mad above {} %\n", noisy, rows.size(),
                       spec.mark_mad_percent);
  std::uint64_t wrong = 0;
  bool checked = false;
  for (const BenchRow& row : rows) {
    checked = checked || row.wrong.has_value();
    wrong += row.wrong.value_or(0);
  }
  if (checked) out += fmt::format("# {} wrong elements\n", wrong);
  return out;
}

std::string bench_json(const BenchSpec& spec, const Machine& machine, const std::vector<BenchRow>& rows) {
  json out{{"schema", "sealring-bench-1"},
           {"date", utc_now()},
           {"origin", "measured"},
           {"scope", "time: slowest rank; crypto counts: busiest rank; component times: mean over ranks"},
           {"spec", json::parse(spec.to_record())},
           {"machine", to_json(machine)},
           {"rows", json::array()}};
  for (const BenchRow& row : rows) out["rows"].push_back(to_json(spec, row));
  return out.dump(1) + "\n";
}

}  // namespace sealring
