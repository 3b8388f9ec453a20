// The live line of long work: one rewritten line on a terminal, every 200 ms; elsewhere plain lines
// after 10 s, 20 s, 40 s ..., at last every ten minutes, so that a log of the run shows that it
// lives.
#pragma once

#include <chrono>
#include <string>

namespace kvfence::tools {

class ProgressLine {
 public:
  explicit ProgressLine(bool fancy) : fancy_(fancy), every_(fancy ? 200 : 10000) {}
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Is it time to show something? Callers make the text only then.
  bool Due();
  void Show(const std::string& text);
  void Clear();

 private:
  bool fancy_;
  std::chrono::milliseconds every_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// "1m05s".
std::string Duration(double seconds);
// "12.3M", "4.5k".
std::string Short(double count);

}  // namespace kvfence::tools
