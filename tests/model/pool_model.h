// A naive PagePool and PrefixIndex, in sets and maps, to be compared with the real ones.
//
// It shares no code with them: a page's generation is a count of issues, who has it are numbers in
// a struct, both queues are vectors that Settle() brings up to date by looking at all pages. Every
// call answers with a line of text, which says what a caller can observe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kvfence::testing {

struct ModelPage {
  uint64_t generation = 0;  // issues so far, plus those that the first tag stands for
  bool issued = false;
  int pool = -1;
  int references = 0;
  int holds = 0;
  int pins_in = 0;
  int pins_out = 0;
  bool quarantined = false;
};

struct ModelEntry {
  int64_t page;
  uint64_t tag;
  uint64_t born;  // entries are walked in this order
};

class PoolModel {
 public:
  PoolModel(int64_t pages, int64_t null_page, bool lifo, uint64_t first_tag, int pools)
      : pages_(static_cast<size_t>(pages)),
        null_(null_page),
        lifo_(lifo),
        evictable_(pools),
        entries_(pools) {
    for (ModelPage& page : pages_) page.generation = first_tag / 2;
    for (int64_t page = 0; page < pages; ++page) {
      if (State(page) == "free") free_.push_back(page);
    }
  }

  // What an event is answered with. `pool` is 0 or 1.
  std::string Issue(int pool) {
    if (free_.empty()) return "none";
    const int64_t page = free_.front();
    Take(page, pool);
    return "page " + std::to_string(page);
  }
  std::string IssuePage(int pool, int64_t page) {
    if (Bad(page)) return "invalid";
    if (State(page) != "free") return "precondition";
    Take(page, pool);
    return "ok";
  }
  std::string AddReference(int pool, int64_t page) {
    if (Bad(page)) return "invalid";
    if (!Mine(pool, page) || At(page).quarantined || !Held(page)) return "precondition";
    ++At(page).references;
    return Settled(page);
  }
  std::string Return(int pool, int64_t page) {
    if (Bad(page)) return "invalid";
    if (!Mine(pool, page) || At(page).references == 0) return "precondition";
    --At(page).references;
    return Settled(page);
  }
  std::string Pin(int pool, int64_t page, bool in) {
    if (Bad(page)) return "invalid";
    if (!Mine(pool, page) || At(page).quarantined || !Held(page)) return "precondition";
    ++(in ? At(page).pins_in : At(page).pins_out);
    return Settled(page);
  }
  std::string Unpin(int pool, int64_t page, bool in) {
    if (Bad(page)) return "invalid";
    if (!Mine(pool, page)) return "precondition";
    int& pins = in ? At(page).pins_in : At(page).pins_out;
    if (pins == 0) return "precondition";
    --pins;
    return Settled(page);
  }
  std::string DropHold(int pool, int64_t page) {
    if (Bad(page)) return "invalid";
    if (!Mine(pool, page) || At(page).holds == 0) return "precondition";
    --At(page).holds;
    return Settled(page);
  }
  std::string Touch(int pool, int64_t page) {
    if (Bad(page)) return "invalid";
    if (!Mine(pool, page)) return "precondition";
    auto& queue = evictable_[pool];
    const auto at = std::find(queue.begin(), queue.end(), page);
    if (at != queue.end()) std::rotate(at, at + 1, queue.end());
    return "ok";
  }
  std::string Quarantine(int pool, int64_t page) {
    if (Bad(page)) return "invalid";
    if (At(page).pool != -1 && At(page).pool != pool) return "precondition";
    if (State(page) == "retired") return "precondition";
    At(page).quarantined = true;
    return Settled(page);
  }
  std::string EndQuarantine(int, int64_t page) {
    if (Bad(page)) return "invalid";
    if (State(page) != "quarantined" || Held(page) || Pinned(page)) return "precondition";
    At(page).quarantined = false;
    return Settled(page);
  }

