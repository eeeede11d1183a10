// HELLO, EVIDENCE and NOTE: bytes to structs and back. The layouts are in docs/handshake.md.
#include <fmt/format.h>

#include "sealring/session/handshake.h"

namespace sealring {
namespace {

constexpr std::size_t kEvidenceBytesMax = 64 * 1024;
constexpr std::size_t kNoteBytes = 16;

}  // namespace

Bytes Hello::encode() const {
  ByteWriter out;
  out.put(version).put(static_cast<std::uint16_t>(suite)).put(world).put(rank);
  out.put(cpu_type).put(gpu_type).put(static_cast<std::uint8_t>(identity)).put(flags);
  out.put(job_id).put(policy_hash).put(config_hash).put(nonce).put(share).put(cpu_id).put(gpu_id);
  return out.take();
}

Result<Hello> Hello::decode(ByteView bytes) {
  ByteReader in(bytes);
  Hello hello;
  hello.version = in.get<std::uint16_t>();
  if (in.failed()) return fail(Code::malformed, "handshake.hello", "a HELLO is shorter than its version");
  if (hello.version != kVersion) {  // before anything else is parsed: its layout is not known
    return fail(Code::version, "handshake.hello",
                fmt::format("a HELLO has version {}, this release speaks {}", hello.version, kVersion));
  }
  if (bytes.size() != kBytes) {
    return fail(Code::malformed, "handshake.hello",
                fmt::format("a HELLO has {} bytes and must have {}", bytes.size(), kBytes));
  }
  hello.suite = static_cast<Suite>(in.get<std::uint16_t>());
  hello.world = in.get<std::uint32_t>();
  hello.rank = in.get<std::uint32_t>();
  hello.cpu_type = in.get<std::uint8_t>();
  hello.gpu_type = in.get<std::uint8_t>();
  hello.identity = static_cast<IdentityKind>(in.get<std::uint8_t>());
  hello.flags = in.get<std::uint8_t>();
  hello.job_id = in.array<16>();
  for (auto* field :
       {&hello.policy_hash, &hello.config_hash, &hello.nonce, &hello.share, &hello.cpu_id, &hello.gpu_id}) {
    *field = in.array<32>();
  }
  if (hello.flags != 0) {
    return fail(Code::malformed, "handshake.hello",
                fmt::format("a HELLO has flags {}, which must be 0", hello.flags));
  }
  SR_CHECK(in.finished());
  return hello;
}

Bytes Evidence::encode() const {
  ByteWriter out;
  for (const Bytes* field : {&job_mac, &cpu_report, &cpu_chain, &gpu_report, &gpu_chain, &ocsp, &crl}) {
    out.put(static_cast<std::uint32_t>(field->size())).put(ByteView(*field));
  }
  return out.take();
}

Result<Evidence> Evidence::decode(ByteView bytes) {
  const auto malformed = [](std::string what) {
    return fail(Code::malformed, "handshake.evidence", std::move(what));
  };
  if (bytes.size() > kEvidenceBytesMax) {
    return malformed(
        fmt::format("evidence has {} bytes, at most {} are taken", bytes.size(), kEvidenceBytesMax));
  }
  struct Field {
    std::string_view name;
    Bytes Evidence::*member;
    std::size_t bytes_max;
  };
  static constexpr std::array kFields{Field{"job_mac", &Evidence::job_mac, 64},
                                      Field{"cpu_report", &Evidence::cpu_report, 8 * 1024},
                                      Field{"cpu_chain", &Evidence::cpu_chain, 16 * 1024},
                                      Field{"gpu_report", &Evidence::gpu_report, 8 * 1024},
                                      Field{"gpu_chain", &Evidence::gpu_chain, 16 * 1024},
                                      Field{"ocsp", &Evidence::ocsp, 16 * 1024},
                                      Field{"crl", &Evidence::crl, kEvidenceBytesMax}};
  ByteReader in(bytes);
  Evidence evidence;
  for (const Field& field : kFields) {
    const std::uint32_t length = in.get<std::uint32_t>();
    if (in.failed() || length > in.remaining()) {
      return malformed(fmt::format("evidence ends inside field {}", field.name));
    }
    if (length > field.bytes_max) {
      return malformed(
          fmt::format("field {} has {} bytes, at most {} are taken", field.name, length, field.bytes_max));
    }
    evidence.*field.member = to_bytes(in.take(length));
  }
  if (!in.finished()) return malformed(fmt::format("evidence has {} bytes too many", in.remaining()));
  if (!evidence.job_mac.empty() && evidence.job_mac.size() != 64) {
    return malformed(fmt::format("job_mac has {} bytes, it must have 0 or 64", evidence.job_mac.size()));
  }
  return evidence;
}

// version u16, rank u16, code u16, zero u16, peer i32, zero u32
Bytes Note::encode() const {
  ByteWriter out;
  out.put(Hello::kVersion).put(rank).put(static_cast<std::uint16_t>(code)).put(std::uint16_t{0});
  out.put(static_cast<std::uint32_t>(peer)).put(std::uint32_t{0});
  return out.take();
}

Result<Note> Note::decode(ByteView bytes, std::uint16_t world) {
  const auto malformed = [](std::string_view what) {
    return fail(Code::malformed, "handshake.note", fmt::format("a note {}", what));
  };
  ByteReader in(bytes);
  const auto version = in.get<std::uint16_t>();
  if (in.failed()) return malformed("is shorter than its version");
  if (version != Hello::kVersion) {
    return fail(Code::version, "handshake.note",
                fmt::format("a note has version {}, this release speaks {}", version, Hello::kVersion));
  }
  if (bytes.size() != kNoteBytes) return malformed("has a wrong size");
  Note note;
  note.rank = in.get<std::uint16_t>();
  note.code = static_cast<Code>(in.get<std::uint16_t>());
  const auto zero_a = in.get<std::uint16_t>();
  note.peer = static_cast<std::int32_t>(in.get<std::uint32_t>());
  const auto zero_b = in.get<std::uint32_t>();
  if (zero_a != 0 || zero_b != 0) return malformed("has a reserved field that is not 0");
  if (note.rank >= world) return malformed("names a rank outside of the world");
  if (note.code == Code::ok || code_info(note.code).code != note.code)
    return malformed("names an unknown code");
  if (note.peer < -1 || note.peer >= world) return malformed("names a peer outside of the world");
  return note;
}

}  // namespace sealring
