// The connection proof of protocol A.4: bytes in, bytes out, no I/O.
//
// acceptor: challenge[32]; connector: fields[64] || HMAC-SHA256(CONN[i->j], L("conn") || challenge ||
// fields); acceptor: HMAC-SHA256(CONN[j->i], L("conn-ok") || challenge || fields). i connects, j accepts.
#pragma once

#include <array>
#include <optional>

#include "sealring/base/bytes.h"
#include "sealring/base/types.h"
#include "sealring/crypto/kdf.h"

namespace sealring {

inline constexpr std::size_t kProofChallengeBytes = 32;
inline constexpr std::size_t kProofFieldsBytes = 64;
inline constexpr std::size_t kProofAnswerBytes = 96;
inline constexpr std::size_t kProofReplyBytes = 32;

using ProofChallenge = std::array<std::byte, kProofChallengeBytes>;
using ProofAnswer = std::array<std::byte, kProofAnswerBytes>;

/// What a connection says it is. Untrusted until its MAC has been accepted.
struct ProofFields {
  Rank from = 0;  ///< i, who connects; global
  Rank to = 0;    ///< j, who accepts
  std::array<std::byte, 8> group{};
  Kind kind = Kind::pair;
  Lane lane = 0;

  std::array<std::byte, kProofFieldsBytes> encode() const;
  friend bool operator==(const ProofFields&, const ProofFields&) = default;
};

/// The connector's 96 bytes. `mac_key` is CONN[i->j].
ProofAnswer make_answer(const ProofFields& fields, const ProofChallenge& challenge, ByteView mac_key);
/// The fields of an answer, before any key is known: layout, ranges, kind (pair, p2p, ctl), lane 0 unless
/// pair, zeros.
std::optional<ProofFields> parse_answer(const ProofAnswer& answer);
/// `mac_key` is CONN[i->j]. Constant time.
bool check_answer(const ProofAnswer& answer, const ProofChallenge& challenge, ByteView mac_key);
/// The acceptor's 32 bytes. `mac_key` is CONN[j->i].
Hash256 make_reply(const ProofAnswer& answer, const ProofChallenge& challenge, ByteView mac_key);

}  // namespace sealring
