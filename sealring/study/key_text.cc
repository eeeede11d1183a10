#include "sealring/study/key_text.h"

#include <cstring>
#include <string_view>

#include "sealring/study/process.h"

namespace sealring {
namespace {

constexpr std::string_view kHead = "sealring-job-key-1 ";
constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

SecretBytes job_key_text(const JobKey& key) {
  const ByteView raw = key.bytes().view();
  SecretBytes text(kHead.size() + (raw.size() + 2) / 3 * 4 + 1);
  char* out = reinterpret_cast<char*>(text.data());
  std::memcpy(out, kHead.data(), kHead.size());
  out += kHead.size();
  // [RFC 4648 §4] base64 with padding.
  for (std::size_t i = 0; i < raw.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = (group << 8) | (i + j < raw.size() ? static_cast<std::uint32_t>(raw[i + j]) : 0u);
    }
    for (std::size_t j = 0; j < 4; ++j)
      *out++ = i + j > raw.size() ? '=' : kDigits[(group >> (18 - 6 * j)) & 63];
  }
  *out = '\n';
  return text;
}

Result<JobKey> read_job_key(int descriptor) {
  SR_TRY(const SecretBytes text, read_secret(descriptor));
  return JobKey::parse({reinterpret_cast<const char*>(text.data()), text.size()});
}

}  // namespace sealring
