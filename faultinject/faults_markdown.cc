// docs/FAULTS.md, made from the list of kinds so that it can't say anything else.
#include <string>

#include "kvfence/fault_kind.h"

namespace kvfence {
namespace {

constexpr std::string_view kHead =
    "# Fault kinds\n"
    "\n"
    "Made from `faultinject/fault_kind.cc`; a test compares this file with it, and prints the new\n"
    "text when they differ. Each kind is one operator of real bookkeeping bugs. It enters the\n"
    "reference engine at a named hook, as altered data. `kvfence faults` prints the same list.\n"
    "\n"
    "Classes: A stale mapping of a freed page, B free list and reference counts, C transfers and\n"
    "recycled pages, D step and stream ordering, E tables, rows and plans, F padding and dummy\n"
    "batches, G lengths, geometry and address arithmetic, I prefix identity, J content validity,\n"
    "K misplaced content, L sharing and copy-on-write, M ranks that differ, N scales, O request\n"
    "identity.\n"
    "\n"
    "| kind | class | hook | what it corrupts | answered by |\n"
    "|---|---|---|---|---|\n";

constexpr std::string_view kTail =
    "\n"
    "A kind marked *bookkeeping only* can't make a wrong read by itself: without the fence "
    "nothing\n"
    "goes wrong. It shows that the fence fails closed when its own view is damaged, or (a leak) "
    "that\n"
    "what is lost is noticed.\n"
    "\n"
    "Some need more than an occasion. `page_lost` is seen by the audit when all is idle, so the\n"
    "engine asks for one at its end; up to 8 pages get lost, which the pool has to spare. "
    "`load_permuted`\n"
    "is seen by sums alone, so copies to the host and back give them (in runs of this kind, and "
    "in\n"
    "every fourth without faults). `narrow_index` is there before the engine is: the fence says "
    "so\n"
    "at its start, and the engine doesn't start; so this kind has no part in runs with several, "
    "nor\n"
    "with `--numeric`, whose kernels are real. Pools that overlap or disagree about a page's size, "
    "which\n"
    "is `geometry` as well, are no kind: the engine's pools have memory of their own. `rank_row` "
    "and\n"
    "`old_incarnation` end their request under any policy: nobody knows what it could go back to.\n"
    "\n"
    "## Outcomes\n"
    "\n"
    "| outcome | means |\n"
    "|---|---|\n"
    "| `prevented` | its raw read was wrong, nothing wrong was published, for a declared reason |\n"
    "| `early` | ended or reported for a declared reason before any wrong read |\n"
    "| `benign` | activated, nothing wrong read, nothing reported |\n"
    "| `late` | reported, but a wrong result was published |\n"
    "| `missed` | a wrong result was published, or wrongly read, and nothing was reported |\n"
    "| `collateral` | a request ended that held no faulted object, or only for undeclared reasons "
    "|\n"
    "| `crashed` | the engine threw, or the run took its process down |\n"
    "\n"
    "Under policy `recompute` requests don't end, they go back to what was good of them and are\n"
    "computed again; read *went back* for *ended* above, so a request that went back and held no\n"
    "faulted object is collateral as well. One that went back counts as affected from then on "
    "only\n"
    "if it still holds a faulted object. All of them must end with the right tokens, but for "
    "those\n"
    "that their client takes back: `lost` counts the others, and keeps a campaign from being "
    "green.\n"
    "\n"
    "One run of each round has two to four kinds at once. What happens to a request that several\n"
    "faults affect counts for each of them; such faults have a row of their own, `several at\n"
    "once`, and add nothing to the figures of their kinds.\n"
    "\n"
    "A campaign is green only if the last four are 0, nothing was reported without a fault, and\n"
    "the same faults without the fence publish wrong tokens. It is complete only if each kind was\n"
    "activated at least 300 times, at most half of them benign, each declared reason answered, "
    "and\n"
    "each kind that isn't bookkeeping only published wrong tokens without the fence. A reason "
    "that\n"
    "never answered in 3,000 activations makes it red, and so does one that never answered at all "
    "where\n"
    "a campaign went on to be complete.\n";

}  // namespace

std::string FaultsMarkdown() {
  std::string text(kHead);
  for (const FaultKind& kind : FaultKinds()) {
    text += "| `" + std::string(kind.name) + "` | " + std::string(1, kind.fault_class) + " | `" +
            std::string(kind.hook) + "` | " + std::string(kind.corrupts);
    if (kind.bookkeeping_only) text += " (*bookkeeping only*)";
    text += " |";
    bool first = true;
    for (int r = 0; r < kReasonCount; ++r) {
      const auto reason = static_cast<Reason>(r);
      if (!kind.reasons.Has(reason)) continue;
      text += std::string(first ? " " : ", ") + "`" + std::string(ReasonName(reason)) + "`";
      first = false;
    }
    text += " |\n";
  }
  return text + std::string(kTail);
}

}  // namespace kvfence
