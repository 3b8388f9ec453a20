// A small engine that keeps its books correctly, and says what it does in the event language.
//
// Idea: commands are bytes, so that a property test can shrink them; the engine reads each as
// something that is legal in the state reached so far, so that every list of commands is a legal
// history: admission, prefix hits, chunked prefill, decode, overlapped steps, speculation, fork and
// copy-on-write, window slides, transfers, offload, preemption. One ordered fault (faults.h) makes
// it illegal. It shares nothing with the ledger: rules are those of docs/events.md.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "event_text.h"
#include "faults.h"

namespace kvfence::testing {

using Command = std::array<uint8_t, 6>;

struct PoolShape {
  std::string name;
  int64_t pages = 0;
  uint64_t page_size = 0;
  uint64_t window = 0;  // tokens, 0: all
  bool scales = false;
  bool slots = false;  // table entries are slots
};

// What a history is played in.
struct World {
  std::vector<PoolShape> pools;
  bool explicit_frees = false;
  bool stream = false;
  bool same_step_reads = false;
  uint64_t ranks = 1;
  uint64_t rows = 4;
  uint64_t width = 8;  // pages a row can name
  uint64_t unit = 0;   // tokens that are whole pages in every pool
  std::string Header(std::string_view about) const;
};
World MakeWorld(const Command& bytes);

class NaiveEngine {
 public:
  NaiveEngine(const World& world, Strike strike);
  NaiveEngine(const NaiveEngine&) = delete;
  NaiveEngine& operator=(const NaiveEngine&) = delete;

  void Do(const Command& c);
  // Ends everything: copies, steps, requests, index entries; then nothing may be left.
  void Drain();
  // Has the fault happened?
  bool struck() const { return struck_; }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  struct Page {
    bool free = true;
    bool waits = false;  // nobody holds it, its `free` is still to be said
    uint32_t generation = 0;
    int refs = 0, entries = 0, ins = 0, outs = 0;
    int uses = 0;                          // launched steps, not retired, that touch it
    uint64_t committed = 0, launched = 0;  // slots from its start: of retired, of launched work
  };
  struct Pool {
    PoolShape shape;
    std::vector<Page> pages;
    std::vector<int64_t> free_list;  // last in, first out
  };
  struct Request {
    std::string name{}, identity{};
    bool alive = true;
    bool copying = false;
    int row = -1;
    int launched = 0;  // steps of it that aren't retired
    uint64_t last_step = 0;
    uint64_t length = 0;
    std::vector<std::vector<int64_t>> pages{};  // [pool][logical page], -1: nothing
    std::vector<std::vector<int64_t>> shown{};  // [pool][entry]: stale entries below the window
  };
  // One page of a prefix or a copy.
  struct Part {
    size_t pool = 0;
    uint64_t at = 0;
    int64_t page = -1;
    uint64_t n = 0;  // slots
    std::string key;
  };
  struct Prefix {
    uint64_t tokens = 0;
    std::string identity;
    std::vector<Part> parts{};
  };
  struct Copy {
    bool in = false;
    size_t request = 0;  // in: whose pages
    uint64_t tokens = 0;
    std::vector<Part> parts{};
    size_t done = 0;
    bool pinned = true;
    std::string id{};
    Prefix stored{};  // out: what it brings to the host
  };
  struct Use {
    size_t pool;
    int64_t page;
    uint32_t generation;
    uint64_t end;  // slots written, 0: only touched
  };
  struct Step {
    uint64_t number = 0;
    bool confirmed = false;
    std::vector<size_t> requests{};
    std::vector<Use> uses{};
    std::vector<int> rows{};
    std::string changed{};  // of `confirm`, if a table changes
  };
  // One row of a step while it's laid out.
  struct RowOut {
    int row = -1;
    int request = -1;  // -1: padded
    uint64_t fresh = 0, draft = 0;
    uint64_t before = 0;
    bool rewrites = false;  // rejected tokens lay where it writes
    int64_t len = 0;
    std::vector<std::vector<int64_t>> tables{}, writes{};  // [pool]
    Object extra{};
  };

  // Is this the opportunity at which the ordered fault is to happen?
  bool Strikes(Fault fault);
  void Say(const Object& line);
  Object Event(std::string_view verb) const;

