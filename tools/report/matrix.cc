// What became of each fault: kinds down, outcomes across, and which reasons answered.
//
// Colour never says anything alone: bad counts carry a mark, and the columns are named. On narrow
// screens the style sheet turns each row into a card; `data-label` names its cells there.
#include <algorithm>

#include "kvfence/fault_kind.h"
#include "report/html_text.h"
#include "report/sections.h"

namespace kvfence::tools {
namespace {

std::string Cell(Outcome outcome, uint64_t count, uint64_t activated) {
  const std::string name(kOutcomeNames[static_cast<size_t>(outcome)]);
  if (count == 0) return "<td class=\"n zero\" data-label=\"" + name + "\">0</td>";
  const double share =
      activated == 0 ? 1 : static_cast<double>(count) / static_cast<double>(activated);
  const bool bad = IsBadOutcome(outcome);
  return "<td class=\"n " + std::string(ToneOf(outcome)) + "\" data-label=\"" + name +
         "\" style=\"--share:" + Fraction(bad ? 1 : share) + "\" title=\"" +
         Percent(count, activated) + " of the row\">" + (bad ? "&#10007; " : "") + Grouped(count) +
         "</td>";
}

// How the faults of a kind split into good, harmless and bad, as one bar.
std::string SplitBar(const FaultTally& fault) {
  if (fault.activated == 0) return "";
  std::string html =
      "<svg class=\"split\" viewBox=\"0 0 100 4\" preserveAspectRatio=\"none\" "
      "aria-hidden=\"true\">";
  double x = 100;
  for (int i = kOutcomeCount - 1; i >= 0; --i) {  // from the right: bad ones lie on top
    const uint64_t count = fault.outcomes[static_cast<size_t>(i)];
    if (count == 0) continue;
    double width = 100.0 * static_cast<double>(count) / static_cast<double>(fault.activated);
    if (IsBadOutcome(static_cast<Outcome>(i))) width = std::max(width, 2.0);  // never invisible
    x -= width;
    html += "<rect class=\"" + std::string(kOutcomeNames[static_cast<size_t>(i)]) + "\" x=\"" +
            std::to_string(x) + "\" width=\"" + std::to_string(width) + "\" height=\"4\"/>";
  }
  return html + "</svg>";
}

std::string Reasons(const FaultTally& fault) {
  if (fault.reasons.empty()) return "<span class=\"dim\">nothing</span>";
  std::string html;
  for (const auto& [reason, count] : fault.reasons) {
    html += "<span class=\"chip\"><a href=\"#reason-" + Escape(reason) + "\">" + Escape(reason) +
            "</a> " + Grouped(count) + "</span> ";
  }
  return html;
}

std::string OffArm(const FaultTally& fault, const FaultKind* kind) {
  if (fault.off_arm_wrong_tokens == 0 && kind != nullptr && kind->bookkeeping_only) {
    return "<td class=\"n zero\" data-label=\"fence off\" title=\"this kind can't make a wrong "
           "token by itself\">books only</td>";
  }
  return "<td class=\"n" + std::string(fault.off_arm_wrong_tokens == 0 ? " zero" : "") +
         "\" data-label=\"fence off\">" + Grouped(fault.off_arm_wrong_tokens) + "</td>";
}

std::string Row(const CampaignReport& report, const FaultTally& fault) {
  const FaultKind* kind = FindFaultKind(fault.kind);
  std::string html = "<tr><th scope=\"row\"><span class=\"kind\">" + Escape(fault.kind) +
                     "</span> <span class=\"class\" title=\"fault class\">" +
                     Escape(std::string_view(&fault.fault_class, 1)) + "</span>";
  for (size_t i = 0; i < report.stories.size(); ++i) {
    if (report.stories[i].kind != fault.kind) continue;
    html += " <a class=\"see\" href=\"#story-" + std::to_string(i + 1) + "\">see one</a>";
    break;
  }
  html += SplitBar(fault);
  if (kind != nullptr) html += "<small>" + Escape(kind->corrupts) + "</small>";
  html += "</th><td class=\"n all\" data-label=\"activated\">" + Grouped(fault.activated) + "</td>";
  for (int i = 0; i < kOutcomeCount; ++i) {
    html += Cell(static_cast<Outcome>(i), fault.outcomes[static_cast<size_t>(i)], fault.activated);
  }
  return html + OffArm(fault, kind) + "<td class=\"reasons\" data-label=\"answered by\">" +
         Reasons(fault) + "</td></tr>\n";
}

std::string Totals(const CampaignReport& report) {
  std::string html =
      "<tr class=\"total\"><th scope=\"row\">all kinds</th>"
      "<td class=\"n all\" data-label=\"activated\">" +
      Grouped(ActivatedIn(report)) + "</td>";
  for (int i = 0; i < kOutcomeCount; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    html += Cell(outcome, TotalOf(report, outcome), ActivatedIn(report));
  }
  uint64_t off = 0;
  for (const FaultTally& fault : report.faults) off += fault.off_arm_wrong_tokens;
  return html + "<td class=\"n\" data-label=\"fence off\">" + Grouped(off) +
         "</td><td class=\"reasons\"></td></tr>\n";
}

// Faults of several kinds in one run stand apart: they're no more of their kinds, and count for
// none.
std::string Several(const CampaignReport& report) {
  const FaultTally& fault = report.several.tally;
  if (report.several.runs == 0) return "";
  std::string html =
      "<tr class=\"several\"><th scope=\"row\"><span class=\"kind\">" + Escape(fault.kind) +
      "</span>" + SplitBar(fault) + "<small>" + Count(report.several.runs, "run") +
      " with two to four of these kinds at once; what can't be told apart counts for "
      "each fault that it may be of</small></th>"
      "<td class=\"n all\" data-label=\"activated\">" +
      Grouped(fault.activated) + "</td>";
  for (int i = 0; i < kOutcomeCount; ++i) {
    html += Cell(static_cast<Outcome>(i), fault.outcomes[static_cast<size_t>(i)], fault.activated);
  }
  return html + OffArm(fault, nullptr) + "<td class=\"reasons\" data-label=\"answered by\">" +
         Reasons(fault) + "</td></tr>\n";
}

}  // namespace

bool IsBadOutcome(Outcome outcome) { return ToneOf(outcome) == "bad"; }

std::string_view ToneOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPrevented:
    case Outcome::kEarly:
      return "good";
    case Outcome::kBenign:
      return "idle";
    case Outcome::kLate:
    case Outcome::kMissed:
    case Outcome::kCollateral:
    case Outcome::kCrashed:
      return "bad";
  }
  return "bad";
}

