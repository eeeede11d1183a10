#include "sealring/session/roster.h"

#include <fmt/format.h>

#include "sealring/crypto/x25519.h"

namespace sealring::internal {
namespace {

constexpr std::size_t kShownChars = 64;

tl::unexpected<Error> refuse(Code code, std::string what, std::string expected = {}, std::string got = {},
                             std::string next = {}) {
  Error error;
  error.code = code;
  error.stage = "handshake.hello";
  error.what = std::move(what);
  error.expected = std::move(expected);
  error.got = std::move(got);
  error.next = std::move(next);
  return fail(std::move(error));
}

std::string name_of(Suite suite) {
  for (const Suite known : all_suites()) {
    if (known == suite) return std::string(to_string(suite));
  }
  return fmt::format("suite {}", static_cast<unsigned>(suite));
}

std::string name_of(IdentityKind kind) {
  const std::string_view name = to_string(kind);
  return name == "?" ? fmt::format("identity {}", static_cast<unsigned>(kind)) : std::string(name);
}

std::string prefix_of(ByteView hash) { return to_hex(hash.first(4)); }

struct Setting {
  std::string_view name, value;
};

Setting next_setting(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return {line, {}};
  return {line.substr(0, equals), line.substr(equals + 1)};
}

}  // namespace

std::string printable(std::string_view text, std::size_t chars_max) {
  std::string out;
  for (const char c : text.substr(0, chars_max)) {
    if (c >= 0x20 && c < 0x7f && c != '\\')
      out.push_back(c);
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  if (text.size() > chars_max) out += "...";
  return out;
}

Roster::Roster(Hello mine, std::string config_text)
    : mine_(std::move(mine)),
      config_text_(std::move(config_text)),
      hellos_(mine_.world),
      known_(mine_.world),
      config_pending_(mine_.world) {
  const Rank me = static_cast<Rank>(mine_.rank);
  hellos_[me] = mine_;
  shares_.emplace(mine_.share, me);
  nonces_.emplace(mine_.nonce, me);
  gpus_.emplace(mine_.gpu_id, me);
}

Result<void> Roster::check_mine(ByteView bytes) const {
  const Bytes sent = mine_.encode();
  if (constant_time_equal(sent, bytes)) return {};
  // Somebody who started another process with my number has fresh randomness of its own; a changed message
  // has not.
  const auto other = Hello::decode(bytes);
  if (other && other->rank == mine_.rank && other->nonce != mine_.nonce && other->share != mine_.share) {
    return refuse(Code::duplicate, fmt::format("another process was started as rank {}", mine_.rank), {}, {},
                  "give every process its own rank, and every job its own prefix in the store");
  }
  return refuse(Code::self_altered, "my own HELLO was changed on the way");
}

Result<void> Roster::check_settings(Rank rank, const Hello& hello) const {
  if (hello.world != mine_.world) {
    return refuse(Code::roster_size,
                  fmt::format("rank {} was started with world size {}, this rank with {}", rank, hello.world,
                              mine_.world),
                  std::to_string(mine_.world), std::to_string(hello.world));
  }
  if (hello.rank != rank) {
    return refuse(Code::duplicate,
                  fmt::format("the place of rank {} holds a HELLO of rank {}", rank, hello.rank));
  }
  if (hello.identity != mine_.identity) {
    return refuse(Code::identity,
                  fmt::format("peer {} proves itself by {}, this job requires {}", rank,
                              name_of(hello.identity), name_of(mine_.identity)),
                  name_of(mine_.identity), name_of(hello.identity));
  }
  if (hello.suite != mine_.suite) {
    return refuse(Code::suite,
                  fmt::format("peer {} wants {}, this job requires {}", rank, name_of(hello.suite),
                              name_of(mine_.suite)),
                  name_of(mine_.suite), name_of(hello.suite), "set SEALRING_SUITE alike on every rank");
  }
  if (hello.job_id != mine_.job_id) {
    // With a key the id is derived from it, so another id is another key.
    const bool by_key = mine_.identity == IdentityKind::job_key || mine_.identity == IdentityKind::study;
    if (by_key) {
      return refuse(Code::job_key, fmt::format("rank {} proved another job key", rank),
                    prefix_of(mine_.job_id), prefix_of(hello.job_id));
    }
    return refuse(Code::job_id, fmt::format("rank {} belongs to another job", rank), prefix_of(mine_.job_id),
                  prefix_of(hello.job_id));
  }
  if (hello.policy_hash != mine_.policy_hash) {
    return refuse(Code::policy_hash, fmt::format("rank {} follows another policy", rank),
                  prefix_of(mine_.policy_hash), prefix_of(hello.policy_hash));
  }
  return {};
}

Result<void> Roster::check_distinct(Rank rank, const Hello& hello) {
  if (!x25519_acceptable(hello.share)) {
    return refuse(Code::malformed, fmt::format("the share of rank {} is no acceptable point", rank));
  }
  const auto [share, new_share] = shares_.emplace(hello.share, rank);
  if (!new_share) {
    return refuse(Code::duplicate,
                  fmt::format("ranks {} and {} present the same share", share->second, rank));
  }
  const auto [nonce, new_nonce] = nonces_.emplace(hello.nonce, rank);
  if (!new_nonce) {
    return refuse(Code::duplicate,
                  fmt::format("ranks {} and {} present the same nonce", nonce->second, rank));
  }
  if (mine_.identity != IdentityKind::tee && mine_.identity != IdentityKind::tee_job_key) return {};
  const auto [gpu, new_gpu] = gpus_.emplace(hello.gpu_id, rank);
  if (!new_gpu) {
    return refuse(Code::duplicate, fmt::format("ranks {} and {} present the same GPU", gpu->second, rank));
  }
  return {};
}

Result<void> Roster::add(Rank slot_rank, ByteView bytes) {
  if (slot_rank == mine_.rank) {
    SR_TRY(check_mine(bytes));
    known_[slot_rank] = true;
    return {};
  }
  auto hello = Hello::decode(bytes);
  if (!hello) {
    Error error = std::move(hello).error();
    error.what = fmt::format("rank {}: {}", slot_rank, error.what);
    return fail(std::move(error));
  }
  SR_TRY(check_settings(slot_rank, *hello));
  SR_TRY(check_distinct(slot_rank, *hello));
  hellos_[slot_rank] = *hello;
  known_[slot_rank] = true;
  config_pending_[slot_rank] = hello->config_hash != mine_.config_hash;
  if (config_pending_[slot_rank] && config_texts_.contains(slot_rank)) return config_error(slot_rank);
  return {};
}

Result<void> Roster::add_config(Rank slot_rank, ByteView text) {
  const std::size_t kept =
      std::min(text.size(), kConfigBytesMax + 1);  // one more than allowed shows that it is too long
  config_texts_[slot_rank] = std::string(reinterpret_cast<const char*>(text.data()), kept);
  return config_pending_[slot_rank] ? config_error(slot_rank) : Result<void>{};
}

Result<void> Roster::config_error(Rank rank) const {
  const std::string_view theirs = config_texts_.at(rank);
  const Hello& hello = hellos_[rank];
  const std::string mine_hash = prefix_of(mine_.config_hash), their_hash = prefix_of(hello.config_hash);
  if (theirs.size() > kConfigBytesMax || sha256({as_bytes(theirs)}) != hello.config_hash) {
    return refuse(
        Code::config,
        fmt::format("rank {} has other settings, and the text posted for them is not the one it hashed",
                    rank),
        mine_hash, their_hash, "compare the settings of the two ranks; somebody may tamper with the store");
  }
  std::string_view mine = config_text_, other = theirs;
  while (!mine.empty() || !other.empty()) {
    const bool mine_ended = mine.empty(), other_ended = other.empty();
    const Setting a = next_setting(mine), b = next_setting(other);
    if (!mine_ended && !other_ended && a.name == b.name && a.value == b.value) continue;
    const std::string a_value = mine_ended ? "absent" : printable(a.value, kShownChars);
    const std::string b_value = other_ended ? "absent" : printable(b.value, kShownChars);
    if (mine_ended || other_ended || a.name == b.name) {
      const std::string name = printable(mine_ended ? b.name : a.name, kShownChars);
      return refuse(
          Code::config,
          fmt::format("{} is {} on rank {}, {} on rank {}", name, b_value, rank, a_value, mine_.rank),
          a_value, b_value, fmt::format("make {} equal on every rank", name));
    }
    return refuse(Code::config,
                  fmt::format("rank {} has a setting {} where this rank has {}", rank,
                              printable(b.name, kShownChars), printable(a.name, kShownChars)),
                  printable(a.name, kShownChars), printable(b.name, kShownChars),
                  "install the same release on every host");
  }
  return refuse(Code::config, fmt::format("rank {} has other settings", rank), mine_hash, their_hash);
}

bool Roster::complete() const {
  for (std::size_t i = 0; i < known_.size(); ++i) {
    if (!known_[i] || config_pending_[i]) return false;
  }
  return true;
}

Hash512 Roster::transcript() const {
  SR_CHECK(complete());
  ByteWriter hellos;
  hellos.put(mine_.world);
  for (const Hello& hello : hellos_) hellos.put(ByteView(hello.encode()));
  return sha512({label("roster"), hellos.bytes()});  // [protocol A.2 M1]
}

}  // namespace sealring::internal
