#include "progress_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "campaign_identity.h"
#include "strict_json.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kSumDigits = 16;
constexpr auto kSyncEvery = std::chrono::seconds(1);
constexpr auto kFlushEvery = std::chrono::milliseconds(200);

std::string SumOf(std::string_view text) {
  char digits[kSumDigits + 1];
  std::snprintf(digits, sizeof(digits), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(text.data(), text.size())));
  return digits;
}

void AppendLine(std::string_view text, std::string* to) {
  *to += SumOf(text);
  *to += ' ';
  *to += text;
  *to += '\n';
}

// The next whole line from `at` on, which is moved behind it; nothing: there's none.
std::optional<std::string_view> NextLine(std::string_view text, size_t* at) {
  const size_t end = text.find('\n', *at);
  if (end == std::string_view::npos || end - *at < kSumDigits + 1) return std::nullopt;
  const std::string_view line = text.substr(*at, end - *at);
  const std::string_view payload = line.substr(kSumDigits + 1);
  if (line[kSumDigits] != ' ' || line.substr(0, kSumDigits) != SumOf(payload)) return std::nullopt;
  *at = end + 1;
  return payload;
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// False: it's none, and nothing was changed.
bool FoldFromLine(std::string_view line, CampaignState* state) {
  try {
    const Json fold = Json::parse(line);
    const uint64_t next = CountOf(fold.at("next"), "next");
    const double seconds = SecondsOf(fold.at("seconds"), "seconds");
    if (!state->fold.FromJson(fold.at("fold")).ok()) return false;
    state->next = next;
    state->seconds = seconds;
    return true;
  } catch (const Json::exception&) {
    return false;
  } catch (const FieldError&) {
    return false;
  }
}

// Are its faults of the campaign's kinds?
bool IsOf(const CampaignPlan& plan, const CampaignRun& run) {
  return std::ranges::all_of(
      run.faults, [&](const FaultResult& fault) { return fault.kind < plan.kinds().size(); });
}

Json IdentityOf(const CampaignPlan& plan) {
  return {
      {"kvfence_campaign", 1}, {"config", ConfigJson(plan.config())}, {"program", ProgramDigest()}};
}

}  // namespace

ProgressJournal::ProgressJournal(std::string path, Json identity)
    : path_(std::move(path)), identity_(std::move(identity)) {}

ProgressJournal::~ProgressJournal() {
  if (fd_ >= 0) close(fd_);
}

Status ProgressJournal::Failed(const char* what) const {
  return Status(StatusCode::kResourceExhausted,
                path_ + ": cannot " + what + ": " + std::strerror(errno));
}

Status ProgressJournal::Lock() {
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return Status();
  return Status(StatusCode::kFailedPrecondition, path_ + ": another run is writing it");
}

Result<std::unique_ptr<ProgressJournal>> ProgressJournal::Open(const std::string& path,
                                                               const CampaignPlan& plan,
                                                               bool resume, CampaignState* state) {
  std::unique_ptr<ProgressJournal> journal(new ProgressJournal(path, IdentityOf(plan)));
  journal->fd_ = open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (journal->fd_ >= 0) {
    if (Status status = journal->Lock(); !status.ok()) return status;
    if (resume) {
      if (Status status = journal->Read(plan, state); !status.ok()) return status;
      return journal;
    }
    std::error_code error;
    std::filesystem::rename(path, path + ".old", error);
    if (error) return journal->Failed("set the old one aside");
  } else if (errno != ENOENT) {
    return journal->Failed("open it");
  }
  if (Status status = journal->Begin(nullptr); !status.ok()) return status;
  return journal;
}

// A new file with the identity and, if given, one fold; in place of the old one, whole or not at
// all.
Status ProgressJournal::Begin(const CampaignState* state) {
  std::string text;
  AppendLine(identity_.dump(), &text);
  if (state != nullptr) {
    const Json fold = {
        {"next", state->next}, {"seconds", state->seconds}, {"fold", state->fold.ToJson(true)}};
    AppendLine(fold.dump(-1, ' ', false, Json::error_handler_t::replace), &text);
  }
  const std::string temporary = path_ + ".tmp";
  const int fd = open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return Failed("make it");
  const bool written = WriteAll(fd, text) && fsync(fd) == 0;
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  if (!written) return Failed("write it");
  if (Status status = Lock(); !status.ok()) return status;
  if (std::rename(temporary.c_str(), path_.c_str()) != 0) return Failed("put it in place");
  size_ = text.size();
  synced_ = flushed_ = std::chrono::steady_clock::now();
  return Status();
}

Status ProgressJournal::Read(const CampaignPlan& plan, CampaignState* state) {
  std::ifstream file(path_, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  const std::string text = std::move(all).str();
  size_t at = 0;
  const auto head = NextLine(text, &at);
  // A journal is renamed into place with its first line: without it, it's somebody else's file.
  const Json identity = head ? Json::parse(*head, nullptr, false) : Json();
  if (!identity.is_object() || !identity.contains("kvfence_campaign")) {
    return Status(StatusCode::kFailedPrecondition, path_ + ": isn't a campaign's journal");
  }
  if (identity.value("kvfence_campaign", Json()) != identity_["kvfence_campaign"] ||
      identity.value("program", Json()) != identity_["program"]) {
    return Status(StatusCode::kFailedPrecondition,
                  path_ +
                      ": was written by another build of the program, which may draw "
                      "otherwise: start anew");
  }
  if (const std::string why =
          DifferenceOf(identity.value("config", Json::object()), identity_["config"]);
      !why.empty()) {
    return Status(StatusCode::kFailedPrecondition, path_ + ": is of another run: its " + why);
  }
  for (size_t end = at;; at = end) {
    const auto line = NextLine(text, &end);
    if (!line) break;
    if (line->substr(0, 7) == "{\"next\"") {
      if (!FoldFromLine(*line, state)) break;
      continue;
    }
    const size_t space = line->find(' ');
    std::optional<CampaignRun> run = RunFromLine(line->substr(space + 1));
    const auto planned = run ? plan.At(run->number) : std::nullopt;
    if (!planned || run->number < state->next || !IsOf(plan, *run)) break;
    state->next = run->number + 1;
    state->seconds = std::strtod(line->data(), nullptr);
    state->fold.Add(*planned, std::move(*run));
  }
  if (ftruncate(fd_, static_cast<off_t>(at)) != 0) return Failed("cut off its end");
  size_ = at;
  return Status();
}

Status ProgressJournal::Append(const CampaignRun& run, const CampaignState& state) {
  char seconds[40];
  std::snprintf(seconds, sizeof(seconds), "%.3f ", state.seconds);
  AppendLine(seconds + ToLine(run), &block_);
  const bool due = std::chrono::steady_clock::now() - flushed_ >= kFlushEvery;
  if (block_.size() < kBlock && !due) return Status();
  if (size_ + block_.size() < kCompactAt) return Flush();
  block_.clear();  // it's in the fold
  return Begin(&state);
}

Status ProgressJournal::Flush() {
  flushed_ = std::chrono::steady_clock::now();
  if (block_.empty()) return Status();
  if (!WriteAll(fd_, block_)) return Failed("write it");
  size_ += block_.size();
  block_.clear();
  if (flushed_ - synced_ >= kSyncEvery) {
    if (fdatasync(fd_) != 0) return Failed("write it");
    synced_ = flushed_;
  }
  return Status();
}

void ProgressJournal::Remove() {
  std::error_code error;
  std::filesystem::remove(path_, error);
}

}  // namespace kvfence
