// A log taken apart into what can be left out: lines, and the items of their lists.
//
// Idea: each part needs some tokens (a request is admitted, a page is issued, a step is launched)
// and gives some. A part that needed a token, and had it in the whole log, goes when what gave the
// token has gone. So a trial leaves out one thing and all that hangs on it. What the log got wrong
// on purpose (a page freed twice) had no token to begin with and isn't held to one.
//
// The rules only propose; whether the finding is still there is seen by playing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kvfence {

// What can be left out: a line, or the item `item` of its list `list`.
struct PartRef {
  uint32_t line = 0;
  int32_t list = -1, item = -1;  // -1: the line itself
};

class LogParts {
 public:
  // `lines`: events of a readable log, one each, without header and `expect`s.
  explicit LogParts(const std::vector<std::string>& lines);

  // What can still be left out, in the order of the log. A group goes as one.
  std::vector<std::vector<PartRef>> Requests() const;  // all lines that admit one name
  std::vector<std::vector<PartRef>> Steps() const;
  std::vector<std::vector<PartRef>> Lines() const;
  std::vector<std::vector<PartRef>> Items() const;  // rows of steps, pages of frees ...

  // The log without these parts, and without what hangs on them.
  std::vector<std::string> Without(const std::vector<PartRef>& gone) const;

 private:
  using Tokens = std::vector<uint32_t>;
  struct Item {
    std::string text;
    Tokens needs, gives;
  };
  struct List {
    std::string key;
    std::vector<Item> items;
    bool vital = false;  // a line whose vital lists have all become empty goes
  };
  struct Line {
    std::string verb, text;  // text: all keys but the lists, an object
    std::vector<List> lists;
    Tokens needs, gives, takes;
    std::string admits;  // the name
    std::string step;    // "rank/step" that the line launches
  };
  class Reading;

  // Walks the log; `gone(ref)` parts and what hangs on them are left out. Calls `keep` per line.
  void Walk(const std::function<bool(const PartRef&)>& gone,
            const std::function<void(const Line&, const std::vector<std::vector<const Item*>>&)>&
                keep) const;
  void ForgetWhatWasNeverThere();

  std::vector<Line> lines_;
  uint32_t tokens_ = 0;  // how many there are
};

}  // namespace kvfence
