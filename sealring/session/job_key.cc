// The job key's file: format, and the rules of protocol A.1.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <system_error>

#include "sealring/crypto/kdf.h"
#include "sealring/session/identity.h"

namespace sealring {
namespace {

constexpr std::string_view kMagic = "sealring-job-key-1 ";
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kBase64Chars = 44;  // 32 bytes: 43 characters and one '='
constexpr std::size_t kFileBytesMax = 128;

tl::unexpected<Error> refuse(std::string what, std::string next) {
  return fail(Code::key_file, "identity.key_file", std::move(what), std::move(next));
}

std::string reason(int number) { return std::generic_category().message(number); }

/// A path as a shell takes it.
std::string quoted(const std::string& path) {
  std::string out = "'";
  for (const char c : path) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  bool valid() const { return number_ >= 0; }

 private:
  int number_;
};

/// The value of a base64 digit, without a table lookup by a secret; 64 for none.
unsigned base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<unsigned>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<unsigned>(c - 'a') + 26;
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0') + 52;
  if (c == '+') return 62;
  return c == '/' ? 63u : 64u;
}

/// Exactly 44 characters in canonical form (unused bits zero) [RFC 4648 §4, §3.5]; empty when they are not.
SecretBytes decode_key(std::string_view text) {
  if (text.size() != kBase64Chars || text.back() != '=') return {};
  SecretBytes out(kKeyBytes);
  std::uint32_t bits = 0;
  unsigned held = 0;
  std::size_t at = 0;
  for (const char c : text.substr(0, kBase64Chars - 1)) {
    const unsigned digit = base64_digit(c);
    if (digit == 64) return {};
    bits = (bits << 6 | digit) & 0xFFFF;
    held += 6;
    if (held >= 8) {
      held -= 8;
      out.data()[at++] = static_cast<std::byte>(bits >> held);
    }
  }
  const bool canonical = held == 2 && (bits & 3) == 0 && at == kKeyBytes;
  bits = 0;
  return canonical ? std::move(out) : SecretBytes();
}

/// Writes the 44 characters to `out`.
void encode_key(const SecretBytes& key, std::span<std::byte> out) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::uint32_t bits = 0;
  unsigned held = 0;
  std::size_t at = 0;
  for (const std::byte b : key.view()) {
    bits = (bits << 8 | std::to_integer<unsigned>(b)) & 0xFFFF;
    for (held += 8; held >= 6;) {
      held -= 6;
      out[at++] = static_cast<std::byte>(kDigits[bits >> held & 63]);
    }
  }
  out[at++] = static_cast<std::byte>(kDigits[bits << (6 - held) & 63]);
  out[at++] = std::byte{'='};
  SR_CHECK(at == kBase64Chars, "at", at);
}

std::string read_link_at(int directory, const char* name) {
  char target[4096];
  const ssize_t bytes = ::readlinkat(directory, name, target, sizeof target);
  if (bytes <= 0 || static_cast<std::size_t>(bytes) >= sizeof target) return {};
  return std::string(target, static_cast<std::size_t>(bytes));
}

bool owned_by_me_or_root(const struct stat& status) {
  return status.st_uid == ::geteuid() || status.st_uid == 0;
}

bool link_is_ours(int directory, const char* name) {
  struct stat status;
  return ::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode) &&
         owned_by_me_or_root(status);
}

