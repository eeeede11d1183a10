// The Python module `sealring._C`. Included once, by backend.cc.
#pragma once

#include <string>
#include <vector>

#include "python/sealring/torch_group.h"
#include "sealring/collective/schedule.h"

namespace sealring::torch_backend {

inline py::dict counters_dict(const Counters& c) {
  py::dict out;
  out["ops"] = c.ops;
  out["seals"] = c.seals;
  out["opens"] = c.opens;
  out["sealed_segments"] = c.sealed_segments;
  out["opened_segments"] = c.opened_segments;
  out["sealed_bytes"] = c.sealed_bytes;
  out["opened_bytes"] = c.opened_bytes;
  out["seal_ns"] = c.seal_ns;
  out["open_ns"] = c.open_ns;
  out["wire_ns"] = c.wire_ns;
  out["epoch"] = c.epoch;
  return out;
}

inline py::dict SealedBackend::counters() const {
  return counters_dict(usable("sealring.counters").counters());
}

inline py::dict SealedBackend::describe() const {
  const Communicator& comm = usable("sealring.describe");
  const CommConfig& config = live_->session->config();
  py::dict out = counters_dict(comm.counters());
  out["backend"] = request_.backend_name;
  out["group"] = label_->name;
  out["rank"] = rank_;
  out["ranks"] = size_;
  out["global_ranks"] = request_.torch_ranks;
  out["suite"] = std::string(to_string(config.suite));
  out["algorithm"] = config.algorithm ? std::string(to_string(*config.algorithm)) : "auto";
  out["segment_bytes"] = config.segment_bytes;
  out["node_ranks"] = config.node_ranks;
  out["identity"] = live_->session->identity();
  out["key_fingerprint"] = live_->fingerprint;
  out["transport"] = live_->session->transport();
  out["timeout_s"] = static_cast<double>(label_->timeout_ms) / 1000;
  out["setup_s"] = static_cast<double>(live_->session->setup_ns()) / 1e9;
  const auto error = live_->session->error();
  out["error"] = error ? py::cast(error->message()) : py::none();
  out["line"] = comm.describe();
  return out;
}

/// The Python face of StudySettings: (suite, algorithm, segment_bytes, (a_us, b_ns_per_kib, mode),
/// job_key_file).
inline StudySettings study_settings(const std::string& suite, const std::string& algorithm,
                                    std::optional<std::uint32_t> segment_bytes,
                                    const std::optional<std::tuple<double, double, std::string>>& emulate,
                                    std::string job_key_file) {
  constexpr const char* kStage = "study_backend";
  StudySettings out;
  const auto known_suite = parse_suite(suite);
  if (!known_suite) raise(Code::invalid_argument, kStage, "unknown suite '" + suite + "'");
  out.suite = *known_suite;
  if (algorithm != "auto") {
    out.algorithm = parse_algorithm(algorithm);
    if (!out.algorithm) raise(Code::invalid_argument, kStage, "unknown algorithm '" + algorithm + "'");
  }
  out.segment_bytes = segment_bytes;
  out.job_key_file = std::move(job_key_file);
  if (!emulate) return out;
  const auto& [a_us, b_ns_per_kib, mode] = *emulate;
  if (out.suite != Suite::plain) raise(Code::invalid_argument, kStage, "only suite plain can emulate a cost");
  if ((mode != "inline" && mode != "offload") || !(a_us >= 0) || !(b_ns_per_kib >= 0))
    raise(Code::invalid_argument, kStage,
          "emulate takes (a_us >= 0, b_ns_per_kib >= 0, 'inline' or 'offload')");
  out.emulation = Emulation{a_us, b_ns_per_kib, mode == "offload"};
  return out;
}

inline std::chrono::milliseconds effective_timeout(const Environment& env,
                                                   std::chrono::duration<float> given) {
  const auto timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(static_cast<double>(given.count()) * 1000));
  // An argument beats the variable; the variable beats PyTorch's default, which cannot be told from the same
  // argument.
  if (env.timeout_s && timeout == kBackendDefaultTimeout)
    return std::chrono::milliseconds(static_cast<std::int64_t>(*env.timeout_s * 1000));
  if (timeout < std::chrono::milliseconds(1))
    raise(Code::invalid_argument, "timeout", "the timeout is not positive");
  return timeout;
}

