// CommConfig: every setting of a session, its canonical text (hashed into HELLO), and the environment that
// fills it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "sealring/base/result.h"
#include "sealring/base/types.h"
#include "sealring/wire/nonce_sequence.h"

namespace sealring {

enum class OnError : std::uint8_t { exit, raise };

/// A cost added to every crypto operation of suite plain: a + b * bytes (study: "emulated" rows only).
struct Emulation {
  double a_us = 0;  ///< per record
  double b_ns_per_kib = 0;
  bool offload = false;  ///< false: the engine is busy meanwhile; true: the record is only late
};

struct CommConfig {
  Rank rank = 0;
  std::uint16_t world = 1;
  Suite suite = Suite::aes_256_gcm;
  std::uint32_t segment_bytes = 256 * 1024;  ///< 16 KiB to 1 MiB, a multiple of 64
  std::optional<Algorithm> algorithm;        ///< nullopt: default_algorithm
  bool sender_keys = true;
  Lane lanes = 1;
  /// Ranks of each node, in rank order (0 to node_ranks-1 on the first): world is a multiple of it. 0: not
  /// known, or one node. It says where ranks lie, and a wrong number costs time, not right results.
  std::uint16_t node_ranks = 0;
  KeyBudget budget;  ///< lowered by tests only

  // Not part of the agreement between ranks:
  std::chrono::milliseconds timeout{1'800'000};        ///< of each operation
  std::chrono::milliseconds connect_timeout{300'000};  ///< of the handshake and the connections
  std::chrono::milliseconds heartbeat{100};
  /// How long the process may live on after the session died, unless the program closes or destroys the
  /// session; then the process ends with status 1. Without it, it is never ended.
  std::optional<std::chrono::milliseconds> exit_after;
  std::optional<Emulation> emulation;  ///< refused unless suite is plain
  unsigned workers = 0;                ///< crypto worker threads a group; 0: in the executor's thread

  /// "name=value\n" of the agreed settings, in a fixed order: config_hash = SHA-256 of it (protocol A.2).
  std::string canonical() const;
};

/// The process environment, checked once. An unknown SEALRING_* is an error that names the nearest known one.
struct Environment {
  std::string job_key_file;
  std::optional<Suite> suite;
  std::string socket_ifname, port_range;
  std::uint16_t port_min = 0, port_max = 0;  ///< port_range parsed; 0: any port
  std::optional<double> timeout_s;
  std::uint16_t node_ranks = 0;  ///< as CommConfig
  OnError on_error = OnError::exit;
  bool blocking_wait = false, require = false, allow_mixed = false, harden = false;
  std::string path;  ///< "", "staged", "fused"
  std::string log = "text";

  /// Errors: ENVIRONMENT with the variable, what it takes, and the nearest name.
  static Result<Environment> read();
  /// The same from given variables, for tests.
  static Result<Environment> parse(const std::map<std::string, std::string>& variables);
};

}  // namespace sealring
