#include "sealring/transport/tcp_store_wire.h"

#include "sealring/transport/store_entries.h"

namespace sealring {

SecretBytes store_key(const SecretBytes& store_secret, const std::string& prefix) {
  // [protocol A.2] Expand(store_secret, L("store") || prefix, 32)
  return hkdf_expand(store_secret.view(), {label("store"), as_bytes(prefix)}, 32);
}

Hash256 store_mac(const SecretBytes& key, std::string_view side, const StoreChallenge& server,
                  const StoreChallenge& client) {
  return hmac_sha256(key.view(), {label(side), server, client});
}

Bytes StoreRequest::encode() const {
  ByteWriter writer;
  writer.put(static_cast<std::uint8_t>(verb));
  writer.put(static_cast<std::uint16_t>(key.size())).put(static_cast<std::uint32_t>(value.size()));
  return writer.put(as_bytes(key)).put(ByteView(value)).take();
}

ParseState parse_store_request(ByteView bytes, StoreRequest& request, std::size_t& used_bytes) {
  ByteReader reader(bytes);
  const auto verb = static_cast<StoreVerb>(reader.get<std::uint8_t>());
  const std::size_t key_bytes = reader.get<std::uint16_t>(), value_bytes = reader.get<std::uint32_t>();
  if (reader.failed()) return ParseState::incomplete;
  switch (verb) {
    case StoreVerb::set:
      if (value_bytes > Store::kValueBytesMax) return ParseState::malformed;
      break;
    case StoreVerb::add:
      if (value_bytes != sizeof(std::uint64_t)) return ParseState::malformed;
      break;
    case StoreVerb::get:
    case StoreVerb::remove:
      if (value_bytes != 0) return ParseState::malformed;
      break;
    default:
      return ParseState::malformed;
  }
  if (key_bytes == 0 || key_bytes > kStoreKeyBytesMax) return ParseState::malformed;
  if (reader.remaining() < key_bytes + value_bytes) return ParseState::incomplete;
  const ByteView key = reader.take(key_bytes);
  request.verb = verb;
  request.key.assign(reinterpret_cast<const char*>(key.data()), key.size());
  request.value = to_bytes(reader.take(value_bytes));
  if (!check_store_key(request.key)) return ParseState::malformed;
  used_bytes = kStoreRequestHeaderBytes + key_bytes + value_bytes;
  return ParseState::complete;
}

Bytes StoreReply::encode() const {
  ByteWriter writer;
  writer.put(static_cast<std::uint8_t>(status)).put(static_cast<std::uint32_t>(value.size()));
  return writer.put(ByteView(value)).take();
}

std::optional<std::uint32_t> parse_store_reply_header(ByteView header, StoreStatus& status) {
  ByteReader reader(header);
  const auto number = reader.get<std::uint8_t>();
  const auto value_bytes = reader.get<std::uint32_t>();
  if (!reader.finished() || number > static_cast<std::uint8_t>(StoreStatus::refused)) return std::nullopt;
  if (value_bytes > Store::kValueBytesMax) return std::nullopt;
  status = static_cast<StoreStatus>(number);
  return value_bytes;
}

}  // namespace sealring
