// `kvfence faults`: the fault kinds, what each corrupts and which reasons may answer it.
#include <absl/flags/flag.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "kvfence/fault_kind.h"
#include "log_words.h"
#include "shared_flags.h"

namespace kvfence::tools {
namespace {

int RunFaults(const std::vector<std::string>& words) {
  if (!words.empty()) {
    return Fail("faults", kExitUsage, "takes no words, got '" + words[0] + "'");
  }
  if (absl::GetFlag(FLAGS_json)) {
    nlohmann::ordered_json json;
    json["faults"] = nlohmann::ordered_json::array();
    for (const FaultKind& kind : FaultKinds()) {
      nlohmann::ordered_json line;
      line["kind"] = std::string(kind.name);
      line["class"] = std::string(1, kind.fault_class);
      line["hook"] = std::string(kind.hook);
      line["reasons"] = NamesOf(kind.reasons);
      line["bookkeeping_only"] = kind.bookkeeping_only;
      json["faults"].push_back(std::move(line));
    }
    std::puts(json.dump(2).c_str());
    return kExitClean;
  }
  for (const FaultKind& kind : FaultKinds()) {
    std::string reasons;
    for (const std::string& reason : NamesOf(kind.reasons)) {
      reasons += (reasons.empty() ? "" : ", ") + reason;
    }
    std::printf("%-22s class %c  at %s\n    %s\n    answered by: %s\n",
                std::string(kind.name).c_str(), kind.fault_class, std::string(kind.hook).c_str(),
                std::string(kind.corrupts).c_str(), reasons.c_str());
  }
  return kExitClean;
}

}  // namespace

const Verb& FaultsVerb() {
  static const Verb kVerb = {
      "faults",
      "",
      "lists the fault kinds: what they corrupt, and the reasons that may answer",
      "A kind is one operator of real bookkeeping bugs; `class` is its letter in "
      "docs/FAULTS.md.\n\n"
      "examples:\n  kvfence faults\n  kvfence faults --json\n",
      {"json"},
      RunFaults};
  return kVerb;
}

}  // namespace kvfence::tools