/// The creator of register_backend(extended_api=True). Blocks in the handshake, without the GIL.
inline c10::intrusive_ptr<c10d::Backend> create(c10d::DistributedBackendOptions& options, std::string name,
                                                std::optional<StudySettings> study) {
  SessionRequest request;
  request.backend_name = std::move(name);
  request.study = std::move(study);
  request.rank = options.group_rank;
  request.size = options.group_size;
  request.torch_ranks = options.global_ranks_in_group;
  request.is_world = request.torch_ranks.empty();  // PyTorch's way to say 0..n-1
  if (request.is_world)
    for (int i = 0; i < request.size; ++i) request.torch_ranks.push_back(i);
  const auto env = Environment::read();
  if (!env) raise(env.error());
  request.timeout = effective_timeout(*env, options.timeout);
  request.blocking_wait = env->blocking_wait;
  const py::gil_scoped_release free_gil;
  return c10::make_intrusive<SealedBackend>(std::move(request), options.group_id, options.store);
}

inline const SealedBackend& sealed(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto* group = dynamic_cast<const SealedBackend*>(backend.get());
  if (group == nullptr)
    raise(Code::invalid_argument, "sealring", "this group's backend is '" + backend->getBackendName() + "'",
          "make the group with backend 'sealring'");
  return *group;
}

/// What an operation costs a rank, from its schedule: seals, opens, bytes and segments.
inline py::dict predict(const std::string& op, std::uint64_t elements, std::uint32_t element_bytes,
                        std::uint16_t world, Rank rank, const std::string& algorithm,
                        std::uint32_t segment_bytes, Rank root, std::uint16_t node_ranks) {
  const auto known_op = parse_op(op);
  if (!known_op) raise(Code::invalid_argument, "predict", "unknown operation '" + op + "'");
  auto chosen = parse_algorithm(algorithm);
  if (!chosen && algorithm != "auto")
    raise(Code::invalid_argument, "predict", "unknown algorithm '" + algorithm + "'");
  if (!chosen || !algorithm_supported(*known_op, *chosen))
    chosen = default_algorithm(*known_op, world, elements * element_bytes, node_ranks);
  if (rank >= world || segment_bytes == 0)
    raise(Code::invalid_argument, "predict", "rank >= world, or no segment size");
  if (node_ranks != 0 && world % node_ranks != 0)
    raise(Code::invalid_argument, "predict", "node_ranks do not divide world");
  ScheduleRequest request;
  request.op = *known_op;
  request.algorithm = *chosen;
  request.rank = rank;
  request.world = world;
  request.elements = elements;
  request.root = root;
  request.node_ranks = node_ranks;
  const ScheduleCost cost = cost_of(make_schedule(request), element_bytes, segment_bytes);
  py::dict out;
  out["algorithm"] = std::string(to_string(*chosen));
  out["seals"] = cost.seals;
  out["opens"] = cost.opens;
  out["sealed_bytes"] = cost.sealed_bytes;
  out["opened_bytes"] = cost.opened_bytes;
  out["sealed_segments"] = cost.sealed_segments;
  out["opened_segments"] = cost.opened_segments;
  return out;
}

}  // namespace sealring::torch_backend

PYBIND11_MODULE(_C, module) {
  namespace here = sealring::torch_backend;
  namespace py = pybind11;
  module.def("create", [](c10d::DistributedBackendOptions& options) {
    return here::create(options, "sealring", std::nullopt);
  });
  module.def("create_study", [](c10d::DistributedBackendOptions& options, const std::string& suite,
                                const std::string& algorithm, std::optional<std::uint32_t> segment_bytes,
                                const std::optional<std::tuple<double, double, std::string>>& emulate,
                                const std::string& key_file) {
    return here::create(options, "sealring_study",
                        here::study_settings(suite, algorithm, segment_bytes, emulate, key_file));
  });
  module.def("check_study", [](const std::string& suite, const std::string& algorithm,
                               std::optional<std::uint32_t> segment_bytes,
                               const std::optional<std::tuple<double, double, std::string>>& emulate) {
    (void)here::study_settings(suite, algorithm, segment_bytes, emulate, "");
  });
  module.def("describe",
             [](const c10::intrusive_ptr<c10d::Backend>& b) { return here::sealed(b).describe(); });
  module.def("counters",
             [](const c10::intrusive_ptr<c10d::Backend>& b) { return here::sealed(b).counters(); });
  module.def("predict", &here::predict, py::arg("op"), py::arg("elements"), py::arg("element_bytes"),
             py::arg("world"), py::arg("rank"), py::arg("algorithm") = "auto",
             py::arg("segment_bytes") = 256 * 1024, py::arg("root") = 0, py::arg("node_ranks") = 0);
  module.def("format_error", [](const std::string& code, const std::string& stage, const std::string& what,
                                const std::string& next) {
    const auto* info = sealring::find_code(code);
    return sealring::fail(info == nullptr ? sealring::Code::invalid_argument : info->code, stage, what, next)
        .value()
        .message();
  });
  module.def("close_all", [] {
    const py::gil_scoped_release free_gil;
    here::SessionRegistry::instance().close_all(std::chrono::seconds(2));
  });
}
