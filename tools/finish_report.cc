#include "finish_report.h"

#include <absl/flags/flag.h>

#include <cstdio>
#include <utility>

#include "atomic_file.h"
#include "cli.h"
#include "outcome_table.h"
#include "report_html.h"
#include "shared_flags.h"

namespace kvfence::tools {

int FinishReport(std::string_view verb, const std::string& out, const CampaignReport& report,
                 const std::string& command) {
  const std::string json = ToJson(report) + "\n";
  const std::string html = out + "/report.html";
  for (const auto& [path, text] :
       {std::pair(out + "/report.json", json), std::pair(html, HtmlReport(report, command))}) {
    if (Status status = WriteFile(path, text); !status.ok()) {
      return Fail(verb, kExitEnvironment, status.message());
    }
  }
  const bool as_json = absl::GetFlag(FLAGS_json);
  if (as_json) std::fputs(json.c_str(), stdout);
  std::FILE* people = as_json ? stderr : stdout;
  PrintReport(report, command, IsFancy(fileno(people)), people);
  std::fprintf(people, "report: %s\n", html.c_str());
  if (report.partial) return kExitEnvironment;
  return report.green && (report.kinds_complete || !report.config.until_complete) ? kExitClean
                                                                                  : kExitFinding;
}

}  // namespace kvfence::tools
