// Identity kind 0xF0, for tests: a platform key signed by a root that is made at run time signs a minimal
// struct.
//
// cpu_report = version u16 || report_data[64] || u16 length || signature by the platform over the 66 bytes
// before it cpu_chain  = platform public key[65] || u16 length || signature by the root over
// L("simulated-platform") || key
#include <fmt/format.h>

#include "sealring/crypto/kdf.h"
#include "sealring/crypto/sign.h"
#include "sealring/session/identity.h"

namespace sealring {
namespace {

constexpr std::uint8_t kSimulatedCpu = 0xF0;
constexpr std::uint16_t kReportVersion = 1;

/// What the platform signs for a claim [protocol A.2]: the formula of CPU reports, with an empty GPU report
/// and chain.
Hash512 report_data(const Claim& claim) {
  switch (claim.phase) {
    case Phase::join: {
      const Hash512 nothing = sha512({});
      const Hash512 gpu = sha512({nothing, nothing});  // H(H(gpu_report_i) || H(gpu_chain_i))
      return sha512({label("cpu"), claim.context, gpu});
    }
    case Phase::post:
      return sha512({label("post"), claim.context});
    case Phase::reattest:
      return sha512({label("reattest"), claim.context});
  }
  SR_CHECK(false, "phase", static_cast<int>(claim.phase));
}

Bytes chain_message(const P256Public& platform) {
  return ByteWriter().put(ByteView(label("simulated-platform"))).put(platform).take();
}

void put_signature(ByteWriter& out, const Bytes& signature) {
  out.put(static_cast<std::uint16_t>(signature.size())).put(ByteView(signature));
}

class SimulatedAttester final : public Attester {
 public:
  SimulatedAttester(P256Key platform, Bytes root_signature)
      : platform_(std::move(platform)), root_signature_(std::move(root_signature)) {}

  IdentityKind kind() const override { return IdentityKind::simulated_tee; }

  Result<void> describe(Hello& hello) override {
    hello.cpu_type = kSimulatedCpu;
    hello.gpu_type = 0;
    hello.cpu_id = sha256({platform_.public_key()});
    hello.gpu_id = {};
    return {};
  }

  Result<Evidence> quote(const Claim& claim) override {
    ByteWriter report, chain;
    report.put(kReportVersion).put(report_data(claim));
    const Bytes signature = platform_.sign(report.bytes());
    put_signature(report, signature);
    chain.put(platform_.public_key());
    put_signature(chain, root_signature_);
    Evidence evidence;
    evidence.cpu_report = report.take();
    evidence.cpu_chain = chain.take();
    return evidence;
  }

  std::optional<SecretBytes> noise_psk(ByteView /*th1*/) const override { return std::nullopt; }

 private:
  P256Key platform_;
  Bytes root_signature_;
};

class SimulatedVerifier final : public Verifier {
 public:
  explicit SimulatedVerifier(const P256Public& root) : root_(root) {}

  Result<void> verify(const Evidence& evidence, const Claim& claim, const Hello& hello) const override {
    const auto refuse = [&claim](Code code, std::string_view what) {
      return fail(code, "handshake.evidence", fmt::format("rank {}: {}", claim.rank, what));
    };
    ByteReader chain(evidence.cpu_chain), report(evidence.cpu_report);
    const P256Public platform = chain.array<65>();
    const ByteView root_signature = chain.take(chain.get<std::uint16_t>());
    const auto version = report.get<std::uint16_t>();
    const auto bound_to = report.array<64>();
    const ByteView signature = report.take(report.get<std::uint16_t>());
    const bool only_cpu = evidence.job_mac.empty() && evidence.gpu_report.empty() &&
                          evidence.gpu_chain.empty() && evidence.ocsp.empty() && evidence.crl.empty();
    if (!chain.finished() || !report.finished() || version != kReportVersion || !only_cpu) {
      return refuse(Code::cpu_parse, "the simulated report has not the layout it must have");
    }
    if (!p256_verify(root_, chain_message(platform), root_signature)) {
      return refuse(Code::cpu_root, "the simulated platform is not signed by the trusted root");
    }
    if (!p256_verify(platform, ByteView(evidence.cpu_report).first(2 + 64), signature)) {
      return refuse(Code::cpu_sig, "the signature of the simulated report is wrong");
    }
    const Hash512 wanted = report_data(claim);
    if (sha256({platform}) != hello.cpu_id || !constant_time_equal(wanted, bound_to)) {
      return refuse(Code::report_data, "evidence is genuine but for another key, roster or GPU");
    }
    return {};
  }

 private:
  P256Public root_;
};

}  // namespace

struct SimulatedRoot::State {
  P256Key key = P256Key::generate();
};

SimulatedRoot::SimulatedRoot() : state_(std::make_unique<State>()) {}
SimulatedRoot::~SimulatedRoot() = default;

Identity SimulatedRoot::make_identity(std::array<std::byte, 16> job_id) const {
  P256Key platform = P256Key::generate();
  Bytes root_signature = state_->key.sign(chain_message(platform.public_key()));
  Identity identity;
  identity.attester = std::make_unique<SimulatedAttester>(std::move(platform), std::move(root_signature));
  identity.verifier = std::make_unique<SimulatedVerifier>(state_->key.public_key());
  identity.job_id = job_id;
  identity.description = "simulated tee, tests only";
  return identity;
}

}  // namespace sealring