/// The shape that the kubelet's atomic writer leaves: name -> ..data/name, ..data -> ..<timestamp>, both in
/// the mount's own directory. Each step is opened beneath the one before, so nothing outside of the mount can
/// be reached.
Descriptor open_in_secret_mount(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const Descriptor mount(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!mount.valid() || !link_is_ours(mount.get(), name.c_str()) || !link_is_ours(mount.get(), "..data")) {
    return Descriptor();
  }
  if (read_link_at(mount.get(), name.c_str()) != "..data/" + name) return Descriptor();
  const std::string version = read_link_at(mount.get(), "..data");
  if (!version.starts_with("..") || version.size() < 3 || version.find('/') != std::string::npos)
    return Descriptor();
  const Descriptor data(
      ::openat(mount.get(), version.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!data.valid()) return Descriptor();
  return Descriptor(::openat(data.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
}

struct Opened {
  Descriptor file;
  bool in_secret_mount = false;
};

Result<Opened> open_key_file(const std::string& path) {
  // Opened first and judged afterwards by fstat: a name could change its meaning in between. Not blocking: a
  // FIFO.
  Opened opened;
  opened.file = Descriptor(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (opened.file.valid()) return opened;
  const int problem = errno;
  if (problem == ELOOP) {
    opened.file = open_in_secret_mount(path);
    opened.in_secret_mount = true;
    if (opened.file.valid()) return opened;
    return refuse(
        fmt::format("{} is a symbolic link", path),
        fmt::format("name the file itself: SEALRING_JOB_KEY_FILE=\"$(readlink -f {})\"", quoted(path)));
  }
  if (problem == ENOENT) {
    return refuse(
        fmt::format("{} does not exist", path),
        fmt::format("make it once with `sealring keygen {}` and copy it to every host", quoted(path)));
  }
  if (problem == EACCES) {
    return refuse(fmt::format("{} may not be read by user {}", path, ::geteuid()),
                  fmt::format("run `sudo chown {} {}`", ::geteuid(), quoted(path)));
  }
  return refuse(fmt::format("{} cannot be opened: {}", path, reason(problem)), "check the path");
}

Result<void> judge(const Opened& opened, const std::string& path) {
  struct stat status;
  if (::fstat(opened.file.get(), &status) != 0) {
    return refuse(fmt::format("{} cannot be examined: {}", path, reason(errno)), "check the file system");
  }
  if (!S_ISREG(status.st_mode)) {
    return refuse(fmt::format("{} is not a regular file", path),
                  "name a file that `sealring keygen` made, not a folder, pipe or device");
  }
  if (!owned_by_me_or_root(status)) {
    return refuse(
        fmt::format("{} belongs to user {}, not to user {} or root", path, status.st_uid, ::geteuid()),
        fmt::format("run `sudo chown {} {}`", ::geteuid(), quoted(path)));
  }
  const unsigned mode = status.st_mode & 07777;
  if (mode != 0600 && mode != 0400) {
    return refuse(
        fmt::format("{} has mode {:04o}, it must have 0600 or 0400", path, mode),
        opened.in_secret_mount
            ? "set `defaultMode: 0400` at the secret's volume in the pod; with fsGroup Kubernetes adds group "
              "read, so run the container as the owner instead"
            : fmt::format("run `chmod 0600 {}`", quoted(path)));
  }
  return {};
}

}  // namespace

JobKey JobKey::generate() {
  JobKey key;
  key.bytes_ = SecretBytes(kKeyBytes);
  random_bytes(key.bytes_.span());
  return key;
}

JobKey JobKey::clone() const {
  JobKey out;
  out.bytes_ = bytes_.clone();
  out.world_ = world_;
  return out;
}

Result<JobKey> JobKey::parse(std::string_view text) {
  const std::string remedy =
      "take the file as `sealring keygen` wrote it: one line `sealring-job-key-1 <base64>`";
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (!text.starts_with(kMagic))
    return refuse("the job key does not begin with `sealring-job-key-1 `", remedy);
  text.remove_prefix(kMagic.size());
  JobKey key;
  key.bytes_ = decode_key(text.substr(0, kBase64Chars));
  if (key.bytes_.empty()) return refuse("the job key is not 32 bytes in base64", remedy);
  if (constant_time_equal(key.bytes_.view(), SecretBytes(kKeyBytes).view())) {
    return refuse("the job key is all zero: anybody could know it", "make one with `sealring keygen`");
  }
  text.remove_prefix(kBase64Chars);
  if (text.empty()) return key;
  constexpr std::string_view kWorld = " world=";
  std::uint32_t world = 0;
  if (!text.starts_with(kWorld))
    return refuse("the job key is followed by something else than ` world=N`", remedy);
  text.remove_prefix(kWorld.size());
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), world);
  if (problem != std::errc{} || end != text.data() + text.size() || text.front() == '0' ||
      world > kRanksMax) {
    return refuse(fmt::format("the job key's world= must be a number from 1 to {}", kRanksMax), remedy);
  }
  key.world_ = world;
  return key;
}

Result<JobKey> JobKey::read(const std::string& path) {
  SR_TRY(const Opened opened, open_key_file(path));
  SR_TRY(judge(opened, path));
  SecretBytes content(kFileBytesMax + 1);
  std::size_t bytes = 0;
  while (bytes < content.size()) {
    const ssize_t got = ::read(opened.file.get(), content.data() + bytes, content.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return refuse(fmt::format("{} cannot be read: {}", path, reason(errno)), "check the file system");
    if (got == 0) break;
    bytes += static_cast<std::size_t>(got);
  }
  if (bytes > kFileBytesMax) {
    return refuse(fmt::format("{} is longer than a job key", path),
                  "name a file that `sealring keygen` made");
  }
  auto key = parse({reinterpret_cast<const char*>(content.data()), bytes});
  if (!key) {
    Error error = std::move(key).error();
    error.what = path + ": " + error.what;
    return fail(std::move(error));
  }
  return key;
}

Result<void> JobKey::write(const std::string& path) const {
  SR_CHECK(bytes_.size() == kKeyBytes, "bytes", bytes_.size());
  const std::string tail = (world_ ? fmt::format(" world={}", *world_) : std::string()) + "\n";
  SecretBytes content(kMagic.size() + kBase64Chars + tail.size());
  std::memcpy(content.data(), kMagic.data(), kMagic.size());
  encode_key(bytes_, content.span().subspan(kMagic.size(), kBase64Chars));
  std::memcpy(content.data() + kMagic.size() + kBase64Chars, tail.data(), tail.size());

  // O_EXCL: never over another file, never through a link; no moment at which others could open it.
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const auto failed = [&path](int problem) -> Result<void> {
    if (problem == ENOSPC || problem == EDQUOT) {
      return fail(Code::no_space, "identity.key_file", fmt::format("no space left to write {}", path));
    }
    return refuse(fmt::format("{} cannot be written: {}", path, reason(problem)),
                  "choose a folder you may write to");
  };
  if (!file.valid()) {
    if (errno == EEXIST) {
      return refuse(fmt::format("{} exists and is not overwritten", path),
                    fmt::format("choose another name, or remove it with `rm {}`", quoted(path)));
    }
    return failed(errno);
  }
  int problem = ::fchmod(file.get(), 0600) == 0 ? 0 : errno;  // whatever the umask
  for (ByteView left = content.view(); problem == 0 && !left.empty();) {
    const ssize_t written = ::write(file.get(), left.data(), left.size());
    if (written >= 0)
      left = left.subspan(static_cast<std::size_t>(written));
    else if (errno != EINTR)
      problem = errno;
  }
  if (problem == 0 && ::fsync(file.get()) != 0) problem = errno;
  if (problem == 0) return {};
  ::unlink(path.c_str());
  return failed(problem);
}

}  // namespace sealring
