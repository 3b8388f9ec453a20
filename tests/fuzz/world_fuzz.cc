// A small world: the input's bytes become events, legal or not, of two or three pools, four
// requests and eight pages, and the player plays them with ground truth.
//
// Idea: random text seldom is a log, and random logs seldom name the same page twice; here nearly
// every event meets one before it. Held against it: no input brings the process down, and the
// report can be printed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <sstream>
#include <string>
#include <vector>

#include "kvfence/check_log.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/property/event_text.h"

namespace kvfence {
namespace {

using testing::Numbers;
using testing::Object;
using testing::Strings;

class World {
 public:
  explicit World(FuzzInput in) : in_(in) {}

  std::string Log() {
    std::string log = Header() + "\n";
    for (int events = 0; !in_.empty() && events < 400; ++events) log += Event() + "\n";
    return log;
  }

 private:
  std::string Header() {
    pools_ = 2 + in_.Below(2);
    const uint8_t bits = in_.Byte();
    std::vector<std::string> pools;
    for (unsigned pool = 0; pool < pools_; ++pool) {
      const uint8_t shape = in_.Byte();
      Object object;
      object.Text("name", Pool(pool)).Count("pages", 9).Count("page_size", 1 + shape % 4u);
      if (shape / 4 % 4 == 1) object.Count("window", 3);
      if (shape / 4 % 4 == 2) object.Raw("scales", "true");
      if (shape / 16 % 4 == 1) object.Text("entries", "slots");
      if (shape / 16 % 4 == 2) object.Text("kind", shape % 2 == 0 ? "state" : "cross");
      if (shape / 64 == 1) object.Text("space", "s");
      if (shape / 64 == 2) object.Raw("interleave", "[2,1]");
      pools.push_back(object.Done());
    }
    Object header;
    header.Count("kvfence_log", 1);
    header.Raw("pools", testing::List(pools, [](const std::string& text) { return text; }));
    header.Count("rows", 4).Count("width", 8);
    ranks_ = bits / 8 % 4 == 0 ? 2 : 1;
    if (ranks_ > 1) header.Count("ranks", ranks_);
    explicit_frees_ = bits % 2 == 0;
    if (explicit_frees_) header.Text("frees", "explicit");
    if (bits / 2 % 2 == 0) header.Text("reuse", "stream");
    if (bits / 4 % 2 == 0) header.Raw("same_step_reads", "true");
    if (bits / 32 % 3 == 0) header.Text("level", bits / 64 % 2 == 0 ? "map" : "audit");
    return header.Done();
  }

  static std::string Pool(unsigned pool) { return std::string(1, static_cast<char>('a' + pool)); }
  // Mostly what there is; sometimes anything.
  int64_t Small(unsigned bound) {
    const uint8_t byte = in_.Byte();
    return byte < 250 ? byte % bound : in_.Value();
  }
  std::string Count(unsigned bound) { return std::to_string(static_cast<uint64_t>(Small(bound))); }
  std::string Name(char kind, unsigned bound) {
    return "\"" + std::string(1, kind) + std::to_string(in_.Below(bound)) + "\"";
  }
  std::string Pages() {
    std::vector<int64_t> pages;
    for (unsigned n = 1 + in_.Below(3); n > 0; --n) pages.push_back(Small(9));
    return Numbers(pages);
  }
  void Where(Object& event) {
    if (in_.Chance(3)) event.Text("pool", Pool(in_.Below(pools_)));
    if (ranks_ > 1 && in_.Chance(4)) event.Count("rank", in_.Below(ranks_));
  }
  std::string As() {
    if (in_.Chance(6)) return "null";
    if (in_.Chance(4)) return Object().Raw("key", Name('k', 3)).Done();
    return Object().Raw("req", Name('r', 4)).Raw("at", Count(4)).Done();
  }
  std::string List(const std::string& one) { return "[" + one + "]"; }

  std::string Event() {
    const uint8_t verb = in_.Below(32);
    if (verb < 16) return Ownership(verb);
    if (verb < 22) return Content(verb);
    return Passes(verb);
  }

