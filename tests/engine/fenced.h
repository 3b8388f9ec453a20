// An engine with the real fence behind it, and what that fence reports.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kvfence/engine.h"
#include "kvfence/fence.h"
#include "kvfence/switched_tracker.h"

namespace kvfence {

struct Findings : EventSink {
  void OnViolation(const Violation& v) override {
    if (all.empty())
      first = std::string(ReasonName(v.reason)) + " step " + std::to_string(v.step) + " row " +
              std::to_string(v.row) + " at " + std::to_string(v.at) + " page " +
              std::to_string(v.page) + " expected " + std::to_string(v.expected) + " found " +
              std::to_string(v.found);
    all.push_back(v);
  }
  std::vector<Violation> all;
  std::string first;
};

struct Fenced {
  Fenced(const EngineConfig& config, const std::vector<TraceRequest>& trace, Level level,
         FaultHooks* hooks = nullptr)
      : Fenced(config, trace, AtLevel(FenceConfigFor(config, trace), level), hooks) {}
  Fenced(const EngineConfig& config, const std::vector<TraceRequest>& trace,
         const FenceConfig& fence_config, FaultHooks* hooks) {
    auto made = Fence::Create(fence_config, {&findings});
    EXPECT_TRUE(made.ok()) << made.status().message();
    fence = std::move(*made);
    EngineNames names;
    names.name = [this](const std::string& name) { return fence->Intern(name); };
    names.copy = names.name;
    names.identity = [this](uint32_t identity) {
      return fence->InternIdentity(IdentityFields(identity));
    };
    auto created =
        Engine<SwitchedTracker>::Create(config, &trace, SwitchedTracker(fence.get()), names, hooks);
    EXPECT_TRUE(created.ok()) << created.status().message();
    engine = std::move(*created);
  }
  static FenceConfig AtLevel(FenceConfig fence_config, Level level) {
    fence_config.level = level;
    return fence_config;
  }
  Findings findings;
  std::unique_ptr<Fence> fence;
  std::unique_ptr<Engine<SwitchedTracker>> engine;
};

}  // namespace kvfence
