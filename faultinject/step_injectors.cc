// Faults of what a step says beside its table: lengths, write slots, padded rows.
#include <algorithm>

#include "injector.h"

namespace kvfence {
namespace {

int64_t SlotIn(FaultSurface& at, const Target& target, uint64_t offset) {
  return target.page.value() * static_cast<int64_t>(at.page_size()) + static_cast<int64_t>(offset);
}

class PaddedRow final : public Injector {
  bool BeforeValidate(Scene& s) override {
    std::vector<Row> pads;
    for (const StepRow& row : s.at.rows()) {
      if (row.request == kNoRequest) pads.push_back(row.row);
    }
    const Row* pad = PickOf(s.rng, pads);
    const Target target = PickTarget(s.at, s.rng, kNoRequest);
    if (pad == nullptr || target.request == kNoRequest) return false;
    s.Begin(s.at, {.text = "padded " + Name(*pad) + " names and writes " + Name(target.page) +
                           " of " + Name(target.request),
                   .pages = {target.page}});
    s.at.SetDeviceEntry(*pad, 0, target.page.value());
    s.at.SetDeviceLength(*pad, 1);
    s.at.SetDeviceSlot(*pad, 0, SlotIn(s.at, target, s.rng.Below(target.slots)));
    return true;
  }
};

class WrongWriteSlot final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.new_tokens > 0; });
    if (row == nullptr) return false;
    const StepRow& writer = *row;
    const Target target = PickTarget(s.at, s.rng, writer.request);
    if (target.request == kNoRequest) return false;
    const uint64_t i = s.rng.Below(writer.new_tokens);
    const int64_t slot = SlotIn(s.at, target, s.rng.Below(target.slots));
    s.Begin(s.at, {.text = "new token " + std::to_string(i) + " of " + Name(writer.request) +
                           " is to be written to slot " + std::to_string(slot) + ", in " +
                           Name(target.page) + " of " + Name(target.request),
                   .pages = {target.page},
                   .requests = {writer.request}});
    s.at.SetDeviceSlot(writer.row, i, slot);
    return true;
  }
};

class SkippedWrite final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.new_tokens > 0; });
    if (row == nullptr) return false;
    const StepRow& writer = *row;
    const uint64_t i = s.rng.Below(writer.new_tokens);
    s.Begin(s.at, {.text = "the write slot of new token " + std::to_string(i) + " of " +
                           Name(writer.request) + " is a skip",
                   .requests = {writer.request}});
    s.at.SetDeviceSlot(writer.row, i, -1);
    return true;
  }
};

class LengthOff final : public Injector {
 public:
  explicit LengthOff(bool by_page) : by_page_(by_page) {}

 private:
  bool BeforeValidate(Scene& s) override {
    const auto by = static_cast<int64_t>(by_page_ ? s.at.page_size() : 1);
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.new_tokens > 0; });
    if (row == nullptr) return false;
    const StepRow& victim = *row;
    const int64_t was = s.at.DeviceLength(victim.row);
    const int64_t now = s.rng.Chance(1, 2) && was > by ? was - by : was + by;
    s.Begin(s.at, {.text = "the length of " + Name(victim.row) + " (" + Name(victim.request) +
                           ") turns from " + std::to_string(was) + " to " + std::to_string(now),
                   .requests = {victim.request}});
    s.at.SetDeviceLength(victim.row, now);
    return true;
  }

  bool by_page_;
};

class PadWrite final : public Injector {
  bool BeforeValidate(Scene& s) override {
    std::vector<Row> pads;
    for (const StepRow& row : s.at.rows()) {
      if (row.request == kNoRequest) pads.push_back(row.row);
    }
    const Row* pad = PickOf(s.rng, pads);
    const Target target = PickTarget(s.at, s.rng, kNoRequest);
    if (pad == nullptr || target.request == kNoRequest) return false;
    s.Begin(s.at, {.text = "padded " + Name(*pad) + ", whose table is the null page, writes " +
                           Name(target.page) + " of " + Name(target.request),
                   .pages = {target.page}});
    s.at.SetDeviceSlot(*pad, 0, SlotIn(s.at, target, s.rng.Below(target.slots)));
    return true;
  }
};

