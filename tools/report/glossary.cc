// The words of the report, explained for somebody who reads one for the first time.
#include <array>
#include <set>

#include "report/html_text.h"
#include "report/sections.h"

namespace kvfence::tools {
namespace {

constexpr std::array<std::string_view, kOutcomeCount> kOutcomeMeanings = {
    "A request was about to read something wrong. It was ended for an expected reason, and nothing "
    "wrong was published.",
    "Reported for an expected reason before anything wrong was read.",
    "The fault was activated, but nothing wrong was read and nothing was reported.",
    "Reported only after a wrong token had been published.",
    "A wrong token was published and nothing was reported.",
    "A request was ended that had nothing to do with the fault.",
    "The engine or the fence stopped.",
};

// In the order of Reason.
constexpr std::array<std::string_view, kReasonCount> kReasonMeanings = {
    "An entry that would be read is the null page, negative, or beyond the pool.",
    "The table names another page than the one the request was given at this position.",
    "The page has been returned, or issued again, since the request got it.",
    "The page's content was born elsewhere: another request's write, or another position's.",
    "The page's FP8 scale entry belongs to another generation of the page or of the pool.",
    "What would be read was not completely written by work that passed its own checks.",
    "A new token would be written to a slot that is not the row's own at that position.",
    "The page to be written is mapped by another request, or its slot is sealed.",
    "The length that the kernel uses, the pages it covers and the expected length disagree.",
    "Beyond the covered pages, but within the kernel's reach, stands somebody else's page.",
    "The batch row is bound to another request, or to an earlier life of this one.",
    "A padded row would read a real page, or write at all.",
    "A plan, graph or shared-prefix table is older than the table it should mirror.",
    "Something that the check had read was changed before attention was done.",
    "There is no complete verdict for this row and step. The fence fails closed.",
    "A prefix-cache entry outlived its page, or nobody knows it.",
    "A prefix-cache hit whose full identity (tokens, adapter, media, salt) differs.",
    "A page was returned while a request or the prefix cache still holds it.",
    "A page was returned twice, or the null page was returned.",
    "The allocator issued a page that somebody holds, or the null page.",
    "A page was recycled while a copy or a launched step still used it.",
    "A page changed while an asynchronous copy was reading it.",
    "The books don't add up: references, mappings, cached and free pages.",
    "A checksum over a page's content and scales differs.",
    "Ranks of one step disagree about rows, pages or lengths.",
    "A request id, or the completion of one, refers to another life of that id.",
    "Index arithmetic would overflow, pools overlap, or page sizes disagree.",
};

std::string Word(const std::string& anchor, std::string_view name, std::string_view tone,
                 std::string_view meaning, std::string_view mark) {
  return "<div id=\"" + anchor + "\"><dt class=\"" + std::string(tone) + "\">" + Escape(name) +
         (mark.empty() ? "" : " <span class=\"mark\">" + Escape(mark) + "</span>") + "</dt><dd>" +
         Escape(meaning) + "</dd></div>\n";
}

}  // namespace

std::string GlossarySection(const CampaignReport& report) {
  std::set<std::string, std::less<>> seen;
  for (const FaultTally& fault : report.faults) {
    for (const auto& [reason, count] : fault.reasons) seen.insert(reason);
  }
  std::string html =
      "<section id=\"glossary\">\n<h2>Words</h2>\n<h3>Outcomes of a fault</h3>\n"
      "<dl class=\"words\">\n";
  for (int i = 0; i < kOutcomeCount; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    const std::string name(kOutcomeNames[static_cast<size_t>(i)]);
    const std::string_view tone = ToneOf(outcome);
    html += Word("outcome-" + name, name, tone, kOutcomeMeanings[static_cast<size_t>(i)],
                 tone == "bad"    ? "bad"
                 : tone == "good" ? "good"
                                  : "harmless");
  }
  html += Word("outcome-false_alarm", "false_alarm", "bad",
               "A report in a run without faults. A green run has none.", "bad");
  html += "</dl>\n<h3>Reasons that the fence gives</h3>\n<dl class=\"words\">\n";
  for (int i = 0; i < kReasonCount; ++i) {
    const std::string name(ReasonName(static_cast<Reason>(i)));
    html += Word("reason-" + name, name, "", kReasonMeanings[static_cast<size_t>(i)],
                 seen.count(name) != 0 ? "in this run" : "");
  }
  return html + "</dl>\n<h3>Verdict</h3>\n<dl class=\"words\">\n" +
         Word("verdict-green", "green", "good",
              "No late, missed, collateral or crashed fault and no false alarm; the no-fault arm "
              "was silent; without the fence the faults did publish wrong tokens.",
              "") +
         Word("verdict-complete", "complete", "",
              "Green, and every kind was activated at least 300 times, at most half of them "
              "benign, every "
              "declared pair of kind and reason was seen, and each kind that can go wrong did so "
              "without the fence. --until=complete goes on until then.",
              "") +
         "</dl>\n</section>\n";
}

}  // namespace kvfence::tools
