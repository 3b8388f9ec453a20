// The content book: which slots of a page hold content, as far as the host knows.
//
// Idea: nearly every page is filled from its start, so two numbers tell it all: slots [0, fill) are
// valid (written by rows that are clean so far, or from outside) and [0, settled) of them are
// committed (by retired steps, or by copies that ended well). A page that isn't of that shape gets
// two bit sets until it is again. Likewise nearly every page's slots are of one birth, its stamp; a
// page of more than one, or one that a copy is bringing another to, keeps a stamp for each slot.
// Invariant I-30: committed slots are valid.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ledger_pages.h"

namespace kvfence::ledger {

class ContentBook {
 public:
  // All slots empty; the stamp is kNoStamp, the scale mark 0 (no live page's mark).
  void Wipe(Page& page);

  // Are all slots of [first, last) valid, or committed?
  bool Valid(const Page& page, uint64_t first, uint64_t last) const;
  bool Settled(const Page& page, uint64_t first, uint64_t last) const;
  bool AnyValid(const Page& page) const { return Fill(page) != 0; }
  // One past the last valid slot: what the device's fill is.
  uint16_t Fill(const Page& page) const { return page.fill; }
  bool Holey(const Page& page) const;
  // The birth of a slot, kNoStamp if it isn't valid; and that of all valid slots: kNoStamp without
  // any, kMixedStamp if they differ.
  Stamp Birth(const Page& page, uint64_t slot) const;
  Stamp Born(const Page& page) const;
  // Pages with a hole among their valid slots, over all pools.
  uint64_t holey_pages() const { return holey_; }

  // Slots [first, first+n) become valid, of this birth; those that were committed stay so. The
  // page's stamp isn't told from it: Own or Show follow.
  void Launch(Page& page, uint64_t first, uint64_t n, Stamp birth);
  // Those of them that are valid become committed.
  void Settle(Page& page, uint64_t first, uint64_t n);
  // Valid and committed at once.
  void Commit(Page& page, uint64_t first, uint64_t n, Stamp birth);
  // No content any more; a page left without any has no stamp.
  void Void(Page& page, uint64_t first, uint64_t n);
  // `to` has the valid and committed slots of `from` below `size`, and their births.
  void Copy(const Page& from, Page& to, uint64_t size);
  // All valid slots are of this birth now, and so is the page.
  void Own(Page& page, Stamp birth);
  // Those of birth `from` are of birth `to` now.
  void Exchange(Page& page, Stamp from, Stamp to);
  // The page's stamp, whatever its slots' births.
  void Show(Page& page, Stamp stamp);

  // A page's content as it is, to be put back as if nothing had happened since.
  struct Irregular;
  struct Saved {
    uint16_t fill = 0;
    uint16_t settled = 0;
    uint32_t version = 0;
    Stamp stamp = kNoStamp;
    std::shared_ptr<const Irregular> bits;  // null: the two numbers tell it all
  };
  Saved Save(const Page& page) const;
  void Restore(Page& page, const Saved& saved);

 private:
  Irregular& Spread(Page& page);  // gives the page its bit sets
  void Gather(Page& page);        // takes them away again where two numbers do
  void Drop(Page& page);
  void Bear(Irregular& bits, const Page& page);  // gives its slots a stamp each

  std::vector<Irregular> irregular_;
  std::vector<uint32_t> unused_;
  uint64_t holey_ = 0;
};

struct ContentBook::Irregular {
  std::vector<uint64_t> valid;
  std::vector<uint64_t> settled;
  std::vector<Stamp> births;  // by slot; empty: of all valid ones it's the page's stamp
  bool holey = false;
};

// The birth of content that is of birth `a` in one place and `b` in another.
inline Stamp Joined(Stamp a, Stamp b) {
  if (a == kNoStamp || a == b) return b;
  return b == kNoStamp ? a : kMixedStamp;
}

}  // namespace kvfence::ledger
