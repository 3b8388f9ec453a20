#include "cli.h"

#include <absl/flags/commandlineflag.h>
#include <absl/flags/reflection.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace kvfence::tools {
namespace {

bool Takes(const Verb& verb, std::string_view flag) {
  return std::find(verb.flags.begin(), verb.flags.end(), flag) != verb.flags.end();
}

absl::CommandLineFlag* Find(const Verb& verb, std::string_view name) {
  if (!Takes(verb, name)) return nullptr;
  return absl::FindCommandLineFlag(absl::string_view(name.data(), name.size()));
}

// The name nearest to what was typed, for "did you mean".
std::string Nearest(const Verb& verb, std::string_view typed) {
  std::string_view best;
  size_t best_score = 0;
  for (const std::string_view flag : verb.flags) {
    size_t score = 0;
    while (score < flag.size() && score < typed.size() && flag[score] == typed[score]) ++score;
    if (score > best_score) {
      best = flag;
      best_score = score;
    }
  }
  return best_score < 2 ? "" : ", did you mean --" + std::string(best) + "?";
}

}  // namespace

int ParseFlags(const Verb& verb, const std::vector<std::string>& arguments,
               std::vector<std::string>* words, bool* help) {
  *help = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h" || argument == "-help") {
      *help = true;
      return kExitClean;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      words->push_back(argument);
      continue;
    }
    const size_t dashes = argument[1] == '-' ? 2 : 1;
    const size_t equals = argument.find('=');
    std::string name = argument.substr(dashes, equals == std::string::npos ? equals
                                                                             : equals - dashes);
    std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    absl::CommandLineFlag* flag = Find(verb, name);
    bool is_bool = flag != nullptr && flag->IsOfType<bool>();
    if (flag == nullptr && name.rfind("no", 0) == 0 && equals == std::string::npos) {
      flag = Find(verb, name.substr(2));
      is_bool = flag != nullptr && flag->IsOfType<bool>();
      if (!is_bool) flag = nullptr;
      value = "false";
    } else if (is_bool && equals == std::string::npos) {
      value = "true";
    } else if (flag != nullptr && equals == std::string::npos) {
      if (i + 1 == arguments.size()) {
        return Fail(verb.name, kExitUsage, "--" + name + " needs a value");
      }
      value = arguments[++i];
    }
    if (flag == nullptr) {
      return Fail(verb.name, kExitUsage,
                  "unknown flag --" + name + Nearest(verb, name) + " (see kvfence " +
                      std::string(verb.name) + " --help)");
    }
    std::string error;
    if (!flag->ParseFrom(value, &error)) {
      return Fail(verb.name, kExitUsage,
                  "--" + name + ": '" + value + "' isn't valid" + (error.empty() ? "" : ": ") +
                      error + " (" + flag->Help() + ")");
    }
  }
  return kExitClean;
}

std::string HelpOf(const Verb& verb) {
  std::string text = "kvfence " + std::string(verb.name) + " " + std::string(verb.words) +
                     (verb.words.empty() ? "" : " ") + "[flags]\n\n" + std::string(verb.summary) +
                     "\n\n" + std::string(verb.details) + "\nflags:\n";
  for (const std::string_view name : verb.flags) {
    const absl::CommandLineFlag* flag =
        absl::FindCommandLineFlag(absl::string_view(name.data(), name.size()));
    if (flag == nullptr) continue;
    std::string left = "  --" + std::string(name);
    if (!flag->IsOfType<bool>()) left += "=" + flag->DefaultValue();
    if (left.size() < 26) left.resize(26, ' ');
    text += left + "  " + flag->Help() + "\n";
  }
  text += "\nexit codes: 0 clean, 1 finding, 2 usage or unreadable input, 3 environment\n";
  return text;
}

bool IsFancy(int fd) { return isatty(fd) != 0 && std::getenv("NO_COLOR") == nullptr; }

int Fail(std::string_view verb, int code, const std::string& message) {
  std::fprintf(stderr, "kvfence %.*s: %s\n", static_cast<int>(verb.size()), verb.data(),
               message.c_str());
  return code;
}

}  // namespace kvfence::tools