uint64_t TotalOf(const CampaignReport& report, Outcome outcome) {
  uint64_t total = 0;
  for (const FaultTally& fault : report.faults) {
    total += fault.outcomes[static_cast<size_t>(outcome)];
  }
  return total;
}

uint64_t ActivatedIn(const CampaignReport& report) {
  uint64_t total = 0;
  for (const FaultTally& fault : report.faults) total += fault.activated;
  return total;
}

std::string MatrixSection(const CampaignReport& report) {
  std::string html = "<section id=\"faults\">\n<h2>What became of each fault</h2>\n";
  if (report.faults.empty()) {
    return html +
           "<p class=\"empty\">No faults were asked for (<code>--faults=none</code>), so there is "
           "nothing to tell here. The no-fault arm is below.</p>\n</section>\n";
  }
  html +=
      "<p class=\"note\">Each row is a kind of deliberate corruption, each column an outcome. "
      "Ground truth is the content that was really read, not the fence's own books. "
      "<em>Fence off</em> is how many wrong tokens the same faults published without it.</p>\n"
      "<div class=\"scroll\"><table class=\"matrix\">\n<thead><tr><th scope=\"col\" "
      "class=\"left\">fault</th>"
      "<th scope=\"col\">activated</th>";
  for (int i = 0; i < kOutcomeCount; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    const std::string name(kOutcomeNames[static_cast<size_t>(i)]);
    html += "<th scope=\"col\" class=\"" + std::string(ToneOf(outcome)) + "\"><a href=\"#outcome-" +
            name + "\">" + name + "</a></th>";
  }
  html +=
      "<th scope=\"col\">fence off</th><th scope=\"col\" class=\"left\">answered by</th></tr>"
      "</thead>\n<tbody>\n";
  for (const FaultTally& fault : report.faults) html += Row(report, fault);
  return html + Totals(report) + Several(report) + "</tbody></table></div>\n</section>\n";
}

}  // namespace kvfence::tools
