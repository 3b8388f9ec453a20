// Input and output go through unlinked files, not pipes, so that no side waits for the other.
#include "tests/metrics/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace kvfence::testing {

ProcessResult RunProcess(const std::vector<std::string>& argv, const std::string& input) {
  std::FILE* in = std::tmpfile();
  std::FILE* out = std::tmpfile();
  ProcessResult result;
  if (in == nullptr || out == nullptr) {
    ADD_FAILURE() << "no temporary file";
    return result;
  }
  EXPECT_EQ(std::fwrite(input.data(), 1, input.size(), in), input.size());
  std::rewind(in);
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(fileno(in), STDIN_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(out), STDERR_FILENO);
    execvp(args[0], args.data());
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  std::rewind(out);
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, out)) > 0;) {
    result.output.append(buffer, n);
  }
  std::fclose(in);
  std::fclose(out);
  return result;
}

bool OnPath(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + name).c_str(), X_OK) == 0) return true;
  }
  return false;
}

}  // namespace kvfence::testing
