#include "outcome_table.h"

#include <algorithm>
#include <string>
#include <vector>

#include "progress.h"

namespace kvfence::tools {
namespace {

constexpr const char* kRed = "\x1b[31m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kPlain = "\x1b[0m";

bool IsBad(Outcome outcome) {
  return outcome == Outcome::kLate || outcome == Outcome::kMissed ||
         outcome == Outcome::kCollateral || outcome == Outcome::kCrashed;
}

// Within 84 columns; what answered is told where something went wrong, and in the report.
void PrintTable(const CampaignReport& report, bool fancy, std::FILE* out) {
  const auto width = [](int i) {
    return std::max<int>(static_cast<int>(kOutcomeNames[static_cast<size_t>(i)].size()), 5) + 1;
  };
  std::fprintf(out, "\n%-19s %9s", "fault", "activated");
  for (int i = 0; i < kOutcomeCount; ++i) {
    std::fprintf(out, "%*s", width(i), std::string(kOutcomeNames[static_cast<size_t>(i)]).c_str());
  }
  std::fprintf(out, "\n");
  std::vector<FaultTally> rows = report.faults;
  if (report.several.runs > 0) rows.push_back(report.several.tally);
  for (const FaultTally& fault : rows) {
    std::fprintf(out, "%-19s %9llu", fault.kind.c_str(),
                 static_cast<unsigned long long>(fault.activated));
    bool bad = false;
    for (int i = 0; i < kOutcomeCount; ++i) {
      const uint64_t count = fault.outcomes[static_cast<size_t>(i)];
      const bool wrong = count != 0 && IsBad(static_cast<Outcome>(i));
      bad |= wrong;
      std::fprintf(out, "%s%*llu%s", fancy && wrong ? kRed : "", width(i),
                   static_cast<unsigned long long>(count), fancy && wrong ? kPlain : "");
    }
    std::fprintf(out, "\n");
    if (!bad) continue;
    std::string reasons;
    for (const auto& [reason, count] : fault.reasons) {
      reasons += (reasons.empty() ? "" : ", ") + reason + " " + std::to_string(count);
    }
    std::fprintf(out, "  answered by %s\n", reasons.empty() ? "nothing" : reasons.c_str());
  }
}

// In full where the run was to be complete; else one line that says how to get there.
void PrintMissing(const CampaignReport& report, std::FILE* out) {
  if (report.config.until_complete || report.missing.size() <= 3) {
    for (const std::string& what : report.missing) {
      std::fprintf(out, "missing: %s\n", what.c_str());
    }
  } else if (!report.faults.empty()) {
    std::fprintf(out,
                 "missing to completeness: %zu things, listed in the report; --until=complete goes "
                 "on until then\n",
                 report.missing.size());
  }
}

void PrintCleanArm(const CampaignReport& report, std::FILE* out) {
  const CampaignReport::CleanArm& clean = report.clean_arm;
  std::fprintf(out,
               "\nno-fault arm: %s steps, %s entries checked, %llu reports, %llu wrong tokens;\n"
               "  %s ownership changes, %llu drawn configurations\n",
               Short(static_cast<double>(clean.steps)).c_str(),
               Short(static_cast<double>(clean.entries_checked)).c_str(),
               static_cast<unsigned long long>(clean.violations),
               static_cast<unsigned long long>(clean.wrong_tokens_published),
               Short(static_cast<double>(clean.ownership_changes)).c_str(),
               static_cast<unsigned long long>(clean.runs));
  if (const FeatureCoverage& met = report.coverage; !met.features.empty()) {
    std::fprintf(out, "features met: %llu of %zu, %llu of %llu pairs of them\n",
                 static_cast<unsigned long long>(met.features_met()), met.features.size(),
                 static_cast<unsigned long long>(met.pairs_met()),
                 static_cast<unsigned long long>(met.pairs_all()));
  }
}

}  // namespace

void PrintReport(const CampaignReport& report, const std::string& command, bool fancy,
                 std::FILE* out) {
  std::fprintf(out, "%s\n", command.c_str());
  std::string drawn;
  for (const std::string& line : report.drawn) drawn += " " + line;
  if (!drawn.empty()) std::fprintf(out, "drawn:%s\n", drawn.c_str());
  for (const std::string& line : report.left_out) {
    std::fprintf(out, "left out: %s\n", line.c_str());
  }
  if (!report.faults.empty()) PrintTable(report, fancy, out);
  PrintCleanArm(report, out);
  if (!report.faults.empty()) {
    std::fprintf(out, "fence-off arm: %llu wrong tokens published\n",
                 static_cast<unsigned long long>(report.off_arm.wrong_tokens_published));
  }
  std::fprintf(out,
               "all: %s requests, %s steps, %s tokens published, %llu of them wrong, "
               "%llu false alarms\n",
               Short(static_cast<double>(report.requests)).c_str(),
               Short(static_cast<double>(report.steps)).c_str(),
               Short(static_cast<double>(report.tokens_published)).c_str(),
               static_cast<unsigned long long>(report.wrong_tokens_published),
               static_cast<unsigned long long>(report.false_alarms));
  if (report.config.policy == Policy::kRecompute) {
    std::fprintf(out, "recomputed: %s requests, %s ended right, %s withdrawn, %llu lost\n",
                 Short(static_cast<double>(report.recompute.requests)).c_str(),
                 Short(static_cast<double>(report.recompute.right)).c_str(),
                 Short(static_cast<double>(report.recompute.withdrawn)).c_str(),
                 static_cast<unsigned long long>(report.recompute.lost()));
  }
  if (report.clean_tokens_per_second > 0 && report.off_tokens_per_second > 0) {
    std::fprintf(out, "simulated tokens per second: %s with the fence, %s without\n",
                 Short(report.clean_tokens_per_second).c_str(),
                 Short(report.off_tokens_per_second).c_str());
  }
  for (const std::string& why : report.red) std::fprintf(out, "not green: %s\n", why.c_str());
  PrintMissing(report, out);
  const bool good = report.green && !report.partial;
  std::fprintf(out, "%s%s%s%s in %s\n", fancy ? (good ? kGreen : kRed) : "",
               report.green ? "green" : "RED",
               report.partial ? ", PARTIAL (interrupted)"
                              : (report.complete ? ", complete" : ", not complete"),
               fancy ? kPlain : "", Duration(report.seconds).c_str());
}

}  // namespace kvfence::tools
