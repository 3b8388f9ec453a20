// Page tags and content stamps: what they are made of, in one place for host and device.
//
// A tag is the page's generation. It grows on issue and on return, so odd = live and even = free,
// and it never repeats: a page whose tag would reach kTagRetired is never issued again (I-1, I-2).
// A stamp is the birth mark of content: the 40-bit serial of the lineage that wrote it and the
// 24-bit logical page it was written for (I-3). It's exact: nothing is hashed.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define KVF_HD __host__ __device__ inline
#else
#define KVF_HD inline
#endif

namespace kvfence {

using Tag = uint32_t;
using Stamp = uint64_t;

// Tags at or above this are never issued; the page is retired instead.
inline constexpr Tag kTagRetired = 0xFFFFFFFEu;

KVF_HD constexpr bool TagLive(Tag tag) { return (tag & 1u) != 0; }

// Would issuing this page once more need a tag that we never issue?
KVF_HD constexpr bool TagExhausted(Tag tag) { return tag >= kTagRetired - 2; }

// The tag after the page is issued: the next odd one, also when the page is live already (an engine
// that issues a held page still begins a new generation).
KVF_HD constexpr Tag TagAfterIssue(Tag tag) { return TagLive(tag) ? tag + 2 : tag + 1; }

// The tag after the page is returned: the next even one. Returning a free page changes nothing.
KVF_HD constexpr Tag TagAfterReturn(Tag tag) { return TagLive(tag) ? tag + 1 : tag; }

inline constexpr int kStampPageBits = 24;
inline constexpr uint64_t kMaxLogicalPage = (uint64_t{1} << kStampPageBits) - 1;
inline constexpr uint64_t kMaxSerial = (uint64_t{1} << 40) - 1;
// No content since the page was issued. Serials count from 1, so no lineage has this stamp.
inline constexpr Stamp kNoStamp = 0;
// Content that is nobody's (a page that was zeroed while it held something, a remote BEGIN mark).
inline constexpr Stamp kNobodyStamp = ~uint64_t{0};
// Content of more than one lineage in one page. Serials end below these (I-3): nobody expects it.
inline constexpr Stamp kMixedStamp = kNobodyStamp - 1;
// Nothing but what a copy that failed may have left there (`state` and `cross` pools, which keep no
// fill that would say so).
inline constexpr Stamp kFailedStamp = kNobodyStamp - 2;

KVF_HD constexpr Stamp MakeStamp(uint64_t serial, uint64_t logical_page) {
  return serial << kStampPageBits | logical_page;
}
// Is it the stamp of a lineage?
KVF_HD constexpr bool StampIsReal(Stamp stamp) { return stamp != kNoStamp && stamp < kFailedStamp; }
KVF_HD constexpr uint64_t StampSerial(Stamp stamp) { return stamp >> kStampPageBits; }
KVF_HD constexpr uint64_t StampPage(Stamp stamp) { return stamp & kMaxLogicalPage; }

}  // namespace kvfence
