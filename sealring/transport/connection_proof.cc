#include "sealring/transport/connection_proof.h"

#include <algorithm>

namespace sealring {

std::array<std::byte, kProofFieldsBytes> ProofFields::encode() const {
  // [protocol A.4] {u32 i, u32 j, group_id[0..8), u8 kind, u16 lane, 45 zero bytes}
  std::array<std::byte, kProofFieldsBytes> out{};
  store_be(out.data(), std::uint32_t{from});
  store_be(out.data() + 4, std::uint32_t{to});
  std::copy(group.begin(), group.end(), out.begin() + 8);
  out[16] = static_cast<std::byte>(kind);
  store_be(out.data() + 17, lane);
  return out;
}

ProofAnswer make_answer(const ProofFields& fields, const ProofChallenge& challenge, ByteView mac_key) {
  const auto encoded = fields.encode();
  // [protocol A.4] HMAC-SHA256(CONN[i->j], L("conn") || challenge || fields)
  const Hash256 mac = hmac_sha256(mac_key, {label("conn"), challenge, encoded});
  ProofAnswer answer;
  std::copy(encoded.begin(), encoded.end(), answer.begin());
  std::copy(mac.begin(), mac.end(), answer.begin() + kProofFieldsBytes);
  return answer;
}

std::optional<ProofFields> parse_answer(const ProofAnswer& answer) {
  ByteReader reader(ByteView(answer).first(kProofFieldsBytes));
  const auto from = reader.get<std::uint32_t>(), to = reader.get<std::uint32_t>();
  ProofFields fields;
  fields.group = reader.array<8>();
  fields.kind = static_cast<Kind>(reader.get<std::uint8_t>());
  fields.lane = reader.get<std::uint16_t>();
  const ByteView zeros = reader.take(reader.remaining());
  const bool zero = std::all_of(zeros.begin(), zeros.end(), [](std::byte b) { return b == std::byte{0}; });
  const bool kind_fits = fields.kind == Kind::pair ||
                         ((fields.kind == Kind::p2p || fields.kind == Kind::ctl) && fields.lane == 0);
  if (from >= kRanksMax || to >= kRanksMax || from == to || !kind_fits || !zero) return std::nullopt;
  fields.from = static_cast<Rank>(from);
  fields.to = static_cast<Rank>(to);
  return fields;
}

bool check_answer(const ProofAnswer& answer, const ProofChallenge& challenge, ByteView mac_key) {
  const ByteView fields = ByteView(answer).first(kProofFieldsBytes);
  const Hash256 mac = hmac_sha256(mac_key, {label("conn"), challenge, fields});
  return constant_time_equal(mac, ByteView(answer).subspan(kProofFieldsBytes));
}

Hash256 make_reply(const ProofAnswer& answer, const ProofChallenge& challenge, ByteView mac_key) {
  // [protocol A.4] HMAC(CONN[j->i], L("conn-ok") || challenge || fields)
  return hmac_sha256(mac_key, {label("conn-ok"), challenge, ByteView(answer).first(kProofFieldsBytes)});
}

}  // namespace sealring
