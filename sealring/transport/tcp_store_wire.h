// What our tcp store says on the wire: a proof of the key both ways, then requests and replies.
//
//   server: "SRSTORE1" || challenge[32]
//   client: challenge[32] || HMAC-SHA256(K, L("store-client") || server's challenge || client's challenge)
//   server: u8 status || HMAC-SHA256(K, L("store-server") || server's challenge || client's challenge)
//   K = Expand(store_secret, L("store") || prefix, 32)                              [protocol A.2]
//   request: u8 verb || u16 key_bytes || u32 value_bytes || key || value    (add: value = i64)
//   reply:   u8 status || u32 value_bytes || value
#pragma once

#include <array>
#include <optional>
#include <string>

#include "sealring/base/bytes.h"
#include "sealring/base/secret.h"
#include "sealring/crypto/kdf.h"
#include "sealring/transport/store.h"

namespace sealring {

inline constexpr std::string_view kStoreMagic = "SRSTORE1";
inline constexpr std::size_t kStoreChallengeBytes = 32;
inline constexpr std::size_t kStoreGreetingBytes = 8 + kStoreChallengeBytes;
inline constexpr std::size_t kStoreAnswerBytes = kStoreChallengeBytes + 32;
inline constexpr std::size_t kStoreWelcomeBytes = 1 + 32;
inline constexpr std::size_t kStoreRequestHeaderBytes = 7;
inline constexpr std::size_t kStoreReplyHeaderBytes = 5;
inline constexpr std::size_t kStoreKeyBytesMax = 512;
inline constexpr std::size_t kStoreRequestBytesMax =
    kStoreRequestHeaderBytes + kStoreKeyBytesMax + Store::kValueBytesMax;

using StoreChallenge = std::array<std::byte, kStoreChallengeBytes>;

enum class StoreVerb : std::uint8_t { set = 1, get = 2, add = 3, remove = 4 };
enum class StoreStatus : std::uint8_t { ok = 0, absent = 1, conflict = 2, refused = 3, wrong_key = 4 };

SecretBytes store_key(const SecretBytes& store_secret, const std::string& prefix);
/// `side` is "store-client" or "store-server".
Hash256 store_mac(const SecretBytes& key, std::string_view side, const StoreChallenge& server,
                  const StoreChallenge& client);

struct StoreRequest {
  StoreVerb verb = StoreVerb::get;
  std::string key;
  Bytes value;
  Bytes encode() const;
};
enum class ParseState : std::uint8_t { complete, incomplete, malformed };
/// Takes one request from the front of `bytes`. Lengths are judged from the header alone, before anything is
/// copied; `used_bytes` counts only with `complete`.
ParseState parse_store_request(ByteView bytes, StoreRequest& request, std::size_t& used_bytes);

struct StoreReply {
  StoreStatus status = StoreStatus::ok;
  Bytes value;
  Bytes encode() const;
};
/// nullopt for a header that no server of ours sends; else the value's bytes.
std::optional<std::uint32_t> parse_store_reply_header(ByteView header, StoreStatus& status);

}  // namespace sealring
