// TagTable: the generation tag of every page of one page space, with nothing else around it.
//
// Idea: an engine that keeps its own block pool can still have tags. It says Issue and Return, and
// uploads or compares what tags() holds. Invariants: a tag grows on issue and on return and never
// repeats (I-1); a page whose next tag would be one that we never issue is retired (I-2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvfence/status.h"
#include "kvfence/tag.h"
#include "kvfence/types.h"

namespace kvfence {

// Not thread-safe; one owner. Memory: 4 bytes per page. Issue and Return take constant time and
// allocate only for a refusal's message.
class TagTable {
 public:
  // `first` is every page's tag at the start; tests begin near the end of the range.
  explicit TagTable(size_t pages, Tag first = 0) : tags_(pages, first) {
    if (TagExhausted(first) && !TagLive(first)) retired_ = pages;
  }

  size_t pages() const { return tags_.size(); }
  bool Contains(PageId page) const {
    return page.value() >= 0 && static_cast<uint64_t>(page.value()) < tags_.size();
  }

  // Begins a new generation and returns its tag. A page that is live already also gets a new one,
  // so that its holder's expectation goes stale; such issues are counted. Refused
  // (kInvalidArgument) beyond the table and (kFailedPrecondition) for a page with no tag left.
  Result<Tag> Issue(PageId page) {
    if (!Contains(page)) return OutOfRange(page);
    Tag& tag = tags_[Index(page)];
    if (TagExhausted(tag)) {
      return Status(StatusCode::kFailedPrecondition,
                    "page " + std::to_string(page.value()) + " is retired: its tags are used up");
    }
    if (TagLive(tag)) ++double_issues_;
    tag = TagAfterIssue(tag);
    KVF_CHECK(TagLive(tag) && tag < kTagRetired, "I-2 no tag at or above kTagRetired is issued");
    return tag;
  }

  // Ends the generation and returns the tag after it; the page retires here if that was its last.
  // Refused (kInvalidArgument) beyond the table and (kFailedPrecondition) for a page not issued.
  Result<Tag> Return(PageId page) {
    if (!Contains(page)) return OutOfRange(page);
    Tag& tag = tags_[Index(page)];
    if (!TagLive(tag)) {
      return Status(StatusCode::kFailedPrecondition,
                    "page " + std::to_string(page.value()) + " is returned twice");
    }
    tag = TagAfterReturn(tag);
    if (TagExhausted(tag)) ++retired_;
    return tag;
  }

  // The page's present tag. Beyond the table: kTagRetired, which no expectation ever holds.
  Tag tag(PageId page) const { return Contains(page) ? tags_[Index(page)] : kTagRetired; }
  bool Live(PageId page) const { return Contains(page) && TagLive(tags_[Index(page)]); }
  // Out of use for good: returned, with no tag left.
  bool Retired(PageId page) const {
    return Contains(page) && !TagLive(tags_[Index(page)]) && TagExhausted(tags_[Index(page)]);
  }

  // Pages retired so far, and issues of pages that were live.
  uint64_t retired() const { return retired_; }
  uint64_t double_issues() const { return double_issues_; }
  // All tags by page, valid as long as the table: for an upload, or a copy in a test.
  std::span<const Tag> tags() const { return tags_; }

 private:
  static size_t Index(PageId page) { return static_cast<size_t>(page.value()); }
  static Status OutOfRange(PageId page) {
    return Status::Invalid("page " + std::to_string(page.value()) + " is beyond the tag table");
  }

  std::vector<Tag> tags_;
  uint64_t retired_ = 0;
  uint64_t double_issues_ = 0;
};

}  // namespace kvfence
