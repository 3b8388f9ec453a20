// The HTML report: whole, readable by a strict reader, free of the network, and safe whatever names
// hold.
#include "report_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "report/html_text.h"
#include "report/sections.h"
#include "tests/tools/html_check.h"
#include "tests/tools/sample_report.h"

namespace kvfence::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCommand = "kvfence run --seed=7";

std::vector<CampaignReport> ManyReports() {
  std::vector<CampaignReport> reports = {CampaignReport{}, SampleReport(), SampleRedReport()};
  CampaignReport partial = SampleReport();
  partial.partial = true;
  reports.push_back(partial);
  CampaignReport none = SampleReport();
  none.faults.clear();
  none.stories.clear();
  reports.push_back(none);
  CampaignReport silent = SampleReport();
  for (FaultTally& fault : silent.faults) {
    fault.activated = 0;
    fault.outcomes = {};
    fault.reasons.clear();
    fault.delay_steps.clear();
  }
  silent.stories[0].timeline.clear();
  reports.push_back(silent);
  return reports;
}

TEST(ReportHtml, EveryElementIsClosedAndEveryAttributeQuoted) {
  for (const CampaignReport& report : ManyReports()) {
    const HtmlDocument html = ReadHtml(HtmlReport(report, kCommand));
    EXPECT_EQ(html.error, "");
    EXPECT_EQ(html.Named("html").size(), 1u);
    EXPECT_EQ(html.Named("h1").size(), 1u);
  }
}

TEST(ReportHtml, TheStrictReaderRefusesWhatItShould) {
  const std::string good = HtmlReport(SampleReport(), kCommand);
  for (const auto& [from, to] : {std::pair("</section>", ""), std::pair("</small>", "</p>"),
                                 std::pair("&#10007;", "&"), std::pair("<tbody>", "<tbody a=b>")}) {
    std::string bad = HtmlReport(SampleRedReport(), kCommand);
    const size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, std::string_view(from).size(), to);
    EXPECT_NE(ReadHtml(bad).error, "") << from;
  }
}

TEST(ReportHtml, NothingLeadsToTheNetwork) {
  for (const CampaignReport& report : ManyReports()) {
    const std::string text = HtmlReport(report, kCommand);
    for (const char* never : {"http:", "https:", "@import", "url(", "src=", "<link", "<img",
                              "fetch(", "XMLHttpRequest", "WebSocket"}) {
      EXPECT_THAT(text, Not(HasSubstr(never)));
    }
    const HtmlDocument html = ReadHtml(text);
    for (const HtmlElement* link : html.Named("a")) {
      const std::string& to = link->attributes.at("href");
      ASSERT_TRUE(to.rfind("#", 0) == 0 || to.rfind("./", 0) == 0) << to;
      if (to[0] == '#') {
        EXPECT_NE(html.WithId(to.substr(1)), nullptr) << to << " leads nowhere";
      }
    }
    EXPECT_THAT(text, HasSubstr("default-src 'none'"));
  }
}

TEST(ReportHtml, IdsAreUnique) {
  const HtmlDocument html = ReadHtml(HtmlReport(SampleReport(), kCommand));
  std::set<std::string> ids;
  for (const HtmlElement& element : html.elements) {
    const auto it = element.attributes.find("id");
    if (it != element.attributes.end()) {
      EXPECT_TRUE(ids.insert(it->second).second) << it->second;
    }
  }
}

TEST(ReportHtml, HoldsTheDataAsJson) {
  CampaignReport report = SampleReport();
  report.config.trace = "a</script><!--&b.jsonl";
  const HtmlDocument html = ReadHtml(HtmlReport(report, kCommand));
  ASSERT_EQ(html.error, "");
  const HtmlElement* data = html.WithId("report-data");
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(data->attributes.at("type"), "application/json");
  EXPECT_EQ(nlohmann::json::parse(data->text), nlohmann::json::parse(ToJson(report)));
}

TEST(ReportHtml, ShowsEveryKindOutcomeReasonAndLine) {
  CampaignReport report = SampleRedReport();
  const std::string text = HtmlReport(report, kCommand);
  for (const FaultTally& fault : report.faults) EXPECT_THAT(text, HasSubstr(fault.kind));
  for (const std::string_view name : kOutcomeNames) {
    EXPECT_THAT(text, HasSubstr("id=\"outcome-" + std::string(name) + "\""));
  }
  for (const std::string_view name : kReasonNames) {
    EXPECT_THAT(text, HasSubstr("id=\"reason-" + std::string(name) + "\""));
  }
  for (const std::string& why : report.red) EXPECT_THAT(text, HasSubstr(Escape(why)));
  for (const std::string& what : report.missing) EXPECT_THAT(text, HasSubstr(Escape(what)));
  for (const std::string& line : report.drawn) {
    EXPECT_THAT(text, HasSubstr("<dt>" + line.substr(0, line.find('=')) + "</dt>"));
  }
  EXPECT_THAT(text, HasSubstr("--seed=7"));
  EXPECT_THAT(text, HasSubstr("812.0k tokens/s"));
  EXPECT_THAT(text, HasSubstr("9.8% fewer"));
  EXPECT_THAT(text, HasSubstr("href=\"./row_tail-1.kvlog\""));
  EXPECT_THAT(text, HasSubstr("prefers-color-scheme: dark"));
}

