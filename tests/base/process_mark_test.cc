// Claim: a forked child knows that it is another process, also where process ids cannot tell.
// How: children by fork, by a raw clone that no handler sees, and one that has its parent's process id (each
// the first of a PID namespace; skipped where namespaces are not allowed).
#include "sealring/base/process_mark.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sealring {
namespace {

/// The exit status of a child; -1: it did not end by itself.
int status_of(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

/// 0: `mark`, of the parent, is told apart, and a mark of the child's own holds for it and not for its child.
int look(const ProcessMark& mark) {
  if (!mark.forked()) return 1;
  const ProcessMark own;
  if (own.forked()) return 2;
  const pid_t child = fork();
  if (child == 0) _exit(own.forked() && mark.forked() ? 0 : 3);
  return status_of(child);
}

TEST(ProcessMark, HoldsInItsProcessAndNotInAChild) {
  const ProcessMark mark;
  EXPECT_FALSE(mark.forked());
  const pid_t child = fork();
  if (child == 0) _exit(look(mark));
  EXPECT_EQ(status_of(child), 0);
  EXPECT_FALSE(mark.forked());
}

TEST(ProcessMark, SeesAChildThatNoHandlerSaw) {
  const ProcessMark mark;
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) _exit(mark.forked() ? 0 : 1);
  EXPECT_EQ(status_of(child), 0);
}

TEST(ProcessMark, SeesAChildWithItsParentsId) {
  constexpr int kNotAllowed = 77;
  const auto first_of_namespace = [](auto body) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return kNotAllowed;
    const pid_t child = fork();
    if (child == 0) _exit(body());
    return status_of(child);
  };
  const pid_t outer = fork();  // whose own later children would all be in the namespace
  if (outer == 0) {
    _exit(first_of_namespace([&] {
      const ProcessMark mark;
      const pid_t id = getpid();
      return first_of_namespace([&] { return getpid() == id && mark.forked() ? 0 : 1; });
    }));
  }
  const int status = status_of(outer);
  if (status == kNotAllowed) GTEST_SKIP() << "PID namespaces are not allowed here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sealring
