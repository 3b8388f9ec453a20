// Which features of the engine were met, with each other and with which faults.
//
// Three tables say it; shades only repeat the numbers. What was never met is named in words first,
// since it's what the campaign says nothing about.
#include <algorithm>

#include "report/html_text.h"
#include "report/sections.h"

namespace kvfence::tools {
namespace {

std::string Cell(uint64_t count, uint64_t highest) {
  if (count == 0) return "<td class=\"n none\">0</td>";
  const double share =
      static_cast<double>(count) / static_cast<double>(std::max<uint64_t>(highest, 1));
  return "<td class=\"n\" style=\"--share:" + Fraction(share) + "\">" + Grouped(count) + "</td>";
}

std::string Head(const FeatureCoverage& coverage, std::string_view corner) {
  std::string html = "<thead><tr><th scope=\"col\" class=\"left\">" + Escape(corner) + "</th>";
  for (const std::string& feature : coverage.features) {
    html += "<th scope=\"col\"><span>" + Escape(feature) + "</span></th>";
  }
  return html + "</tr></thead>\n<tbody>\n";
}

uint64_t PairCount(const FeatureCoverage& coverage, size_t a, size_t b) {
  const auto it = coverage.pairs.find({std::min(a, b), std::max(a, b)});
  return it == coverage.pairs.end() ? 0 : it->second;
}

std::string Pairs(const FeatureCoverage& coverage) {
  uint64_t highest = 0;
  for (const uint64_t met : coverage.met) highest = std::max(highest, met);
  std::string html =
      "<h3>With each other</h3>\n<p class=\"note\">Runs in which both were met; on the diagonal, "
      "runs in which the feature was.</p>\n<div class=\"scroll\"><table class=\"grid\">" +
      Head(coverage, "runs");
  for (size_t a = 0; a < coverage.features.size(); ++a) {
    html += "<tr><th scope=\"row\">" + Escape(coverage.features[a]) + "</th>";
    for (size_t b = 0; b < coverage.features.size(); ++b) {
      html += Cell(a == b ? coverage.met[a] : PairCount(coverage, a, b), highest);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string Faults(const CampaignReport& report) {
  const FeatureCoverage& coverage = report.coverage;
  std::string html =
      "<h3>With faults</h3>\n<p class=\"note\">Faults activated in runs in which the feature was "
      "met.</p>\n<div class=\"scroll\"><table class=\"grid\">" +
      Head(coverage, "fault");
  for (const FaultTally& fault : report.faults) {
    html += "<tr><th scope=\"row\">" + Escape(fault.kind) + "</th>";
    const auto it = coverage.faults_by_kind.find(fault.kind);
    for (size_t a = 0; a < coverage.features.size(); ++a) {
      const bool known = it != coverage.faults_by_kind.end() && a < it->second.size();
      html += Cell(known ? it->second[a] : 0, fault.activated);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::string CoverageSection(const CampaignReport& report) {
  const FeatureCoverage& coverage = report.coverage;
  const size_t n = coverage.features.size();
  if (n == 0 || coverage.met.size() != n || coverage.on.size() != n) return "";
  std::string never;
  for (size_t a = 0; a < n; ++a) {
    if (coverage.met[a] == 0) never += (never.empty() ? "" : ", ") + coverage.features[a];
  }
  std::string html =
      "<section id=\"coverage\">\n<h2>Features of the engine that were met</h2>\n<p>" +
      Grouped(coverage.pairs_met()) + " of " + Count(coverage.pairs_all(), "pair") +
      " of features met each other. " +
      (never.empty() ? "Each feature was met." : "Never met: " + Escape(never) + ".") +
      "</p>\n<p class=\"note\">A feature is met where it was switched on and did something "
      "(a prefix was found in the cache, a batch was padded). Features are drawn from the seed; "
      "<code>--features=-NAME</code> switches one off.</p>\n";
  html += Pairs(coverage);
  if (!report.faults.empty()) html += Faults(report);
  return html + "</section>\n";
}

}  // namespace kvfence::tools
