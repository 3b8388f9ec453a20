// kvfence: the command line. Dispatches to a verb; knows none of them but by name.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli.h"

namespace kvfence::tools {
namespace {

const std::vector<const Verb*>& Verbs() {
  static const std::vector<const Verb*> kVerbs = {&RunVerb(),     &MergeVerb(), &CheckVerb(),
                                                  &ShrinkVerb(),  &BugsVerb(),  &FaultsVerb(),
                                                  &ExploreVerb(), &PlanVerb()};
  return kVerbs;
}

std::string Overview() {
  std::string text =
      "kvfence: does every request read and write only its own KV pages?\n\n"
      "usage: kvfence VERB [words] [flags]      kvfence VERB --help\n\n";
  for (const Verb* verb : Verbs()) {
    std::string left = "  " + std::string(verb->name) + " " + std::string(verb->words);
    if (left.size() < 16) left.resize(16, ' ');
    text += left + "  " + std::string(verb->summary) + "\n";
  }
  text +=
      "\nexamples:\n"
      "  kvfence run                              the main job, about a minute\n"
      "  kvfence run --seed=7 --requests=300 --json\n"
      "  kvfence merge part1 part2 part3          one report of three shards\n"
      "  kvfence check engine.kvlog               play a log that an engine recorded\n"
      "  kvfence shrink engine.kvlog -o s.kvlog   a log without all it does not need\n"
      "  kvfence bugs                             what it says to real bugs\n"
      "  kvfence faults                           what can be injected\n"
      "  kvfence explore                          every interleaving of a small world\n"
      "  kvfence plan                             how many tokens of KV cache fit\n"
      "\nEvery verb takes --json. NO_COLOR is honoured.\n" +
      std::string(kExitCodes);
  return text;
}

int Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return kExitClean;
}

int UnknownVerb(const std::string& name) {
  std::vector<std::string_view> names = {"help", "version"};
  for (const Verb* verb : Verbs()) names.push_back(verb->name);
  std::fprintf(stderr, "kvfence: unknown verb '%s'%s (kvfence --help lists them)\n", name.c_str(),
               DidYouMean(name, names).c_str());
  return kExitUsage;
}

int RunNamed(const std::string& name, const std::vector<std::string>& arguments) {
  for (const Verb* verb : Verbs()) {
    if (verb->name != name) continue;
    std::vector<std::string> words;
    bool help = false;
    const int parsed = ParseFlags(*verb, arguments, &words, &help);
    if (parsed != kExitClean) return parsed;
    if (help) return Print(HelpOf(*verb));
    return verb->run(words);
  }
  return UnknownVerb(name);
}

int Dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(Overview().c_str(), stderr);
    return kExitUsage;
  }
  const std::string& name = arguments[0];
  const bool help = name == "--help" || name == "-h" || name == "help";
  if (help && arguments.size() == 1) return Print(Overview());
  if (help) return RunNamed(arguments[1], {"--help"});
  if (name == "--version" || name == "version") return Print("kvfence " KVFENCE_VERSION "\n");
  return RunNamed(name, {arguments.begin() + 1, arguments.end()});
}

// Output that didn't get where it was sent is no success (a full disk, a closed pipe).
int Main(const std::vector<std::string>& arguments) {
  int code = kExitEnvironment;
  try {
    code = Dispatch(arguments);
  } catch (const std::bad_alloc&) {
    return Fail("", kExitEnvironment, "out of memory");
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Fail("", kExitEnvironment, "cannot write to standard output");
  }
  return code;
}

}  // namespace
}  // namespace kvfence::tools

int main(int argc, char** argv) {
  return kvfence::tools::Main(std::vector<std::string>(argv + 1, argv + argc));
}