  Object Of(const char* verb) { return Object().Text("ev", verb); }

  std::string Ownership(uint8_t verb) {
    Object e;
    switch (verb) {
      case 0:
      case 1:
        return Of("admit").Raw("req", Name('r', 4)).Done();
      case 2:
      case 3:
        e = Of("alloc").Raw("req", Name('r', 4)).Raw("pages", Pages());
        if (in_.Chance(4)) e.Raw("at", Count(4));
        break;
      case 4:
        e = Of("share").Raw("req", Name('r', 4)).Raw("pages", Pages()).Raw("tokens", Count(9));
        if (in_.Chance(2)) e.Raw("at", Count(4));
        if (in_.Chance(3)) {
          e = Of("share").Raw("req", Name('r', 4)).Raw("pages", List(Count(9)));
          e.Raw("tokens", Count(9)).Raw("keys", List(Name('k', 3)));
        }
        break;
      case 5:
        return Of("fork").Raw("from", Name('r', 4)).Raw("to", Name('r', 4)).Done();
      case 6:
        e = Of("cow").Raw("req", Name('r', 4)).Raw("at", Count(4)).Raw("page", Count(9));
        break;
      case 7:
        e = Of("trim").Raw("req", Name('r', 4)).Raw("tokens", Count(9));
        if (in_.Chance(2)) e.Count("step", in_.Below(8));
        return e.Done();
      case 8:
        e = Of("drop").Raw("req", Name('r', 4)).Raw("at", Count(4)).Raw("n", Count(3));
        break;
      case 9:
        return Of("release").Raw("req", Name('r', 4)).Done();
      case 10:
        if (!explicit_frees_) return Of("audit").Done();
        e = Of("free").Raw("pages", Pages());
        break;
      case 11:
        e = Of("publish").Raw("key", Name('k', 3));
        if (in_.Chance(4)) {
          e.Raw("page", Count(9)).Raw("from_key", Name('k', 3));
        } else {
          e.Raw("req", Name('r', 4)).Raw("at", Count(4));
        }
        break;
      case 12:
        return Of("unpublish").Raw("key", Name('k', 3)).Done();
      case 13:
        e = Of("pin").Raw("id", Name('x', 3)).Text("dir", in_.Chance(2) ? "in" : "out");
        e.Raw("pages", Pages());
        if (in_.Chance(2)) e.Raw("req", Name('r', 4)).Raw("at", Count(4));
        if (in_.Chance(3)) e.Raw("key", Name('k', 3));
        if (in_.Chance(6)) e.Raw("lease", Count(3));
        break;
      case 14:
        return Of("unpin")
            .Raw("id", Name('x', 3))
            .Raw("ok", in_.Chance(4) ? "false" : "true")
            .Done();
      default:
        return Of("ready").Raw("req", Name('r', 4)).Raw("tokens", Count(9)).Done();
    }
    Where(e);
    return e.Done();
  }

  std::string Content(uint8_t verb) {
    Object e;
    switch (verb) {
      case 16:
      case 17:
        e = Of("write").Raw("page", Count(9)).Raw("first", Count(3)).Raw("n", Count(5));
        e.Raw("as", As());
        if (in_.Chance(2)) e.Raw("xfer", Name('x', 3));
        if (in_.Chance(4)) e.Raw("sum", Name('s', 2));
        break;
      case 18:
        e = Of("read").Raw("page", Count(9)).Raw("xfer", Name('x', 3));
        break;
      case 19:
        e = Of("scale").Raw("page", Count(9));
        if (in_.Chance(3)) e.Raw("as", As());
        break;
      case 20:
        return Of("rescale").Text("pool", Pool(in_.Below(pools_))).Done();
      default:
        e = Of("copy").Raw("from", Count(9)).Raw("to", Count(9));
        if (in_.Chance(3)) e.Text("from_pool", Pool(in_.Below(pools_)));
        if (in_.Chance(3)) e.Text("to_pool", Pool(in_.Below(pools_)));
        if (in_.Chance(2)) e.Raw("xfer", Name('x', 3));
        return e.Done();
    }
    Where(e);
    return e.Done();
  }

