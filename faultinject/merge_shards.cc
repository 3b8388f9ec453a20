// One report of all shards.
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "campaign_fold.h"
#include "campaign_identity.h"
#include "campaign_plan.h"
#include "episode.h"
#include "kind_choice.h"
#include "kvfence/campaign.h"
#include "strict_json.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostShards = 65536;

struct ReadShard {
  Shard shard;
  Json config, state;
  std::string program;
  double seconds = 0;
};

Result<ReadShard> ReadOne(const std::string& text, const std::string& name) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Status::Invalid(name + ": isn't a report (JSON object)");
  const auto part = json.find("shard");
  if (part == json.end()) {
    return Status::Invalid(name + ": is no shard's report (kvfence run --shard=K/N makes them)");
  }
  if (json.value("partial", true)) {
    return Status::Invalid(name +
                           ": is partial; its run must end first (--resume goes on with it)");
  }
  try {
    ReadShard read;
    read.shard.part = CountOf(part->at("part"), "part", kMostShards);
    read.shard.of = CountOf(part->at("of"), "of", kMostShards);
    part->at("program").get_to(read.program);
    read.config = part->at("config");
    read.state = part->at("state");
    read.seconds = SecondsOf(json.at("seconds"), "seconds");
    return read;
  } catch (const Json::exception&) {
    return Status::Invalid(name + ": its part `shard` can't be read");
  } catch (const FieldError& error) {
    return Status::Invalid(name + ": " + error.what());
  }
}

}  // namespace

Result<CampaignReport> MergeShards(std::span<const std::string> reports,
                                   std::span<const std::string> names) {
  if (reports.empty()) return Status::Invalid("no report is named");
  std::vector<ReadShard> shards;
  for (size_t i = 0; i < reports.size(); ++i) {
    Result<ReadShard> read = ReadOne(reports[i], names[i]);
    if (!read.ok()) return Status(read.status().code(), read.status().message());
    shards.push_back(std::move(*read));
  }
  const uint64_t of = shards[0].shard.of;
  std::vector<std::optional<size_t>> by_part(of);
  for (size_t i = 0; i < shards.size(); ++i) {
    const ReadShard& shard = shards[i];
    if (const std::string why = DifferenceOf(shard.config, shards[0].config); !why.empty()) {
      return Status::Invalid(names[i] + ": is of another run than " + names[0] + ": its " + why);
    }
    if (shard.program != shards[0].program) {
      return Status::Invalid(names[i] + ": was made by another build of the program than " +
                             names[0]);
    }
    const uint64_t part = shard.shard.part;
    if (shard.shard.of != of || part == 0 || part > by_part.size()) {
      return Status::Invalid(names[i] + ": is shard " + std::to_string(part) + " of " +
                             std::to_string(shard.shard.of) + ", " + names[0] + " is one of " +
                             std::to_string(of));
    }
    if (by_part[part - 1]) {
      return Status::Invalid(names[i] + ": is shard " + std::to_string(part) + ", and so is " +
                             names[*by_part[part - 1]]);
    }
    by_part[part - 1] = i;
  }
  for (size_t part = 0; part < by_part.size(); ++part) {
    if (by_part[part]) continue;
    return Status::Invalid("shard " + std::to_string(part + 1) + " of " + std::to_string(of) +
                           " is missing");
  }

  CampaignConfig config;
  try {
    config = ConfigFrom(shards[0].config);
  } catch (const Json::exception&) {
    return Status::Invalid(names[0] + ": its config can't be read");
  } catch (const FieldError& error) {
    return Status::Invalid(names[0] + ": its config can't be read: " + error.what());
  }
  if (Status status = CheckCampaignConfig(config); !status.ok()) {
    return Status::Invalid(names[0] + ": " + status.message());
  }
  Result<KindChoice> chosen = ChooseKinds(config);
  if (!chosen.ok()) return Status::Invalid(names[0] + ": " + chosen.status().message());
  const std::vector<const FaultKind*>& kinds = chosen->kinds;
  CampaignFold fold(kinds);
  double seconds = 0;
  for (const std::optional<size_t>& at : by_part) {
    CampaignFold part(kinds);
    if (Status status = part.FromJson(shards[*at].state); !status.ok()) {
      return Status::Invalid(names[*at] + ": its state can't be read: " + status.message());
    }
    fold.Join(part);
    seconds += shards[*at].seconds;
  }
  CampaignReport report = fold.Report(config, false);
  report.drawn = DescribeDraw(config);
  report.left_out = chosen->left_out;
  report.seconds = seconds;
  return report;
}

}  // namespace kvfence
