// Starts programs as a user does, with what they say kept apart: standard output, standard error.
//
// No sleeping: tests wait for words, never for time. A test that is killed takes its children
// along.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvfence::tools {

struct Ran {
  int code = -1;  // exit status; 128 + n: signal n
  std::string out, err;
};

// Can this machine make pseudo terminals? A bare chroot can't.
bool HasTerminals();
inline constexpr std::string_view kNoTerminals = "this machine makes no pseudo terminals (devpts)";

class Process {
 public:
  struct Options {
    std::string input{};                                     // on standard input
    std::vector<std::pair<std::string, std::string>> env{};  // set beside the test's own
    bool terminal = false;  // standard error is a terminal; its carriage returns are kept
    std::string out_to{};   // standard output goes to this file instead
  };
  Process(const std::vector<std::string>& argv, const Options& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Reads until standard error holds `text`. False: the program ended without saying it.
  bool SaysOnError(std::string_view text);
  void Signal(int signal);
  Ran Wait();
  const std::string& err() const { return ran_.err; }

 private:
  bool ReadMore();  // from either stream; false when both have ended

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  Ran ran_;
};

// The tool, started with these arguments.
std::vector<std::string> ToolArgs(const std::vector<std::string>& arguments);
Ran RunTool(const std::vector<std::string>& arguments, const Process::Options& options = {});

// A fresh folder for this test, gone when the object goes.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const;
  // Names of all files under `name`, sorted.
  std::vector<std::string> List(const std::string& name) const;

 private:
  std::string dir_;
};

std::string ReadAll(const std::string& path);

}  // namespace kvfence::tools
