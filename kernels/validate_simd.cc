// The tight loop, plain and with vector gathers, and which of them this processor can run.
//
// Idea: each variant is built for its own instruction set by a target attribute, so that one binary
// runs everywhere. Invariant: all variants give the same answer, and read nothing outside the
// pool's records for whatever the entries hold.
#include "validate_simd.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvfence::fence {
namespace {

// Are entries[0 .. n) exactly the expected pages, in the expected state? Int: int32_t or int64_t.
template <class Int>
bool AllEqual(const Int* entries, const Expectation* want, const PageRecord* records, uint64_t n,
              const FastMasks& m) {
  uint64_t differs = 0;
  uint64_t outside = 0;
  for (uint64_t i = 0; i < n; ++i) {
    uint64_t x[2];
    std::memcpy(x, want + i, sizeof x);
    const uint64_t entry =
        static_cast<uint64_t>(static_cast<std::make_unsigned_t<Int>>(entries[i]));
    const uint32_t tag = static_cast<uint32_t>(x[0] >> 32);
    const bool in_pool = entry < m.pages;
    uint64_t r[2];
    std::memcpy(r, records + (in_pool ? entry : 0), sizeof r);
    const uint64_t scale = (uint64_t{tag} << 48 & m.by_tag) | m.scale;
    const uint64_t low = uint64_t{tag} | m.fill | scale;
    differs |= entry ^ (x[0] & 0xFFFFFFFFu);
    differs |= (r[0] ^ low) & m.low;
    differs |= (r[1] ^ x[1]) & m.stamp;
    outside |= static_cast<uint64_t>(!in_pool) | static_cast<uint64_t>(entry == m.null_page) |
               (static_cast<uint64_t>(x[1] == kNoStamp) & m.stamp);
  }
  return (differs | outside) == 0;
}

#if defined(__x86_64__)

constexpr long long Lane(uint64_t v) { return static_cast<long long>(v); }

// Four entries a turn; the last four once more where n isn't their multiple, as a remainder entry
// by entry costs as much as a hundred of the others.
template <class Int>
__attribute__((target("avx2"))) bool AllEqualAvx2(const Int* entries, const Expectation* want,
                                                  const PageRecord* records, uint64_t n,
                                                  const FastMasks& m) {
  const auto* base = reinterpret_cast<const long long*>(records);
  const __m256i pages = _mm256_set1_epi64x(Lane(m.pages)),
                null_page = _mm256_set1_epi64x(Lane(m.null_page)),
                zero = _mm256_set1_epi64x(Lane(0));
  const __m256i fixed = _mm256_set1_epi64x(Lane(m.fill | m.scale)),
                by_tag = _mm256_set1_epi64x(Lane(m.by_tag)),
                low_mask = _mm256_set1_epi64x(Lane(m.low));
  const __m256i stamp_mask = _mm256_set1_epi64x(Lane(m.stamp)),
                page_bits = _mm256_set1_epi64x(Lane(0xFFFFFFFFu));
  __m256i differs = zero;
  __m256i outside = zero;
  if (n < 4) return AllEqual(entries, want, records, n, m);
  for (uint64_t done = 0; done < n; done += 4) {
    const uint64_t i = std::min(done, n - 4);
    __m256i page;
    if constexpr (sizeof(Int) == 4) {
      page = _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(entries + i)));
    } else {
      page = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(entries + i));
    }
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(want + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(want + i + 2));
    const __m256i named = _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(a, b), 0xD8);
    const __m256i stamp = _mm256_permute4x64_epi64(_mm256_unpackhi_epi64(a, b), 0xD8);
    // Signed compares: a negative entry is below zero, a huge one not below `pages`.
    const __m256i inside =
        _mm256_andnot_si256(_mm256_cmpgt_epi64(zero, page), _mm256_cmpgt_epi64(pages, page));
    const __m256i index = _mm256_slli_epi64(_mm256_and_si256(page, inside), 1);
    const __m256i low = _mm256_i64gather_epi64(base, index, 8);
    const __m256i found = _mm256_i64gather_epi64(base + 1, index, 8);
    const __m256i tag = _mm256_srli_epi64(named, 32);
    const __m256i scale = _mm256_and_si256(_mm256_slli_epi64(tag, 48), by_tag);
    const __m256i wanted = _mm256_or_si256(_mm256_or_si256(tag, fixed), scale);
    const __m256i low_differs = _mm256_and_si256(_mm256_xor_si256(low, wanted), low_mask);
    const __m256i stamp_differs = _mm256_and_si256(_mm256_xor_si256(found, stamp), stamp_mask);
    const __m256i page_differs = _mm256_xor_si256(page, _mm256_and_si256(named, page_bits));
    differs = _mm256_or_si256(differs, _mm256_or_si256(low_differs, stamp_differs));
    differs = _mm256_or_si256(differs, page_differs);
    const __m256i none = _mm256_and_si256(_mm256_cmpeq_epi64(stamp, zero), stamp_mask);
    outside = _mm256_or_si256(outside, _mm256_or_si256(none, _mm256_cmpeq_epi64(page, null_page)));
    outside = _mm256_or_si256(outside, _mm256_andnot_si256(inside, _mm256_cmpeq_epi64(zero, zero)));
  }
  const __m256i wrong = _mm256_or_si256(differs, outside);
  return _mm256_testz_si256(wrong, wrong) != 0;
}

