#include "sealring/study/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

extern char** environ;

namespace sealring {
namespace {

constexpr std::size_t kOutputBytesMax = 16u << 20;

tl::unexpected<Error> system_error(Code code, const std::string& stage, const std::string& what) {
  const int number = errno;
  const Code real = number == ENOSPC || number == EDQUOT   ? Code::no_space
                    : number == EMFILE || number == ENFILE ? Code::fd_limit
                    : number == ENOMEM                     ? Code::out_of_memory
                                                           : code;
  return fail(real, stage, fmt::format("{}: {}", what, std::strerror(number)));
}

volatile std::sig_atomic_t interrupt_seen = 0;

void close_descriptor(int& descriptor) noexcept {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_descriptor(read);
    close_descriptor(write);
  }
  Result<void> open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return system_error(Code::fd_limit, "process.start", "no pipe");
    read = ends[0];
    write = ends[1];
    return {};
  }
};

/// What the child needs, prepared before the fork: between fork and exec only calls that are safe there.
struct ChildPlan {
  std::vector<char*> arguments, environment;
  cpu_set_t cpus;
  bool pinned = false;
  int input = -1, output = -1, error = -1;
  const std::vector<int>* keep = nullptr;
  int report = -1;
  pid_t parent = -1;
};

[[noreturn]] void become_child(const ChildPlan& plan) {
  const auto give_up = [&] {
    const int number = errno;
    if (::write(plan.report, &number, sizeof number) < 0) ::_exit(126);
    ::_exit(127);
  };
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);
  if (plan.pinned && ::sched_setaffinity(0, sizeof plan.cpus, &plan.cpus) != 0) give_up();
  if (::dup2(plan.input, 0) < 0) give_up();
  if (plan.output >= 0 && ::dup2(plan.output, 1) < 0) give_up();
  if (plan.error >= 0 && ::dup2(plan.error, 2) < 0) give_up();
  for (const int descriptor : *plan.keep) {
    if (::fcntl(descriptor, F_SETFD, 0) != 0) give_up();
  }
  ::signal(SIGPIPE, SIG_DFL);
  ::execvpe(plan.arguments[0], plan.arguments.data(), plan.environment.data());
  give_up();
  ::_exit(127);
}

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    if (added.count(entry.substr(0, entry.find('='))) == 0) out.push_back(entry);
  }
  for (const auto& [name, value] : added) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Result<Process> Process::start(const ProcessSpec& spec) {
  SR_CHECK(!spec.arguments.empty());
  Pipe in, out, report;
  SR_TRY(report.open());
  if (spec.pipe_input) SR_TRY(in.open());
  if (spec.pipe_output) SR_TRY(out.open());
  ChildPlan plan;
  int null = -1, error = -1;
  if (!spec.pipe_input) {
    null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0) return system_error(Code::file, "process.start", "cannot open /dev/null");
  }
  if (!spec.error_file.empty()) {
    error = ::open(spec.error_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (error < 0) {
      close_descriptor(null);
      return system_error(Code::file, "process.start", "cannot write " + spec.error_file);
    }
  }
  std::vector<std::string> arguments = spec.arguments, environment = merged_environment(spec.environment);
  plan.arguments = pointers(arguments);
  plan.environment = pointers(environment);
  CPU_ZERO(&plan.cpus);
  for (const unsigned cpu : spec.cpus) CPU_SET(cpu, &plan.cpus);
  plan.pinned = !spec.cpus.empty();
  plan.input = spec.pipe_input ? in.read : null;
  plan.output = spec.pipe_output ? out.write : -1;
  plan.error = error;
  plan.keep = &spec.keep;
  plan.report = report.write;
  plan.parent = ::getpid();
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) become_child(plan);
  const int fork_errno = errno;
  close_descriptor(null);
  close_descriptor(error);
  if (pid < 0) {
    errno = fork_errno;
    return system_error(Code::out_of_memory, "process.start", "cannot fork");
  }
  close_descriptor(report.write);
  Process process;
  process.pid_ = pid;
  int exec_errno = 0;
  if (::read(report.read, &exec_errno, sizeof exec_errno) == sizeof exec_errno) {
    errno = exec_errno;
    return system_error(Code::file, "process.start", "cannot start " + spec.arguments[0]);
  }
  process.input_ = std::exchange(in.write, -1);
  process.output_ = std::exchange(out.read, -1);
  return process;
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)),
      status_(other.status_),
      buffered_(std::move(other.buffered_)) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(input_, other.input_);
  std::swap(output_, other.output_);
  std::swap(status_, other.status_);
  std::swap(buffered_, other.buffered_);
  return *this;
}

