// A store in a directory that all ranks see: an entry is a file that appears whole, a counter one under
// flock.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>

#include "sealring/base/deadline.h"
#include "sealring/crypto/kdf.h"
#include "sealring/transport/socket.h"
#include "sealring/transport/store_entries.h"

namespace sealring {
namespace {

/// A counter is held for microseconds; whoever holds it longer is stopped or the filesystem is.
constexpr std::chrono::seconds kLockMax{10};

/// File name of a key: letters, digits, '.', '_' and '-' stay, the rest is %XX; a long one becomes its hash.
std::string escape(const std::string& key) {
  std::string name;
  for (const char c : key) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (plain) {
      name += c;
    } else {
      name += '%' + to_hex(as_bytes(std::string_view(&c, 1)));
    }
  }
  if (name.size() <= 200) return name;
  return "%hash%" + to_hex(sha256({as_bytes(key)}));
}

Error file_error(int error_number, const std::string& stage, const std::string& doing) {
  Error error = socket_error(error_number, Code::store, stage, doing);
  if (error_number == ENOSPC || error_number == EDQUOT) error.code = Code::no_space;
  return error;
}

bool write_all(const Fd& fd, ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

/// At most `bytes_max + 1` bytes: one more shows that the file is too large. nullopt with errno set on
/// failure.
std::optional<Bytes> read_all(const Fd& fd, std::size_t bytes_max) {
  Bytes bytes(bytes_max + 1);
  std::size_t there = 0;
  while (there < bytes.size()) {
    const ssize_t got = ::read(fd.get(), bytes.data() + there, bytes.size() - there);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    there += static_cast<std::size_t>(got);
  }
  bytes.resize(there);
  return bytes;
}

/// Gives a whole file its name unless the name is taken (EEXIST).
bool publish(const std::string& temporary, const std::string& path) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // Network filesystems lack that flag, but have links, which never replace either.
  if (::link(temporary.c_str(), path.c_str()) != 0) return false;
  ::unlink(temporary.c_str());
  return true;
}

class FileStore final : public Store {
 public:
  explicit FileStore(std::string directory) : directory_(std::move(directory)) {}

  Result<void> set(const std::string& key, ByteView value) override {
    SR_TRY(check_store_key(key));
    SR_TRY(check_store_value(value));
    const std::string path = value_path(key), temporary = temporary_path();
    Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) return fail(file_error(errno, "store.set", "creating a file in " + directory_));
    if (write_all(fd, value) && publish(temporary, path)) return {};
    const int problem = errno;
    ::unlink(temporary.c_str());
    if (problem != EEXIST) return fail(file_error(problem, "store.set", "writing " + path));
    SR_TRY(const std::optional<Bytes> there, try_get(key));
    if (there && std::equal(value.begin(), value.end(), there->begin(), there->end())) return {};
    return fail(Code::store, "store.set", "the entry \"" + key + "\" is there already, with another value",
                "another job uses the same directory and prefix, or a rank was started twice");
  }

  Result<std::optional<Bytes>> try_get(const std::string& key) override {
    SR_TRY(check_store_key(key));
    const std::string path = value_path(key);
    // Without waiting: a pipe that somebody put there must not stop this rank.
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd.valid() && errno == ENOENT) return std::nullopt;
    if (!fd.valid()) return fail(file_error(errno, "store.get", "opening " + path));
    std::optional<Bytes> bytes = read_all(fd, kValueBytesMax);
    if (!bytes) return fail(file_error(errno, "store.get", "reading " + path));
    if (bytes->size() > kValueBytesMax) {
      return fail(Code::store, "store.get",
                  path + " is over the limit of " + std::to_string(kValueBytesMax) + " bytes");
    }
    return bytes;
  }

  Result<std::int64_t> add(const std::string& key, std::int64_t amount) override {
    SR_TRY(check_store_key(key));
    const std::string path = directory_ + "/c-" + escape(key);
    SR_TRY(const Fd fd, open_locked(path));
    const std::optional<Bytes> bytes = read_all(fd, sizeof(std::uint64_t));
    if (!bytes) return fail(file_error(errno, "store.add", "reading " + path));
    if (!bytes->empty() && bytes->size() != sizeof(std::uint64_t)) {
      return fail(Code::store, "store.add", path + " is not a counter");
    }
    const auto old = bytes->empty() ? 0 : static_cast<std::int64_t>(load_be<std::uint64_t>(bytes->data()));
    std::int64_t sum = 0;
    if (__builtin_add_overflow(old, amount, &sum)) {
      return fail(Code::store, "store.add", "the counter \"" + key + "\" has passed its last value");
    }
    std::array<std::byte, sizeof(std::uint64_t)> raw;
    store_be(raw.data(), static_cast<std::uint64_t>(sum));
    if (::lseek(fd.get(), 0, SEEK_SET) != 0 || !write_all(fd, raw)) {
      return fail(file_error(errno, "store.add", "writing " + path));
    }
    return sum;
  }

  Result<void> remove(const std::string& key) override {
    SR_TRY(check_store_key(key));
    for (const std::string& path : {value_path(key), directory_ + "/c-" + escape(key)}) {
      if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
        return fail(file_error(errno, "store.remove", "removing " + path));
      }
    }
    return {};
  }

  std::string describe() const override { return "file:" + directory_; }

 private:
  std::string value_path(const std::string& key) const { return directory_ + "/v-" + escape(key); }
  std::string temporary_path() const {
    std::array<std::byte, 16> name;
    random_bytes(name);
    return directory_ + "/t-" + to_hex(name);
  }

  /// The counter's file, locked, and still the one that the path names.
  Result<Fd> open_locked(const std::string& path) {
    const Deadline deadline = Deadline::in(kLockMax);
    while (true) {
      // Without waiting: a pipe that somebody put there must not stop this rank.
      Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
      if (!fd.valid()) return fail(file_error(errno, "store.add", "opening " + path));
      struct stat opened {
      }, named{};
      if (::fstat(fd.get(), &opened) != 0) return fail(file_error(errno, "store.add", "looking at " + path));
      if (!S_ISREG(opened.st_mode)) return fail(Code::store, "store.add", path + " is not a counter");
      if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
        // It may have been removed, and made anew, between the opening and the lock.
        const bool same = ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
                          opened.st_dev == named.st_dev;
        if (same) return fd;
      } else if (errno != EWOULDBLOCK && errno != EINTR) {
        return fail(file_error(errno, "store.add", "locking " + path));
      }
      if (deadline.expired())
        return fail(Code::store, "store.add", path + " was locked for 10 s by another process");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const std::string directory_;
};

}  // namespace

Result<std::unique_ptr<Store>> make_file_store(const std::string& directory) {
  if (directory.empty()) return fail(Code::store, "store.open", "the store's directory has no name");
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(file_error(errno, "store.open", "making the directory " + directory));
  }
  struct stat info {};
  if (::stat(directory.c_str(), &info) != 0)
    return fail(file_error(errno, "store.open", "looking at " + directory));
  if (!S_ISDIR(info.st_mode)) return fail(Code::store, "store.open", directory + " is not a directory");
  if (::access(directory.c_str(), R_OK | W_OK | X_OK) != 0) {
    return fail(file_error(errno, "store.open", "writing to " + directory));
  }
  return std::make_unique<FileStore>(directory);
}

}  // namespace sealring
