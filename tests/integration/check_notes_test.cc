// docs/checks has one note for each reason, and each says the level that reason.h gives it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "kvfence/reason.h"

namespace kvfence {
namespace {

std::string Note(const std::string& name) {
  std::ifstream in(KVFENCE_SOURCE_DIR "/docs/checks/" + name + ".md");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The lowest level that asks the check.
std::string_view LowestLevel(Reason reason) {
  for (const Level level : {Level::kMap, Level::kFull, Level::kAudit}) {
    if (ChecksOf(level).Has(reason)) return LevelName(level);
  }
  return LevelName(Level::kOff);
}

TEST(CheckNotes, EachReasonHasANoteThatSaysItsLevel) {
  for (const std::string_view name : kReasonNames) {
    const std::string note = Note(std::string(name));
    ASSERT_EQ(note.rfind("# " + std::string(name) + "\n", 0), 0u) << name;
    const std::string level(LowestLevel(*ReasonFromName(name)));
    EXPECT_NE(note.find("\n- **Level:** `" + level + "`\n"), std::string::npos) << name;
    for (const char* head : {"Speaks", "Answers", "Costs", "Cannot see", "Rests on"}) {
      EXPECT_NE(note.find("\n- **" + std::string(head) + ":** "), std::string::npos)
          << name << ": " << head;
    }
  }
}

TEST(CheckNotes, NoNoteSpeaksOfAReasonThatIsNone) {
  std::set<std::string> known{"README", "storm"};
  for (const std::string_view name : kReasonNames) known.emplace(name);
  for (const auto& entry : std::filesystem::directory_iterator(KVFENCE_SOURCE_DIR "/docs/checks")) {
    EXPECT_TRUE(known.contains(entry.path().stem().string())) << entry.path();
  }
}

}  // namespace
}  // namespace kvfence
