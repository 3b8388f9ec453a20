// Runs a RapidCheck property with a fixed seed, so that a test means the same on every run (I-20).
//
// KVFENCE_CASES=10000 in the environment makes the long run: of each property, so many cases.
// RC_PARAMS in the environment may still steer it: what it names (seed, max_success, noshrink ...)
// holds instead, and with `reproduce` exactly that case is run.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

#include "tests/model/cases.h"

namespace kvfence::testing {

// Does RC_PARAMS name this parameter?
inline bool Steered(const char* parameter) {
  const char* text = std::getenv("RC_PARAMS");
  return text != nullptr &&
         std::string(text).find(std::string(parameter) + "=") != std::string::npos;
}

// Fails the current test with RapidCheck's report if the property is falsified, or gave up.
template <class Testable>
void CheckSeeded(const std::string& name, uint64_t seed, int runs, Testable&& property) {
  rc::detail::TestMetadata metadata;
  metadata.id = name;
  metadata.description = name;
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  if (!Steered("seed")) params.seed = seed;
  if (!Steered("max_success")) params.maxSuccess = Cases(runs);
  const auto result =
      Steered("reproduce")
          ? rc::detail::checkTestable(std::forward<Testable>(property), metadata)
          : rc::detail::checkTestable(std::forward<Testable>(property), metadata, params);
  if (result.template is<rc::detail::SuccessResult>()) return;
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  FAIL() << text.str();
}

}  // namespace kvfence::testing
