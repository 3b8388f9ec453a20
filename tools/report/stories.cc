// Incidents, told: a timeline as a picture, the same as a table, the record for people on call.
//
// All stories stand in the page; the script shows one at a time. The numbers in the picture's marks
// are the table's lines, so nothing depends on seeing colours or on hovering.
#include <algorithm>

#include "report/html_text.h"
#include "report/sections.h"
#include "report/timeline.h"
#include "run_config.h"

namespace kvfence::tools {
namespace {

// Pixels; style.css knows kLaneHeight and kHeadHeight as --lane and --head.
constexpr size_t kNarrowColumn = 30, kWideColumn = 64, kGoodWidth = 1000;
constexpr size_t kLaneHeight = 34;
constexpr size_t kHeadHeight = 26;
constexpr size_t kColours = 6;  // .h0 .. .h5 of the style sheet

std::string Number(size_t value) { return std::to_string(value); }

// What kind of thing an entry tells, as the style sheet and the key name it.
std::string_view ToneOfEntry(std::string_view what) {
  if (what == "fault") return "fault";
  if (what == "violation") return "report";
  if (what == "wrong token") return "wrong";
  if (what == "wrong read") return "risk";
  if (what == "abort" || what == "sent back") return "stop";
  if (what == "published" || what == "finished") return "right";
  return "book";
}

std::string Rect(std::string_view tone, size_t x, size_t y, size_t width, size_t height,
                 std::string_view more = "") {
  return "<rect class=\"" + std::string(tone) + "\" x=\"" + Number(x) + "\" y=\"" + Number(y) +
         "\" width=\"" + Number(width) + "\" height=\"" + Number(height) + "\"" +
         std::string(more) + "/>";
}

std::string Mark(std::string_view tone, size_t x, size_t y, size_t number) {
  std::string shape;
  if (tone == "fault") {
    shape = "<path d=\"M" + Number(x) + " " + Number(y - 13) + "l13 13l-13 13l-13 -13z\"/>";
  } else if (tone == "report") {
    shape = "<rect x=\"" + Number(x - 10) + "\" y=\"" + Number(y - 10) +
            "\" width=\"20\" height=\"20\" rx=\"2\"/>";
  } else {
    shape = "<circle cx=\"" + Number(x) + "\" cy=\"" + Number(y) + "\" r=\"10\"/>";
  }
  return shape + "<text x=\"" + Number(x) + "\" y=\"" + Number(y + 4) + "\">" + Number(number) +
         "</text>";
}

std::string LaneLabels(const TimelineLayout& layout) {
  std::string html = "<div class=\"lanes\"><div class=\"lane head\">step</div>";
  for (const Lane& lane : layout.lanes) {
    html += "<div class=\"lane\" title=\"" + Escape(lane.label) + "\">";
    if (lane.kind == Lane::Kind::kRequest) {
      html += "<i class=\"swatch h" + Number(lane.request % kColours) + "\"></i>";
    }
    html += Escape(lane.label) + "</div>";
  }
  return html + "</div>";
}

// Rows of holders about the lane's middle: the first behind the marks, others above and below.
size_t HoldingTop(const Holding& held) {
  constexpr size_t kTops[kMaxHoldingRows] = {13, 3, 23};
  return kHeadHeight + held.lane * kLaneHeight + kTops[held.row];
}

std::string Background(const TimelineLayout& layout, size_t column, size_t width, size_t height) {
  std::string svg;
  for (size_t i = 0; i < layout.steps.size(); ++i) {
    const StepSpan& span = layout.steps[i];
    const size_t x = span.first * column, w = (span.end - span.first) * column;
    if (i % 2 == 1) svg += Rect("band", x, 0, w, height);
    svg += "<text class=\"step\" x=\"" + Number(x + w / 2) + "\" y=\"17\">" +
           (span.step < 0 ? "-" : std::to_string(span.step)) + "</text>";
  }
  for (size_t i = 0; i <= layout.lanes.size(); ++i) {
    const size_t y = kHeadHeight + i * kLaneHeight;
    svg += "<path class=\"rule\" d=\"M0 " + Number(y) + "H" + Number(width) + "\"/>";
  }
  for (const Holding& held : layout.holdings) {
    const size_t middle = column / 2;
    const size_t x = held.before ? 0 : held.first * column + middle;
    const size_t end = std::min(held.end * column + middle, width);
    svg += Rect("held h" + Number(held.request % kColours), x, HoldingTop(held), end - x, 8,
                " rx=\"3\"");
  }
  return svg;
}

std::string Picture(const IncidentStory& story) {
  const TimelineLayout layout = LayOut(story.timeline);
  const size_t entries = story.timeline.size();
  const size_t column =
      std::clamp(kGoodWidth / std::max<size_t>(entries, 1), kNarrowColumn, kWideColumn);
  const size_t width = entries * column;
  const size_t height = kHeadHeight + layout.lanes.size() * kLaneHeight + 1;
  std::string html = "<div class=\"timeline\">" + LaneLabels(layout) +
                     "<div class=\"plot\" tabindex=\"0\"><svg width=\"" + Number(width) +
                     "\" height=\"" + Number(height) +
                     "\" role=\"img\" aria-label=\"timeline; the table below says the same\">";
  html += Background(layout, column, width, height);
  for (size_t i = 0; i < entries; ++i) {
    const TimelineEntry& entry = story.timeline[i];
    const std::string_view tone = ToneOfEntry(entry.what);
    const auto y = [&](size_t lane) { return kHeadHeight + lane * kLaneHeight + kLaneHeight / 2; };
    const size_t x = i * column + column / 2;
    const std::vector<size_t>& lanes = layout.marks[i];
    html += "<g class=\"mark " + std::string(tone) + "\"><title>" + Escape(entry.what) + ": " +
            Escape(entry.text) + "</title>";
    if (lanes.size() > 1) {
      html += "<path class=\"link\" d=\"M" + Number(x) + " " + Number(y(lanes.front())) + "V" +
              Number(y(lanes.back())) + "\"/>";
    }
    for (const size_t lane : lanes) html += Mark(tone, x, y(lane), i + 1);
    html += "</g>";
  }
  return html + "</svg></div></div>\n";
}

std::string Key() {
  constexpr std::pair<std::string_view, std::string_view> kKey[] = {
      {"fault", "the fault is activated"},
      {"report", "the fence reports"},
      {"stop", "the fence ends a request, or sends it back"},
      {"risk", "wrong content would be read"},
      {"wrong", "a wrong token is out"},
      {"right", "published, right"},
      {"book", "ordinary bookkeeping"},
  };
  std::string html = "<p class=\"key\">";
  for (const auto& [tone, words] : kKey) {
    html += "<span><svg width=\"28\" height=\"28\" aria-hidden=\"true\"><g class=\"mark " +
            std::string(tone) + "\">" + Mark(tone, 14, 14, 1) + "</g></svg>" + Escape(words) +
            "</span>";
  }
  return html + "<span><i class=\"swatch h0\"></i>who holds a page</span></p>\n";
}

std::string Table(const IncidentStory& story) {
  std::string html =
      "<table class=\"plain story-table\"><thead><tr><th scope=\"col\">#</th><th "
      "scope=\"col\">step</th><th scope=\"col\" class=\"left\">event</th><th scope=\"col\" "
      "class=\"left\">what happened</th></tr></thead><tbody>\n";
  for (size_t i = 0; i < story.timeline.size(); ++i) {
    const TimelineEntry& entry = story.timeline[i];
    html += "<tr class=\"" + std::string(ToneOfEntry(entry.what)) + "\"><td class=\"n\">" +
            Number(i + 1) + "</td><td class=\"n\">" +
            (entry.step < 0 ? "-" : std::to_string(entry.step)) + "</td><td>" + Escape(entry.what) +
            "</td><td>" + Escape(entry.text) + "</td></tr>\n";
  }
  return html + "</tbody></table>\n";
}

// The command that plays this run again, alone and in one process.
std::string Replay(const CampaignReport& report, const IncidentStory& story) {
  CampaignConfig config = report.config;
  config.shard = {};
  config.only = story.run;
  return CommandOf(config, "run" + std::to_string(story.run)) + " --jobs=0";
}

std::string Story(const CampaignReport& report, size_t index) {
  const IncidentStory& story = report.stories[index];
  const size_t number = index + 1;
  const std::string outcome(kOutcomeNames[static_cast<size_t>(story.outcome)]);
  std::string html = "<article class=\"story\" id=\"story-" + Number(number) + "\">\n<h3>" +
                     Escape(story.kind) + " <span class=\"chip " +
                     std::string(ToneOf(story.outcome)) + "\">" + outcome + "</span> <small>run " +
                     std::to_string(story.run) + "</small></h3>\n";
  if (!story.timeline.empty()) html += TimelineOf(story);
  if (!story.record.empty()) {
    html += "<details><summary>Incident record</summary><pre>" + Escape(story.record) +
            "</pre></details>\n";
  }
  if (!story.log.empty()) {
    html += "<p class=\"note\">Its log: <a href=\"" + Escape(LinkTo(story.log)) + "\">" +
            Escape(story.log) + "</a>, played by <code>kvfence check " + Escape(story.log) +
            "</code></p>\n";
  }
  if (story.run != 0) {
    html +=
        "<p class=\"note\">The run again: <code>" + Escape(Replay(report, story)) + "</code></p>\n";
  }
  return html + "</article>\n";
}

}  // namespace

std::string TimelineOf(const IncidentStory& story) { return Picture(story) + Table(story); }

std::string StoriesSection(const CampaignReport& report) {
  if (report.stories.empty()) return "";
  std::string html =
      "<section id=\"stories\">\n<h2>Incidents, step by step</h2>\n<p class=\"note\">One fault "
      "each, from what led to it to what became of it. Bad outcomes come first.</p>\n"
      "<div class=\"picker\" hidden><label for=\"story\">Incident</label> "
      "<select id=\"story\">\n";
  for (size_t i = 0; i < report.stories.size(); ++i) {
    const IncidentStory& story = report.stories[i];
    html += "<option value=\"story-" + Number(i + 1) + "\">" + Escape(story.kind) + ": " +
            std::string(kOutcomeNames[static_cast<size_t>(story.outcome)]) + "</option>\n";
  }
  html +=
      "</select> <button type=\"button\" id=\"earlier\" aria-label=\"previous\">&#9664;"
      "</button><button type=\"button\" id=\"later\" aria-label=\"next\">&#9654;</button>"
      "</div>\n" +
      Key();
  for (size_t i = 0; i < report.stories.size(); ++i) html += Story(report, i);
  return html + "</section>\n";
}

}  // namespace kvfence::tools
