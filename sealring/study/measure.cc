#include "sealring/study/measure.h"

#include <fmt/format.h>

#include <algorithm>

#include "sealring/ddp/bucketizer.h"
#include "sealring/ddp/workload.h"
#include "sealring/study/cipher_rate.h"
#include "sealring/study/count_law.h"
#include "sealring/study/python_place.h"
#include "sealring/study/workers.h"

namespace sealring {
namespace {

using nlohmann::json;

constexpr std::uint32_t kSearchIterations = 6;
constexpr std::uint32_t kWarmup = 3;  // DDP rebuilds its buckets after the first iteration
constexpr std::uint32_t kNoSyncIterations = 5;
constexpr std::uint32_t kSetupRepetitions = 5;
constexpr std::uint64_t kSmallRecordBytes = 64;

class LaptopStudy {
 public:
  LaptopStudy(const StudyOptions& options, StudyResults results, Workers workers)
      : options_(options),
        results_(std::move(results)),
        workers_(std::move(workers)),
        progress_(0, options.quiet),
        start_(Clock::now()),
        wall_before_s_(results_.wall_s) {}

  Result<StudyResults> run() {
    SR_TRY(describe());
    for (const ModelRecord& model : results_.models) {
      if (wanted(model.id)) SR_TRY(search(model.id));
    }
    progress_.expect(steps_left());
    results_.emulation = fit_emulation(results_);
    SR_TRY(measure_blocks());
    SR_TRY(save());
    return std::move(results_);
  }

 private:
  bool wanted(const std::string& model) const { return options_.only.empty() || options_.only == model; }
  bool out_of_time() const {
    return options_.budget_s > 0 && Clock::now() - start_ > std::chrono::duration<double>(options_.budget_s);
  }
  Result<void> save() {
    results_.ended = utc_now();
    results_.wall_s = wall_before_s_ + std::chrono::duration<double>(Clock::now() - start_).count();
    return save_results(results_, options_.output);
  }

  /// Models and versions as the workers say; the parts that need no training.
  Result<void> describe() {
    SR_TRY(read_ready());
    const auto known = [&](const ModelRecord& model) { return wanted(model.id); };
    if (std::none_of(results_.models.begin(), results_.models.end(), known)) {
      return fail(Code::invalid_argument, "study.measure", "there is no model \"" + options_.only + "\"",
                  "the models are resnet and gpt2");
    }
    if (results_.counts.empty()) {
      progress_.begin("counting operations");
      SR_TRY(results_.counts, count_law());
    }
    SR_TRY(unless_interrupted());
    if (results_.setups.empty()) {
      progress_.begin("starting sessions");
      SR_TRY(results_.setups, measure_setups(kSetupRepetitions));
    }
    SR_TRY(unless_interrupted());
    progress_.begin("one core's cipher rates");
    if (results_.ciphers.empty()) SR_TRY(measure_ciphers());
    progress_.expect(steps_left());  // only now: the time left is estimated from the cases alone
    return read_workloads();
  }

  /// The parts without workers do not wait for anything that an interrupt would end.
  static Result<void> unless_interrupted() {
    if (interrupted()) return fail(Code::aborted, "study.measure", "interrupted by a signal");
    return {};
  }

  /// Cases still to be run, as far as is known before each engine's best cap is.
  std::uint32_t steps_left() {
    constexpr std::size_t kFinalCases = 10;  // of a model, if no engine's best cap is 25
    std::size_t out = 0;
    for (const ModelRecord& model : results_.models) {
      if (!wanted(model.id)) continue;
      const std::size_t blocks = options_.blocks - std::min(options_.blocks, blocks_done(model.id));
      if (searched(model.id)) {
        out += blocks * final_cases(results_, model.id).size();
      } else {
        out += search_cases(model.id, laptop_caps_mib()).size() + blocks * kFinalCases;
      }
    }
    return static_cast<std::uint32_t>(out);
  }

