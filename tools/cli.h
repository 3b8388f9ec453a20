// What all verbs share: flags, help, exit codes, colours.
//
// Abseil's flags hold the values; parsing is done here, since its own parser exits 1 on a mistake
// and knows nothing of verbs. Each verb names the flags that it takes; any other is a usage error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvfence::tools {

// Exit codes of every verb.
inline constexpr int kExitClean = 0;
inline constexpr int kExitFinding = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitEnvironment = 3;

inline constexpr std::string_view kExitCodes =
    "exit codes: 0 clean, 1 finding, 2 usage or unreadable input, 3 environment\n";

struct Verb {
  std::string_view name;
  std::string_view words;    // positional arguments as help shows them, "LOG"
  std::string_view summary;  // one line
  std::string_view details;  // paragraphs and examples for --help
  std::vector<std::string_view> flags;
  int (*run)(const std::vector<std::string>& words);
};

// Parses "--name=value", "--name value", "--name", "--noname" against the verb's flags; after "--"
// all are words. Returns
// kExitClean, or kExitUsage after a one-line message; sets `help` when --help was asked for.
int ParseFlags(const Verb& verb, const std::vector<std::string>& arguments,
               std::vector<std::string>* words, bool* help);
// The verb's help: usage, summary, flags with defaults, examples.
std::string HelpOf(const Verb& verb);

// May colours and a status line be used on this stream? No where it isn't a terminal that has them,
// or where NO_COLOR is set and not empty.
bool IsFancy(int fd);
// ", did you mean 'X'?" with the nearest of `names`, or "" when none is near.
// `prefix` is put before it ("--").
std::string DidYouMean(std::string_view typed, const std::vector<std::string_view>& names,
                       std::string_view prefix = "");
// Prints "kvfence VERB: message" to standard error and returns `code`.
int Fail(std::string_view verb, int code, const std::string& message);

const Verb& RunVerb();
const Verb& CheckVerb();
const Verb& ShrinkVerb();
const Verb& BugsVerb();
const Verb& FaultsVerb();
const Verb& ExploreVerb();
const Verb& PlanVerb();
const Verb& MergeVerb();

}  // namespace kvfence::tools
