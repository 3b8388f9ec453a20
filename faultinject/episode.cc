#include "episode.h"

#include <exception>
#include <memory>
#include <utility>

#include "episode_notes.h"
#include "fault_watch.h"
#include "kvfence/event_log_writer.h"
#include "kvfence/fence.h"
#include "kvfence/switched_tracker.h"
#include "saboteur.h"

namespace kvfence {
namespace {

constexpr int64_t kIdleSteps = 24;  // without effect, after which a fault is over

// How often a faulted page changes hands before the fault can do harm.
uint64_t ChangesOf(const FaultKind& kind) {
  for (const std::string_view twice :
       {"double_free", "double_return", "stale_index_entry", "free_cached"}) {
    if (kind.name == twice) return 2;
  }
  return kind.name == "free_while_held" ? 1 : 0;
}

// An index entry that should be gone misleads whenever it's hit, and a page that stands in the free
// list twice is issued twice whenever it's taken while it's held: however often it was free before.
bool Heals(const FaultKind& kind) { return ChangesOf(kind) < 2; }

std::vector<FaultNature> NaturesOf(const std::vector<const FaultKind*>& kinds) {
  std::vector<FaultNature> natures;
  for (const FaultKind* kind : kinds) {
    natures.push_back({kind->reasons, ChangesOf(*kind), Heals(*kind)});
  }
  return natures;
}

std::vector<std::unique_ptr<Injector>> InjectorsOf(const std::vector<const FaultKind*>& kinds) {
  std::vector<std::unique_ptr<Injector>> injectors;
  for (const FaultKind* kind : kinds) injectors.push_back(MakeInjector(kind->name));
  return injectors;
}

EngineNames NamesFor(Fence* fence, FaultWatch* watch) {
  EngineNames names;
  if (fence == nullptr) return names;
  names.name = [fence, watch](const std::string& name) {
    const NameId id = fence->Intern(name);
    watch->Name(id, static_cast<RequestIndex>(std::stoul(name.substr(1))));
    return id;
  };
  names.identity = [fence](uint32_t identity) {
    const std::pair<std::string, std::string> field{"adapter", std::to_string(identity)};
    return fence->InternIdentity({&field, 1});
  };
  names.copy = [fence](const std::string& name) { return fence->Intern(name); };
  names.sum = names.copy;
  return names;
}

void Summarise(const EngineReport& report, const Fence* fence, const FaultWatch& watch,
               RunResult* result) {
  result->steps = report.steps;
  result->tokens = report.tokens_published;
  result->wrong_tokens = report.wrong_tokens;
  result->aborted = report.fenced;
  result->audit = report.audit;
  result->reached = ReachedBy(report, result->features);
  result->violations = watch.violations();
  result->false_alarms = watch.false_alarms();
  result->wrong_without_fault = watch.wrong_without_fault();
  result->comebacks = watch.comebacks();
  if (fence != nullptr) {
    const Fence::Stats stats = fence->stats();
    result->events = stats.events;
    result->entries_checked = stats.entries_checked;
    result->ownership_changes = stats.ownership_changes;
    result->device_bytes_pages = stats.device_bytes_pages;
  }
  result->activated = watch.faults().size();
  result->faults.assign(watch.faults().begin(), watch.faults().end());
  for (size_t i = 0; i < result->faults.size(); ++i) {
    result->outcomes.push_back(JudgeOutcome(watch.EvidenceOf(i)));
  }
}

void AddStories(const EpisodePlan& plan, const RunOptions& options, const EpisodeNotes& notes,
                RunResult* result) {
  std::string settings;
  for (const std::string& line : Describe(plan.engine)) {
    settings += (settings.empty() ? "" : " ") + line;
  }
  for (size_t k = 0; plan.kinds.size() > 1 && k < plan.kinds.size(); ++k) {
    settings += (k == 0 ? " at_once=" : "+") + std::string(plan.kinds[k]->name);
  }
  for (size_t i = 0; i < result->faults.size(); ++i) {
    if (!options.want_story(result->faults[i], result->outcomes[i])) continue;
    IncidentStory story;
    story.kind = std::string(plan.kinds[result->faults[i].kind]->name);
    story.outcome = result->outcomes[i];
    story.run = plan.number;
    story.timeline.push_back({0, "settings", settings});
    for (TimelineEntry& entry : notes.TimelineOf(result->faults[i])) {
      story.timeline.push_back(std::move(entry));
    }
    story.record = result->faults[i].record;
    result->stories.push_back(std::move(story));
  }
}

}  // namespace

Result<RunResult> RunEpisode(const EpisodePlan& plan, const RunOptions& options) {
  const bool faults = !plan.kinds.empty();
  EpisodeNotes notes;
  FaultWatch watch(NaturesOf(plan.kinds), kIdleSteps);
  watch.on_begin = options.on_fault;
  const bool stories = faults && options.want_story;
  if (stories) watch.notes = &notes;
  if (!plan.at_start.empty()) watch.BeginAtStart(plan.at_start, 0);

  std::unique_ptr<Fence> fence;
  if (options.fence) {
    std::vector<EventSink*> sinks = options.sinks;
    sinks.insert(sinks.begin(), &watch);
    Result<std::unique_ptr<Fence>> made = Fence::Create(plan.fence, std::move(sinks));
    if (!made.ok()) return Status(made.status().code(), made.status().message());
    fence = std::move(*made);
    if (stories) {
      watch.incident = [&](const Violation& violation) { return fence->IncidentJson(violation); };
    }
  }
  RunResult result;
  result.features = MaskOf(plan.engine.features);
  if (watch.violations() > 0) {  // by its own words it can't be right: it doesn't start
    Summarise({}, fence.get(), watch, &result);
    if (stories) AddStories(plan, options, notes, &result);
    return result;
  }
  Saboteur saboteur(InjectorsOf(plan.kinds), &watch, watch.notes, fence.get(), plan.engine.pages,
                    Mix64(plan.engine.seed) ^ 3,
                    {plan.fault_gap, plan.fault_one_in, plan.most_faults, plan.spare_pages});
  EngineConfig config = plan.engine;
  config.judge_raw = plan.engine.judge_raw && options.fence;
  Result<std::unique_ptr<Engine<SwitchedTracker>>> made = Engine<SwitchedTracker>::Create(
      config, &plan.trace, SwitchedTracker(fence.get()), NamesFor(fence.get(), &watch),
      faults ? &saboteur : nullptr, &watch);
  if (!made.ok()) return Status(made.status().code(), made.status().message());
  Engine<SwitchedTracker>& engine = **made;

  std::unique_ptr<EventLogWriter> log;
  if (!options.record_to.empty() && fence != nullptr) {
    Result<std::unique_ptr<EventLogWriter>> opened =
        EventLogWriter::Open(options.record_to, plan.fence, &fence->names());
    if (!opened.ok()) return Status(opened.status().code(), opened.status().message());
    log = std::move(*opened);
    fence->Record(log.get());
  }

  try {
    while (engine.Step()) {
      if (options.stop_at_violation && watch.violations() > 0) break;
      if (options.go_on && !options.go_on(engine.report().steps, engine.ended())) {
        result.stopped = true;
        break;
      }
    }
  } catch (const std::exception&) {
    watch.Crashed();
  }
  if (log != nullptr) {
    fence->Record(nullptr);
    if (Status status = log->Close(); !status.ok()) return status;
  }
  result.served = engine.ended();
  Summarise(engine.report(), fence.get(), watch, &result);
  if (stories) AddStories(plan, options, notes, &result);
  return result;
}

}  // namespace kvfence
