// SHA-512, SHA-256, HMAC-SHA512 and HKDF-SHA512 [RFC 5869], and the protocol's labels.
#pragma once

#include <initializer_list>
#include <string_view>

#include "sealring/base/bytes.h"
#include "sealring/base/secret.h"

namespace sealring {

using Hash512 = std::array<std::byte, 64>;
using Hash256 = std::array<std::byte, 32>;

/// H(a || b || ...).
Hash512 sha512(std::initializer_list<ByteView> parts);
Hash256 sha256(std::initializer_list<ByteView> parts);
Hash512 hmac_sha512(ByteView key, std::initializer_list<ByteView> parts);
Hash256 hmac_sha256(ByteView key, std::initializer_list<ByteView> parts);

/// L(x) = "SEALRING1/" || x || 0x00 (protocol, introduction).
Bytes label(std::string_view name);

/// Extract(salt, ikm) [RFC 5869 §2.2]: 64 bytes.
SecretBytes hkdf_extract(ByteView salt, ByteView ikm);
/// Expand(prk, info, bytes) [RFC 5869 §2.3]; bytes <= 255*64 is checked.
SecretBytes hkdf_expand(ByteView prk, std::initializer_list<ByteView> info, std::size_t bytes);

/// Fills with the operating system's randomness; aborts when there is none.
void random_bytes(std::span<std::byte> out);

}  // namespace sealring
