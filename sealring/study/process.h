// Child processes: ranks started by fork and exec, before this process has any thread of its own.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sealring/base/deadline.h"
#include "sealring/base/result.h"
#include "sealring/base/secret.h"

namespace sealring {

/// What to start. The child gets standard input, output and error as told, `keep` descriptors under
/// their own
/// numbers, and nothing else; it dies with this process (PR_SET_PDEATHSIG).
struct ProcessSpec {
  std::vector<std::string> arguments;  ///< argv; argv[0] is searched in PATH unless it has a slash
  std::map<std::string, std::string> environment;  ///< added to this process's
  std::vector<unsigned> cpus;                      ///< pinned to; empty: not
  bool pipe_input = false;                         ///< else /dev/null
  bool pipe_output = false;                        ///< else inherited
  std::string error_file;                          ///< standard error goes there; empty: inherited
  std::vector<int> keep;
};

/// One running child. Move-only; the destructor kills (SIGKILL) and reaps a child that still runs.
class Process {
 public:
  /// Errors: FILE (program not found), OUT_OF_MEMORY, FD_LIMIT.
  static Result<Process> start(const ProcessSpec& spec);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }
  /// Writes one line to the child's input. Errors: PEER_LOST when it has ended.
  Result<void> write_line(const std::string& line);
  /// Reads one line of the child's output, without its end. Errors: TIMEOUT; PEER_LOST at the end of the
  /// output. A line over 16 MiB is MALFORMED.
  Result<std::string> read_line(Deadline deadline);
  /// Everything until the output ends. Errors: TIMEOUT, MALFORMED over 16 MiB.
  Result<std::string> read_all(Deadline deadline);
  /// Closes the child's input: a worker that reads commands ends then.
  void close_input();
  /// The exit status (128 + signal when killed), or nullopt when it still runs at the deadline or
  /// after an interrupt.
  std::optional<int> wait(Deadline deadline);
  void kill(int signal) noexcept;

 private:
  Process() = default;
  Result<bool> fill(Deadline deadline);
  pid_t pid_ = -1;
  int input_ = -1, output_ = -1;
  std::optional<int> status_;
  std::string buffered_;
};

/// From now on SIGINT, SIGTERM and SIGHUP do not end this process: the waits of this file give ABORTED, so
/// that children and private directories are cleared away by the way back.
void catch_interrupts();
bool interrupted();
/// The last such signal; 0 for none.
int interrupt_signal();

/// Standard output of a short command, at most 10 s; errors as Process and when it exits non-zero.
Result<std::string> output_of(const std::vector<std::string>& arguments);
/// The path of the running program.
std::string own_program();

/// A private directory (mode 0700), removed with all it holds at the end. Move-only.
class PrivateDirectory {
 public:
  /// Errors: FILE, NO_SPACE.
  static Result<PrivateDirectory> make();
  PrivateDirectory(PrivateDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  PrivateDirectory& operator=(PrivateDirectory&&) = delete;
  ~PrivateDirectory();
  const std::string& path() const { return path_; }

 private:
  explicit PrivateDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// A pipe that holds `secret` and is at its end then: the reading descriptor, close-on-exec off for the
/// child
/// that is told its number. At most 4096 bytes. Errors: FD_LIMIT.
Result<int> pipe_with(const SecretBytes& secret);
/// Reads such a descriptor whole and closes it. Errors: KEY_FILE.
Result<SecretBytes> read_secret(int descriptor);

/// Whole file as text, at most `bytes_max`. Errors: FILE.
Result<std::string> read_file(const std::string& path, std::size_t bytes_max);
/// Writes beside `path` and renames: a reader sees the old file or the whole new one. Errors: FILE,
/// NO_SPACE.
Result<void> write_file(const std::string& path, const std::string& text);

}  // namespace sealring