  Result<void> read_ready() {
    try {
      const json& ready = workers_.ready();
      results_.torch = ready.at("torch");
      results_.python = ready.at("python");
      results_.cpus_per_rank = workers_.cpus_per_rank();
      if (!results_.models.empty()) return {};  // resumed
      for (const auto& [id, about] : ready.at("models").items()) {
        results_.models.push_back({id, id == "resnet" ? "small ResNet" : "small GPT-2",
                                   about.at("description"), about.at("parameters"), about.at("batch")});
      }
      return {};
    } catch (const std::exception& problem) {
      return fail(Code::malformed, "study.worker", problem.what());
    }
  }

  Result<void> measure_ciphers() {
    for (const Suite suite : {Suite::aes_256_gcm, Suite::aes_128_gcm, Suite::chacha20_poly1305}) {
      CipherRateSpec spec;
      spec.suite = suite;
      spec.least_ns = 300'000'000;
      SR_TRY(const CipherRate rate, measure_cipher_rate(spec));
      spec.total_bytes = kSmallRecordBytes;
      spec.least_ns = 50'000'000;
      SR_TRY(const CipherRate small, measure_cipher_rate(spec));
      const double record_us = kSmallRecordBytes * (1 / small.seal_gb_s + 1 / small.open_gb_s) / 2 / 1000;
      results_.ciphers.push_back({std::string(to_string(suite)), rate.seal_gb_s, rate.open_gb_s, record_us});
    }
    return {};
  }

  /// The published study's models, by shapes alone. An installation without data/ has none.
  Result<void> read_workloads() {
    const std::string directory = data_directory();
    results_.workloads.clear();
    for (const std::string& id : paper_models()) {
      if (directory.empty()) break;
      SR_TRY(const Workload workload, load_workload(directory + "/workloads/" + id + ".json"));
      const auto sizes = workload.parameter_bytes();
      results_.workloads.push_back({workload.id, workload.name, workload.elements(),
                                    assign_buckets(sizes).size(), assign_buckets(sizes, 400u << 20).size()});
    }
    return {};
  }

  /// Runs cases in a drawn order and appends them as one block.
  Result<void> run_block(int stage, std::uint32_t number, const std::string& model,
                         const std::vector<CaseRecord>& cases, std::uint32_t iterations) {
    BlockRecord block;
    block.stage = stage;
    block.block = number;
    block.model = model;
    block.machine = static_cast<std::uint32_t>(results_.machines.size() - 1);
    const std::string name = fmt::format("{}/{}/{}", stage, number, model);
    const std::string place =
        stage == 1 ? std::string("search") : fmt::format("block {}/{}", number + 1, options_.blocks);
    for (const std::size_t index : block_order(results_.seed, name, cases.size())) {
      const CaseRecord& record = cases[index];
      progress_.begin(fmt::format("{}: {}", place, record.id));
      SR_TRY(RunRecord run, run_case(record, iterations, fmt::format("{}/{}", name, record.id)));
      block.runs.push_back(std::move(run));
      progress_.finish_step();
    }
    results_.blocks.push_back(std::move(block));
    progress_.log(fmt::format("{}, {}: finished", place, model));
    return save();
  }

  Result<RunRecord> run_case(const CaseRecord& record, std::uint32_t iterations, const std::string& name) {
    const EngineSpec* engine = find_engine(record.engine);
    SR_CHECK(engine != nullptr, "engine", record.engine);
    json command{{"name", fmt::format("{}/{}", name, ++commands_)},
                 {"model", record.model},
                 {"engine", engine->gloo ? "gloo" : "sealring"},
                 {"suite", record.suite},
                 {"algorithm", record.algorithm},
                 {"cap_mib", record.cap_mib},
                 {"warmup", kWarmup},
                 {"iterations", iterations},
                 {"no_sync", kNoSyncIterations}};
    if (engine->emulated) {
      const bool calibrates = engine->follows.empty();  // the copies of a sealed run without its cost
      const EmulationRecord cost = calibrates ? EmulationRecord{} : results_.emulation;
      command["emulate"] = {cost.a_us, cost.b_ns_per_kib, "inline"};
    }
    SR_TRY(const std::vector<json> answers, workers_.ask(command));
    return combine_answers(record.id, answers);
  }

