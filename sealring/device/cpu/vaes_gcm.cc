#include "sealring/device/cpu/vaes_gcm.h"

#include <intel-ipsec-mb.h>

#include "sealring/base/secret.h"

namespace sealring {
namespace {

/// The library's table of functions for this processor; nullptr without VAES and AVX-512. Made once, never
/// written again.
IMB_MGR* manager() {
  static IMB_MGR* const instance = []() -> IMB_MGR* {
    IMB_MGR* made = alloc_mb_mgr(0);
    if (made == nullptr) return nullptr;
    IMB_ARCH arch = IMB_ARCH_NONE;
    init_mb_mgr_auto(made, &arch);
    constexpr std::uint64_t kNeeded = IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ | IMB_FEATURE_AVX512_SKX;
    if (arch == IMB_ARCH_AVX512 && (made->features & kNeeded) == kNeeded) return made;
    free_mb_mgr(made);
    return nullptr;
  }();
  return instance;
}

class IpsecMbGcm final : public VaesGcm {
 public:
  IpsecMbGcm(Suite suite, ByteView key) : suite_(suite), expanded_(sizeof(gcm_key_data)) {
    if (suite_ == Suite::aes_128_gcm) {
      IMB_AES128_GCM_PRE(manager(), key.data(), expanded());
    } else {
      IMB_AES256_GCM_PRE(manager(), key.data(), expanded());
    }
  }

  Tag seal(const Nonce& nonce, ByteView aad, ByteView in, std::byte* out) const override {
    return run(nonce, aad, in, out, true);
  }
  Tag open_unverified(const Nonce& nonce, ByteView aad, ByteView in, std::byte* out) const override {
    return run(nonce, aad, in, out, false);
  }

 private:
  gcm_key_data* expanded() { return reinterpret_cast<gcm_key_data*>(expanded_.data()); }
  const gcm_key_data* expanded() const { return reinterpret_cast<const gcm_key_data*>(expanded_.data()); }

  Tag run(const Nonce& nonce, ByteView aad, ByteView in, std::byte* out, bool sealing) const {
    const auto* iv = reinterpret_cast<const std::uint8_t*>(nonce.data());
    const auto* extra = reinterpret_cast<const std::uint8_t*>(aad.data());
    std::byte none{};  // the library wants pointers, also to nothing
    auto* to = reinterpret_cast<std::uint8_t*>(in.empty() ? &none : out);
    const auto* from = reinterpret_cast<const std::uint8_t*>(in.empty() ? &none : in.data());
    Tag tag{};
    auto* mac = reinterpret_cast<std::uint8_t*>(tag.data());
    gcm_context_data state{};
    const bool short_key = suite_ == Suite::aes_128_gcm;
    if (sealing && short_key) {
      IMB_AES128_GCM_ENC(manager(), expanded(), &state, to, from, in.size(), iv, extra, aad.size(), mac,
                         tag.size());
    } else if (sealing) {
      IMB_AES256_GCM_ENC(manager(), expanded(), &state, to, from, in.size(), iv, extra, aad.size(), mac,
                         tag.size());
    } else if (short_key) {
      IMB_AES128_GCM_DEC(manager(), expanded(), &state, to, from, in.size(), iv, extra, aad.size(), mac,
                         tag.size());
    } else {
      IMB_AES256_GCM_DEC(manager(), expanded(), &state, to, from, in.size(), iv, extra, aad.size(), mac,
                         tag.size());
    }
    secure_wipe(std::as_writable_bytes(std::span(&state, 1)));
    return tag;
  }

  Suite suite_;
  SecretBytes expanded_;  // the arena aligns to 64 bytes
};

}  // namespace

std::unique_ptr<VaesGcm> make_vaes_gcm(Suite suite, ByteView key) {
  if (suite != Suite::aes_256_gcm && suite != Suite::aes_128_gcm) return nullptr;
  if (key.size() != suite_key_bytes(suite) || manager() == nullptr) return nullptr;
  return std::make_unique<IpsecMbGcm>(suite, key);
}

}  // namespace sealring