TEST(ReportHtml, ShowsWhichFeaturesMetWhat) {
  const CampaignReport report = SampleReport();
  const std::string html = CoverageSection(report);
  EXPECT_THAT(html, HasSubstr("1 of 3 pairs of features met each other"));
  EXPECT_THAT(html, HasSubstr("Never met: sliding_window."));
  for (const FaultTally& fault : report.faults) EXPECT_THAT(html, HasSubstr(fault.kind));
  EXPECT_THAT(html, HasSubstr(">331</td>"));
  EXPECT_EQ(CoverageSection(CampaignReport{}), "");
}

TEST(ReportHtml, EachStorySaysHowItsRunIsPlayedAgain) {
  CampaignReport report = SampleReport();
  report.config.features = {"-prefix_cache"};
  report.config.shard = {2, 3};
  EXPECT_THAT(StoriesSection(report),
              HasSubstr("kvfence run --seed=7 --features=-prefix_cache --only_run=12 --jobs=0"));
}

TEST(ReportHtml, BadCountsAreMarkedByMoreThanColour) {
  EXPECT_THAT(MatrixSection(SampleRedReport()), HasSubstr("&#10007; 3"));
  EXPECT_THAT(MatrixSection(SampleReport()), Not(HasSubstr("&#10007;")));
}

TEST(ReportHtml, SaysGreenOnlyWhenItIs) {
  CampaignReport report = SampleReport();
  EXPECT_EQ(VerdictWords(report), "GREEN, complete");
  report.complete = false;
  EXPECT_EQ(VerdictWords(report), "GREEN, not complete");
  EXPECT_THAT(VerdictSection(report, kCommand), HasSubstr("class=\"verdict good\""));
  report.partial = true;
  EXPECT_EQ(VerdictWords(report), "PARTIAL, green so far");
  EXPECT_THAT(VerdictSection(report, kCommand), HasSubstr("class=\"verdict warn\""));
  EXPECT_THAT(VerdictSection(report, kCommand), HasSubstr("This report is partial"));
  report.green = false;
  EXPECT_EQ(VerdictWords(report), "PARTIAL, RED");
  EXPECT_THAT(VerdictSection(report, kCommand), HasSubstr("class=\"verdict bad\""));
  report.partial = false;
  EXPECT_EQ(VerdictWords(report), "RED");
}

TEST(ReportHtml, WithoutFaultsSaysSo) {
  CampaignReport report = SampleReport();
  report.faults.clear();
  const std::string text = HtmlReport(report, kCommand);
  EXPECT_THAT(text, HasSubstr("No faults were asked for"));
  EXPECT_THAT(text, Not(HasSubstr("class=\"matrix\"")));
  EXPECT_THAT(text, Not(HasSubstr("wrong tokens published, fence off")));
}

// Whatever a name holds it comes out as text: markup adds no element, bytes break nothing.
TEST(ReportHtml, HostileNamesStayText) {
  const std::string hostile =
      std::string("</script></style><script>alert(1)</script><img src=x onerror='a'>\"'&]]>--") +
      '\0' + "\x1b[31m\xff\xfe\xed\xa0\x80 caf\xc3\xa9";
  const size_t scripts = ReadHtml(HtmlReport(SampleReport(), kCommand)).Named("script").size();
  CampaignReport report = SampleRedReport();
  report.config.trace = hostile;
  report.drawn.push_back(hostile);
  report.drawn.push_back(hostile + "=" + hostile);
  report.red.push_back(hostile);
  report.missing.push_back(hostile);
  report.faults[0].kind = hostile;
  report.faults[0].fault_class = '<';
  report.coverage.features[0] = hostile;
  report.coverage.faults_by_kind[hostile] = {1};
  IncidentStory& story = report.stories[0];
  story.kind = story.record = story.log = hostile;
  story.timeline[0] = {1, hostile, hostile, hostile, {-1}};
  const std::string text = HtmlReport(report, hostile);
  const HtmlDocument html = ReadHtml(text);
  EXPECT_EQ(html.error, "");
  EXPECT_EQ(html.Named("script").size(), scripts);
  EXPECT_TRUE(html.Named("img").empty());
  EXPECT_THAT(text, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\xff")));
  EXPECT_EQ(text.find('\0'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(text, HasSubstr("caf\xc3\xa9"));
}

TEST(HtmlText, ReplacesWhatIsNotUtf8AndNothingElse) {
  EXPECT_EQ(Escape("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(Escape("\xe2\x82\xac \xf0\x9f\x98\x80"), "\xe2\x82\xac \xf0\x9f\x98\x80");
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(Escape("\xc0\xaf"), bad + bad);            // overlong
  EXPECT_EQ(Escape("\xed\xa0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(Escape("\xf5x"), bad + "x");
  EXPECT_EQ(Escape("\xe2\x82"), bad + bad);  // cut off
  EXPECT_EQ(Escape("\x07"), bad);
}

TEST(HtmlText, NumbersAsPeopleReadThem) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(12031), "12,031");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(Percent(0, 0), "-");
  EXPECT_EQ(Percent(0, 5), "0%");
  EXPECT_EQ(Percent(5, 5), "100%");
  EXPECT_EQ(Percent(99999, 100000), ">99.9%");
  EXPECT_EQ(Percent(1, 100000), "<0.1%");
  EXPECT_EQ(Percent(1, 8), "12.5%");
  EXPECT_EQ(LinkTo("a b/c:d.kvlog"), "./a%20b/c%3Ad.kvlog");
}

}  // namespace
}  // namespace kvfence::tools
