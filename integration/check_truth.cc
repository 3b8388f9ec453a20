// See check_truth.h; the work is truth_rank's.
#include "check_truth.h"

#include <algorithm>

#include "truth_rank.h"

namespace kvfence {

CheckTruth::CheckTruth(const FenceConfig& config) : config_(config) {
  for (uint32_t rank = 0; rank < config.ranks; ++rank) {
    ranks_.push_back(std::make_unique<Rank>(config_, rank));
  }
}
CheckTruth::~CheckTruth() = default;

void CheckTruth::On(const LogEvent& event) {
  std::visit(
      [&](const auto& e) {
        RankId only = kAllRanks;
        if constexpr (requires { RankId(e.rank); }) only = e.rank;
        for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
          if (only == kAllRanks || only.value() == rank) ranks_[rank]->On(e);
        }
      },
      event);
}

void CheckTruth::OnStep(StepId step, RankId rank, std::span<const TruthRow> rows,
                        std::span<const PrefixPlan> prefix, const std::function<bool(Row)>& fails) {
  ranks_[rank.value()]->Step(step, rows, prefix, fails);
}

void CheckTruth::OnConfirm(StepId step, RankId rank, std::span<const TruthRow> changed,
                           const std::function<bool(Row)>& fails) {
  ranks_[rank.value()]->Confirm(step, changed, fails);
}

void CheckTruth::OnRetire(StepId step, RankId rank, std::span<const RowResult> rows) {
  for (const RowResult& result : rows) {
    if (!result.published) continue;
    // What one rank read wrongly makes the row's result wrong; it's counted once.
    std::vector<Rank::LaunchedRow*> parts;
    for (const std::unique_ptr<Rank>& each : ranks_) {
      Rank::Launch* const launch = each->Find(step);
      if (launch == nullptr) continue;
      for (Rank::LaunchedRow& row : launch->rows) {
        if (row.row == result.row && !row.pad) parts.push_back(&row);
      }
    }
    const bool wrong = std::ranges::any_of(parts, [](const auto* row) { return row->wrong; });
    const bool counted = std::ranges::any_of(parts, [](const auto* row) { return row->counted; });
    if (!wrong || counted) continue;
    const Rank::LaunchedRow& first = *parts.front();
    wrong_ += first.tokens;
    if (on_wrong_) on_wrong_({0, step, first.row, first.req, first.tokens});
    for (Rank::LaunchedRow* row : parts) row->counted = true;
  }
  const auto failed = [&](Row row) {
    return std::ranges::none_of(
        rows, [&](const RowResult& result) { return result.row == row && result.published; });
  };
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    if (rank == kAllRanks || rank.value() == r) ranks_[r]->Retire(step, failed);
  }
}

}  // namespace kvfence
