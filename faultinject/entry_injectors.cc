// Faults of single entries of a batch table, before validate: out of range, repeated, exchanged,
// shifted, another row's.
#include <algorithm>

#include "injector.h"

namespace kvfence {
namespace {

// With at least so many covered entries.
auto Covering(uint64_t least) {
  return [least](const StepRow& row) { return row.covered >= least; };
}

std::string Whose(const StepRow& row) { return Name(row.row) + " of " + Name(row.request); }

class EntryOutOfRange final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, Covering(1));
    if (row == nullptr) return false;
    const uint64_t k = s.rng.Below(row->covered);
    const auto pages = static_cast<int64_t>(s.at.pages());
    // Beyond the end, negative, or with a flag in its upper bits that nobody took off.
    const int64_t was = s.at.DeviceEntry(row->row, k);
    const int64_t wild[] = {pages + static_cast<int64_t>(s.rng.Below(8)), -1 - was,
                            was | int64_t{1} << 24};
    const int64_t now = wild[s.rng.Below(3)];
    s.Begin(s.at,
            {.text = "entry " + std::to_string(k) + " of " + Whose(*row) + " is " +
                     std::to_string(now) + ", and the pool has " + std::to_string(pages) + " pages",
             .requests = {row->request}});
    s.at.SetDeviceEntry(row->row, k, now);
    return true;
  }
};

class NullEntry final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, Covering(1));
    if (row == nullptr) return false;
    const uint64_t k = s.rng.Below(row->covered);
    s.Begin(s.at, {.text = "entry " + std::to_string(k) + " of " + Whose(*row) +
                           " is the null page, though its tokens are to be read",
                   .requests = {row->request}});
    s.at.SetDeviceEntry(row->row, k, s.at.null_page().value());
    return true;
  }
};

class EntriesSwapped final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, Covering(2));
    if (row == nullptr) return false;
    const uint64_t a = s.rng.Below(row->covered);
    const uint64_t b = (a + 1 + s.rng.Below(row->covered - 1)) % row->covered;
    const int64_t page_a = s.at.DeviceEntry(row->row, a);
    const int64_t page_b = s.at.DeviceEntry(row->row, b);
    if (page_a == page_b) return false;
    s.Begin(s.at, {.text = "entries " + std::to_string(a) + " and " + std::to_string(b) + " of " +
                           Whose(*row) + " are exchanged: its own pages, out of order",
                   .requests = {row->request}});
    s.at.SetDeviceEntry(row->row, a, page_b);
    s.at.SetDeviceEntry(row->row, b, page_a);
    return true;
  }
};

class DuplicateEntry final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, Covering(2));
    if (row == nullptr) return false;
    const uint64_t k = 1 + s.rng.Below(row->covered - 1);
    const int64_t page = s.at.DeviceEntry(row->row, k - 1);
    if (page == s.at.DeviceEntry(row->row, k)) return false;
    s.Begin(s.at, {.text = "entry " + std::to_string(k) + " of " + Whose(*row) +
                           " repeats the one before it, page " + std::to_string(page),
                   .requests = {row->request}});
    s.at.SetDeviceEntry(row->row, k, page);
    return true;
  }
};

class EntriesShifted final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, Covering(2));
    if (row == nullptr) return false;
    const uint64_t from = s.rng.Below(row->covered - 1);
    s.Begin(s.at, {.text = "entries of " + Whose(*row) + " from " + std::to_string(from) +
                           " on stand one place too early",
                   .requests = {row->request}});
    for (uint64_t k = from; k + 1 < row->covered; ++k) {
      s.at.SetDeviceEntry(row->row, k, s.at.DeviceEntry(row->row, k + 1));
    }
    return true;
  }
};

class CrossedRow final : public Injector {
  bool BeforeValidate(Scene& s) override {
    const StepRow* row = PickRow(s, Covering(1));
    if (row == nullptr) return false;
    const std::vector<const StepRow*> others =
        RowsWhere(s.at, [&](const StepRow& other) { return other.request != row->request; });
    const StepRow* const* other = PickOf(s.rng, others);
    if (other == nullptr) return false;
    bool differs = false;
    for (uint64_t k = 0; k < row->covered; ++k) {
      differs |= s.at.DeviceEntry(row->row, k) != s.at.DeviceEntry((*other)->row, k);
    }
    if (!differs) return false;
    s.Begin(s.at, {.text = Whose(*row) + " is given the entries of " + Whose(**other),
                   .requests = {row->request}});
    for (uint64_t k = 0; k < row->covered; ++k) {
      s.at.SetDeviceEntry(row->row, k, s.at.DeviceEntry((*other)->row, k));
    }
    return true;
  }
};

}  // namespace

std::unique_ptr<Injector> MakeEntryInjector(std::string_view kind) {
  if (kind == "entry_out_of_range") return std::make_unique<EntryOutOfRange>();
  if (kind == "null_entry") return std::make_unique<NullEntry>();
  if (kind == "entries_swapped") return std::make_unique<EntriesSwapped>();
  if (kind == "duplicate_entry") return std::make_unique<DuplicateEntry>();
  if (kind == "entries_shifted") return std::make_unique<EntriesShifted>();
  if (kind == "crossed_row") return std::make_unique<CrossedRow>();
  return nullptr;
}

}  // namespace kvfence