  bool searched(const std::string& model) const {
    const auto done = [&](const BlockRecord& block) { return block.stage == 1 && block.model == model; };
    return std::any_of(results_.blocks.begin(), results_.blocks.end(), done);
  }

  Result<void> search(const std::string& model) {
    if (searched(model)) return {};  // resumed
    const std::vector<CaseRecord> cases = search_cases(model, laptop_caps_mib());
    results_.cases.insert(results_.cases.end(), cases.begin(), cases.end());
    SR_TRY(run_block(1, 0, model, cases, kSearchIterations));
    choose_best_caps(results_, model);
    return {};
  }

  std::uint32_t blocks_done(const std::string& model) const {
    const auto counts = [&](const BlockRecord& block) { return block.stage == 2 && block.model == model; };
    return static_cast<std::uint32_t>(std::count_if(results_.blocks.begin(), results_.blocks.end(), counts));
  }

  /// Block by block, the models in turn, so that a budget ends with all models equally far.
  Result<void> measure_blocks() {
    for (std::uint32_t block = 0; block < options_.blocks; ++block) {
      for (const ModelRecord& model : results_.models) {
        if (!wanted(model.id) || blocks_done(model.id) > block) continue;
        if (out_of_time()) {
          progress_.note(fmt::format("budget of {:g} s used up after {} blocks of {}: --resume goes on",
                                     options_.budget_s, blocks_done(model.id), model.name));
          return {};
        }
        SR_TRY(run_block(2, block, model.id, final_cases(results_, model.id), options_.iterations));
      }
    }
    return {};
  }

  const StudyOptions& options_;
  StudyResults results_;
  Workers workers_;
  Progress progress_;
  Clock::time_point start_;
  double wall_before_s_ = 0;  ///< of earlier calls, when resumed
  std::uint32_t commands_ = 0;
};

tl::unexpected<Error> no_paper_preset(const Machine& machine) {
  const std::string what = "preset paper trains ResNet-50/101, BERT-Base/Large and GPT2-Large/XL on GPUs";
  if (machine.gpus.empty()) {
    return fail(Code::gpu_absent, "study.preset", what + "; this machine has none",
                "run --preset laptop here; it measures the same on CPU ranks with small models");
  }
  return fail(Code::unsupported, "study.preset", what + "; this release seals CPU tensors only",
              "run --preset laptop; nothing was measured");
}

/// Earlier results to go on with, or new ones.
Result<StudyResults> begin_results(const StudyOptions& options, const PythonPlace& place,
                                   const Machine& machine) {
  StudyResults results;
  if (!options.resume.empty()) {
    SR_TRY(results, load_results(options.resume));
    if (results.preset != options.preset || results.ranks != options.ranks ||
        results.iterations != options.iterations) {
      return fail(Code::results, "study.resume",
                  options.resume + " is of another preset, ranks or iterations",
                  "give the same --preset, --ranks and --iterations as then");
    }
  } else {
    results.preset = options.preset;
    results.seed = options.seed;
    results.ranks = options.ranks;
    results.iterations = options.iterations;
    results.commit = commit_of(place.root.empty() ? "." : place.root);
  }
  if (results.date.empty()) results.date = utc_now();
  results.machines.push_back(machine);
  return results;
}

}  // namespace

Result<StudyResults> run_study(const StudyOptions& options) {
  const Machine machine = read_machine();
  if (options.preset == "paper") return no_paper_preset(machine);
  if (options.preset != "laptop") {
    return fail(Code::invalid_argument, "study.preset", "there is no preset \"" + options.preset + "\"",
                "the presets are laptop and paper");
  }
  catch_interrupts();
  const PythonPlace place = find_python(options.python);
  SR_TRY(StudyResults results, begin_results(options, place, machine));
  SR_TRY(save_results(results, options.output));  // no space or no right to write: know it before measuring
  Progress starting(0, options.quiet);
  starting.begin(fmt::format("starting {} ranks with PyTorch", options.ranks));
  SR_TRY(Workers workers,
         Workers::start({place.interpreter, place.path, options.ranks, options.pin, options.timeout_s}));
  return LaptopStudy(options, std::move(results), std::move(workers)).run();
}

}  // namespace sealring
