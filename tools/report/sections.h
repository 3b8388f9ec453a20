// The sections of the HTML report, each a function from the report to a piece of HTML.
//
// The pieces stand alone: no section relies on another's markup. All are drawn here, in C++; the
// script only selects among stories and copies text, so the report is whole without it.
#pragma once

#include <string>
#include <string_view>

#include "kvfence/campaign.h"

namespace kvfence::tools {

// style.css and script.js, embedded by the build.
extern const char* const kReportStyle;
extern const char* const kReportScript;

// Is this outcome one that a green run has none of?
bool IsBadOutcome(Outcome outcome);
// "good", "bad" or "idle" (benign), as the style sheet says it.
std::string_view ToneOf(Outcome outcome);
uint64_t TotalOf(const CampaignReport& report, Outcome outcome);
uint64_t ActivatedIn(const CampaignReport& report);
// "GREEN, complete", "RED", "PARTIAL (red so far)" ...
std::string VerdictWords(const CampaignReport& report);

std::string VerdictSection(const CampaignReport& report, const std::string& command);
std::string MatrixSection(const CampaignReport& report);
std::string DelaySection(const CampaignReport& report);
std::string StoriesSection(const CampaignReport& report);
std::string CoverageSection(const CampaignReport& report);
std::string ArmsSection(const CampaignReport& report);
std::string ThroughputSection(const CampaignReport& report);
std::string ConfigSection(const CampaignReport& report);
std::string GlossarySection(const CampaignReport& report);

// The timeline of one story as SVG, and as the table that says the same (timeline.cc).
std::string TimelineOf(const IncidentStory& story);
// A horizontal bar of a list of bars: label, length as a share of the longest, value.
std::string BarRow(const std::string& label, double share, const std::string& value,
                   std::string_view tone);

}  // namespace kvfence::tools
