#include "sealring/study/bench_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "sealring/collective/schedule.h"

namespace sealring {
namespace {

using nlohmann::json;

constexpr std::pair<NcclVariant, const char*> kNcclNames[] = {{NcclVariant::defaults, "nccl"},
                                                              {NcclVariant::windows, "nccl-windows"},
                                                              {NcclVariant::blocks, "nccl-blocks"}};

json case_to_json(const BenchCase& bench_case) {
  json out{
      {"suite", bench_case.sealring() ? std::string(to_string(bench_case.suite)) : suite_name(bench_case)}};
  if (bench_case.columns != 0) out["columns"] = bench_case.columns;
  if (bench_case.algorithm) out["algorithm"] = std::string(to_string(*bench_case.algorithm));
  return out;
}

Result<BenchCase> case_from_json(const json& in) {
  BenchCase out;
  const std::string suite = in.at("suite").get<std::string>();
  out.gloo = suite == "gloo";
  out.nccl = parse_nccl(suite);
  const auto parsed = parse_suite(out.sealring() ? suite : "plain");
  if (!parsed) return fail(Code::malformed, "bench.spec", "unknown suite " + suite);
  out.suite = *parsed;
  if (in.contains("columns")) out.columns = in.at("columns");
  if (in.contains("algorithm")) out.algorithm = parse_algorithm(in.at("algorithm").get<std::string>());
  return out;
}

Result<BenchSpec> parse_spec(const json& in) {
  BenchSpec out;
  const auto op = parse_op(in.at("op").get<std::string>());
  const auto dtype = parse_dtype(in.at("dtype").get<std::string>());
  const auto redop = parse_redop(in.at("redop").get<std::string>());
  if (!op || !dtype || !redop) return fail(Code::malformed, "bench.spec", "unknown op, type or reduction");
  out.op = *op;
  out.dtype = *dtype;
  out.redop = *redop;
  out.ranks = in.at("ranks");
  out.node_ranks = in.at("node_ranks");
  out.sizes_bytes = in.at("sizes_bytes").get<std::vector<std::uint64_t>>();
  out.iterations = in.at("iterations");
  out.warmup = in.at("warmup");
  out.check = in.at("check");
  out.root = in.at("root");
  out.loopback = in.at("loopback");
  out.pin = in.at("pin");
  out.cuda = in.at("cuda");
  out.ranks_per_gpu = in.at("ranks_per_gpu");
  out.graph = in.at("graph");
  out.seed = in.at("seed");
  out.segment_bytes = in.at("segment_bytes");
  out.lanes = in.at("lanes");
  out.workers = in.at("workers");
  out.timeout_s = in.at("timeout_s");
  out.mark_mad_percent = in.at("mark_mad_percent");
  if (!in.at("max_mad_percent").is_null()) out.max_mad_percent = in.at("max_mad_percent").get<double>();
  out.target_blocks = in.at("target_blocks");
  out.usable_threads = in.at("usable_threads");
  out.json_path = in.at("json_path");
  out.python = in.at("python");
  out.python_path = in.at("python_path");
  out.commit = in.at("commit");
  for (const json& each : in.at("cases")) {
    SR_TRY(BenchCase bench_case, case_from_json(each));
    out.cases.push_back(bench_case);
  }
  return out;
}

}  // namespace

std::string BenchSpec::to_json() const {
  json all_cases = json::array();
  for (const BenchCase& each : cases) all_cases.push_back(case_to_json(each));
  json out{{"op", std::string(to_string(op))},
           {"dtype", std::string(to_string(dtype))},
           {"redop", std::string(to_string(redop))},
           {"ranks", ranks},
           {"node_ranks", node_ranks},
           {"sizes_bytes", sizes_bytes},
           {"iterations", iterations},
           {"warmup", warmup},
           {"check", check},
           {"cases", all_cases},
           {"root", root},
           {"loopback", loopback},
           {"pin", pin},
           {"cuda", cuda},
           {"ranks_per_gpu", ranks_per_gpu},
           {"graph", graph},
           {"seed", seed},
           {"segment_bytes", segment_bytes},
           {"lanes", lanes},
           {"workers", workers},
           {"timeout_s", timeout_s},
           {"mark_mad_percent", mark_mad_percent},
           {"max_mad_percent", nullptr},
           {"target_blocks", target_blocks},
           {"usable_threads", usable_threads},
           {"json_path", json_path},
           {"python", python},
           {"python_path", python_path},
           {"commit", commit}};
  if (max_mad_percent) out["max_mad_percent"] = *max_mad_percent;
  return out.dump();
}

std::string BenchSpec::to_record() const {
  json out = json::parse(to_json());
  for (const char* place : {"json_path", "python", "python_path"}) out.erase(place);
  return out.dump();
}

Result<BenchSpec> BenchSpec::from_json(const std::string& text) {
  try {
    return parse_spec(json::parse(text));
  } catch (const std::exception& problem) {
    return fail(Code::malformed, "bench.spec", problem.what());
  }
}

std::optional<NcclVariant> parse_nccl(const std::string& text) {
  for (const auto& [variant, name] : kNcclNames) {
    if (text == name) return variant;
  }
  return std::nullopt;
}

std::string suite_name(const BenchCase& bench_case) {
  if (bench_case.gloo) return "gloo";
  for (const auto& [variant, name] : kNcclNames) {
    if (bench_case.nccl == variant) return name;
  }
  std::string out(to_string(bench_case.suite));
  return bench_case.columns == 0 ? out : fmt::format("{}:{}", out, bench_case.columns);
}

std::string algorithm_name(const BenchSpec& spec, const BenchCase& bench_case, std::uint64_t size_bytes) {
  if (!bench_case.sealring()) return "-";
  const Algorithm chosen = spec.cuda
                               ? default_device_algorithm(spec.op, spec.ranks, size_bytes, spec.node_ranks)
                               : default_algorithm(spec.op, spec.ranks, size_bytes, spec.node_ranks);
  const Algorithm algorithm = bench_case.algorithm.value_or(chosen);
  return std::string(to_string(algorithm));
}

BenchSize bench_size(const BenchSpec& spec, std::uint64_t size_bytes) {
  const std::uint64_t unit = dtype_bytes(spec.dtype);
  const std::uint64_t ranks = spec.ranks;
  const bool cut = spec.op == Op::all_gather || spec.op == Op::reduce_scatter || spec.op == Op::all_to_all;
  BenchSize out;
  out.count = std::max<std::uint64_t>(1, size_bytes / (cut ? unit * ranks : unit));
  out.size_bytes = out.count * (cut ? unit * ranks : unit);
  out.in_elements = spec.op == Op::all_gather ? out.count : cut ? out.count * ranks : out.count;
  out.out_elements = spec.op == Op::reduce_scatter ? out.count : cut ? out.count * ranks : out.count;
  out.has_out_of_place = spec.op != Op::broadcast;
  out.has_in_place = spec.op != Op::all_to_all && spec.op != Op::send;
  return out;
}

double bus_factor(Op op, std::uint16_t ranks) {
  const double n = ranks;
  switch (op) {
    case Op::all_reduce:
      return 2 * (n - 1) / n;
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::all_to_all:
      return (n - 1) / n;
    default:
      return 1;
  }
}

Result<std::uint64_t> parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  if (!unit.empty() && (unit.back() == 'B' || unit.back() == 'b')) unit.pop_back();
  if (unit.size() > 1 && unit.back() == 'i') unit.pop_back();
  double factor = 0;
  if (unit.empty()) factor = 1;
  if (unit == "K" || unit == "k") factor = 1024;
  if (unit == "M" || unit == "m") factor = 1024.0 * 1024;
  if (unit == "G" || unit == "g") factor = 1024.0 * 1024 * 1024;
  const double bytes = number * factor;
  if (end == text.c_str() || factor == 0 || !(number >= 0) || bytes > 1e15) {
    return fail(Code::invalid_argument, "bench.size", "\"" + text + "\" is no size",
                "write 1K, 64M, 2G or bytes");
  }
  return static_cast<std::uint64_t>(std::llround(bytes));
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::pair<std::uint64_t, const char*> kUnits[] = {
      {1u << 30, "G"}, {1u << 20, "M"}, {1u << 10, "K"}};
  for (const auto& [unit, name] : kUnits) {
    if (bytes >= unit && bytes % unit == 0) return fmt::format("{}{}", bytes / unit, name);
  }
  return fmt::format("{}", bytes);
}

}  // namespace sealring