class SlotsShifted final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.new_tokens > 0; });
    if (row == nullptr || s.at.page_size() < 2) return false;
    const StepRow& writer = *row;
    // Within the page of the last token, so that nobody else's is written.
    const uint64_t last = writer.new_tokens - 1;
    const int64_t slot = s.at.DeviceSlot(writer.row, last);
    const auto size = static_cast<int64_t>(s.at.page_size());
    const int64_t now = slot % size + 1 < size ? slot + 1 : slot - 1;
    s.Begin(s.at, {.text = "the write slot of the last new token of " + Name(writer.request) +
                           " is " + std::to_string(now) + ", not " + std::to_string(slot),
                   .requests = {writer.request}});
    s.at.SetDeviceSlot(writer.row, last, now);
    return true;
  }
};

class SlotRepeated final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.new_tokens > 1; });
    if (row == nullptr) return false;
    const StepRow& writer = *row;
    const uint64_t i = 1 + s.rng.Below(writer.new_tokens - 1);
    s.Begin(s.at, {.text = "new tokens " + std::to_string(i - 1) + " and " + std::to_string(i) +
                           " of " + Name(writer.request) + " have one write slot",
                   .requests = {writer.request}});
    s.at.SetDeviceSlot(writer.row, i, s.at.DeviceSlot(writer.row, i - 1));
    return true;
  }
};

class LengthsSwapped final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const std::vector<const StepRow*> rows =
        RowsWhere(s.at, [](const StepRow& row) { return row.new_tokens > 0; });
    if (rows.size() < 2) return false;
    const size_t a = s.rng.Below(rows.size());
    const size_t b = (a + 1 + s.rng.Below(rows.size() - 1)) % rows.size();
    const int64_t length_a = s.at.DeviceLength(rows[a]->row);
    const int64_t length_b = s.at.DeviceLength(rows[b]->row);
    if (length_a == length_b) return false;
    s.Begin(s.at, {.text = "the lengths of " + Name(rows[a]->row) + " (" + Name(rows[a]->request) +
                           ") and " + Name(rows[b]->row) + " (" + Name(rows[b]->request) +
                           ") are exchanged",
                   .requests = {rows[a]->request, rows[b]->request}});
    s.at.SetDeviceLength(rows[a]->row, length_b);
    s.at.SetDeviceLength(rows[b]->row, length_a);
    return true;
  }
};

// The length as it was before this step, or one that no table covers.
class LengthFar final : public Injector {
 public:
  explicit LengthFar(bool stale) : stale_(stale) {}

 private:
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, [&](const StepRow& row) {
      return row.new_tokens > 0 && (!stale_ || row.length_before > 0);
    });
    if (row == nullptr) return false;
    const StepRow& victim = *row;
    const uint64_t beyond = s.at.width() * s.at.page_size() + 1 + s.rng.Below(1 << 20);
    const auto now = static_cast<int64_t>(stale_ ? victim.length_before : beyond);
    s.Begin(s.at,
            {.text = "the length of " + Name(victim.row) + " (" + Name(victim.request) + ") is " +
                     std::to_string(now) + ", not " + std::to_string(s.at.DeviceLength(victim.row)),
             .requests = {victim.request}});
    s.at.SetDeviceLength(victim.row, now);
    return true;
  }

  bool stale_;
};

}  // namespace

std::unique_ptr<Injector> MakeStepInjector(std::string_view kind) {
  if (kind == "padded_row") return std::make_unique<PaddedRow>();
  if (kind == "wrong_write_slot") return std::make_unique<WrongWriteSlot>();
  if (kind == "pad_write") return std::make_unique<PadWrite>();
  if (kind == "slot_shifted") return std::make_unique<SlotsShifted>();
  if (kind == "slot_repeated") return std::make_unique<SlotRepeated>();
  if (kind == "lengths_swapped") return std::make_unique<LengthsSwapped>();
  if (kind == "length_stale") return std::make_unique<LengthFar>(true);
  if (kind == "length_wild") return std::make_unique<LengthFar>(false);
  if (kind == "skipped_write") return std::make_unique<SkippedWrite>();
  if (kind == "length_off_by_one") return std::make_unique<LengthOff>(false);
  if (kind == "length_off_by_page") return std::make_unique<LengthOff>(true);
  return nullptr;
}

}  // namespace kvfence
