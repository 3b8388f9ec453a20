// The top of the report: the verdict and why, the command that makes it again, the figures that
// matter most.
#include "progress.h"
#include "report/html_text.h"
#include "report/sections.h"

namespace kvfence::tools {
namespace {

std::string_view ToneOfVerdict(const CampaignReport& report) {
  if (!report.green) return "bad";
  return report.partial ? "warn" : "good";
}

// One paragraph for somebody who has never seen such a report.
std::string Summary(const CampaignReport& report) {
  const uint64_t activated = ActivatedIn(report);
  std::string text = Count(report.requests, "request") + " served in " +
                     Count(report.steps, "step") + ", " +
                     Count(report.entries_checked, "page table entr");
  text.replace(text.rfind("entr"), std::string::npos,
               report.entries_checked == 1 ? "entry checked. " : "entries checked. ");
  if (report.faults.empty()) {
    return text + "No faults were asked for: any report would be a false alarm, and there " +
           (report.false_alarms == 1 ? "was " : "were ") +
           (report.false_alarms == 0 ? "none" : Grouped(report.false_alarms)) + ".";
  }
  const uint64_t answered = TotalOf(report, Outcome::kPrevented) + TotalOf(report, Outcome::kEarly);
  uint64_t bad = 0;
  for (int i = 0; i < kOutcomeCount; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    if (IsBadOutcome(outcome)) bad += TotalOf(report, outcome);
  }
  text += Count(activated, "fault") + " of " + Count(report.faults.size(), "kind") +
          " were activated: " + Grouped(answered) +
          " were answered before anything wrong was published";
  const uint64_t benign = TotalOf(report, Outcome::kBenign);
  if (benign != 0) text += ", " + Grouped(benign) + " changed nothing that was read";
  text += bad == 0 ? ", none went wrong. " : ", " + Grouped(bad) + " went wrong. ";
  if (const FaultTally& several = report.several.tally; several.activated != 0) {
    uint64_t wrong = 0;
    for (int i = 0; i < kOutcomeCount; ++i) {
      if (IsBadOutcome(static_cast<Outcome>(i))) wrong += several.outcomes[static_cast<size_t>(i)];
    }
    text += Grouped(several.activated) + " more stood beside others at once, ";
    text += (wrong == 0 ? "none" : Grouped(wrong)) + " of them went wrong. ";
  }
  return text + "With the same faults and the fence off, " +
         Count(report.off_arm.wrong_tokens_published, "wrong token") + " went out.";
}

std::string List(std::string_view title, std::string_view tone,
                 const std::vector<std::string>& lines, bool open) {
  if (lines.empty()) return "";
  std::string html = "<details class=\"why " + std::string(tone) + "\"" + (open ? " open" : "") +
                     "><summary>" + Escape(title) + " (" + Grouped(lines.size()) +
                     ")</summary><ul>";
  for (const std::string& line : lines) html += "<li>" + Escape(line) + "</li>";
  return html + "</ul></details>\n";
}

// Words that break between lines rather than inside.
std::string Words(std::string_view command) {
  std::string html;
  while (!command.empty()) {
    const size_t space = command.find(' ');
    html += "<span>" + Escape(command.substr(0, space)) + "</span>";
    if (space == std::string_view::npos) break;
    html += ' ';
    command.remove_prefix(space + 1);
  }
  return html;
}

std::string Tile(const std::string& value, std::string_view label, std::string_view tone) {
  return "<div class=\"tile " + std::string(tone) + "\"><b>" + Escape(value) + "</b><span>" +
         Escape(label) + "</span></div>\n";
}

std::string Tiles(const CampaignReport& report) {
  const auto tone = [](uint64_t count) { return count == 0 ? "good" : "bad"; };
  std::string html = "<div class=\"tiles\">\n";
  if (!report.faults.empty()) {
    const uint64_t answered =
        TotalOf(report, Outcome::kPrevented) + TotalOf(report, Outcome::kEarly);
    const uint64_t activated = ActivatedIn(report);
    const uint64_t harmful = activated - TotalOf(report, Outcome::kBenign);
    html += Tile(Grouped(activated), "faults activated", "");
    html += Tile(Percent(answered, harmful), "of those with an effect answered in time",
                 answered == harmful ? "good" : "bad");
  }
  html += Tile(Grouped(report.wrong_tokens_published), "wrong tokens published, fence on",
               tone(report.wrong_tokens_published));
  if (!report.faults.empty()) {
    html += Tile(Grouped(report.off_arm.wrong_tokens_published),
                 "wrong tokens published, fence off", "");
  }
  html += Tile(Grouped(report.false_alarms), "false alarms", tone(report.false_alarms));
  html += Tile(Grouped(report.tokens_published), "tokens published", "");
  return html + "</div>\n";
}

}  // namespace

std::string VerdictWords(const CampaignReport& report) {
  if (report.partial) return report.green ? "PARTIAL, green so far" : "PARTIAL, RED";
  if (!report.green) return "RED";
  return report.complete ? "GREEN, complete" : "GREEN, not complete";
}

std::string VerdictSection(const CampaignReport& report, const std::string& command) {
  std::string html = "<header>\n<p class=\"brand\">kvfence run</p>\n<div class=\"verdict " +
                     std::string(ToneOfVerdict(report)) + "\">\n<h1>" +
                     Escape(VerdictWords(report)) + "</h1>\n<p>" + Escape(Summary(report)) +
                     "</p>\n";
  if (report.partial) {
    html +=
        "<p><strong>This report is partial:</strong> the run was interrupted, and only what had "
        "been finished by then is in it.</p>\n";
  }
  html += List("Why it isn't green", "bad", report.red, true);
  html += List("Missing to completeness", "idle", report.missing,
               report.config.until_complete || report.missing.size() <= 3);
  html += "</div>\n<div class=\"command\"><code id=\"command\">" + Words(command) +
          "</code><button type=\"button\" data-copy=\"command\" hidden>Copy</button></div>\n"
          "<p class=\"note\">Seed " +
          std::to_string(report.config.seed) +
          ". The same command gives the same report, but for what was measured with a clock. "
          "This run took " +
          Escape(Duration(report.seconds)) + ".</p>\n";
  return html + Tiles(report) + "</header>\n";
}

}  // namespace kvfence::tools