// Eight entries a turn; the last eight once more.
template <class Int>
__attribute__((target("avx512f"))) bool AllEqualAvx512(const Int* entries, const Expectation* want,
                                                       const PageRecord* records, uint64_t n,
                                                       const FastMasks& m) {
  constexpr __mmask8 kAll = 0xFF;  // the unmasked forms draw a false warning from GCC 12
  const auto* base = reinterpret_cast<const long long*>(records);
  const __m512i pages = _mm512_set1_epi64(Lane(m.pages)),
                null_page = _mm512_set1_epi64(Lane(m.null_page)), zero = _mm512_set1_epi64(Lane(0));
  const __m512i fixed = _mm512_set1_epi64(Lane(m.fill | m.scale)),
                by_tag = _mm512_set1_epi64(Lane(m.by_tag)),
                low_mask = _mm512_set1_epi64(Lane(m.low));
  const __m512i stamp_mask = _mm512_set1_epi64(Lane(m.stamp)),
                page_bits = _mm512_set1_epi64(Lane(0xFFFFFFFFu));
  const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
  const __m512i odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
  __m512i differs = zero;
  unsigned outside = 0;
  if (n < 8) return AllEqual(entries, want, records, n, m);
  for (uint64_t done = 0; done < n; done += 8) {
    const uint64_t i = std::min(done, n - 8);
    __m512i page;
    if constexpr (sizeof(Int) == 4) {
      page = _mm512_maskz_cvtepu32_epi64(
          kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(entries + i)));
    } else {
      page = _mm512_loadu_si512(entries + i);
    }
    const __m512i a = _mm512_loadu_si512(want + i);
    const __m512i b = _mm512_loadu_si512(want + i + 4);
    const __m512i named = _mm512_permutex2var_epi64(a, even, b);
    const __m512i stamp = _mm512_permutex2var_epi64(a, odd, b);
    const __mmask8 inside = _mm512_cmplt_epu64_mask(page, pages);
    const __m512i index = _mm512_maskz_slli_epi64(inside, page, 1);
    const __m512i low = _mm512_mask_i64gather_epi64(zero, kAll, index, base, 8);
    const __m512i found = _mm512_mask_i64gather_epi64(zero, kAll, index, base + 1, 8);
    const __m512i tag = _mm512_maskz_srli_epi64(kAll, named, 32);
    const __m512i scale = _mm512_and_si512(_mm512_maskz_slli_epi64(kAll, tag, 48), by_tag);
    const __m512i wanted = _mm512_or_si512(_mm512_or_si512(tag, fixed), scale);
    const __m512i low_differs = _mm512_and_si512(_mm512_xor_si512(low, wanted), low_mask);
    const __m512i stamp_differs = _mm512_and_si512(_mm512_xor_si512(found, stamp), stamp_mask);
    const __m512i page_differs = _mm512_xor_si512(page, _mm512_and_si512(named, page_bits));
    differs = _mm512_or_si512(differs, _mm512_or_si512(low_differs, stamp_differs));
    differs = _mm512_or_si512(differs, page_differs);
    outside |= static_cast<unsigned>(inside) ^ kAll;
    outside |= _mm512_cmpeq_epi64_mask(page, null_page);
    outside |=
        _mm512_mask_cmpeq_epi64_mask(_mm512_test_epi64_mask(stamp_mask, stamp_mask), stamp, zero);
  }
  return outside == 0 && _mm512_test_epi64_mask(differs, differs) == 0;
}

#endif

FastLoops Probe() {
  FastLoops found{};
  found.loops[found.count++] = FastLoop{"plain", AllEqual<int32_t>, AllEqual<int64_t>};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    found.loops[found.count++] = FastLoop{"avx2", AllEqualAvx2<int32_t>, AllEqualAvx2<int64_t>};
  }
  if (__builtin_cpu_supports("avx512f")) {
    found.loops[found.count++] =
        FastLoop{"avx512", AllEqualAvx512<int32_t>, AllEqualAvx512<int64_t>};
  }
#endif
  return found;
}

}  // namespace

const FastLoops& AvailableFastLoops() {
  static const FastLoops found = Probe();
  return found;
}

const FastLoop& BestFastLoop() {
  static const FastLoop& best = AvailableFastLoops().loops[AvailableFastLoops().count - 1];
  return best;
}

}  // namespace kvfence::fence
