// The sink: each call is a handful of relaxed additions (I-13); rendering is render.cc's.
#include "kvfence/metrics.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "kvfence/check.h"
#include "state.h"

namespace kvfence {
namespace {

int64_t SystemClockNs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

bool IsUtf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {  // what a strict dump says of bad UTF-8
    return false;
  }
}

Status JudgeOptions(const Metrics::Options& options) {
  if (!IsUtf8(options.model_name)) return Status::Invalid("model_name is not UTF-8");
  if (!IsUtf8(options.engine)) return Status::Invalid("engine is not UTF-8");
  const std::vector<std::string>& kinds = options.fault_kinds;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].empty() || !IsUtf8(kinds[i])) {
      return Status::Invalid("fault kind " + std::to_string(i) + " is empty or not UTF-8");
    }
    if (std::find(kinds.begin(), kinds.begin() + static_cast<ptrdiff_t>(i), kinds[i]) !=
        kinds.begin() + static_cast<ptrdiff_t>(i)) {
      return Status::Invalid("fault kind " + kinds[i] + " is given twice");
    }
  }
  return Status();
}

// The place of `name` in `names`, or names.size().
template <class Names>
size_t IndexOf(const Names& names, std::string_view name) {
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

size_t IndexOf(Reason reason) {
  const auto index = static_cast<size_t>(reason);
  KVF_CHECK(index < kReasonCount, "I-70 reasons are a closed set");
  return index;
}

Status UnknownKind(std::string_view kind) {
  return Status::Invalid("no fault kind " + std::string(kind) + " was given to the metrics");
}

}  // namespace

Result<std::unique_ptr<Metrics>> Metrics::Create(Options options) {
  if (Status status = JudgeOptions(options); !status.ok()) return status;
  if (!options.clock) options.clock = SystemClockNs;
  return std::unique_ptr<Metrics>(new Metrics(std::make_shared<MetricsState>(std::move(options))));
}

Metrics::Metrics(std::shared_ptr<MetricsState> state) : state_(std::move(state)) {}
Metrics::~Metrics() = default;

void Metrics::OnViolation(const Violation& violation) {
  Add(state_->violations[IndexOf(violation.reason)]);
  state_->last_violation_ns.store(state_->options.clock(), std::memory_order_relaxed);
}

void Metrics::OnStep(const StepStats& stats) {
  const PassResult result = stats.rows_unverified > 0 ? PassResult::kUnverified
                            : stats.rows_failed > 0   ? PassResult::kViolation
                                                      : PassResult::kClean;
  MetricsState::PerBackend& backend =
      state_->backends[static_cast<size_t>(state_->options.backend)];
  Add(backend.validations[static_cast<size_t>(result)]);
  Add(backend.requests, stats.rows);
  Add(backend.pages, stats.entries);
  if (stats.validate_ns > 0) backend.duration_ns.Observe(kDurationBoundsNs, stats.validate_ns);
  state_->batch_pages.Observe(kBatchPagesBounds, stats.entries);
}

void Metrics::OnAbort(RequestId, Reason reason) { Add(state_->aborts[IndexOf(reason)]); }

void Metrics::SetPages(const PageCounts& pages) {
  const std::array<uint64_t, kPageStateNames.size()> counts = {pages.free, pages.active,
                                                               pages.cached, pages.quarantined};
  for (size_t i = 0; i < counts.size(); ++i) {
    state_->pages[i].store(counts[i], std::memory_order_relaxed);
  }
}

void Metrics::SetMode(Mode mode) { state_->mode.store(mode, std::memory_order_relaxed); }
void Metrics::AddTagRollovers(uint64_t pages) { Add(state_->tag_rollovers, pages); }
void Metrics::AddViolationLogDropped(uint64_t records) {
  Add(state_->violation_log_dropped, records);
}

Status Metrics::CountFault(std::string_view kind, uint64_t count) {
  const size_t index = IndexOf(state_->options.fault_kinds, kind);
  if (index == state_->faults.size()) return UnknownKind(kind);
  Add(state_->faults[index].injected, count);
  return Status();
}

Status Metrics::CountOutcome(std::string_view kind, std::string_view outcome, uint64_t count) {
  const size_t index = IndexOf(state_->options.fault_kinds, kind);
  if (index == state_->faults.size()) return UnknownKind(kind);
  const size_t which = IndexOf(kOutcomeNames, outcome);
  if (which == kOutcomeNames.size()) {
    return Status::Invalid("no fault outcome is called " + std::string(outcome));
  }
  Add(state_->faults[index].outcomes[which], count);
  return Status();
}

}  // namespace kvfence
