// The families by name: one table that text, JSON and README.md are made from or checked against.
//
// Names: one prefix, underscores (colons are for recording rules), base units as suffix, _total on
// counters, _info gauges fixed at 1. docs/adr/0010-prometheus-names.md says why.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvfence {

enum class FamilyType : uint8_t { kCounter, kGauge, kHistogram };

struct FamilySpec {
  std::string_view name;
  FamilyType type;
  std::string_view unit;  // of the value; of the observations for a histogram
  std::string_view help;
};

// Index into kFamilies, in the order of export; the harness's two come last, since they may be
// left out.
enum class Family : uint8_t {
  kBuildInfo,
  kModeInfo,
  kValidations,
  kRequestsChecked,
  kPagesChecked,
  kViolations,
  kRequestAborts,
  kValidationDuration,
  kBatchPages,
  kPages,
  kTagRollovers,
  kViolationLogDropped,
  kLastViolation,
  kFaultsInjected,
  kFaultOutcomes,
};

inline constexpr std::array<FamilySpec, 15> kFamilies = {{
    {"kvfence_build_info", FamilyType::kGauge, "none",
     "Always 1; the labels say which build this is."},
    {"kvfence_mode_info", FamilyType::kGauge, "none",
     "Always 1; the label says what the fence does on a finding."},
    {"kvfence_validations_total", FamilyType::kCounter, "validations",
     "Forward passes judged, by the worst result of any row."},
    {"kvfence_requests_checked_total", FamilyType::kCounter, "rows",
     "Batch rows judged, padded ones included: a request counts once per pass and rank."},
    {"kvfence_pages_checked_total", FamilyType::kCounter, "entries",
     "Page table entries compared."},
    {"kvfence_violations_total", FamilyType::kCounter, "violations", "Findings, by reason."},
    {"kvfence_request_aborts_total", FamilyType::kCounter, "rows",
     "Rows not published, by the first reason that failed them."},
    {"kvfence_validation_duration_seconds", FamilyType::kHistogram, "seconds",
     "Host time of one validation, where the backend measures it."},
    {"kvfence_batch_pages", FamilyType::kHistogram, "entries",
     "Page table entries compared by one validation."},
    {"kvfence_pages", FamilyType::kGauge, "pages",
     "Pages of all pools, by state; retired pages are in none."},
    {"kvfence_tag_rollovers_total", FamilyType::kCounter, "pages",
     "Pages retired because their tags were used up; a tag never repeats."},
    {"kvfence_violation_log_dropped_total", FamilyType::kCounter, "records",
     "Incident records lost for want of room; the decision to abort never depends on them."},
    {"kvfence_last_violation_timestamp_seconds", FamilyType::kGauge, "seconds",
     "Unix time of the latest finding, 0 before the first."},
    {"kvfence_faults_injected_total", FamilyType::kCounter, "faults",
     "Harness only: deliberate corruptions that were activated, by kind."},
    {"kvfence_fault_outcomes_total", FamilyType::kCounter, "faults",
     "Harness only: what became of activated faults, by kind and outcome."},
}};

constexpr const FamilySpec& SpecOf(Family family) { return kFamilies[static_cast<size_t>(family)]; }

// Upper bounds (inclusive) of the buckets below +Inf, as integers so that no observation is put on
// the wrong side by rounding. 5 us to 20 ms: below is noise of the clock, above is an incident.
inline constexpr std::array<uint64_t, 14> kDurationBoundsNs = {
    5'000,   10'000,  15'000,    20'000,    30'000,    50'000,     100'000,
    200'000, 500'000, 1'000'000, 2'000'000, 5'000'000, 10'000'000, 20'000'000};
inline constexpr std::array<uint64_t, 9> kBatchPagesBounds = {16,    64,    256,    1024,   4096,
                                                              16384, 65536, 262144, 1048576};

}  // namespace kvfence
