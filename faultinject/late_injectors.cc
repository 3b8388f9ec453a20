// Faults of stream order: what validate read is another when attention reads it, or when confirm
// looks again.
#include <algorithm>

#include "injector.h"

namespace kvfence {
namespace {

class LengthFlip final : public Injector {
  bool BetweenValidateAndAttention(Scene& s) override {
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.new_tokens > 0; });
    if (row == nullptr) return false;
    const int64_t was = s.at.DeviceLength(row->row);
    const int64_t now = was > 1 && s.rng.Chance(1, 2) ? was - 1 : was + 1;
    s.Begin(s.at,
            {.text = "after validate, the length of " + Name(row->row) + " (" + Name(row->request) +
                     ") turns from " + std::to_string(was) + " to " + std::to_string(now),
             .requests = {row->request}});
    s.at.SetDeviceLength(row->row, now);
    return true;
  }
};

class SlotDropped final : public Injector {
  bool BetweenValidateAndAttention(Scene& s) override {
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.new_tokens > 0; });
    if (row == nullptr) return false;
    const uint64_t i = s.rng.Below(row->new_tokens);
    if (s.at.DeviceSlot(row->row, i) < 0) return false;
    s.Begin(s.at, {.text = "after validate, the write slot of new token " + std::to_string(i) +
                           " of " + Name(row->request) + " turns into a skip",
                   .requests = {row->request}});
    s.at.SetDeviceSlot(row->row, i, -1);
    return true;
  }
};

class LateRowSwap final : public Injector {
  bool BetweenValidateAndAttention(Scene& s) override {
    const std::vector<const StepRow*> rows =
        RowsWhere(s.at, [](const StepRow& row) { return row.covered > 0; });
    if (rows.size() < 2) return false;
    const size_t a = s.rng.Below(rows.size());
    const size_t b = (a + 1 + s.rng.Below(rows.size() - 1)) % rows.size();
    s.Begin(s.at, {.text = "after validate, the entries of " + Name(rows[a]->row) + " (" +
                           Name(rows[a]->request) + ") and " + Name(rows[b]->row) + " (" +
                           Name(rows[b]->request) + ") are exchanged",
                   .requests = {rows[a]->request, rows[b]->request}});
    s.at.SwapDeviceRows(rows[a]->row, rows[b]->row);
    return true;
  }
};

class TableRewritten final : public Injector {
  bool AfterAttention(Scene& s) override {
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.covered > 0; });
    if (row == nullptr) return false;
    const uint64_t k = s.rng.Below(row->covered);
    const int64_t was = s.at.DeviceEntry(row->row, k);
    const int64_t now = was == 1 ? 2 : was - 1;
    s.Begin(s.at, {.text = "after attention and before confirm, entry " + std::to_string(k) +
                           " of " + Name(row->row) + " (" + Name(row->request) + ") turns from " +
                           std::to_string(was) + " to " + std::to_string(now),
                   .requests = {row->request}});
    s.at.SetDeviceEntry(row->row, k, now);
    return true;
  }
};

class ConfirmLost final : public Injector {
  bool OnConfirm(Scene& s, RankId rank) override {
    const std::vector<const StepRow*> rows = RowsWhere(s.at, [](const StepRow&) { return true; });
    if (rows.empty()) return false;
    FaultMark mark{.text = "confirm isn't launched on rank " + std::to_string(rank.value())};
    for (const StepRow* row : rows) mark.requests.push_back(row->request);
    s.Begin(s.at, std::move(mark));
    return true;
  }
};

}  // namespace

std::unique_ptr<Injector> MakeLateInjector(std::string_view kind) {
  if (kind == "length_flip") return std::make_unique<LengthFlip>();
  if (kind == "slot_dropped") return std::make_unique<SlotDropped>();
  if (kind == "late_row_swap") return std::make_unique<LateRowSwap>();
  if (kind == "table_rewritten") return std::make_unique<TableRewritten>();
  if (kind == "confirm_lost") return std::make_unique<ConfirmLost>();
  return nullptr;
}

}  // namespace kvfence