  std::string Table() {
    std::vector<int64_t> table;
    for (unsigned n = in_.Below(9); n > 0; --n) table.push_back(Small(9));
    return Numbers(table);
  }
  std::string Slots() {
    std::vector<int64_t> slots;
    for (unsigned n = in_.Below(5); n > 0; --n)
      slots.push_back(std::max(Small(37), INT64_MIN + 1) - 1);
    return Numbers(slots);
  }
  // Tables and writes for one or more pools.
  void Arrays(Object& row) {
    Object tables, writes;
    for (unsigned pool = 0; pool < pools_; ++pool) {
      if (pool > 0 && in_.Chance(2)) continue;
      tables.Raw(Pool(pool), Table());
      writes.Raw(Pool(pool), Slots());
    }
    row.Raw("tables", tables.Done()).Raw("writes", writes.Done());
  }

  std::string Passes(uint8_t verb) {
    const uint64_t rank = in_.Below(ranks_);
    Object e;
    if (verb < 24) {
      e = Of("row").Count("row", in_.Below(4));
      return e.Raw("req", in_.Chance(4) ? "null" : Name('r', 4)).Done();
    }
    if (verb == 24)
      return in_.Chance(2) ? Of("audit").Done() : Of("audit").Raw("idle", "true").Done();
    std::deque<uint64_t>& open = open_[rank];
    if (open.empty() || verb >= 29) return Step(rank);
    if (verb < 27) {
      e = Of("confirm").Count("step", open[in_.Byte() % open.size()]);
      if (in_.Chance(4)) {
        Object row = Object().Count("row", in_.Below(4));
        e.Raw("rows", List(row.Raw("tables", Object().Raw("a", Table()).Done()).Done()));
      }
    } else {
      // Steps retire in order, all else is refused and would end the log.
      e = Of("retire").Count("step", open.front());
      open.pop_front();
    }
    if (ranks_ > 1) e.Count("rank", rank);
    return e.Done();
  }

  std::string Step(uint64_t rank) {
    std::vector<std::string> rows, pads;
    for (unsigned row = 0; row < 4; ++row) {
      const uint8_t what = in_.Below(4);
      if (what == 0) continue;
      Object object = Object().Count("row", row);
      if (what != 3) {
        object.Raw("req", Name('r', 4)).Raw("new", Count(5));
        if (in_.Chance(6)) object.Raw("draft", Count(3));
        if (in_.Chance(6)) object.Raw("base", Count(9));
        if (in_.Chance(6)) object.Raw("reach", Count(9));
        if (in_.Chance(6)) object.Raw("table_epoch", Count(9));
        if (in_.Chance(6)) object.Raw("loads", List(Name('x', 3)));
      }
      Arrays(object);
      object.Index("len", Small(12));
      (what == 3 ? pads : rows).push_back(object.Done());
    }
    const auto text = [](const std::string& one) { return one; };
    open_[rank].push_back(++launched_);
    Object e = Of("step").Count("step", launched_).Raw("rows", testing::List(rows, text));
    if (!pads.empty()) e.Raw("pads", testing::List(pads, text));
    if (in_.Chance(8)) {
      const Object prefix = Object().Raw("rows", "[0,1]").Raw("table", Table());
      e.Raw("prefix", List(prefix.Done()));
    }
    if (ranks_ > 1) e.Count("rank", rank);
    return e.Done();
  }

  FuzzInput in_;
  unsigned pools_ = 2;
  unsigned ranks_ = 1;
  bool explicit_frees_ = false;
  uint64_t launched_ = 0;
  std::deque<uint64_t> open_[2];  // [rank] steps that aren't retired
};

}  // namespace
}  // namespace kvfence

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string log = kvfence::World(kvfence::FuzzInput(data, size)).Log();
  if (std::getenv("KVFENCE_SHOW") != nullptr) std::fputs(log.c_str(), stdout);
  std::istringstream in(log);
  kvfence::Result<kvfence::CheckReport> report = kvfence::CheckLog(&in, "world");
  if (!report.ok() || report->ToJson().empty()) std::abort();  // such a header is always accepted
  return 0;
}
