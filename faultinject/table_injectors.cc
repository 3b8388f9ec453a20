// Faults of the batch table: stale, swapped, torn, flipped entries.
#include <algorithm>

#include "injector.h"

namespace kvfence {
namespace {

class StaleMapping final : public Injector {
  bool BeforeUpload(Scene& s) override {
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.covered > 0; });
    const PageId* page = PickOf(s.rng, s.seen.returned);
    if (row == nullptr || page == nullptr) return false;
    const StepRow& victim = *row;
    const std::span<const PageId> own = s.at.PagesOf(victim.request);
    if (std::find(own.begin(), own.end(), *page) != own.end()) return false;
    // Of pages that only the device knows to be read or not none is taken.
    const uint64_t sure = s.at.LengthOf(victim.request) / s.at.page_size() + 1;
    const uint64_t k = s.rng.Below(std::min<uint64_t>({victim.covered, own.size(), sure}));
    s.Begin(s.at,
            {.text = Name(victim.row) + " of " + Name(victim.request) + " names " + Name(*page) +
                     ", which was given back, as logical page " + std::to_string(k),
             .pages = {*page},
             .requests = {victim.request}});
    s.at.SetHostEntry(victim.row, k, page->value());
    return true;
  }
};

class PlanStale final : public Injector {
  bool BeforeValidate(Scene& s) override {
    if (s.at.Replayed() == 0) return false;
    bool matters = false;
    std::vector<RequestIndex> requests;
    for (const StepRow* row : RowsWhere(s.at, [](const StepRow&) { return true; })) {
      matters |= s.at.LastPlannedPages(row->row) < row->covered;
      requests.push_back(row->request);
    }
    if (!matters) return false;
    s.Begin(s.at, {.text = "the graph for " + std::to_string(s.at.Replayed()) +
                           " rows is replayed with the plan of its replay before",
                   .requests = requests});
    s.at.KeepLastPlan();
    return true;
  }
};

class RowSwap final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const std::vector<const StepRow*> rows = RowsWhere(s.at, [](const StepRow&) { return true; });
    if (rows.size() < 2) return false;
    const size_t a = s.rng.Below(rows.size());
    const size_t b = (a + 1 + s.rng.Below(rows.size() - 1)) % rows.size();
    s.Begin(s.at, {.text = "the entries of " + Name(rows[a]->row) + " (" + Name(rows[a]->request) +
                           ") and " + Name(rows[b]->row) + " (" + Name(rows[b]->request) +
                           ") are exchanged",
                   .requests = {rows[a]->request, rows[b]->request}});
    s.at.SwapDeviceRows(rows[a]->row, rows[b]->row);
    return true;
  }
};

class RowTail final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.reach > row.covered; });
    if (row == nullptr) return false;
    const StepRow& victim = *row;
    const Target target = PickTarget(s.at, s.rng, victim.request);
    if (target.request == kNoRequest) return false;
    const uint64_t k = victim.covered + s.rng.Below(victim.reach - victim.covered);
    s.Begin(s.at, {.text = Name(victim.row) + " of " + Name(victim.request) + " names " +
                           Name(target.page) + " of " + Name(target.request) + " at entry " +
                           std::to_string(k) + ", beyond its " + std::to_string(victim.covered) +
                           " pages",
                   .requests = {victim.request}});
    s.at.SetDeviceEntry(victim.row, k, target.page.value());
    return true;
  }
};

class TornTable final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, [&](const StepRow& row) {
      return row.covered > 0 && Differs(s.at, row, row.covered - 1);
    });
    if (row == nullptr) return false;
    const StepRow& victim = *row;
    // The tear lies before the last entry that differs.
    const uint64_t tear = s.rng.Below(victim.covered);
    s.Begin(s.at, {.text = Name(victim.row) + " of " + Name(victim.request) + ": entries from " +
                           std::to_string(tear) + " on are those of the last step's buffer",
                   .requests = {victim.request}});
    for (uint64_t k = tear; k < victim.reach; ++k) {
      s.at.SetDeviceEntry(victim.row, k, s.at.PreviousDeviceEntry(victim.row, k));
    }
    return true;
  }
  static bool Differs(FaultSurface& at, const StepRow& row, uint64_t k) {
    return at.DeviceEntry(row.row, k) != at.PreviousDeviceEntry(row.row, k);
  }
};

class TableFlip final : public Injector {
  bool BetweenValidateAndAttention(Scene& s) override {
    // Without new content from before, an entry is only written, not read.
    const StepRow* row = PickRow(s, [](const StepRow& row) { return row.covered > 0; });
    if (row == nullptr) return false;
    const StepRow& victim = *row;
    const uint64_t k = s.rng.Below(victim.covered);
    const int64_t was = s.at.DeviceEntry(victim.row, k);
    const int64_t flipped = was ^ (int64_t{1} << s.rng.Below(8));
    s.Begin(s.at, {.text = "after validate, entry " + std::to_string(k) + " of " +
                           Name(victim.row) + " (" + Name(victim.request) + ") turns from " +
                           std::to_string(was) + " to " + std::to_string(flipped),
                   .requests = {victim.request}});
    s.at.SetDeviceEntry(victim.row, k, flipped);
    return true;
  }
};

}  // namespace

std::unique_ptr<Injector> MakeTableInjector(std::string_view kind) {
  if (kind == "plan_stale") return std::make_unique<PlanStale>();
  if (kind == "stale_mapping") return std::make_unique<StaleMapping>();
  if (kind == "row_swap") return std::make_unique<RowSwap>();
  if (kind == "row_tail") return std::make_unique<RowTail>();
  if (kind == "torn_table") return std::make_unique<TornTable>();
  if (kind == "table_flip") return std::make_unique<TableFlip>();
  return nullptr;
}

}  // namespace kvfence
