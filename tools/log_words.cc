#include "log_words.h"

#include <cstdint>
#include <cstdio>

#include "kvfence/tag.h"

namespace kvfence::tools {

std::string Printable(std::string_view text) {
  constexpr size_t kShown = 400;
  std::string out;
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\x%02x", byte);
      out += code;
    } else {
      out += c;
    }
  }
  if (text.size() > kShown) out += "... (" + std::to_string(text.size()) + " bytes)";
  return out;
}

namespace {

void Add(std::string* text, std::string_view name, int64_t value) {
  if (value >= 0) *text += " " + std::string(name) + " " + std::to_string(value);
}

// Reasons whose compared values are pages or slots.
constexpr CheckSet kPageReasons = CheckSet(Reason::kPageMismatch) + Reason::kRowTail;
constexpr CheckSet kSlotReasons = CheckSet(Reason::kWriteTarget) + Reason::kPadRow;
constexpr CheckSet kSignedReasons = kPageReasons + kSlotReasons + Reason::kPageOutOfRange +
                                    Reason::kWriteShared + Reason::kLengthMismatch;
constexpr CheckSet kStampReasons = CheckSet(Reason::kStampMismatch) + Reason::kNotCommitted;

// A compared value: what stands for "none" or "nobody's" by name, not as the number it is.
std::string Value(Reason reason, uint64_t value, bool expected) {
  if (kStampReasons.Has(reason)) {
    if (value == kNobodyStamp) return "nobody's content";
    if (value == kMixedStamp) return "content of several";
    if (value == kFailedStamp) return "a failed copy's content";
  }
  const auto index = static_cast<int64_t>(value);
  if (!kSignedReasons.Has(reason) || index >= 0) return std::to_string(value);
  if (!expected || index != -1) return std::to_string(index);
  return kPageReasons.Has(reason) ? "no page" : kSlotReasons.Has(reason) ? "no slot" : "nothing";
}

void AddPool(std::string* text, const std::vector<std::string>& pools, int64_t pool) {
  if (pool < 0 || pools.size() < 2) return;
  *text += " pool " + Printable(pools[static_cast<size_t>(pool)]);
}

}  // namespace

std::string Words(const LoggedViolation& logged, const std::vector<std::string>& pools) {
  const Violation& v = logged.violation;
  std::string text(ReasonName(v.reason));
  if (!logged.req.empty()) text += " req " + Printable(logged.req);
  if (v.page != -1) text += " page " + std::to_string(v.page);
  Add(&text, "at", v.at);
  AddPool(&text, pools, v.pool);
  Add(&text, "row", v.row);
  Add(&text, "step", v.step);
  if (v.reason == Reason::kRowEpoch) {  // its numbers are handles
    text += v.found == 0 ? ": the row is bound to nobody" : ": the row is bound to another request";
  } else if (v.expected != v.found) {
    text += ": expected " + Value(v.reason, v.expected, true) + ", found " +
            Value(v.reason, v.found, false);
  }
  return text;
}

std::string Words(const LoggedExpect& logged, const std::vector<std::string>& pools) {
  const LogExpect& e = logged.expect;
  if (e.clean) return "expected clean, but violations were reported that no expect line covers";
  std::string text = "expected " + std::string(ReasonName(e.reason));
  if (!logged.req.empty()) text += " req " + Printable(logged.req);
  if (e.page) text += " page " + std::to_string(e.page->value());
  if (e.at) text += " at " + std::to_string(*e.at);
  if (e.pool) AddPool(&text, pools, static_cast<int64_t>(e.pool->value()));
  if (e.row) text += " row " + std::to_string(e.row->value());
  if (e.step) text += " step " + std::to_string(e.step->value());
  return text + ", which was not reported";
}

std::vector<std::string> NamesOf(CheckSet reasons) {
  std::vector<std::string> names;
  for (int i = 0; i < kReasonCount; ++i) {
    const auto reason = static_cast<Reason>(i);
    if (reasons.Has(reason)) names.emplace_back(ReasonName(reason));
  }
  return names;
}

}  // namespace kvfence::tools
