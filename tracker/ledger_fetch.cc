// Asks the memory for what a step's rows are about to touch.
//
// Idea: a pass of attention empties the caches of the books, and a row that is looked at after the
// other waits for each line in turn: name, incarnation, its list, the page it writes. Asked for in
// rounds, the lines of all rows come at once. Nothing is decided or changed here.
#include "ledger_impl.h"

namespace kvfence {
namespace {

template <class T>
void Ask(const T& what) {
  const char* first = reinterpret_cast<const char*>(&what);
  for (size_t i = 0; i < sizeof(T); i += 64) __builtin_prefetch(first + i, 1);
}

}  // namespace

// Calls f(what the row expects of the first page that it writes) for each row and pool.
template <class F>
void Ledger::Impl::ForWritten(const StepEvent& event, F f) {
  for (size_t i = 0; i < slots_of_rows_.size(); ++i) {
    if (slots_of_rows_[i] == kNone) continue;
    const Incarnation& inc = requests_.at(slots_of_rows_[i]);
    for (const PoolBuffers& buffers : event.pools) {
      const uint32_t pool = buffers.pool.value();
      const auto& list = inc.lists[pool];
      const uint64_t at = event.rows[i].base.value_or(inc.length) / config_.pools[pool].page_size;
      if (at >= list.size()) continue;
      f(list[at], pool);
    }
  }
}

void Ledger::Impl::FetchRows(const StepEvent& event) {
  for (const uint32_t slot : slots_of_rows_) {
    if (slot != kNone) Ask(requests_.at(slot));
  }
  ForWritten(event, [](const Held& held, uint32_t) { Ask(held); });
  ForWritten(event, [&](const Held& held, uint32_t pool) {
    if (held.node == kNone) return;
    Ask(pages_.at(pool, held.page));
    Ask(pages_.mapping(held.node));
  });
}

void Ledger::Impl::FetchWritten(const StepRecord& record) const {
  for (const ledger::SlotWrite& write : record.writes) Ask(pages_.at(write.pool, write.page));
}

}  // namespace kvfence
