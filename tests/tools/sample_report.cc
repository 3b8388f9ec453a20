#include "tests/tools/sample_report.h"

namespace kvfence::tools {
namespace {

FaultTally Tally(const char* kind, char fault_class, std::array<uint64_t, kOutcomeCount> outcomes,
                 std::map<std::string, uint64_t> reasons, std::map<uint64_t, uint64_t> delays,
                 uint64_t off_arm) {
  FaultTally tally;
  tally.kind = kind;
  tally.fault_class = fault_class;
  tally.outcomes = outcomes;
  for (const uint64_t count : outcomes) tally.activated += count;
  tally.reasons = std::move(reasons);
  tally.delay_steps = std::move(delays);
  tally.off_arm_wrong_tokens = off_arm;
  return tally;
}

IncidentStory StaleMapping() {
  IncidentStory story;
  story.kind = "stale_mapping";
  story.outcome = Outcome::kPrevented;
  story.run = 12;
  story.timeline = {
      {101, "alloc", "r4 gets page 9, 17", "r4", {9, 17}},
      {102, "published", "r4 is published, right", "r4", {}},
      {104, "release", "r4 gives up page 9, 17", "r4", {9, 17}},
      {104, "alloc", "r8 gets page 9", "r8", {9}},
      {107, "fault", "row 3 of r4 goes on naming page 9", "", {}},
      {107, "violation", "tag_mismatch, r4, row 3, logical page 0, page 9", "r4", {9}},
      {107, "wrong read", "r4 would have read what isn't its own", "r4", {}},
      {108, "abort", "r4 is ended, its token isn't published", "r4", {}},
      {109, "finished", "r8 is complete", "r8", {}},
  };
  story.record = R"({"reason":"tag_mismatch","req":"r4","page":9,"expected":21,"found":23})";
  return story;
}

IncidentStory TableFlip() {
  IncidentStory story;
  story.kind = "table_flip";
  story.outcome = Outcome::kPrevented;
  story.run = 40;
  story.timeline = {
      {7, "fault", "entry 2 of row 0 changes from page 5 to page 6", "", {5, 6}},
      {7, "violation", "changed_during_step, r1, row 0, page 6", "r1", {6}},
  };
  return story;
}

}  // namespace

CampaignReport SampleReport() {
  CampaignReport report;
  report.config.seed = 7;
  report.drawn = {"pages=64", "page_size=16", "rows=8", "reuse=lifo"};
  report.runs = 180;
  report.requests = 12031;
  report.steps = 48120;
  report.events = 1904441;
  report.entries_checked = 9120444;
  report.ownership_changes = 402117;
  report.tokens_published = 512004;
  report.requests_aborted = 1180;
  report.faults = {
      Tally("stale_mapping", 'A', {310, 22, 40, 0, 0, 0, 0},
            {{"page_mismatch", 12}, {"tag_mismatch", 320}}, {{0, 280}, {1, 40}, {9, 12}}, 1320),
      Tally("row_tail", 'E', {120, 200, 11, 0, 0, 0, 0}, {{"row_tail", 320}}, {{0, 320}}, 210),
      Tally("table_flip", 'D', {300, 8, 3, 0, 0, 0, 0}, {{"changed_during_step", 308}},
            {{0, 300}, {70, 8}}, 300),
  };
  report.clean_arm = {9120, 4400123, 0, 0};
  report.off_arm.wrong_tokens_published = 1830;
  report.coverage.features = {"prefix_cache", "padded_batches", "sliding_window"};
  report.coverage.on = {120, 140, 60};
  report.coverage.met = {100, 138, 0};
  report.coverage.pairs = {{{0, 1}, 90}};
  report.coverage.faults_by_kind = {{"stale_mapping", {200, 310, 0}}, {"row_tail", {100, 331, 0}}};
  report.device_bytes_per_page = 16;
  report.device_bytes_per_entry = 16;
  report.stories = {StaleMapping(), TableFlip()};
  report.green = true;
  report.complete = true;
  report.seconds = 41.5;
  report.clean_tokens_per_second = 812000;
  report.off_tokens_per_second = 900500;
  return report;
}

CampaignReport SampleRedReport() {
  CampaignReport report = SampleReport();
  report.green = false;
  report.complete = false;
  report.faults[1].outcomes = {117, 200, 11, 0, 3, 0, 0};
  report.wrong_tokens_published = 5;
  report.false_alarms = 1;
  report.clean_arm.violations = 1;
  report.red = {"3 faults of kind row_tail were missed", "1 false alarm"};
  report.missing = {"row_tail: answered by write_target never seen"};
  report.stories[1].outcome = Outcome::kMissed;
  report.stories[1].log = "row_tail-1.kvlog";
  return report;
}

}  // namespace kvfence::tools
