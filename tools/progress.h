// The live line of long work: one rewritten line on a terminal, every 200 ms; elsewhere a plain
// line every 10 s, so that a log of the run shows that it lives.
#pragma once

#include <chrono>
#include <string>

namespace kvfence::tools {

class ProgressLine {
 public:
  explicit ProgressLine(bool fancy) : fancy_(fancy) {}
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Is it time to show something? Callers make the text only then.
  bool Due();
  void Show(const std::string& text);
  void Clear();

 private:
  bool fancy_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// "1m05s".
std::string Duration(double seconds);
// "12.3M", "4.5k".
std::string Short(double count);

}  // namespace kvfence::tools