  std::string Publish(int pool, uint64_t key, int64_t page) {
    auto& entries = entries_[pool];
    const bool present = entries.count(key) != 0;
    if (present && !Stale(entries.at(key))) return "present";
    if (Bad(page)) return "invalid";
    if (!Mine(pool, page) || At(page).quarantined || !Held(page)) return "precondition";
    ++At(page).holds;
    std::string heard;
    if (present) Erase(pool, key, heard);
    entries[key] = ModelEntry{page, Tag(page), ++born_};
    Settle();
    return (present ? "replaced" : "published") + heard;
  }
  std::string Lookup(int pool, uint64_t key) const {
    const auto found = entries_[pool].find(key);
    if (found == entries_[pool].end()) return "miss";
    const std::string at = " " + std::to_string(found->second.page);
    if (Stale(found->second)) return "stale" + at;
    return (At(found->second.page).quarantined ? "quarantined" : "hit") + at;
  }
  std::string Unpublish(int pool, uint64_t key) {
    if (entries_[pool].count(key) == 0) return "invalid";
    std::string heard;
    const bool ok = Erase(pool, key, heard);
    return (ok ? "ok" : "precondition") + heard;
  }
  std::string UnpublishPage(int pool, int64_t page) {
    if (page < 0 || page >= Pages()) return "invalid";
    std::string heard;
    bool ok = true;
    for (const uint64_t key : KeysByAge(pool, page)) ok = Erase(pool, key, heard) && ok;
    return (ok ? "ok" : "precondition") + heard;
  }
  std::string Clear(int pool) {
    std::string heard;
    bool ok = true;
    for (const uint64_t key : KeysByAge(pool, -1)) ok = Erase(pool, key, heard) && ok;
    return (ok ? "ok" : "precondition") + heard;
  }
  std::string EvictOne(int pool) {
    if (evictable_[pool].empty()) return "exhausted";
    const int64_t page = evictable_[pool].front();
    std::string heard;
    size_t keys = 0;
    for (const uint64_t key : KeysByAge(pool, page)) {
      ++keys;
      if (!Erase(pool, key, heard)) return "precondition" + heard;
    }
    if (State(page) == "cached") return "precondition" + heard;
    return std::to_string(page) + " " + State(page) + " " + std::to_string(keys) + heard;
  }

  // The whole page, and all counts as pool `pool` sees them.
  std::string Page(int64_t page) const {
    const ModelPage& p = At(page);
    return State(page) + " tag " + std::to_string(Tag(page)) + " refs " +
           std::to_string(p.references) + " holds " + std::to_string(p.holds) + " pins " +
           std::to_string(p.pins_in) + "/" + std::to_string(p.pins_out) + " pool " +
           std::to_string(p.pool);
  }
  std::string Counts(int pool) const {
    std::map<std::string, int> of = {{"pinned", 0}, {"evictable", 0}};
    for (int64_t page = 0; page < Pages(); ++page) {
      if (At(page).pool == -1 || At(page).pool == pool) ++of[State(page)];
      if (At(page).pool == pool && State(page) == "cached" && !Pinned(page)) ++of["evictable"];
      if (Pinned(page)) ++of["pinned"];
    }
    std::string text;
    for (const char* name :
         {"free", "live", "cached", "evictable", "draining", "quarantined", "retired", "pinned"}) {
      text += std::string(name) + " " + std::to_string(of[name]) + " ";
    }
    return text;
  }
  size_t Entries(int pool) const { return entries_[pool].size(); }
  uint64_t StaleEntries(int pool) const {
    uint64_t stale = 0;
    for (const auto& [key, entry] : entries_[pool]) stale += Stale(entry) ? 1 : 0;
    return stale;
  }
  // Entries and holds agree, which they do until somebody drops a hold behind the index's back.
  bool HoldsAgree(int pool) const {
    std::map<int64_t, int> named;
    for (const auto& [key, entry] : entries_[pool]) named[entry.page] += Stale(entry) ? 0 : 1;
    for (int64_t page = 0; page < Pages(); ++page) {
      if (At(page).pool != -1 && At(page).pool != pool) continue;
      if (named[page] != At(page).holds) return false;
    }
    return true;
  }
  std::string Oldest(int pool) const {
    return evictable_[pool].empty() ? "none" : std::to_string(evictable_[pool].front());
  }
  int64_t Pages() const { return static_cast<int64_t>(pages_.size()); }

