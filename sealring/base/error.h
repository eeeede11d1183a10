// Errors: one closed list of codes, one shape of message.
//
// Whatever a peer, an attacker, the machine, a file or a user can cause is an Error inside a Result; what
// only a programming mistake can cause is an SR_CHECK. A code has a number that never changes and is never
// reused; `sealring explain CODE` prints its entry of the table behind code_info().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sealring {

enum class Code : std::uint16_t {
  ok = 0,
  // 1xx: what this process was given (arguments, environment, files, ports, memory)
  invalid_argument = 101,
  unsupported = 102,
  environment = 103,
  file = 104,
  no_space = 105,
  key_file = 106,
  no_identity = 107,
  port = 108,
  store = 109,
  forked = 110,
  results = 111,
  interface_name = 112,
  out_of_memory = 113,
  mixed_backend = 114,
  required = 115,
  version_mismatch = 116,
  fd_limit = 117,
  gpu_absent = 120,
  gpu_unsupported = 121,
  cuda = 122,
  noise = 130,
  // 2xx: rendezvous and roster [protocol A.5]
  roster_size = 201,
  duplicate = 202,
  self_altered = 203,
  version = 204,
  suite = 205,
  identity = 206,
  policy_hash = 207,
  config = 208,
  job_id = 209,
  job_key = 210,
  rdv_key = 211,
  malformed = 212,
  // 3xx: CPU evidence
  cpu_parse = 301,
  cpu_sig = 302,
  cpu_chain = 303,
  cpu_root = 304,
  cpu_expired = 305,
  cpu_revoked = 306,
  cpu_debug = 307,
  cpu_vmpl = 308,
  cpu_tcb = 309,
  cpu_measurement = 310,
  report_data = 311,
  // 4xx: GPU evidence
  gpu_parse = 401,
  gpu_nonce = 402,
  gpu_sig = 403,
  gpu_chain = 404,
  gpu_root = 405,
  gpu_fwid = 406,
  gpu_identity = 407,
  gpu_mode = 408,
  gpu_rim_missing = 409,
  gpu_rim_sig = 410,
  gpu_rim_chain = 411,
  gpu_rim_expired = 412,
  gpu_rim_conflict = 413,
  gpu_measurement = 414,
  revocation_unknown = 415,
  // 5xx: pairs and confirmation
  pair_auth = 501,
  confirm = 502,
  post_evidence = 503,
  // 6xx: the data and control planes
  timeout = 601,
  data_tag = 602,
  peer_lost = 603,
  aborted = 604,
  op_mismatch = 605,
  launch_order = 606,
  // 7xx: local refusal before sealing
  key_limit = 701,
  seq_exhausted = 702,
  seq_reuse_guard = 703,
};

/// What happened, where, and what to do next. Never holds a secret: `expected` and `got` are public prefixes.
struct Error {
  Code code = Code::ok;
  std::int32_t rank = -1;  ///< the rank that reports it; -1: not known yet
  std::int32_t peer = -1;  ///< the global rank concerned; -1: none
  std::string stage;       ///< dotted place, e.g. "handshake.hello" or "data.open"
  std::string what;        ///< one sentence: what happened
  std::string expected;    ///< public prefix of the value wanted; may be empty
  std::string got;         ///< public prefix of the value met; may be empty
  std::string next;        ///< what to do; empty: the table's hint for the code
  std::string diagnosis;   ///< second line, only from authenticated data (recorder exchange); may be empty

  /// "SR-E602 rank=1 peer=0 stage=data.open expected=.. got=..: DATA_TAG: what; what to do" plus, for codes
  /// of sessions that never became ready (2xx..5xx), "; no key was released"; a second line holds
  /// `diagnosis`. Every field goes through displayed(): the line break before `diagnosis` is the only one.
  std::string message() const;
};

struct CodeInfo {
  Code code;
  std::string_view name;     ///< "DATA_TAG"
  std::string_view meaning;  ///< one sentence
  std::string_view hint;     ///< what to do
};

/// The entry of a code; every enumerator has one (tested).
const CodeInfo& code_info(Code code);
/// All entries, by rising number.
std::span<const CodeInfo> all_codes();
/// Finds a code by "602", "E602", "SR-E602", "DATA_TAG" or "data_tag"; nullptr when there is none.
const CodeInfo* find_code(std::string_view text);

}  // namespace sealring
