// kvfence: the command line. Dispatches to a verb; knows none of them but by name.
#include <cstdio>
#include <string>
#include <vector>

#include "cli.h"

namespace kvfence::tools {
namespace {

const std::vector<const Verb*>& Verbs() {
  static const std::vector<const Verb*> kVerbs = {&RunVerb(), &CheckVerb(), &FaultsVerb()};
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
      "  kvfence check engine.kvlog               play a log that an engine recorded\n"
      "  kvfence faults                           what can be injected\n"
      "\nexit codes: 0 clean, 1 finding, 2 usage or unreadable input, 3 environment\n";
  return text;
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(Overview().c_str(), stderr);
    return kExitUsage;
  }
  const std::string& name = arguments[0];
  if (name == "--help" || name == "-h" || name == "help") {
    std::fputs(Overview().c_str(), stdout);
    return kExitClean;
  }
  if (name == "--version" || name == "version") {
    std::puts("kvfence " KVFENCE_VERSION);
    return kExitClean;
  }
  for (const Verb* verb : Verbs()) {
    if (verb->name != name) continue;
    std::vector<std::string> words;
    bool help = false;
    const int parsed =
        ParseFlags(*verb, {arguments.begin() + 1, arguments.end()}, &words, &help);
    if (parsed != kExitClean) return parsed;
    if (help) {
      std::fputs(HelpOf(*verb).c_str(), stdout);
      return kExitClean;
    }
    return verb->run(words);
  }
  return Fail(name, kExitUsage, "unknown verb (kvfence --help lists them)");
}

}  // namespace
}  // namespace kvfence::tools

int main(int argc, char** argv) {
  return kvfence::tools::Main(std::vector<std::string>(argv + 1, argv + argc));
}
