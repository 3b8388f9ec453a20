#include "cli.h"

#include <absl/flags/commandlineflag.h>
#include <absl/flags/reflection.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
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

// Insertions, deletions and changes of one character that lead from one to the other.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

// The flag at arguments[*i], and its value if that's the next argument.
int ParseFlag(const Verb& verb, const std::vector<std::string>& arguments, size_t* i) {
  const std::string& argument = arguments[*i];
  const size_t dashes = argument[1] == '-' ? 2 : 1;
  const size_t equals = argument.find('=');
  const bool has_value = equals != std::string::npos;
  const std::string name = argument.substr(dashes, has_value ? equals - dashes : equals);
  std::string value = has_value ? argument.substr(equals + 1) : "";
  absl::CommandLineFlag* flag = Find(verb, name);
  if (flag != nullptr && flag->IsOfType<bool>()) {
    if (!has_value) value = "true";
  } else if (flag != nullptr && !has_value) {
    if (*i + 1 == arguments.size()) {
      return Fail(verb.name, kExitUsage, "--" + name + " needs a value");
    }
    value = arguments[++*i];
  } else if (flag == nullptr && !has_value && name.rfind("no", 0) == 0) {
    flag = Find(verb, name.substr(2));
    if (flag != nullptr && !flag->IsOfType<bool>()) flag = nullptr;
    value = "false";
  }
  if (flag == nullptr) {
    return Fail(verb.name, kExitUsage,
                "unknown flag '--" + name + "'" + DidYouMean(name, verb.flags, "--") +
                    " (see kvfence " + std::string(verb.name) + " --help)");
  }
  std::string error;
  if (flag->ParseFrom(value, &error)) return kExitClean;
  return Fail(verb.name, kExitUsage,
              "--" + name + ": '" + value + "' isn't valid" + (error.empty() ? "" : ": ") + error +
                  " (" + flag->Help() + ")");
}

}  // namespace

int ParseFlags(const Verb& verb, const std::vector<std::string>& arguments,
               std::vector<std::string>* words, bool* help) {
  *help = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      words->insert(words->end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    arguments.end());
      return kExitClean;
    }
    if (argument == "--help" || argument == "-h" || argument == "-help") {
      *help = true;
      return kExitClean;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      words->push_back(argument);
      continue;
    }
    if (const int code = ParseFlag(verb, arguments, &i); code != kExitClean) return code;
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
    std::string left = (name.size() == 1 ? "  -" : "  --") + std::string(name);
    if (!flag->IsOfType<bool>()) left += "=" + flag->DefaultValue();
    if (left.size() < 26) left.resize(26, ' ');
    text += left + "  " + flag->Help() + "\n";
  }
  return text + "\n" + std::string(kExitCodes);
}

std::string DidYouMean(std::string_view typed, const std::vector<std::string_view>& names,
                       std::string_view prefix) {
  std::string_view best;
  size_t least = std::max<size_t>(typed.size() / 2, 2) + 1;
  for (const std::string_view name : names) {
    const bool begun = typed.size() >= 2 && name.substr(0, typed.size()) == typed;
    const size_t distance = begun ? 1 : EditDistance(typed, name);
    if (distance < least) {
      best = name;
      least = distance;
    }
  }
  if (best.empty()) return "";
  return ", did you mean '" + std::string(prefix) + std::string(best) + "'?";
}

bool IsFancy(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fd) != 0 && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

int Fail(std::string_view verb, int code, const std::string& message) {
  std::fprintf(stderr, "kvfence%s%.*s: %s\n", verb.empty() ? "" : " ",
               static_cast<int>(verb.size()), verb.data(), message.c_str());
  return code;
}

}  // namespace kvfence::tools
