// Identities by a shared key: job_key, and the study's. The simulated platform is in simulated_tee.cc.
#include "sealring/session/identity.h"

#include <fmt/format.h>

#include "sealring/crypto/kdf.h"

namespace sealring {
namespace {

constexpr std::size_t kMacKeyBytes = 64;

/// JK = Extract(L("job"), key bytes) [protocol A.1].
SecretBytes job_secret(const JobKey& key) { return hkdf_extract(label("job"), key.bytes().view()); }

/// The keys that prove a job key, one a phase: a proof of one phase is none of another.
class ProofKeys {
 public:
  explicit ProofKeys(const SecretBytes& job)
      : join_(hkdf_expand(job.view(), {label("id")}, kMacKeyBytes)),
        post_(hkdf_expand(job.view(), {label("post")}, kMacKeyBytes)),
        reattest_(hkdf_expand(job.view(), {label("reattest")}, kMacKeyBytes)) {}

  Hash512 prove(const Claim& claim) const {
    switch (claim.phase) {
      case Phase::join:
        return hmac_sha512(join_.view(), {claim.context});  // [protocol A.1] TH1 || u32 i || H(HELLO_i)
      case Phase::post:
        return hmac_sha512(post_.view(), {label("post"), claim.context});  // [protocol A.2 M6]
      case Phase::reattest:
        return hmac_sha512(reattest_.view(), {label("reattest"), claim.context});
    }
    SR_CHECK(false, "phase", static_cast<int>(claim.phase));
  }

 private:
  SecretBytes join_, post_, reattest_;
};

class KeyAttester final : public Attester {
 public:
  KeyAttester(IdentityKind kind, const JobKey& key)
      : kind_(kind), world_(key.world()), job_(job_secret(key)), proof_(job_) {}

  IdentityKind kind() const override { return kind_; }

  Result<void> describe(Hello& hello) override {
    if (world_ && *world_ != hello.world) {
      return fail(Code::roster_size, "handshake.hello",
                  fmt::format("the job key file states world={}, this rank was started with world size {}",
                              *world_, hello.world),
                  "start as many ranks as the key file states, or make another key");
    }
    hello.cpu_type = hello.gpu_type = 0;
    hello.cpu_id = hello.gpu_id = {};
    return {};
  }

  Result<Evidence> quote(const Claim& claim) override {
    Evidence evidence;
    evidence.job_mac = to_bytes(proof_.prove(claim));
    return evidence;
  }

  std::optional<SecretBytes> noise_psk(ByteView th1) const override {
    if (kind_ != IdentityKind::job_key)
      return std::nullopt;  // [protocol A.1] kinds 1 and 3 use KKpsk0, the others KK
    return hkdf_expand(job_.view(), {label("psk"), th1}, 32);
  }

 private:
  IdentityKind kind_;
  std::optional<std::uint32_t> world_;
  SecretBytes job_;
  ProofKeys proof_;
};

class KeyVerifier final : public Verifier {
 public:
  explicit KeyVerifier(const JobKey& key) : proof_(job_secret(key)) {}

  Result<void> verify(const Evidence& evidence, const Claim& claim, const Hello& /*hello*/) const override {
    for (const Bytes* field : {&evidence.cpu_report, &evidence.cpu_chain, &evidence.gpu_report,
                               &evidence.gpu_chain, &evidence.ocsp, &evidence.crl}) {
      if (!field->empty()) {
        return fail(Code::malformed, "handshake.evidence",
                    "evidence by job key holds fields of an attestation");
      }
    }
    Hash512 wanted = proof_.prove(claim);
    const bool same = constant_time_equal(wanted, evidence.job_mac);
    secure_wipe(wanted);  // a valid proof of somebody else's claim
    if (same) return {};
    return fail(Code::job_key, "handshake.evidence",
                fmt::format("rank {} proved another job key, or was shown another roster", claim.rank));
  }

 private:
  ProofKeys proof_;
};

Identity make_key_identity(IdentityKind kind, const JobKey& key, std::string description) {
  const SecretBytes job = job_secret(key);
  Identity identity;
  identity.attester = std::make_unique<KeyAttester>(kind, key);
  identity.verifier = std::make_unique<KeyVerifier>(key);
  const SecretBytes job_id = hkdf_expand(job.view(), {label("job_id")}, identity.job_id.size());
  std::memcpy(identity.job_id.data(), job_id.data(), job_id.size());
  identity.description = std::move(description);
  identity.fingerprint = key.fingerprint();
  identity.store_secret = hkdf_extract(label("rdv"), key.bytes().view());  // [protocol A.2] our own store
  return identity;
}

}  // namespace

std::string JobKey::fingerprint() const {
  const SecretBytes derived = hkdf_expand(job_secret(*this).view(), {label("fingerprint")}, 32);
  return to_hex(ByteView(sha256({derived.view()})).first(8));
}

Identity make_job_key_identity(const JobKey& key) {
  return make_key_identity(IdentityKind::job_key, key, "job key, not attested");
}

Identity make_study_identity(const JobKey& run_key) {
  return make_key_identity(IdentityKind::study, run_key, "study worker, NOT CONFIDENTIAL, not attested");
}

}  // namespace sealring
