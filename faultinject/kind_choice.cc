#include "kind_choice.h"

#include <algorithm>
#include <bit>

#include "feature_choice.h"

namespace kvfence {
namespace {

// Of a row that runs under another's id nobody knows what its request may keep: there is no good
// prefix to go back to, and the books have lost count of it. The same holds where a rank has lost a
// step of it.
bool CanGoBack(const FaultKind& kind) { return kind.fault_class != 'O' && kind.name != "rank_row"; }

// Why there will never be an occasion for it; empty: there may be.
std::string WhyNot(const FaultKind& kind, const CampaignConfig& config, FeatureMask off) {
  if (config.policy == Policy::kRecompute && !CanGoBack(kind)) {
    return "ends its request whatever the policy: it has no part in a campaign under recompute";
  }
  if (const FeatureMask missing = MaskOfNames(kind.needs) & off; missing != 0) {
    return "needs " + FeatureNames(FeaturesOf(missing)) + ", which features excludes";
  }
  if (config.rows != 0 && config.rows < kind.rows) {
    return "needs " + std::to_string(kind.rows) + " batch rows, and rows is " +
           std::to_string(config.rows);
  }
  if (kind.name != "narrow_index") return "";
  if (config.numeric) return "has no part in a numeric campaign: its kernels have wide indices";
  if (config.page_size != 0 && !std::has_single_bit(config.page_size)) {
    return "needs a page_size that is a power of two, not " + std::to_string(config.page_size);
  }
  return "";
}

}  // namespace

Result<KindChoice> ChooseKinds(const CampaignConfig& config) {
  Result<FeatureChoice> features = FeatureChoice::Read(config.features);
  if (!features.ok()) return Status(features.status().code(), features.status().message());
  const FeatureMask off = features->off;
  KindChoice choice;
  const std::vector<std::string>& names = config.faults;
  if (names.empty()) return Status::Invalid("faults: no kind is named");
  for (const std::string& name : names) {
    if (name == "none" || name == "all") {
      if (names.size() > 1) return Status::Invalid("faults: '" + name + "' stands alone");
      for (const FaultKind& kind : FaultKinds()) {
        if (name == "none") break;
        const std::string why = WhyNot(kind, config, off);
        if (why.empty()) {
          choice.kinds.push_back(&kind);
        } else {
          choice.left_out.push_back(std::string(kind.name) + ": " + why);
        }
      }
      continue;
    }
    const FaultKind* const kind = FindFaultKind(name);
    if (kind == nullptr) return Status::Invalid("unknown fault kind '" + name + "'");
    if (const std::string why = WhyNot(*kind, config, off); !why.empty()) {
      return Status::Invalid("fault kind '" + name + "' " + why);
    }
    if (std::ranges::find(choice.kinds, kind) == choice.kinds.end()) choice.kinds.push_back(kind);
  }
  return choice;
}

}  // namespace kvfence
