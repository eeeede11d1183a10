// Roster-KK (protocol A.2) as a machine without I/O: it says what to post and what it waits for, and is fed
// bytes.
//
// Slots are names below the session's store prefix: "hello/<i>", "config/<i>", "evidence/<i>", "kk1/<a>/<b>",
// "kk2/<a>/<b>", "m5/<i>/<j>", "confirm/<i>", "note/<i>". The driver (channel/establish) moves them over any
// Store, which is trusted with nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sealring/session/identity.h"
#include "sealring/session/keys.h"

namespace sealring {

struct HandshakeConfig {
  Rank rank = 0;
  std::uint16_t world = 1;
  Suite suite = Suite::aes_256_gcm;
  Bytes policy;  ///< canonical policy text; empty: "sealring-policy-0"
  std::string
      config_text;  ///< canonical CommConfig, "name=value\n" lines; posted beside HELLO for CONFIG's message
};

class SessionKeys;

struct Post {
  std::string slot;
  Bytes bytes;
};

/// 16 bytes: rank, code, peer. Unauthenticated; it only turns a wait into "reported by rank 2,
/// unauthenticated".
struct Note {
  Rank rank = 0;
  Code code = Code::ok;
  std::int32_t peer = -1;
  Bytes encode() const;
  static Result<Note> decode(ByteView bytes, std::uint16_t world);
};

/// One rank's side of a session's start. Not thread-safe. The identity must outlive it.
///
/// Any error is final: secrets are wiped, no key handle was ever given out.
class Handshake {
 public:
  static Result<Handshake> start(HandshakeConfig config, const Identity& identity);
  Handshake(Handshake&&) noexcept;
  Handshake& operator=(Handshake&&) noexcept;
  ~Handshake();

  /// What is to be posted now; each post is given once.
  std::vector<Post> take_posts();
  /// Slots whose bytes it waits for now (maximal set; any order of arrival will do).
  std::vector<std::string> awaited() const;
  /// Global ranks that the present stage still misses, for TIMEOUT's message.
  std::vector<Rank> missing() const;
  /// "hello", "evidence", "pair", "secret", "confirm": the stage for messages.
  std::string_view stage() const;
  /// Feeds one awaited slot. Errors: protocol A.5's codes, rank and peer set.
  Result<void> receive(const std::string& slot, ByteView bytes);
  /// True after n valid CONFIRMs: only then does finish() give keys.
  bool ready() const;
  /// The world group's keys. Consumes the machine; XP_ij move into the result, all else is erased.
  std::unique_ptr<SessionKeys> finish() &&;

 private:
  struct State;
  explicit Handshake(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// What lives as long as the session: the pair secrets and the world group. Thread-safe.
class SessionKeys {
 public:
  SessionKeys(Suite suite, Rank me, std::uint16_t world, std::array<std::byte, 64> th3,
              SecretBytes group_secret, std::map<Rank, SecretBytes> pair_secrets);
  Suite suite() const { return suite_; }
  Rank rank() const { return me_; }
  std::uint16_t world() const { return world_; }
  const std::array<std::byte, 64>& th3() const { return th3_; }
  GroupKeys& world_group() { return *world_group_; }
  SecretBytes pair_secret(Rank peer) const;  ///< a copy of XP_{me,peer}
  /// Erases everything; a later call on it aborts.
  void wipe() noexcept;

 private:
  Suite suite_;
  Rank me_;
  std::uint16_t world_;
  std::array<std::byte, 64> th3_;
  std::map<Rank, SecretBytes> pair_secrets_;
  std::unique_ptr<GroupKeys> world_group_;
};

/// The subgroup exchange (protocol A.2, "Subgroup g"): the same shape as Handshake, slots "nonce/<i>",
/// "m5sub/<i>/<j>", "confirm/<i>" with global ranks i, j. `members` ascending global ranks that hold me.
class SubgroupHandshake {
 public:
  static Result<SubgroupHandshake> start(const SessionKeys& session, std::vector<Rank> members);
  SubgroupHandshake(SubgroupHandshake&&) noexcept;
  SubgroupHandshake& operator=(SubgroupHandshake&&) noexcept;
  ~SubgroupHandshake();
  std::vector<Post> take_posts();
  std::vector<std::string> awaited() const;
  std::vector<Rank> missing() const;
  std::string_view stage() const;
  Result<void> receive(const std::string& slot, ByteView bytes);
  bool ready() const;
  std::unique_ptr<GroupKeys> finish() &&;

 private:
  struct State;
  explicit SubgroupHandshake(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sealring
