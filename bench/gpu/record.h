// What a GPU bench writes down: spread of samples, the machine, and the JSON of both. No CUDA header.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sealring::bench {

struct Spread {
  double median = 0;
  double mad = 0;  ///< median of the distances from the median
  double low = 0,
         high = 0;  ///< of the median, 95 % or a little more: order statistics, no distribution assumed
};

inline double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

inline Spread spread_of(std::vector<double> samples) {
  Spread out;
  if (samples.empty()) return out;
  std::sort(samples.begin(), samples.end());
  out.median = median_of(samples);
  std::vector<double> distances;
  for (const double sample : samples) distances.push_back(std::abs(sample - out.median));
  out.mad = median_of(distances);
  // The number of samples below the true median is binomial(n, 1/2): as many are cut off at each end as keep
  // less than 2.5 % outside.
  const std::size_t n = samples.size();
  double probability = std::pow(0.5, static_cast<double>(n)), outside = 0;
  std::size_t cut = 0;
  for (std::size_t k = 0; k < n / 2; ++k) {  // probability = C(n, k) / 2^n
    outside += probability;
    if (outside >= 0.025) break;
    cut = k + 1;
    probability = probability * static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  const std::size_t from = cut == 0 ? 0 : cut - 1;
  out.low = samples[from];
  out.high = samples[n - 1 - from];
  return out;
}

/// One kernel at one size; times are microseconds.
struct Row {
  std::string name;
  std::string suite, direction, combine;
  std::uint32_t segment_bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::string conditions;     ///< "off by 4 bytes", "columns 16", "graph of 100"; empty: none
  double memory_bytes = 0;    ///< that must cross device memory
  double alu_operations = 0;  ///< 0: not counted
  std::vector<double> samples;
  Spread time;
};

inline double gbps(const Row& row, double microseconds) {
  return microseconds > 0 ? static_cast<double>(row.payload_bytes) / microseconds * 1e-3 : 0;
}

/// What NVML said; nullopt: it could not be asked or does not know.
struct ConfidentialFacts {
  bool nvml = false;
  std::optional<unsigned> feature;    ///< nvmlSystemGetConfComputeState: ccFeature
  std::optional<unsigned> multi_gpu;  ///< nvmlSystemGetConfComputeSettings: multiGpuMode
};

/// The mode in words, and what the words rest on.
inline std::pair<std::string, std::string> confidential_mode(const ConfidentialFacts& facts) {
  if (!facts.nvml) return {"unknown", "NVML could not be loaded"};
  if (!facts.feature) return {"unknown", "nvmlSystemGetConfComputeState gave no answer"};
  const std::string checked = "nvmlSystemGetConfComputeState: ccFeature " + std::to_string(*facts.feature) +
                              (facts.multi_gpu ? "; nvmlSystemGetConfComputeSettings: multiGpuMode " +
                                                     std::to_string(*facts.multi_gpu)
                                               : "; nvmlSystemGetConfComputeSettings gave no answer");
  if (facts.multi_gpu.value_or(0) != 0) return {"protected PCIe or another multi-GPU mode", checked};
  return {*facts.feature == 0 ? "CC off (not attested)" : "CC on (not attested)", checked};
}

struct Machine {
  std::string commit = "unknown", date;
  std::string gpu, architecture, built_for;
  int multiprocessors = 0;
  std::uint64_t memory_bytes = 0;
  double clock_max_mhz = 0;
  std::optional<unsigned> clock_now_mhz, memory_clock_now_mhz;  ///< behind the last row
  std::string driver = "unknown";                               ///< its own version
  std::string driver_cuda, runtime_cuda;                        ///< "13.0"
  ConfidentialFacts confidential;
};

inline std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

inline std::string json_number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

inline std::string json_of(const Machine& machine, double copy_gbps) {
  const auto field = [](const char* name, const std::string& value) {
    return json_text(name) + ": " + value + ",\n  ";
  };
  const auto clock = [](const std::optional<unsigned>& mhz) { return mhz ? std::to_string(*mhz) : "null"; };
  const auto [mode, checked] = confidential_mode(machine.confidential);
  return field("origin", json_text("measured")) + field("commit", json_text(machine.commit)) +
         field("date", json_text(machine.date)) + field("device", json_text(machine.gpu)) +
         field("architecture", json_text(machine.architecture)) +
         field("built_for", json_text(machine.built_for)) +
         field("multiprocessors", std::to_string(machine.multiprocessors)) +
         field("memory_bytes", std::to_string(machine.memory_bytes)) +
         field("clock_max_mhz", json_number(machine.clock_max_mhz)) +
         field("clock_now_mhz", clock(machine.clock_now_mhz)) +
         field("memory_clock_now_mhz", clock(machine.memory_clock_now_mhz)) +
         field("driver", json_text(machine.driver)) + field("driver_cuda", json_text(machine.driver_cuda)) +
         field("runtime_cuda", json_text(machine.runtime_cuda)) +
         field("confidential_computing", json_text(mode)) +
         field("confidential_computing_checked", json_text(checked)) +
         field("copy_gbps", json_number(copy_gbps));
}

inline std::string json_of(const Row& row) {
  std::string out = "{\"name\": " + json_text(row.name) + ", \"suite\": " + json_text(row.suite) +
                    ", \"direction\": " + json_text(row.direction) +
                    ", \"combine\": " + json_text(row.combine) +
                    ", \"segment_bytes\": " + std::to_string(row.segment_bytes) +
                    ", \"payload_bytes\": " + std::to_string(row.payload_bytes) +
                    ", \"conditions\": " + json_text(row.conditions);
  const std::pair<const char*, double> numbers[] = {{"us", row.time.median},
                                                    {"us_mad", row.time.mad},
                                                    {"us_low", row.time.low},
                                                    {"us_high", row.time.high},
                                                    {"gbps", gbps(row, row.time.median)},
                                                    {"gbps_low", gbps(row, row.time.high)},
                                                    {"gbps_high", gbps(row, row.time.low)},
                                                    {"memory_bytes", row.memory_bytes},
                                                    {"alu_operations", row.alu_operations}};
  for (const auto& [name, value] : numbers) out += ", " + json_text(name) + ": " + json_number(value);
  out += ", \"samples_us\": [";
  for (std::size_t i = 0; i < row.samples.size(); ++i)
    out += (i == 0 ? "" : ", ") + json_number(row.samples[i]);
  return out + "]}";
}

/// The whole file. `us_low` and `us_high` bound the median with 95 % confidence.
inline std::string json_of(const Machine& machine, double copy_gbps, const std::vector<Row>& rows) {
  std::string out = "{\n  " + json_of(machine, copy_gbps) + "\"rows\": [";
  for (std::size_t i = 0; i < rows.size(); ++i) out += (i == 0 ? "\n    " : ",\n    ") + json_of(rows[i]);
  return out + "\n  ]\n}\n";
}

}  // namespace sealring::bench
