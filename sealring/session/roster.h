// Roster: everybody's HELLO, judged one by one against mine (protocol A.2, M1). Private to session/.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sealring/crypto/kdf.h"
#include "sealring/session/identity.h"

namespace sealring::internal {

/// Collects the n HELLOs. Each is judged when it comes, so that a wrong setting is told before the last rank
/// is there. Not thread-safe.
class Roster {
 public:
  static constexpr std::size_t kConfigBytesMax = 16 * 1024;

  Roster(Hello mine, std::string config_text);

  /// The HELLO found in slot `slot_rank`. Mine must be byte-equal to what I sent.
  /// Errors: MALFORMED, VERSION, ROSTER_SIZE, DUPLICATE, SELF_ALTERED, IDENTITY, SUITE, JOB_KEY, JOB_ID,
  /// POLICY_HASH, CONFIG.
  Result<void> add(Rank slot_rank, ByteView bytes);
  /// The text beside a HELLO: only for the message of CONFIG, which is the only error.
  Result<void> add_config(Rank slot_rank, ByteView text);
  /// Without messages: a world of one.
  void add_mine() { known_[mine_.rank] = true; }

  bool complete() const;
  bool knows(Rank rank) const { return known_[rank]; }
  /// True when the HELLO of this rank names another config and its text has not come yet.
  bool awaits_config(Rank rank) const { return config_pending_[rank]; }
  const Hello& hello(Rank rank) const { return hellos_[rank]; }
  const Hello& mine() const { return mine_; }
  /// TH1 = H(L("roster") || u32 n || HELLO_0 || ... || HELLO_{n-1}); complete() only.
  Hash512 transcript() const;

 private:
  Result<void> check_mine(ByteView bytes) const;
  Result<void> check_settings(Rank rank, const Hello& hello) const;
  Result<void> check_distinct(Rank rank, const Hello& hello);
  Result<void> config_error(Rank rank) const;

  Hello mine_;
  std::string config_text_;
  std::vector<Hello> hellos_;
  std::vector<bool> known_, config_pending_;
  std::map<Rank, std::string> config_texts_;
  std::map<std::array<std::byte, 32>, Rank> shares_, nonces_, gpus_;
};

/// Foreign text as it may be shown: printable ASCII, all else as \xNN, at most `chars_max` characters of the
/// original.
std::string printable(std::string_view text, std::size_t chars_max);

}  // namespace sealring::internal
