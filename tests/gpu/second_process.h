// A second process of a test on GPUs: this binary, started again with one test that does what it is told.
// CUDA does not survive a fork, so the process is a new program. It is told and answers in messages on pipes.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "sealring/base/bytes.h"

namespace sealring::cuda::test {

/// One message: its size, its bytes.
inline bool send_message(int fd, const Bytes& text) {
  const Bytes whole = ByteWriter().put(static_cast<std::uint32_t>(text.size())).put(ByteView(text)).take();
  return ::write(fd, whole.data(), whole.size()) == static_cast<ssize_t>(whole.size());
}
inline bool read_whole(int fd, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::read(fd, out.data(), out.size());
    if (got <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return true;
}
/// Nothing when the other side has ended.
inline std::optional<Bytes> receive_message(int fd) {
  std::array<std::byte, 4> size{};
  if (!read_whole(fd, size)) return std::nullopt;
  Bytes out(load_be<std::uint32_t>(size.data()));
  if (!read_whole(fd, out)) return std::nullopt;
  return out;
}

inline constexpr const char* kSecondProcessVariable = "SR_TEST_SECOND_PROCESS";

/// In the second process: the descriptors that it reads from and writes to. Nothing in the first one.
inline std::optional<std::pair<int, int>> second_process_pipes() {
  const char* text = std::getenv(kSecondProcessVariable);
  if (text == nullptr) return std::nullopt;
  const std::string both = text;
  const std::size_t comma = both.find(',');
  return std::pair(std::stoi(both.substr(0, comma)), std::stoi(both.substr(comma + 1)));
}

/// Runs the test `filter` of this binary in a process of its own; killed when this ends.
class SecondProcess {
 public:
  explicit SecondProcess(const std::string& filter) {
    int to_child[2], to_parent[2];
    EXPECT_EQ(::pipe(to_child), 0);
    EXPECT_EQ(::pipe(to_parent), 0);
    const std::string pipes = std::to_string(to_child[0]) + "," + std::to_string(to_parent[1]);
    ::setenv(kSecondProcessVariable, pipes.c_str(), 1);
    std::string program = "/proc/self/exe", chosen = "--gtest_filter=" + filter, brief = "--gtest_brief=1";
    char* const arguments[] = {program.data(), chosen.data(), brief.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&child_, program.c_str(), nullptr, nullptr, arguments, environ), 0);
    ::unsetenv(kSecondProcessVariable);
    ::close(to_child[0]);
    ::close(to_parent[1]);
    to_ = to_child[1];
    from_ = to_parent[0];
  }
  SecondProcess(const SecondProcess&) = delete;
  SecondProcess& operator=(const SecondProcess&) = delete;
  ~SecondProcess() {
    kill();
    ::close(to_);
    ::close(from_);
  }
  /// Tells, and gives the answer.
  Bytes ask(const Bytes& text) {
    EXPECT_TRUE(send_message(to_, text));
    auto answer = receive_message(from_);
    EXPECT_TRUE(answer.has_value()) << "the second process has ended";
    return answer.value_or(Bytes{});
  }
  /// At once, as kill -9 does, whatever it is at; returns when it is gone.
  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  pid_t child_ = -1;
  int to_ = -1, from_ = -1;
};

}  // namespace sealring::cuda::test
