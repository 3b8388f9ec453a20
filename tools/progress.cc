#include "progress.h"

#include <algorithm>
#include <cstdio>

namespace kvfence::tools {

bool ProgressLine::Due() {
  const auto now = std::chrono::steady_clock::now();
  if (last_ == std::chrono::steady_clock::time_point{}) last_ = fancy_ ? now - every_ : now;
  if (now - last_ < every_) return false;
  last_ = now;
  if (!fancy_) every_ = std::min<std::chrono::milliseconds>(every_ * 2, std::chrono::minutes(10));
  return true;
}

void ProgressLine::Show(const std::string& text) {
  if (fancy_) {
    std::fprintf(stderr, "\r\x1b[2K%s", text.c_str());
    shown_ = true;
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  std::fflush(stderr);
}

void ProgressLine::Clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[2K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

std::string Duration(double seconds) {
  char text[32];
  const auto whole = static_cast<long>(seconds);
  if (whole < 60) {
    std::snprintf(text, sizeof(text), "%.1fs", seconds);
  } else {
    std::snprintf(text, sizeof(text), "%ldm%02lds", whole / 60, whole % 60);
  }
  return text;
}

std::string Short(double count) {
  const char* suffixes[] = {"", "k", "M", "G", "T"};
  int i = 0;
  while (count >= 1000 && i < 4) {
    count /= 1000;
    ++i;
  }
  char text[32];
  std::snprintf(text, sizeof(text), i == 0 ? "%.0f%s" : "%.1f%s", count, suffixes[i]);
  return text;
}

}  // namespace kvfence::tools
