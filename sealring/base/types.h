// The vocabulary that every layer shares: suites, operations, reductions, element types, algorithms, key
// kinds.
//
// The numbers go into authenticated data (docs/wire-format.md): assigned once, never reused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace sealring {

/// A rank of the whole session (global) or of a group, always said which. 16 bits on the wire.
using Rank = std::uint16_t;
/// "All members of the group" as a receiver in a record's context (protocol C.3).
inline constexpr Rank kMulticast = 0xFFFF;
/// "No root" in a record's context.
inline constexpr Rank kNoRoot = 0xFFFF;
inline constexpr std::uint32_t kRanksMax = 1024;

using Epoch = std::uint32_t;
using Lane = std::uint16_t;

/// The size of every AEAD tag here; shorter tags do not exist [SP 800-38D §5.2.1.2].
inline constexpr std::size_t kTagBytes = 16;
inline constexpr std::size_t kNonceBytes = 12;

enum class Suite : std::uint16_t {
  aes_256_gcm = 1,
  aes_128_gcm = 2,
  chacha20_poly1305 = 3,
  plain = 0xF0,         ///< study only: copies, zero tag
  chained_gmac = 0xF1,  ///< study only: the published study's scheme
};

enum class Op : std::uint8_t {
  all_reduce = 1,
  reduce_scatter = 2,
  all_gather = 3,
  broadcast = 4,
  barrier = 5,
  send = 6,
  all_to_all = 7,
  reduce = 8,
  gather = 9,
  scatter = 10,
};

enum class RedOp : std::uint8_t { none = 0, sum = 1, avg = 2, premul_sum = 3, min = 4, max = 5, product = 6 };

enum class DType : std::uint8_t {
  f32 = 1,
  f64 = 2,
  f16 = 3,
  bf16 = 4,
  i8 = 5,
  i32 = 6,
  i64 = 7,
  u8 = 8,
  boolean = 9,
  i16 = 10,
};

enum class Algorithm : std::uint8_t {
  ring = 1,
  one_hop = 2,
  one_shot = 3,
  ring_forward = 4,
  tree = 5,
  direct = 6,
  two_level = 7
};

/// What a key or a connection is for; one key belongs to exactly one kind (protocol A.3).
enum class Kind : std::uint8_t { pair = 1, p2p = 2, ctl = 3, conn = 4, sender = 5 };

/// Where a rank's identity comes from (protocol A.1).
enum class IdentityKind : std::uint8_t {
  job_key = 1,
  tee = 2,
  tee_job_key = 3,
  simulated_tee = 0xF0,
  study = 0xF1
};

/// Bytes of one element.
std::uint32_t dtype_bytes(DType dtype);
bool dtype_is_float(DType dtype);

/// Key bytes of a suite: 32, 16, 32; 0 for plain.
std::uint32_t suite_key_bytes(Suite suite);
bool suite_is_study(Suite suite);

/// The names used in tables, options and messages: "aes-256-gcm", "all_reduce", "sum", "bf16", "one-hop".
std::string_view to_string(Suite suite);
std::string_view to_string(Op op);
std::string_view to_string(RedOp redop);
std::string_view to_string(DType dtype);
std::string_view to_string(Algorithm algorithm);
std::string_view to_string(Kind kind);
std::string_view to_string(IdentityKind identity);

std::optional<Suite> parse_suite(std::string_view text);
std::optional<Op> parse_op(std::string_view text);
std::optional<RedOp> parse_redop(std::string_view text);
std::optional<DType> parse_dtype(std::string_view text);
std::optional<Algorithm> parse_algorithm(std::string_view text);

/// Every enumerator, for tables and exhaustive tests.
std::span<const Suite> all_suites();
std::span<const Op> all_ops();
std::span<const RedOp> all_redops();
std::span<const DType> all_dtypes();
std::span<const Algorithm> all_algorithms();

}  // namespace sealring
