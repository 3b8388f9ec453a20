// What is exported before and after single events: labels, zeros, edges of buckets, refusals.
#include "kvfence/metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "kvfence/build_info.h"
#include "tests/metrics/exposition.h"
#include "tests/metrics/fixture.h"

namespace kvfence::testing {
namespace {

using Series = std::map<std::string, double>;

// The series that differ between two renders, with their new value.
Series Changed(const Series& before, const Series& after) {
  Series changed;
  for (const auto& [series, value] : after) {
    const auto it = before.find(series);
    if (it == before.end() || it->second != value) changed[series] = value;
  }
  for (const auto& [series, value] : before) {
    EXPECT_TRUE(after.contains(series)) << "vanished: " << series;
  }
  return changed;
}

// I-70: a first event must be an increase of a series that Prometheus has already seen.
TEST(I70, EveryLabelValueOfAClosedSetIsThereAtZero) {
  const Series series = ParseExposition(Make(BareOptions())->RenderText());
  const auto zero = [&](const std::string& name) {
    const auto it = series.find(name);
    ASSERT_NE(it, series.end()) << name;
    EXPECT_EQ(it->second, 0.0) << name;
  };
  for (const std::string_view reason : kReasonNames) {
    zero(Named("kvfence_violations_total", {{"reason", reason}}));
    zero(Named("kvfence_request_aborts_total", {{"reason", reason}}));
  }
  const std::string duration = "kvfence_validation_duration_seconds";
  for (const std::string_view backend : {"cpu", "cuda"}) {
    for (const std::string_view result : {"clean", "violation", "unverified"}) {
      zero(Named("kvfence_validations_total", {{"backend", backend}, {"result", result}}));
    }
    zero(Named("kvfence_requests_checked_total", {{"backend", backend}}));
    zero(Named("kvfence_pages_checked_total", {{"backend", backend}}));
    zero(Named(duration + "_count", {{"backend", backend}}));
    zero(Named(duration + "_bucket", {{"backend", backend}, {"le", "5e-06"}}));
    zero(Named(duration + "_bucket", {{"backend", backend}, {"le", "0.02"}}));
  }
  for (const std::string_view state : {"free", "active", "cached", "quarantined"}) {
    zero(Named("kvfence_pages", {{"state", state}}));
  }
  for (const std::string_view kind : {"stale_tail", "early_recycle"}) {
    zero(Named("kvfence_faults_injected_total", {{"kind", kind}}));
    for (const std::string_view outcome :
         {"prevented", "early", "benign", "late", "missed", "collateral", "crashed"}) {
      zero(Named("kvfence_fault_outcomes_total", {{"kind", kind}, {"outcome", outcome}}));
    }
  }
  zero("kvfence_batch_pages_count");
  zero("kvfence_tag_rollovers_total");
  zero("kvfence_violation_log_dropped_total");
  zero("kvfence_last_violation_timestamp_seconds");
}

TEST(Metrics, NoSeriesIsBornAfterTheStart) {
  const auto metrics = Make(BareOptions());
  const Series before = ParseExposition(metrics->RenderText());
  for (int i = 0; i < kReasonCount; ++i) {
    metrics->OnViolation(Found(static_cast<Reason>(i)));
    metrics->OnAbort(RequestId(), static_cast<Reason>(i));
  }
  metrics->OnStep(Stats(1, 5'000'000, 1, 1, 60'000'000'000));
  metrics->SetPages({1, 2, 3, 4});
  const Series after = ParseExposition(metrics->RenderText());
  EXPECT_EQ(before.size(), after.size());
  Changed(before, after);
}

TEST(Metrics, ConstantLabelsAreOnEverySeriesWhenGivenAndElseAbsent) {
  for (const auto& [series, value] : ParseExposition(Make(HarnessOptions())->RenderText())) {
    EXPECT_NE(series.find("{model_name=\"kimi-k2\",engine=\"0\""), std::string::npos) << series;
  }
  const std::string bare = Make(BareOptions())->RenderText();
  EXPECT_EQ(bare.find("model_name"), std::string::npos);
  EXPECT_EQ(bare.find("engine"), std::string::npos);
}

TEST(Metrics, LabelsAreEscaped) {
  Metrics::Options options = BareOptions();
  options.model_name = "a\"b\\c\nd";
  const std::string text = Make(options)->RenderText();
  EXPECT_NE(text.find("kvfence_batch_pages_sum{model_name=\"a\\\"b\\\\c\\nd\"} 0"),
            std::string::npos);
}

TEST(Metrics, HarnessFamiliesAreAbsentInProduction) {
  Metrics::Options options = BareOptions();
  options.fault_kinds.clear();
  EXPECT_EQ(Make(options)->RenderText().find("fault"), std::string::npos);
}

TEST(Metrics, AViolationCountsItsReasonAndSetsTheTime) {
  const auto metrics = Make(BareOptions());
  const Series before = ParseExposition(metrics->RenderText());
  metrics->OnViolation(Found(Reason::kTagMismatch));
  metrics->OnViolation(Found(Reason::kTagMismatch));
  metrics->OnViolation(Found(Reason::kGeometry));
  const Series expected = {{"kvfence_violations_total{reason=\"tag_mismatch\"}", 2},
                           {"kvfence_violations_total{reason=\"geometry\"}", 1},
                           {"kvfence_last_violation_timestamp_seconds", 1'700'000'000.25}};
  EXPECT_EQ(Changed(before, ParseExposition(metrics->RenderText())), expected);
}

TEST(Metrics, TheSystemClockIsTheDefault) {
  Metrics::Options options = BareOptions();
  options.clock = nullptr;
  const auto metrics = Make(options);
  metrics->OnViolation(Found(Reason::kPadRow));
  const Series series = ParseExposition(metrics->RenderText());
  EXPECT_GT(series.at("kvfence_last_violation_timestamp_seconds"), 1.7e9);  // seconds, not ms
  EXPECT_LT(series.at("kvfence_last_violation_timestamp_seconds"), 1e11);
}

TEST(Metrics, AnAbortCountsOnlyItsReason) {
  const auto metrics = Make(BareOptions());
  const Series before = ParseExposition(metrics->RenderText());
  metrics->OnAbort(RequestId(NameId(3), 1), Reason::kUnverified);
  const Series expected = {{"kvfence_request_aborts_total{reason=\"unverified\"}", 1}};
  EXPECT_EQ(Changed(before, ParseExposition(metrics->RenderText())), expected);
}

TEST(Metrics, APassIsNamedByItsWorstRow) {
  Metrics::Options options = BareOptions();
  options.backend = Metrics::Backend::kCuda;
  const auto metrics = Make(options);
  metrics->OnStep(Stats(8, 100));
  metrics->OnStep(Stats(8, 100, 1));
  metrics->OnStep(Stats(8, 100, 0, 1));
  metrics->OnStep(Stats(8, 100, 7, 1));
  const Series series = ParseExposition(metrics->RenderText());
  EXPECT_EQ(series.at("kvfence_validations_total{backend=\"cuda\",result=\"clean\"}"), 1);
  EXPECT_EQ(series.at("kvfence_validations_total{backend=\"cuda\",result=\"violation\"}"), 1);
  EXPECT_EQ(series.at("kvfence_validations_total{backend=\"cuda\",result=\"unverified\"}"), 2);
  EXPECT_EQ(series.at("kvfence_requests_checked_total{backend=\"cuda\"}"), 32);
  EXPECT_EQ(series.at("kvfence_pages_checked_total{backend=\"cuda\"}"), 400);
  EXPECT_EQ(series.at("kvfence_requests_checked_total{backend=\"cpu\"}"), 0);
}

TEST(Metrics, ABoundBelongsToItsOwnBucket) {
  const auto metrics = Make(BareOptions());
  metrics->OnStep(Stats(1, 16, 0, 0, 5'000));
  metrics->OnStep(Stats(1, 17, 0, 0, 5'001));
  metrics->OnStep(Stats(1, 1'048'577, 0, 0, 20'000'001));
  const Series series = ParseExposition(metrics->RenderText());
  const auto duration = [&](const std::string& le) {
    return series.at(
        Named("kvfence_validation_duration_seconds_bucket", {{"backend", "cpu"}, {"le", le}}));
  };
  EXPECT_EQ(duration("5e-06"), 1);
  EXPECT_EQ(duration("1e-05"), 2);
  EXPECT_EQ(duration("0.02"), 2);
  EXPECT_EQ(duration("+Inf"), 3);
  EXPECT_DOUBLE_EQ(series.at("kvfence_validation_duration_seconds_sum{backend=\"cpu\"}"),
                   0.020010002);
  EXPECT_EQ(series.at("kvfence_batch_pages_bucket{le=\"16\"}"), 1);
  EXPECT_EQ(series.at("kvfence_batch_pages_bucket{le=\"64\"}"), 2);
  EXPECT_EQ(series.at("kvfence_batch_pages_bucket{le=\"1048576\"}"), 2);
  EXPECT_EQ(series.at("kvfence_batch_pages_bucket{le=\"+Inf\"}"), 3);
  EXPECT_EQ(series.at("kvfence_batch_pages_sum"), 1'048'610);
}

TEST(Metrics, ADurationThatWasNotMeasuredIsNotAFastOne) {
  const auto metrics = Make(BareOptions());
  metrics->OnStep(Stats(1, 1, 0, 0, 0));
  const Series series = ParseExposition(metrics->RenderText());
  EXPECT_EQ(series.at("kvfence_validation_duration_seconds_count{backend=\"cpu\"}"), 0);
  EXPECT_EQ(series.at("kvfence_batch_pages_count"), 1);
}

TEST(Metrics, PagesModeAndOwnLimits) {
  const auto metrics = Make(BareOptions());
  metrics->SetPages({9, 9, 9, 9});
  metrics->SetPages({1, 2, 3, 4});
  metrics->AddTagRollovers(2);
  metrics->AddViolationLogDropped(5);
  Series series = ParseExposition(metrics->RenderText());
  EXPECT_EQ(series.at("kvfence_pages{state=\"free\"}"), 1);
  EXPECT_EQ(series.at("kvfence_pages{state=\"active\"}"), 2);
  EXPECT_EQ(series.at("kvfence_pages{state=\"cached\"}"), 3);
  EXPECT_EQ(series.at("kvfence_pages{state=\"quarantined\"}"), 4);
  EXPECT_EQ(series.at("kvfence_tag_rollovers_total"), 2);
  EXPECT_EQ(series.at("kvfence_violation_log_dropped_total"), 5);
  for (size_t i = 0; i < Metrics::kModeNames.size(); ++i) {
    metrics->SetMode(static_cast<Metrics::Mode>(i));
    series = ParseExposition(metrics->RenderText());
    for (size_t j = 0; j < Metrics::kModeNames.size(); ++j) {
      EXPECT_EQ(series.count(Named("kvfence_mode_info", {{"mode", Metrics::kModeNames[j]}})),
                i == j ? 1u : 0u);
    }
  }
}

TEST(Metrics, BackendsAndModesAreFoundByName) {
  EXPECT_EQ(Metrics::BackendFromName("cpu"), Metrics::Backend::kCpu);
  EXPECT_EQ(Metrics::BackendFromName("cuda"), Metrics::Backend::kCuda);
  EXPECT_EQ(Metrics::BackendFromName("CPU"), std::nullopt);
  for (size_t i = 0; i < Metrics::kModeNames.size(); ++i) {
    EXPECT_EQ(Metrics::ModeFromName(Metrics::kModeNames[i]), static_cast<Metrics::Mode>(i));
  }
  EXPECT_EQ(Metrics::ModeFromName(""), std::nullopt);
}

TEST(Metrics, BuildInfoNamesThisBuild) {
  const BuildInfo& build = ThisBuild();
  EXPECT_FALSE(build.version.empty());
  EXPECT_FALSE(build.cuda.empty());
  EXPECT_FALSE(build.revision.empty());
  const Series series = ParseExposition(Make(BareOptions())->RenderText());
  EXPECT_EQ(series.at(Named(
                "kvfence_build_info",
                {{"version", build.version}, {"cuda", build.cuda}, {"revision", build.revision}})),
            1);
}

TEST(Metrics, FaultsAreCountedByName) {
  const auto metrics = Make(BareOptions());
  const Series before = ParseExposition(metrics->RenderText());
  EXPECT_TRUE(metrics->CountFault("early_recycle", 3).ok());
  EXPECT_TRUE(metrics->CountFault("early_recycle").ok());
  EXPECT_TRUE(metrics->CountOutcome("early_recycle", "prevented", 2).ok());
  EXPECT_TRUE(metrics->CountOutcome("stale_tail", "crashed").ok());
  const Series expected = {
      {"kvfence_faults_injected_total{kind=\"early_recycle\"}", 4},
      {"kvfence_fault_outcomes_total{kind=\"early_recycle\",outcome=\"prevented\"}", 2},
      {"kvfence_fault_outcomes_total{kind=\"stale_tail\",outcome=\"crashed\"}", 1}};
  EXPECT_EQ(Changed(before, ParseExposition(metrics->RenderText())), expected);
}

TEST(Metrics, RefusesFaultNamesOutsideTheList) {
  const auto metrics = Make(BareOptions());
  const std::string before = metrics->RenderText();
  const Status kind = metrics->CountFault("double_issue");
  EXPECT_EQ(kind.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(kind.message().find("double_issue"), std::string::npos);
  EXPECT_FALSE(metrics->CountOutcome("double_issue", "missed").ok());
  const Status outcome = metrics->CountOutcome("stale_tail", "lucky");
  EXPECT_NE(outcome.message().find("lucky"), std::string::npos);
  EXPECT_EQ(metrics->RenderText(), before);
}

TEST(Metrics, RefusesLabelsThatWouldSpoilTheScrape) {
  const auto refused = [](auto change) {
    Metrics::Options options = HarnessOptions();
    change(options);
    return Metrics::Create(options).status().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto& o) { o.model_name = "bad \xff"; }));
  EXPECT_TRUE(refused([](auto& o) { o.engine = "\xc3"; }));
  EXPECT_TRUE(refused([](auto& o) { o.fault_kinds = {"a", "b", "a"}; }));
  EXPECT_TRUE(refused([](auto& o) { o.fault_kinds = {"a", ""}; }));
  EXPECT_TRUE(refused([](auto& o) { o.fault_kinds = {"\x80"}; }));
  EXPECT_FALSE(refused([](auto& o) { o.model_name = "\xe6\xa8\xa1\xe5\x9e\x8b"; }));
}

TEST(MetricsDeathTest, AReasonOutsideTheSetIsOurOwnMistake) {
  const auto metrics = Make(BareOptions());
  EXPECT_DEATH(metrics->OnViolation(Found(static_cast<Reason>(kReasonCount))), "I-70");
  EXPECT_DEATH(metrics->OnAbort(RequestId(), static_cast<Reason>(255)), "I-70");
}

// The JSON of a snapshot, flattened to the text's series, is the text.
TEST(Metrics, JsonSaysTheSameAsText) {
  const auto metrics = Make(HarnessOptions());
  metrics->OnStep(Stats(3, 70, 1, 0, 12'345));
  metrics->OnViolation(Found(Reason::kWriteShared));
  metrics->SetPages({5, 6, 7, 8});
  const auto json = nlohmann::ordered_json::parse(metrics->RenderJson());
  Series flat;
  std::map<std::string, std::string> types;
  for (const auto& family : json["families"]) {
    const std::string name = family["name"];
    types[name] = family["type"];
    for (const auto& sample : family["samples"]) {
      const auto series = [&](const std::string& suffix, const std::string& le) {
        std::ostringstream labels;
        for (const auto& [label, value] : sample["labels"].items()) {
          labels << label << "=\"" << value.get<std::string>() << "\",";
        }
        if (!le.empty()) labels << "le=\"" << le << "\",";
        std::string inner = labels.str();
        if (!inner.empty()) inner.pop_back();
        return name + suffix + "{" + inner + "}";
      };
      if (sample.contains("value")) {
        flat[series("", "")] = sample["value"].get<double>();
        continue;
      }
      flat[series("_count", "")] = sample["count"].get<double>();
      flat[series("_sum", "")] = sample["sum"].get<double>();
      for (const auto& bucket : sample["buckets"]) {
        flat[series("_bucket", bucket[0].get<std::string>())] = bucket[1].get<double>();
      }
    }
  }
  EXPECT_EQ(Changed(flat, ParseExposition(metrics->RenderText())), Series());
  EXPECT_EQ(flat.size(), ParseExposition(metrics->RenderText()).size());
  EXPECT_EQ(types, ParseTypes(metrics->RenderText()));
}

}  // namespace
}  // namespace kvfence::testing
