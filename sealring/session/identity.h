// Who a rank is: the attester makes its evidence, the verifier judges everybody's (protocol A.1, A.2).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "sealring/base/bytes.h"
#include "sealring/base/result.h"
#include "sealring/base/secret.h"
#include "sealring/base/types.h"

namespace sealring {

/// The M1 message, fixed layout, big-endian, in this order.
struct Hello {
  static constexpr std::uint16_t kVersion = 1;
  static constexpr std::size_t kBytes = 2 + 2 + 4 + 4 + 4 + 16 + 32 * 6;
  std::uint16_t version = kVersion;
  Suite suite = Suite::aes_256_gcm;
  std::uint32_t world = 0;
  std::uint32_t rank = 0;
  std::uint8_t cpu_type = 0;
  std::uint8_t gpu_type = 0;
  IdentityKind identity = IdentityKind::job_key;
  std::uint8_t flags = 0;
  std::array<std::byte, 16> job_id{};
  std::array<std::byte, 32> policy_hash{}, config_hash{}, nonce{}, share{}, cpu_id{}, gpu_id{};

  Bytes encode() const;
  /// Errors: VERSION before anything else is parsed, MALFORMED.
  static Result<Hello> decode(ByteView bytes);
};

/// M2: seven fields, each possibly empty, 64 KiB in all.
struct Evidence {
  Bytes job_mac, cpu_report, cpu_chain, gpu_report, gpu_chain, ocsp, crl;
  Bytes encode() const;
  /// Errors: MALFORMED (limits of protocol A.2, exact consumption).
  static Result<Evidence> decode(ByteView bytes);
};

enum class Phase : std::uint8_t { join = 1, post = 2, reattest = 3 };

/// What a piece of evidence must be bound to. `context` is TH1 || u32 i || H(HELLO_i) for join, and
/// TH3 || exporter || u32 i for post.
struct Claim {
  Phase phase = Phase::join;
  Rank rank = 0;
  Bytes context;
};

/// Makes this rank's evidence. Called from the thread that runs the handshake; may block.
class Attester {
 public:
  virtual ~Attester() = default;
  virtual IdentityKind kind() const = 0;
  /// Fills cpu_type, gpu_type, cpu_id, gpu_id of my HELLO.
  virtual Result<void> describe(Hello& hello) = 0;
  virtual Result<Evidence> quote(const Claim& claim) = 0;
  /// The pre-shared key of Noise_KKpsk0, given TH1; nullopt for plain KK (fixed by the kind, protocol A.1).
  virtual std::optional<SecretBytes> noise_psk(ByteView th1) const = 0;
};

/// Judges a peer's evidence. Errors carry protocol A.5's codes.
class Verifier {
 public:
  virtual ~Verifier() = default;
  virtual Result<void> verify(const Evidence& evidence, const Claim& claim, const Hello& hello) const = 0;
};

/// Both roles of one identity, made together.
struct Identity {
  std::unique_ptr<Attester> attester;
  std::unique_ptr<Verifier> verifier;
  std::array<std::byte, 16> job_id{};  ///< Expand(JK, L("job_id"), 16), or the policy's
  std::string description;             ///< "job key, not attested", for logs and reports
  std::string fingerprint;             ///< of the job key: first 8 bytes of SHA-256 of a derived value, hex
  SecretBytes store_secret;  ///< Extract(L("rdv"), key bytes), for our own store; empty without job key
};

/// A job key: 32 random bytes in a file `sealring-job-key-1 <base64>` (optionally followed by ` world=N`).
class JobKey {
 public:
  static JobKey generate();
  /// Opens, then checks by fstat: a regular file, mode 0600 or 0400, owned by me or root, no symbolic link
  /// except under a Kubernetes secret mount. Errors: KEY_FILE, saying which rule and the command that mends
  /// it.
  static Result<JobKey> read(const std::string& path);
  static Result<JobKey> parse(std::string_view text);
  /// Creates the file with mode 0600, never overwriting. Errors: KEY_FILE, NO_SPACE.
  Result<void> write(const std::string& path) const;
  JobKey clone() const;
  const SecretBytes& bytes() const { return bytes_; }
  std::optional<std::uint32_t> world() const { return world_; }
  std::string fingerprint() const;

 private:
  SecretBytes bytes_;
  std::optional<std::uint32_t> world_;
};

/// Identity kind 1.
Identity make_job_key_identity(const JobKey& key);
/// Identity kind 0xF1 for the study's plain and chained-gmac workers.
Identity make_study_identity(const JobKey& run_key);
/// Identity kind 0xF0 (tests): a P-256 "platform" key signed by a root made at test time signs a minimal
/// struct. Members that are to trust each other are made by one SimulatedRoot.
class SimulatedRoot {
 public:
  SimulatedRoot();
  ~SimulatedRoot();
  Identity make_identity(std::array<std::byte, 16> job_id) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sealring