 private:
  const ModelPage& At(int64_t page) const { return pages_[static_cast<size_t>(page)]; }
  ModelPage& At(int64_t page) { return pages_[static_cast<size_t>(page)]; }
  bool Bad(int64_t page) const { return page < 0 || page >= Pages() || page == null_; }
  bool Mine(int pool, int64_t page) const { return At(page).issued && At(page).pool == pool; }
  bool Held(int64_t page) const { return At(page).references + At(page).holds > 0; }
  bool Pinned(int64_t page) const { return At(page).pins_in + At(page).pins_out > 0; }
  // Even while free, odd while issued; each generation uses up two.
  uint64_t Tag(int64_t page) const {
    return At(page).issued ? At(page).generation * 2 - 1 : At(page).generation * 2;
  }
  bool Stale(const ModelEntry& entry) const { return Tag(entry.page) != entry.tag; }

  std::string State(int64_t page) const {
    const ModelPage& p = At(page);
    if (page == null_) return "null";
    if (!p.issued && Tag(page) + 1 > 0xFFFFFFFBu) return "retired";
    if (p.quarantined) return "quarantined";
    if (!p.issued) return "free";
    if (p.references > 0) return "live";
    return p.holds > 0 ? "cached" : "draining";
  }

  void Take(int64_t page, int pool) {
    At(page).issued = true;
    At(page).pool = pool;
    At(page).references = 1;
    ++At(page).generation;
    Settle();
  }

  // Sends home what nobody has, then corrects the queues.
  bool Settle() {
    bool returned = false;
    for (int64_t page = 0; page < Pages(); ++page) {
      if (At(page).issued && !Held(page) && !Pinned(page)) {
        At(page).issued = false;
        At(page).pool = -1;
        returned = true;
      }
      Correct(free_, page, State(page) == "free", lifo_);
      for (int pool = 0; pool < static_cast<int>(evictable_.size()); ++pool) {
        const bool here = At(page).pool == pool && State(page) == "cached" && !Pinned(page);
        Correct(evictable_[pool], page, here, false);
      }
    }
    return returned;
  }

  static void Correct(std::vector<int64_t>& queue, int64_t page, bool belongs, bool front) {
    const auto at = std::find(queue.begin(), queue.end(), page);
    if (!belongs && at != queue.end()) queue.erase(at);
    if (belongs && at == queue.end()) queue.insert(front ? queue.begin() : queue.end(), page);
  }

  std::string Settled(int64_t page) {
    const bool returned = Settle();
    return State(page) + (returned ? " returned" : "");
  }

  std::vector<uint64_t> KeysByAge(int pool, int64_t page) const {
    std::vector<std::pair<uint64_t, uint64_t>> found;
    for (const auto& [key, entry] : entries_[pool]) {
      if (page == -1 || entry.page == page) found.emplace_back(entry.born, key);
    }
    std::sort(found.begin(), found.end());
    std::vector<uint64_t> keys;
    for (const auto& [born, key] : found) keys.push_back(key);
    return keys;
  }

  // False: the entry's hold was gone already.
  bool Erase(int pool, uint64_t key, std::string& heard) {
    const ModelEntry entry = entries_[pool].at(key);
    entries_[pool].erase(key);
    heard += " -" + std::to_string(key) + "@" + std::to_string(entry.page);
    if (Stale(entry)) return true;
    if (At(entry.page).holds == 0) return false;
    --At(entry.page).holds;
    if (Settle()) heard += " free:" + std::to_string(entry.page);
    return true;
  }

  std::vector<ModelPage> pages_;
  int64_t null_;
  bool lifo_;
  std::vector<int64_t> free_;                    // front is issued next
  std::vector<std::vector<int64_t>> evictable_;  // by pool, front goes first
  std::vector<std::map<uint64_t, ModelEntry>> entries_;
  uint64_t born_ = 0;
};

}  // namespace kvfence::testing
