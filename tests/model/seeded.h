// Runs a RapidCheck property with a fixed seed, so that a test means the same on every run (I-20).
//
// RC_PARAMS in the environment takes over seed and number of runs: that's how a failure is
// reproduced or a longer search is made.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

namespace kvfence::testing {

// Fails the current test with RapidCheck's report if the property is falsified, or gave up.
template <class Testable>
void CheckSeeded(const std::string& name, uint64_t seed, int runs, Testable&& property) {
  rc::detail::TestMetadata metadata;
  metadata.id = name;
  metadata.description = name;
  rc::detail::TestParams params;
  params.seed = seed;
  params.maxSuccess = runs;
  const auto result =
      std::getenv("RC_PARAMS") != nullptr
          ? rc::detail::checkTestable(std::forward<Testable>(property), metadata)
          : rc::detail::checkTestable(std::forward<Testable>(property), metadata, params);
  if (result.template is<rc::detail::SuccessResult>()) return;
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  FAIL() << text.str();
}

}  // namespace kvfence::testing
