#include "tests/tracker/child_process.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace kvfence::testing {
namespace {

void Require(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::abort();
}

}  // namespace

Line::~Line() { ::close(fd_); }

bool Line::SendBytes(const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::send(fd_, at, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool Line::ReceiveBytes(void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::recv(fd_, at, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

Child::Child(const std::function<int(Line&)>& body) {
  int ends[2];
  Require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  std::fflush(nullptr);
  pid_ = ::fork();
  Require(pid_ >= 0, "fork");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    int status = 0;
    {
      Line line(ends[1]);
      status = body(line);
    }
    ::_exit(status);
  }
  ::close(ends[1]);
  line_ = std::make_unique<Line>(ends[0]);
}

Child::~Child() {
  if (pid_ > 0) Kill();
}

int Child::Wait() {
  int status = 0;
  pid_t got = -1;
  do {
    got = ::waitpid(pid_, &status, 0);
  } while (got < 0 && errno == EINTR);
  Require(got == pid_, "waitpid");
  pid_ = -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void Child::Kill() {
  ::kill(pid_, SIGKILL);
  Wait();
}

void KillSelf() {
  ::raise(SIGKILL);
  std::abort();
}

}  // namespace kvfence::testing
