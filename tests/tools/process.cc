#include "tests/tools/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace kvfence::tools {
namespace {

struct Pipe {
  int read = -1, write = -1;
};

Pipe OpenPipe() {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  return {ends[0], ends[1]};
}

// A pseudo terminal; `write` is the side that the program has. Ask HasTerminals() first.
Pipe OpenTerminal() {
  const int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_GE(ours, 0);
  EXPECT_EQ(grantpt(ours), 0);
  EXPECT_EQ(unlockpt(ours), 0);
  const int theirs = open(ptsname(ours), O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_GE(theirs, 0);
  termios mode{};
  tcgetattr(theirs, &mode);
  cfmakeraw(&mode);  // bytes as written
  tcsetattr(theirs, TCSANOW, &mode);
  return {ours, theirs};
}

// A file that holds the input, at its start: no pipe to be filled while others are read.
int InputFile(const std::string& text) {
  char name[] = "/tmp/kvfence_input_XXXXXX";
  const int fd = mkostemp(name, O_CLOEXEC);
  EXPECT_GE(fd, 0);
  unlink(name);
  EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  lseek(fd, 0, SEEK_SET);
  return fd;
}

}  // namespace

bool HasTerminals() {
  const int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (ours < 0) return false;
  const bool works = grantpt(ours) == 0 && unlockpt(ours) == 0;
  close(ours);
  return works;
}

Process::Process(const std::vector<std::string>& argv, const Options& options) {
  const Pipe out = OpenPipe();
  const Pipe err = options.terminal ? OpenTerminal() : OpenPipe();
  const int in = InputFile(options.input);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const auto& [name, value] : options.env) setenv(name.c_str(), value.c_str(), 1);
    int out_fd = out.write;
    if (!options.out_to.empty()) out_fd = open(options.out_to.c_str(), O_WRONLY | O_CREAT, 0600);
    dup2(in, 0);
    dup2(out_fd, 1);
    dup2(err.write, 2);
    execvp(words[0], words.data());
    _exit(127);
  }
  close(in);
  close(out.write);
  close(err.write);
  out_ = out.read;
  err_ = err.read;
}

Process::~Process() {
  if (pid_ > 0) {
    Signal(SIGKILL);
    Wait();
  }
}

bool Process::ReadMore() {
  pollfd fds[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
  if (out_ < 0 && err_ < 0) return false;
  if (poll(fds, 2, -1) < 0) return errno == EINTR;
  for (int i = 0; i < 2; ++i) {
    if (fds[i].fd < 0 || fds[i].revents == 0) continue;
    char buffer[65536];
    const ssize_t n = read(fds[i].fd, buffer, sizeof(buffer));
    if (n > 0) {
      (i == 0 ? ran_.out : ran_.err).append(buffer, static_cast<size_t>(n));
    } else if (n == 0 || errno != EINTR) {  // a terminal ends with EIO
      close(fds[i].fd);
      (i == 0 ? out_ : err_) = -1;
    }
  }
  return true;
}

bool Process::SaysOnError(std::string_view text) {
  while (ran_.err.find(text) == std::string::npos) {
    if (err_ < 0 || !ReadMore()) return false;
  }
  return true;
}

void Process::Signal(int signal) { kill(pid_, signal); }

Ran Process::Wait() {
  while (ReadMore()) {
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  ran_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran_;
}

std::vector<std::string> ToolArgs(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {KVFENCE_TOOL};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

Ran RunTool(const std::vector<std::string>& arguments, const Process::Options& options) {
  return Process(ToolArgs(arguments), options).Wait();
}

Scratch::Scratch() {
  std::string name = ::testing::TempDir() + "kvfence_tools_XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  dir_ = name;
}

Scratch::~Scratch() { std::filesystem::remove_all(dir_); }

std::string Scratch::Write(const std::string& name, const std::string& text) const {
  std::ofstream(Path(name), std::ios::binary) << text;
  return Path(name);
}

std::vector<std::string> Scratch::List(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Path(name))) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace kvfence::tools
