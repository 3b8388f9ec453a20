// Drawing an episode's settings and requests from the campaign's seed.
#include <algorithm>
#include <utility>

#include "episode.h"
#include "injector.h"

namespace kvfence {
namespace {

// A request may be struck by one fault after the other; what's struck for ever still ends.
constexpr uint64_t kMostRecomputes = 64;
constexpr uint64_t kSparePages = 8;  // for those that get lost

uint64_t PagesOf(uint64_t tokens, uint64_t page_size) {
  return (tokens + page_size - 1) / page_size;
}

Status TooFew(uint64_t pages, uint64_t page_size, uint64_t longest) {
  return Status::Invalid(
      "pages=" + std::to_string(pages) + " can't hold the longest request of a run (" +
      std::to_string(longest) + " tokens; other runs may have longer ones): at page_size " +
      std::to_string(page_size) + " it takes at least " +
      std::to_string(PagesOf(longest, page_size) + 1) + " (one of them is the null page)");
}

// The page size: given, or drawn from those at which the given number of pages will do.
Status DrawPageSize(const CampaignConfig& config, const Swarm& swarm, uint64_t longest, Rng& rng,
                    uint64_t* page_size) {
  *page_size = config.page_size != 0  ? config.page_size
               : config.trace.empty() ? swarm.page_sizes[rng.Below(swarm.page_sizes.size())]
                                      : std::max<uint64_t>(64 / config.trace_scale, 4);
  if (config.pages == 0) return Status();
  while (config.page_size == 0 && *page_size < 32 && PagesOf(longest, *page_size) >= config.pages) {
    *page_size *= 2;
  }
  if (PagesOf(longest, *page_size) >= config.pages) {
    return TooFew(config.pages, *page_size, longest);
  }
  return Status();
}

// Pages of all rows' requests at their average length, without what they share.
uint64_t WorkingSetOf(const std::vector<TraceRequest>& trace, uint64_t page_size, uint64_t rows) {
  uint64_t pages = 0;
  for (const TraceRequest& r : trace) {
    pages += PagesOf(uint64_t{r.input_length} + r.output_length, page_size);
  }
  return pages * rows / std::max<uint64_t>(trace.size(), 1);
}

bool Declares(const EpisodePlan& plan, Reason reason) {
  return std::ranges::any_of(plan.kinds,
                             [&](const FaultKind* kind) { return kind->reasons.Has(reason); });
}

// What kinds need beside features: sums for what is only seen by them, an audit for what only an
// audit sees, and pages that may get lost. Draws of its own, so that the rest stays as it is.
void Prepare(const CampaignConfig& config, uint64_t need, EpisodePlan* plan) {
  EngineConfig& e = plan->engine;
  // Without faults sums are given now and then, to see that nothing is reported for them.
  const bool now_and_then = plan->kinds.empty() && Mix64(plan->number) % 4 == 0;
  e.sums = now_and_then || Declares(*plan, Reason::kContentMismatch);
  e.audit_faulty = Declares(*plan, Reason::kConservation);
  if (e.audit_faulty && config.pages == 0) e.pages += kSparePages;
  plan->spare_pages = e.pages - std::min(e.pages, need);
  Rng rng(Mix64(e.seed ^ 0x5374617274));
  for (const FaultKind* kind : plan->kinds) {
    if (kind->at_start()) plan->at_start = MakeInjector(kind->name)->AtStart(rng, &e);
  }
}

// Features and their sizes. Over a given trace the engine's usual ones, unless others are named.
Status DrawFeatures(const CampaignConfig& config, const Swarm& swarm, const EpisodePlan& plan,
                    Rng& rng, EngineConfig* e) {
  Result<FeatureChoice> choice = FeatureChoice::Read(config.features);
  if (!choice.ok()) return Status(choice.status().code(), choice.status().message());
  FeatureMask drawn = 0;
  for (size_t i = 0; i < swarm.features.size(); ++i) {
    if (rng.Chance(swarm.features[i], 8)) drawn |= FeatureMask{1} << i;
  }
  if (!config.trace.empty()) drawn = MaskOf(EngineFeatures());
  e->features = FeaturesOf(choice->Apply(drawn, plan.kinds));
  const uint64_t pages = e->pages;
  DrawSizes(rng, LongestOf(plan.trace), e);
  if (config.pages != 0 && e->pages != pages) {
    e->pages = pages;  // as asked for: too few to be shared by groups
    e->features.one_space = false;
  }
  // Seldom tiny: a prompt in chunks of a token or two takes hundreds of steps.
  if (!rng.Chance(1, 8)) e->max_chunk = e->token_budget / rng.Between(2, 4);
  return Status();
}

// With draws of its own, so that all else is what the same seed gives without it.
TransformerShape DrawShape(const NumericChoice& choice, const EpisodePlan& plan) {
  Rng rng(Mix64(plan.number ^ 0x4E756D) + plan.attempt);
  const AttentionForm attention = choice.attention[rng.Below(choice.attention.size())];
  const KvType kv = choice.kv[rng.Below(choice.kv.size())];
  return SmallTransformer(attention, kv, choice.weights[rng.Below(choice.weights.size())]);
}

}  // namespace

uint64_t LongestOf(const std::vector<TraceRequest>& trace) {
  uint64_t longest = 1;
  for (const TraceRequest& r : trace) {
    longest = std::max(longest, uint64_t{r.input_length} + r.output_length);
  }
  return longest;
}

Result<RequestSource> RequestSource::Open(const CampaignConfig& config) {
  RequestSource source;
  source.seed_ = config.seed;
  source.swarm_ = Swarm::Draw(config.seed);
  source.scale_ = config.trace_scale;
  if (config.trace.empty()) return source;
  Result<std::vector<TraceRequest>> trace = ReadTrace(config.trace);
  if (!trace.ok()) return Status(trace.status().code(), trace.status().message());
  source.trace_ = std::move(*trace);
  return source;
}

std::vector<TraceRequest> RequestSource::Stream(uint64_t piece, uint64_t first, uint64_t n) const {
  if (generated()) {
    Rng rng(Mix64(seed_ + Mix64(piece)));
    TraceShape shape = swarm_.Shape(rng, n);
    shape.conversations *= 3;  // more rows are to be had than in an episode
    return ScaleTrace(GenerateTrace(shape), scale_);
  }
  const uint64_t begin = std::min(first, size());
  const auto at = trace_.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto end = at + static_cast<std::ptrdiff_t>(std::min(n, size() - begin));
  return ScaleTrace({at, end}, scale_);
}

std::vector<TraceRequest> RequestSource::Slice(uint64_t episode, uint64_t first, uint64_t n) const {
  if (generated()) {
    Rng rng(Mix64(seed_) ^ Mix64(~episode));
    return ScaleTrace(GenerateTrace(swarm_.Shape(rng, n)), scale_);
  }
  std::vector<TraceRequest> slice;
  for (uint64_t i = 0; i < n; ++i) slice.push_back(trace_[(first + i) % size()]);
  return ScaleTrace(std::move(slice), scale_);
}

Status DrawEpisode(const CampaignConfig& config, EpisodePlan* plan) {
  const Swarm swarm = Swarm::Draw(config.seed);
  Rng rng(Mix64(config.seed) + Mix64(plan->number << 8 | plan->attempt));
  const bool generated = config.trace.empty();
  const uint64_t longest = LongestOf(plan->trace);
  EngineConfig& e = plan->engine;
  e.seed = rng.Next();
  if (Status status = DrawPageSize(config, swarm, longest, rng, &e.page_size); !status.ok()) {
    return status;
  }
  const uint64_t rows = swarm.rows.Draw(rng);
  e.rows = config.rows != 0 ? config.rows : generated ? rows : 4 * rows;
  // A pool smaller than what the rows would like to have, but not than what one may need.
  const uint64_t pressure = swarm.pressure.Draw(rng);
  const uint64_t least = PagesOf(longest, e.page_size) + 3;
  const uint64_t pages =
      std::max(least, WorkingSetOf(plan->trace, e.page_size, e.rows) * 10 / pressure);
  e.pages = config.pages != 0 ? config.pages : pages;
  e.token_budget = generated ? swarm.budget.Draw(rng) : rng.Between(2048, 8192);
  e.token_budget = std::max<uint64_t>(e.token_budget / config.trace_scale, 8);
  if (config.numeric) e.numeric = DrawShape(*config.numeric, *plan);
  e.reuse = rng.Chance(swarm.lifo, 8) ? ReuseOrder::kLifo : ReuseOrder::kFifo;
  e.reach_tile = uint64_t{1} << rng.Below(swarm.tile_doublings + 1);
  if (std::any_of(plan->kinds.begin(), plan->kinds.end(),
                  [](const FaultKind* kind) { return kind->name == "row_tail"; })) {
    e.reach_tile = rng.Chance(1, 2) ? 4 : 8;
  }
  if (Status status = DrawFeatures(config, swarm, *plan, rng, &e); !status.ok()) return status;
  // What comes back late in a real trace has left the pool: a host with less room than the pool
  // never has what that lacks.
  if (!generated) e.host_pages = std::max(e.host_pages, e.pages + e.pages / 8);
  Prepare(config, least, plan);
  // A trace that was given says all that its clients did: none of its requests is taken back.
  const bool withdrawing = rng.Chance(swarm.withdrawing, 8);
  const uint64_t withdrawn = rng.Between(10, swarm.withdrawn_most);
  e.abort_per_mille = generated && withdrawing ? withdrawn : 0;
  e.policy = config.policy;
  e.most_recomputes = kMostRecomputes;
  e.max_steps = plan->kinds.empty() ? config.steps : 0;
  e.judge_raw = !plan->kinds.empty();
  if (Status status = CheckEngineConfig(e); !status.ok()) return status;
  plan->fault_gap = swarm.fault_gap;
  plan->fault_one_in = swarm.fault_one_in;
  // Who is struck goes on living, so that faults could go on for ever.
  if (config.policy == Policy::kRecompute) plan->most_faults = plan->trace.size();
  plan->fence = FenceConfigFor(e, plan->trace);
  plan->fence.level = config.level;
  plan->fence.disabled = config.disabled;
  return Status();
}

std::vector<std::string> DescribeDraw(const CampaignConfig& config) {
  return Swarm::Draw(config.seed).Lines(config.trace.empty());
}

namespace {

std::string NameOf(const TransformerShape& shape) {
  return "transformer=" + std::string(AttentionFormName(shape.attention)) + " kv " +
         std::string(KvTypeName(shape.kv)) + " weights " +
         std::string(WeightTypeName(shape.weights));
}

}  // namespace

std::vector<std::string> Describe(const EngineConfig& e) {
  const auto line = [](const char* name, uint64_t value) {
    return std::string(name) + "=" + std::to_string(value);
  };
  std::vector<std::string> lines = {
      line("page_size", e.page_size),
      line("pages", e.pages),
      line("rows", e.rows),
      line("token_budget", e.token_budget),
      line("max_chunk", e.max_chunk),
      line("reach_tile", e.reach_tile),
      line("window", e.features.sliding_window ? e.window : 0),
      "features=" + FeatureNames(e.features),
      std::string("reuse=") + (e.reuse == ReuseOrder::kLifo ? "lifo" : "fifo"),
      line("abort_per_mille", e.abort_per_mille)};
  if (e.numeric) lines.push_back(NameOf(*e.numeric));
  return lines;
}

}  // namespace kvfence
