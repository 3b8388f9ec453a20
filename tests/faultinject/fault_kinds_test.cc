// The list of kinds: complete, consistent, and what docs/FAULTS.md says.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "faultinject/injector.h"
#include "kvfence/fault_kind.h"

namespace kvfence {
namespace {

TEST(FaultKinds, AreNamedOnceAndAllHaveAnInjector) {
  std::set<std::string_view> names;
  for (const FaultKind& kind : FaultKinds()) {
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    EXPECT_EQ(FindFaultKind(kind.name), &kind);
    EXPECT_NE(MakeInjector(kind.name), nullptr) << kind.name;
    EXPECT_FALSE(kind.reasons.empty()) << kind.name;
    EXPECT_FALSE(kind.corrupts.empty()) << kind.name;
    EXPECT_GE(kind.fault_class, 'A');
    EXPECT_LE(kind.fault_class, 'O');
  }
  EXPECT_GE(names.size(), 13u);
}

TEST(FaultKinds, UnknownNamesAreUnknown) {
  EXPECT_EQ(FindFaultKind("no_such_kind"), nullptr);
  EXPECT_EQ(FindFaultKind(""), nullptr);
  EXPECT_EQ(MakeInjector("no_such_kind"), nullptr);
}

TEST(FaultKinds, DocumentSaysWhatTheListSays) {
  std::ifstream file(std::string(KVFENCE_SOURCE_DIR) + "/docs/FAULTS.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), FaultsMarkdown());
}

}  // namespace
}  // namespace kvfence
