#include "report_html.h"

#include "report/html_text.h"
#include "report/sections.h"

namespace kvfence::tools {
namespace {

// The policy makes "no network" the browser's business too, not only ours.
constexpr std::string_view kHead =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'; script-src 'unsafe-inline'\">\n";

}  // namespace

std::string HtmlReport(const CampaignReport& report, const std::string& command) {
  std::string html(kHead);
  html += "<title>kvfence run: " + Escape(VerdictWords(report)) + ", seed " +
          std::to_string(report.config.seed) + "</title>\n<style>\n" + kReportStyle +
          "</style>\n</head>\n<body>\n<main>\n";
  html += VerdictSection(report, command);
  html += MatrixSection(report);
  html += DelaySection(report);
  html += StoriesSection(report);
  html += CoverageSection(report);
  html += ArmsSection(report);
  html += ThroughputSection(report);
  html += ConfigSection(report);
  html += GlossarySection(report);
  html +=
      "<footer><button type=\"button\" id=\"save\" hidden>Save the data as JSON</button>"
      "<p class=\"note\">This file is whole: no network, no other files. The data is embedded as "
      "JSON in the element <code>#report-data</code>.</p></footer>\n</main>\n"
      "<script type=\"application/json\" id=\"report-data\">\n" +
      ScriptJson(ToJson(report)) + "\n</script>\n<script>\n" + kReportScript +
      "</script>\n</body>\n</html>\n";
  return html;
}

}  // namespace kvfence::tools
