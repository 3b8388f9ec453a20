// The step book: what launched and not yet retired steps use and write.
//
// Idea: a row's pages aren't copied at launch (that would cost all pages of all rows each step). A
// row is known by its request and the logical range it uses: a page on a holder's list since before
// the launch is used by that holder's row, and only pages that a holder lets go while its row is
// launched are written down. Records are used again, so steady state allocates nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "kvfence/ledger.h"
#include "ledger_content.h"
#include "ledger_pages.h"

namespace kvfence::ledger {

// Logical pages [first, end) that a row uses in one pool; positions below `begin` it doesn't read.
struct PoolUse {
  uint32_t pool = 0;
  uint32_t first = 0;
  uint32_t end = 0;
  uint64_t begin = 0;
};

// Slots [first, first+n) of a page that a row writes, and what stood there, should it be void.
struct SlotWrite {
  uint32_t row = 0;  // index in the record
  uint32_t pool = 0;
  uint32_t page = 0;
  Tag tag = 0;
  uint32_t at = 0;
  uint32_t first = 0;
  uint32_t n = 0;
  uint16_t old_scale = 0;
  Stamp old_stamp = kNoStamp;  // of the content
  Stamp new_stamp = kNoStamp;
  Stamp old_expected = kNoStamp;
  bool overwrites = false;  // one of the slots held content before
  bool carried = false;     // by a copy, from where the row wrote
  uint32_t version = 0;     // of the page's content, when it was launched
  ContentBook::Saved before;
};

struct RowRecord {
  uint32_t inc = kNone;
  uint64_t serial = 0;  // tells the incarnation from a later one in the same slot
  uint32_t uses_begin = 0, uses_end = 0;
  uint32_t writes_begin = 0, writes_end = 0;
  uint32_t loads_begin = 0, loads_end = 0;
  uint64_t length = 0;  // tokens from before the step
  uint64_t new_tokens = 0;
  uint64_t voided = 0;  // number of the event that failed it, 0: it's clean
  bool runs = true;     // its kernels use its pages: it's clean, or failed when it ran already
};

// A page that a row uses and its request has let go since the launch.
struct LetGo {
  uint32_t pool = 0;
  uint32_t page = 0;
  Tag tag = 0;  // the generation that the row uses
  uint32_t at = 0;
  uint32_t row = 0;
};

// A page that a row which had failed before its launch would have written.
struct Unwritten {
  uint32_t row = 0;
  uint32_t pool = 0;
  uint32_t page = 0;
  Tag tag = 0;
};

// A copy has read what a row of the step writes.
struct Export {
  uint32_t row = 0;
  uint32_t pool = 0;
  uint32_t page = 0;
  uint32_t number = 0;  // which of the key's pages
  RequestId req;
  std::optional<KeyId> key;
};

struct StepRecord {
  uint64_t step = 0;
  uint64_t launched_at = 0;  // number of its event
  bool confirmed = false;
  bool judged = false;  // validate's verdicts are in: what failed until then was never written
  std::vector<LaunchedRow> launched;
  std::vector<RowRecord> rows;
  std::vector<PoolUse> uses;
  std::vector<SlotWrite> writes;  // grouped by row
  std::vector<Unwritten> unwritten;
  std::vector<SlotWrite> copies;  // slots that copies carried on from `writes`: same fate
  std::vector<LetGo> let_go;
  std::vector<SameStepRead> reads;
  std::vector<Export> exports;
  std::vector<NameId> loads;

  void Clear();
  bool clean(uint32_t row) const { return launched[row].reasons.empty(); }
  // The row's use of the logical page, null when it doesn't use it.
  const PoolUse* UseOf(uint32_t row, uint32_t pool, uint64_t at) const;
};

class StepBook {
 public:
  StepRecord& Begin(uint64_t step);
  StepRecord* Find(uint64_t step);
  const StepRecord* Find(uint64_t step) const;
  // Also the step retired last, until the next is.
  const StepRecord* FindOrLast(uint64_t step) const;
  bool empty() const { return records_.empty(); }
  StepRecord& oldest() { return *records_.front(); }
  void EndOldest();
  // In flight, oldest first.
  const std::deque<std::unique_ptr<StepRecord>>& records() const { return records_; }
  // 1 + the newest step that has been launched, or retired.
  uint64_t launched() const { return launched_; }
  uint64_t retired() const { return retired_; }
  uint64_t launch_count() const { return launch_count_; }

 private:
  std::deque<std::unique_ptr<StepRecord>> records_;
  std::vector<std::unique_ptr<StepRecord>> unused_;
  std::unique_ptr<StepRecord> last_;
  uint64_t launched_ = 0;
  uint64_t retired_ = 0;
  uint64_t launch_count_ = 0;
};

}  // namespace kvfence::ledger
