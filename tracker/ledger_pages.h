// The page book: for every physical page its tag, who holds it, who names it, and its content.
//
// Idea: pools of one space number the same physical pages, so a page is found through its pool's
// space. Holders are an intrusive list of mappings, one for each logical page that maps it in its
// present generation. Invariants: I-5 a mapping on a page's list has the page's current tag (a tag
// change takes all mappings off first); I-7 a page is live exactly while its tag is odd.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/device_types.h"
#include "kvfence/types.h"

namespace kvfence::ledger {

inline constexpr uint32_t kNone = 0xFFFFFFFFu;

// One logical page of one incarnation that maps a page in its present generation.
struct Mapping {
  uint32_t inc = kNone;  // slot in the request book
  uint32_t pool = 0;
  uint32_t at = 0;
  uint32_t prev = kNone;
  uint32_t next = kNone;
  uint64_t since = 0;  // number of the event that made it
};

struct Page {
  Tag tag = 0;
  uint32_t mappings = kNone;  // head of the holders' list
  uint32_t entries = kNone;   // head of the list of index entries with the current tag
  uint32_t pins = kNone;      // head of the list of outstanding pins, of any generation
  bool ran = false;           // state and cross pools: a confirmed step may have written it
  bool failed = false;        // state and cross pools: a copy failed, and nothing is there since
  uint32_t out_pins = 0;      // `out` pins of the present generation
  uint32_t owner = 0;         // pool that took it last (pools of a space hold a page in turn)
  // Content, as after all launched work that is clean so far. See ledger_content.h.
  Stamp stamp = kNoStamp;
  uint32_t irregular = kNone;
  uint32_t version = 0;            // grows whenever valid slots change or are written again
  uint16_t fill = 0;               // slots [0, fill) are valid, where not irregular
  uint16_t settled = 0;            // slots [0, settled) are committed
  uint16_t scale = 0;              // scale mark
  uint16_t flags = 0;              // kPageShared, kPageSealed, as last told to the device
  uint8_t suspect = 0;             // 1 + Reason for which who maps it is suspect too
  Stamp last_expected = kNoStamp;  // what its last holder expected
  uint64_t last_use = 0;           // 1 + newest launched step that used it when it was let go
};

class PageBook {
 public:
  explicit PageBook(const FenceConfig& config);

  bool InRange(uint32_t pool, PageId page) const {
    return page.value() >= 0 && static_cast<uint64_t>(page.value()) < count_[pool];
  }
  Page& at(uint32_t pool, uint32_t page) { return pages_[space_[pool]][page]; }
  const Page& at(uint32_t pool, uint32_t page) const { return pages_[space_[pool]][page]; }

  uint32_t space_of(uint32_t pool) const { return space_[pool]; }
  const std::vector<uint32_t>& pools_of_space(uint32_t space) const { return pools_of_[space]; }
  uint32_t spaces() const { return static_cast<uint32_t>(pages_.size()); }
  const std::vector<Page>& pages_of_space(uint32_t space) const { return pages_[space]; }

  // Puts a mapping on the page's list; returns its node.
  uint32_t Map(Page& page, uint32_t pool, uint32_t inc, uint32_t at, uint64_t since);
  // Takes the node off the page's list and forgets it.
  void Unmap(Page& page, uint32_t node);
  const Mapping& mapping(uint32_t node) const { return mappings_[node]; }

  // Do at least two different incarnations map it?
  bool Shared(const Page& page) const;

 private:
  std::vector<uint64_t> count_;                  // pages of each pool: a space may have more
  std::vector<uint32_t> space_;                  // by pool
  std::vector<std::vector<uint32_t>> pools_of_;  // by space
  std::vector<std::vector<Page>> pages_;         // by space, then page
  std::vector<Mapping> mappings_;
  uint32_t free_mapping_ = kNone;
};

}  // namespace kvfence::ledger
