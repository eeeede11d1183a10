#include "sealring/ddp/workload.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace sealring {
namespace {

using nlohmann::json;

constexpr std::size_t kParametersMax = 100'000;
constexpr std::size_t kFileBytesMax = 16u << 20;
constexpr std::uint64_t kElementsMax = 1ull << 48;

Result<Parameter> parse_parameter(const json& in) {
  Parameter out;
  out.name = in.at("name");
  out.shape = in.at("shape").get<std::vector<std::uint64_t>>();
  out.elements = 1;
  for (const std::uint64_t extent : out.shape) {
    if (extent == 0 || extent > kElementsMax / out.elements) {
      return fail(Code::malformed, "ddp.workload", "parameter " + out.name + " has an impossible shape");
    }
    out.elements *= extent;
  }
  return out;
}

Result<Workload> parse(const json& in) {
  if (in.at("schema") != "sealring-workload-1") {
    return fail(Code::malformed, "ddp.workload", "not a workload file of this version");
  }
  Workload out;
  out.id = in.at("id");
  out.name = in.at("name");
  out.provenance = in.at("provenance");
  out.sample = in.value("sample", "");
  out.batch_per_gpu = in.value("batch_per_gpu", 0u);
  const auto dtype = parse_dtype(in.at("dtype").get<std::string>());
  if (!dtype) return fail(Code::malformed, "ddp.workload", "unknown dtype");
  out.dtype = *dtype;
  const json& parameters = in.at("parameters");
  if (!parameters.is_array() || parameters.empty() || parameters.size() > kParametersMax) {
    return fail(Code::malformed, "ddp.workload", "no list of parameters");
  }
  for (const json& each : parameters) {
    SR_TRY(Parameter parameter, parse_parameter(each));
    out.parameters.push_back(std::move(parameter));
  }
  return out;
}

}  // namespace

std::uint64_t Workload::elements() const {
  std::uint64_t out = 0;
  for (const Parameter& parameter : parameters) out += parameter.elements;
  return out;
}

std::vector<std::uint64_t> Workload::parameter_bytes() const {
  std::vector<std::uint64_t> out;
  for (const Parameter& parameter : parameters) out.push_back(parameter.elements * dtype_bytes(dtype));
  return out;
}

Result<Workload> parse_workload(const std::string& text) {
  try {
    return parse(json::parse(text));
  } catch (const std::exception& problem) {
    return fail(Code::malformed, "ddp.workload", problem.what());
  }
}

Result<Workload> load_workload(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(Code::file, "ddp.workload", "cannot open " + path);
  std::ostringstream text;
  text << in.rdbuf();
  if (text.str().size() > kFileBytesMax) return fail(Code::malformed, "ddp.workload", path + " is too long");
  return parse_workload(text.str());
}

const std::vector<std::string>& paper_models() {
  static const std::vector<std::string> models{"resnet50",   "resnet101",  "bert-base",
                                               "bert-large", "gpt2-large", "gpt2-xl"};
  return models;
}

}  // namespace sealring