Process::~Process() {
  close_descriptor(input_);
  close_descriptor(output_);
  if (pid_ > 0 && !status_) {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

Result<void> Process::write_line(const std::string& line) {
  const std::string text = line + "\n";
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(input_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return system_error(Code::peer_lost, "process.write", fmt::format("process {} has ended", pid_));
    done += static_cast<std::size_t>(count);
  }
  return {};
}

/// Reads what is there into buffered_; false at the end of the output.
Result<bool> Process::fill(Deadline deadline) {
  if (output_ < 0) return false;
  pollfd poll_entry{output_, POLLIN, 0};
  for (;;) {
    const auto left = deadline.left();
    const int ready = ::poll(&poll_entry, 1, static_cast<int>(left.count()));
    if (interrupted()) return fail(Code::aborted, "process.read", "interrupted by a signal", "start again");
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      if (!deadline.expired()) continue;
      return fail(Code::timeout, "process.read", fmt::format("process {} gave no answer in time", pid_));
    }
    std::array<char, 65536> chunk;
    const ssize_t count = ::read(output_, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    buffered_.append(chunk.data(), static_cast<std::size_t>(count));
    if (buffered_.size() > kOutputBytesMax) {
      return fail(Code::malformed, "process.read", fmt::format("process {} wrote too long a line", pid_));
    }
    return true;
  }
}

Result<std::string> Process::read_line(Deadline deadline) {
  for (;;) {
    if (const auto end = buffered_.find('\n'); end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    SR_TRY(const bool more, fill(deadline));
    if (!more) {
      const auto status = wait(Deadline::in(std::chrono::seconds(1)));
      return fail(Code::peer_lost, "process.read",
                  fmt::format("process {} has ended{}", pid_,
                              status ? fmt::format(" with status {}", *status) : std::string()));
    }
  }
}

Result<std::string> Process::read_all(Deadline deadline) {
  for (;;) {
    SR_TRY(const bool more, fill(deadline));
    if (!more) return std::exchange(buffered_, {});
  }
}

void Process::close_input() { close_descriptor(input_); }

std::optional<int> Process::wait(Deadline deadline) {
  while (!status_ && pid_ > 0) {
    int raw = 0;
    const pid_t got = ::waitpid(pid_, &raw, WNOHANG);
    if (got == pid_) {
      status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    } else if (got < 0 && errno != EINTR) {
      status_ = 127;
    } else if (deadline.expired() || interrupted()) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return status_;
}

void Process::kill(int signal) noexcept {
  if (pid_ > 0 && !status_) ::kill(pid_, signal);
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { interrupt_seen = signal; };  // no SA_RESTART: a wait must return
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

bool interrupted() { return interrupt_seen != 0; }
int interrupt_signal() { return interrupt_seen; }

Result<std::string> output_of(const std::vector<std::string>& arguments) {
  ProcessSpec spec;
  spec.arguments = arguments;
  spec.pipe_output = true;
  spec.error_file = "/dev/null";
  const Deadline deadline = Deadline::in(std::chrono::seconds(10));
  SR_TRY(Process process, Process::start(spec));
  SR_TRY(std::string text, process.read_all(deadline));
  const auto status = process.wait(deadline);
  if (status == 0) return text;
  return fail(Code::file, "process.output", fmt::format("{} failed", arguments[0]));
}

std::string own_program() {
  std::error_code problem;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", problem);
  return problem ? std::string("sealring") : path.string();
}

Result<PrivateDirectory> PrivateDirectory::make() {
  std::error_code problem;
  const auto base = std::filesystem::temp_directory_path(problem);
  std::string path = (problem ? std::string("/tmp") : base.string()) + "/sealring-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return system_error(Code::file, "process.directory", "cannot make a private directory " + path);
  }
  return PrivateDirectory(path);
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code problem;
  if (!path_.empty()) std::filesystem::remove_all(path_, problem);
}

Result<int> pipe_with(const SecretBytes& secret) {
  SR_CHECK(secret.size() <= 4096, "bytes", secret.size());  // fits into any pipe: the write cannot block
  Pipe pipe;
  SR_TRY(pipe.open());
  if (::write(pipe.write, secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    return system_error(Code::fd_limit, "process.secret", "cannot fill a pipe");
  }
  return std::exchange(pipe.read, -1);
}

Result<SecretBytes> read_secret(int descriptor) {
  SecretBytes buffer(4096);
  std::size_t done = 0;
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer.data() + done, buffer.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(Code::key_file, "process.secret", "cannot read the inherited key");
    if (count == 0 || done == buffer.size()) break;
    done += static_cast<std::size_t>(count);
  }
  ::close(descriptor);
  return SecretBytes::copy_of(buffer.view().first(done));
}

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return system_error(Code::file, "file.read", "cannot open " + path);
  std::string text;
  std::array<char, 65536> chunk;
  while (in.read(chunk.data(), chunk.size()) || in.gcount() > 0) {
    text.append(chunk.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > bytes_max) return fail(Code::file, "file.read", path + " is too long");
  }
  if (in.bad()) return system_error(Code::file, "file.read", "cannot read " + path);
  return text;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  const std::string beside = path + fmt::format(".{}.part", ::getpid());
  const int descriptor = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return system_error(Code::file, "file.write", "cannot write " + path);
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(descriptor, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  const bool whole = done == text.size() && ::fsync(descriptor) == 0;
  const int number = errno;
  ::close(descriptor);
  if (whole && ::rename(beside.c_str(), path.c_str()) == 0) return {};
  errno = whole ? errno : number;
  auto problem = system_error(Code::file, "file.write", "cannot write " + path);
  ::unlink(beside.c_str());
  return problem;
}

}  // namespace sealring
