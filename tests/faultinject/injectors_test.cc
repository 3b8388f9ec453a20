// What single injectors take for a fault, on a stage without an engine.
#include <gtest/gtest.h>

#include "faultinject/injector.h"
#include "stage.h"

namespace kvfence::testing {
namespace {

// A late copy for request 1's logical page `former_at` would land in request 2's page 3, its only
// one. Is that queued as a fault?
bool Queued(uint64_t family_of_1, uint64_t former_at) {
  Stage stage;
  stage.held[2] = {PageId(3)};
  stage.families[2] = 7;
  Observations seen;
  seen.pages.resize(16);
  seen.pages[3].former = {1, RequestId(NameId(2), 1), former_at, family_of_1};
  Rng rng(1);
  bool queued = false;
  Scene scene{.at = stage,
              .rng = rng,
              .seen = seen,
              .fence = nullptr,
              .Begin = [](FaultSurface&, FaultMark) {},
              .Async = [&](StepId, std::function<bool(FaultSurface&)>) { queued = true; }};
  EXPECT_EQ(MakeInjector("late_foreign_write")->Queue(scene), queued);
  return queued;
}

TEST(LateForeignWrite, OfAnotherFamilyIsForeignAnywhere) {
  EXPECT_TRUE(Queued(8, 0));
  EXPECT_TRUE(Queued(8, 5));
}

TEST(LateForeignWrite, OfTheSameFamilyIsForeignOnlyAtAnotherPlace) {
  EXPECT_FALSE(Queued(7, 0)) << "a sibling's page at the same place is the page's own content";
  EXPECT_TRUE(Queued(7, 5));
}

}  // namespace
}  // namespace kvfence::testing
