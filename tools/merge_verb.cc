// `kvfence merge`: one report of all shards.
#include <absl/flags/declare.h>
#include <absl/flags/flag.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "atomic_file.h"
#include "cli.h"
#include "finish_report.h"
#include "kvfence/campaign.h"
#include "run_config.h"

ABSL_DECLARE_FLAG(std::string, out);

namespace kvfence::tools {
namespace {

// A folder stands for the report in it.
std::string FileOf(const std::string& word) {
  std::error_code error;
  return std::filesystem::is_directory(word, error) ? word + "/report.json" : word;
}

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  if (in) text << in.rdbuf();
  if (!in) return Status(StatusCode::kUnavailable, path + ": cannot be read");
  return std::move(text).str();
}

// Logs that the report names come along; whole ones stand beside their smallest.
void CopyLogs(const CampaignReport& report, const std::vector<std::string>& files,
              const std::string& out) {
  constexpr std::string_view kSmall = ".min.kvlog";
  for (const IncidentStory& story : report.stories) {
    if (story.log.empty()) continue;
    std::vector<std::string> names = {story.log};
    if (story.log.ends_with(kSmall)) {
      names.push_back(story.log.substr(0, story.log.size() - kSmall.size()) + ".kvlog");
    }
    for (const std::string& name : names) {
      for (const std::string& file : files) {
        const auto from = std::filesystem::path(file).parent_path() / name;
        std::error_code error;
        if (!std::filesystem::exists(from, error)) continue;
        std::filesystem::copy_file(from, std::filesystem::path(out) / name,
                                   std::filesystem::copy_options::overwrite_existing, error);
        if (error) std::fprintf(stderr, "%s: %s\n", from.c_str(), error.message().c_str());
        break;
      }
    }
  }
}

// Would the joined report take the place of this one?
bool Overwrites(const std::string& out, const std::string& file) {
  for (const char* name : {"report.json", "report.html"}) {
    std::error_code error;
    if (std::filesystem::equivalent(std::filesystem::path(out) / name, file, error)) return true;
  }
  return false;
}

int Merge(const std::vector<std::string>& words) {
  if (words.empty()) return Fail("merge", kExitUsage, "name the shards' reports or folders");
  const std::string out = absl::GetFlag(FLAGS_out);
  if (out.empty()) return Fail("merge", kExitUsage, "--out must name a folder");
  std::vector<std::string> files, texts;
  for (const std::string& word : words) {
    files.push_back(FileOf(word));
    Result<std::string> text = ReadFile(files.back());
    if (!text.ok()) return Fail("merge", kExitUsage, text.status().message());
    texts.push_back(std::move(*text));
    if (Overwrites(out, files.back())) {
      return Fail("merge", kExitUsage,
                  "--out=" + out + " would overwrite " + files.back() +
                      ", one of the reports to be joined: name another folder");
    }
  }
  Result<CampaignReport> report = MergeShards(texts, files);
  if (!report.ok()) return Fail("merge", kExitUsage, report.status().message());
  if (Status status = PrepareFolder(out); !status.ok()) {
    return Fail("merge", kExitEnvironment, status.message());
  }
  report->config.log_dir = out;
  CopyLogs(*report, files, out);
  return FinishReport("merge", out, *report, CommandOf(report->config));
}

}  // namespace

const Verb& MergeVerb() {
  static const Verb kVerb = {
      "merge",
      "REPORT...",
      "joins the reports of shards into the report of the whole run",
      "Each REPORT is the report.json of a `kvfence run --shard=K/N`, or its folder; all N are\n"
      "needed, in any order, made by the same program with the same flags. The joined report is\n"
      "what the run would have given unsharded, byte for byte but for `seconds`, which add up.\n\n"
      "examples:\n"
      "  kvfence merge part1 part2 --out=whole\n"
      "  kvfence merge part*/report.json --json\n",
      {"out", "json"},
      Merge};
  return kVerb;
}

}  // namespace kvfence::tools
