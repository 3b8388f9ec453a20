// See the header.
#include "truth_content.h"

#include <algorithm>

namespace kvfence {

void RunList::Put(uint32_t first, uint32_t n, uint64_t id) {
  if (n == 0) return;
  const uint32_t end = first + n;
  if (id != 0 && (runs_.empty() || first >= runs_.back().end())) {  // the usual append
    if (!runs_.empty() && runs_.back().end() == first && runs_.back().id == id) {
      runs_.back().n += n;
    } else {
      runs_.push_back({first, n, id});
    }
    return;
  }
  Runs out;
  const auto add = [&out](uint32_t begin, uint32_t stop, uint64_t what) {
    if (begin >= stop || what == 0) return;
    if (!out.empty() && out.back().end() == begin && out.back().id == what) {
      out.back().n += stop - begin;
    } else {
      out.push_back({begin, stop - begin, what});
    }
  };
  bool placed = false;
  for (const Run& run : runs_) {
    add(run.first, std::min(run.end(), first), run.id);
    if (!placed && run.end() > first) {
      add(first, end, id);
      placed = true;
    }
    add(std::max(run.first, end), run.end(), run.id);
  }
  if (!placed) add(first, end, id);
  runs_ = std::move(out);
}

bool RunList::Covers(uint32_t first, uint32_t n) const {
  uint32_t at = first;
  for (const Run& run : runs_) {
    if (at >= first + n || run.first > at) break;
    at = std::max(at, run.end());
  }
  return at >= first + n;
}

bool RunList::Touches(uint32_t first, uint32_t n) const {
  for (const Run& run : runs_) {
    if (run.first < first + n && run.end() > first) return true;
  }
  return false;
}

bool RunList::AgreesRunByRun(const RunList& other, uint32_t first, uint32_t n) const {
  uint32_t at = first;
  auto a = runs_.begin();
  auto b = other.runs_.begin();
  while (at < first + n) {
    while (a != runs_.end() && a->end() <= at) ++a;
    while (b != other.runs_.end() && b->end() <= at) ++b;
    if (a == runs_.end() || b == other.runs_.end()) return false;
    if (a->first > at || b->first > at || a->id != b->id) return false;
    at = std::min(a->end(), b->end());
  }
  return true;
}

std::vector<RunList::Run> RunList::Slice(uint32_t first, uint32_t n) const {
  std::vector<Run> out;
  for (const Run& run : runs_) {
    const uint32_t begin = std::max(first, run.first), end = std::min(first + n, run.end());
    if (begin < end) out.push_back({begin, end - begin, run.id});
  }
  return out;
}

bool RunList::Same(const RunList& other, uint32_t first, uint32_t n) const {
  return std::ranges::equal(Slice(first, n), other.Slice(first, n), [](const Run& a, const Run& b) {
    return a.first == b.first && a.n == b.n && a.id == b.id;
  });
}

}  // namespace kvfence
