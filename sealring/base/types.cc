#include "sealring/base/types.h"

#include "sealring/base/result.h"

namespace sealring {
namespace {

template <class T>
struct Named {
  T value;
  std::string_view name;
};
template <class T>
Named(T, const char*) -> Named<T>;  // clang 14 deduces no aggregate by itself

constexpr std::array kSuites{Suite::aes_256_gcm, Suite::aes_128_gcm, Suite::chacha20_poly1305, Suite::plain,
                             Suite::chained_gmac};
constexpr std::array kSuiteNames{Named{Suite::aes_256_gcm, "aes-256-gcm"},
                                 Named{Suite::aes_128_gcm, "aes-128-gcm"},
                                 Named{Suite::chacha20_poly1305, "chacha20-poly1305"},
                                 Named{Suite::plain, "plain"}, Named{Suite::chained_gmac, "chained-gmac"}};
constexpr std::array kOps{Op::all_reduce, Op::reduce_scatter, Op::all_gather, Op::broadcast, Op::barrier,
                          Op::send,       Op::all_to_all,     Op::reduce,     Op::gather,    Op::scatter};
constexpr std::array kOpNames{
    Named{Op::all_reduce, "all_reduce"}, Named{Op::reduce_scatter, "reduce_scatter"},
    Named{Op::all_gather, "all_gather"}, Named{Op::broadcast, "broadcast"},
    Named{Op::barrier, "barrier"},       Named{Op::send, "send"},
    Named{Op::all_to_all, "all_to_all"}, Named{Op::reduce, "reduce"},
    Named{Op::gather, "gather"},         Named{Op::scatter, "scatter"}};
constexpr std::array kRedOps{RedOp::none, RedOp::sum, RedOp::avg,    RedOp::premul_sum,
                             RedOp::min,  RedOp::max, RedOp::product};
constexpr std::array kRedOpNames{Named{RedOp::none, "none"},      Named{RedOp::sum, "sum"},
                                 Named{RedOp::avg, "avg"},        Named{RedOp::premul_sum, "premul_sum"},
                                 Named{RedOp::min, "min"},        Named{RedOp::max, "max"},
                                 Named{RedOp::product, "product"}};
constexpr std::array kDTypes{DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,
                             DType::i16, DType::i32, DType::i64, DType::u8,   DType::boolean};
constexpr std::array kDTypeNames{Named{DType::f32, "fp32"},  Named{DType::f64, "fp64"},
                                 Named{DType::f16, "fp16"},  Named{DType::bf16, "bf16"},
                                 Named{DType::i8, "int8"},   Named{DType::i16, "int16"},
                                 Named{DType::i32, "int32"}, Named{DType::i64, "int64"},
                                 Named{DType::u8, "uint8"},  Named{DType::boolean, "bool"}};
constexpr std::array kAlgorithms{Algorithm::ring,         Algorithm::one_hop, Algorithm::one_shot,
                                 Algorithm::ring_forward, Algorithm::tree,    Algorithm::direct,
                                 Algorithm::two_level};
constexpr std::array kAlgorithmNames{
    Named{Algorithm::ring, "ring"},          Named{Algorithm::one_hop, "one-hop"},
    Named{Algorithm::one_shot, "one-shot"},  Named{Algorithm::ring_forward, "ring-forward"},
    Named{Algorithm::tree, "tree"},          Named{Algorithm::direct, "direct"},
    Named{Algorithm::two_level, "two-level"}};

template <class T, std::size_t N>
std::string_view name_in(const std::array<Named<T>, N>& names, T value) {
  for (const auto& entry : names) {
    if (entry.value == value) return entry.name;
  }
  return "?";
}

template <class T, std::size_t N>
std::optional<T> value_in(const std::array<Named<T>, N>& names, std::string_view text) {
  for (const auto& entry : names) {
    if (entry.name == text) return entry.value;
  }
  return std::nullopt;
}

}  // namespace

std::uint32_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
      return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return 1;
  }
  SR_CHECK(false, "dtype", static_cast<int>(dtype));
}

bool dtype_is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

std::uint32_t suite_key_bytes(Suite suite) {
  switch (suite) {
    case Suite::aes_128_gcm:
      return 16;
    case Suite::aes_256_gcm:
    case Suite::chacha20_poly1305:
    case Suite::chained_gmac:
      return 32;
    case Suite::plain:
      return 0;
  }
  return 0;
}

bool suite_is_study(Suite suite) { return suite == Suite::plain || suite == Suite::chained_gmac; }

std::string_view to_string(Suite suite) { return name_in(kSuiteNames, suite); }
std::string_view to_string(Op op) { return name_in(kOpNames, op); }
std::string_view to_string(RedOp redop) { return name_in(kRedOpNames, redop); }
std::string_view to_string(DType dtype) { return name_in(kDTypeNames, dtype); }
std::string_view to_string(Algorithm algorithm) { return name_in(kAlgorithmNames, algorithm); }

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::pair:
      return "pair";
    case Kind::p2p:
      return "p2p";
    case Kind::ctl:
      return "ctl";
    case Kind::conn:
      return "conn";
    case Kind::sender:
      return "sender";
  }
  return "?";
}

std::string_view to_string(IdentityKind identity) {
  switch (identity) {
    case IdentityKind::job_key:
      return "job key";
    case IdentityKind::tee:
      return "tee";
    case IdentityKind::tee_job_key:
      return "tee + job key";
    case IdentityKind::simulated_tee:
      return "simulated tee";
    case IdentityKind::study:
      return "study";
  }
  return "?";
}

std::optional<Suite> parse_suite(std::string_view text) { return value_in(kSuiteNames, text); }
std::optional<Op> parse_op(std::string_view text) { return value_in(kOpNames, text); }
std::optional<RedOp> parse_redop(std::string_view text) { return value_in(kRedOpNames, text); }
std::optional<DType> parse_dtype(std::string_view text) { return value_in(kDTypeNames, text); }
std::optional<Algorithm> parse_algorithm(std::string_view text) { return value_in(kAlgorithmNames, text); }

std::span<const Suite> all_suites() { return kSuites; }
std::span<const Op> all_ops() { return kOps; }
std::span<const RedOp> all_redops() { return kRedOps; }
std::span<const DType> all_dtypes() { return kDTypes; }
std::span<const Algorithm> all_algorithms() { return kAlgorithms; }

}  // namespace sealring