  // --- pages
  std::optional<int64_t> Take(size_t pool, bool for_copy);
  uint64_t Usable(size_t pool, bool for_copy) const;
  bool CanUse(const Page& page, bool for_copy) const;
  void GiveBack(size_t pool, int64_t page);
  void MaybeGiveBack(size_t pool, int64_t page);
  void LetGo(size_t pool, int64_t page);
  void SayFrees();
  std::vector<int64_t> Sources(size_t pool) const;  // pages that are live
  Page& At(size_t pool, int64_t page) { return pools_[pool].pages[static_cast<size_t>(page)]; }
  uint64_t FirstRead(const PoolShape& shape, uint64_t length) const;

  // --- requests
  size_t Admit(const Command& c, std::string_view identity);
  void AdmitAny(const Command& c);
  bool Crowded() const;
  void Hit(const Command& c);
  std::optional<size_t> HitOf(const Prefix& prefix, const Command& c);
  bool Complete(const Prefix& prefix) const;
  void Publish(const Command& c);
  bool PublishFirst(size_t request, uint64_t tokens, bool ahead);
  void Evict(const Command& c);
  void Unpublish(size_t prefix);
  void Fork(const Command& c);
  void Trim(const Command& c);
  void DropTail(Request& r, uint64_t tokens);
  void Slide(const Command& c);
  void Release(const Command& c);
  void End(size_t request, bool row_first);
  void Ahead(const Command& c);
  void SwapRows(const Command& c);
  void Audit(const Command& c);
  std::optional<size_t> Pick(uint8_t b, bool idle_only) const;

  // --- copies
  void StartIn(const Command& c);
  void StartOut(const Command& c);
  void Continue(const Command& c);
  void Brought(Copy& copy, size_t part, bool as_other);
  void FinishIn(const Command& c, size_t index);
  void FinishOut(size_t index);
  void Pin(const Copy& copy, const Part& part, std::string_view id);
  std::string PinId(const Copy& copy, const Part& part) const;
  void StrayWrite(const Command& c);

  // --- steps
  void Launch(const Command& c);
  bool AddRow(const Command& c, size_t request, Step& step, std::vector<RowOut>& rows);
  bool MakeRoom(size_t request, uint64_t fresh, uint64_t draft);
  bool GetRow(size_t request);
  void Bind(int row, int request);
  RowOut LayOut(size_t request, uint64_t fresh, uint64_t draft) const;
  std::vector<int64_t> TableOf(size_t pool, const Request& r, bool stale) const;
  void Twin(const Command& c, Step& step, std::vector<RowOut>& rows);
  void AddPads(const Command& c, const Step& step, std::vector<RowOut>& pads);
  std::string SharedPrefix(const Command& c, const std::vector<RowOut>& rows);
  void SpoilRows(std::vector<RowOut>& rows);
  void SpoilTable(RowOut& row);
  void SpoilWrites(RowOut& row);
  void SayStep(const Step& step, const std::vector<RowOut>& rows, const std::vector<RowOut>& pads,
               const std::string& prefix);
  std::string ByPool(const std::vector<std::vector<int64_t>>& words) const;
  void PutByPool(Object& object, const char* one, const char* many,
                 const std::vector<std::vector<int64_t>>& words) const;
  void Settle(const Command& c);
  void Confirm(Step& step);
  void Retire();

  const World world_;
  const Strike strike_;
  uint32_t seen_ = 0;
  bool struck_ = false;
  std::vector<Pool> pools_;
  std::vector<Request> requests_;
  std::vector<Prefix> index_;
  std::vector<Prefix> stored_;
  std::vector<Copy> copies_;
  std::vector<Part> late_;  // writes that come too late, by a fault
  std::deque<Step> steps_;
  std::vector<int> row_uses_;
  std::vector<std::pair<size_t, int64_t>> to_free_;
  uint64_t step_number_ = 0, names_ = 0;
  std::vector<std::string> lines_;
};

// The log of a history: `commands` in that world, with that fault. `struck`, if given, says whether
// the fault had its opportunity.
std::string WriteHistory(const World& world, const std::vector<Command>& commands, Strike strike,
                         bool* struck = nullptr);

}  // namespace kvfence::testing
