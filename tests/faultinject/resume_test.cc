// Campaigns that are killed and go on: the journal, and what becomes of a damaged one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "kvfence/campaign.h"
#include "kvfence/rng.h"
#include "tests/faultinject/campaign_kit.h"

namespace kvfence {
namespace {

using testing::Folder, testing::MustRun, testing::Small, testing::Timeless, testing::Why;
using ::testing::HasSubstr;

CampaignConfig Config() { return Small(9, 120, {"row_swap", "double_free", "skipped_write"}); }

std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
void WriteAll(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A process that does the campaign, killed at the `moments`-th thing that happens in a run. True:
// it ended by itself, and left its report.
bool RunAndKill(const Folder& folder, uint64_t jobs, uint64_t moments) {
  const pid_t pid = fork();
  if (pid == 0) {
    CampaignHooks hooks;
    hooks.jobs = jobs;
    hooks.journal = folder / "journal";
    hooks.resume = true;
    const auto count = [&] {
      if (moments-- == 0) std::raise(SIGKILL);
    };
    if (jobs == 0) {
      hooks.in_run = [&](uint64_t, bool) { count(); };
    } else {
      hooks.on_outcome = [&](const std::string&, Outcome) { count(); };
    }
    Result<CampaignReport> report = RunCampaign(Config(), hooks);
    if (!report.ok()) _exit(1);
    WriteAll(folder / "report", ToJson(*report));
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << ReadAll(folder / "journal");
  return WIFEXITED(status);
}

TEST(Resume, AfterBeingKilledAnywhereTheReportIsTheSame) {  // I-121
  const std::string whole = Timeless(MustRun(Config()));
  Rng rng(2026);
  for (uint64_t i = 0; i < 6; ++i) {
    const Folder folder("resume_killed");
    uint64_t sittings = 1;
    for (uint64_t most = 30; !RunAndKill(folder, i % 3, rng.Below(most)); most += 30) ++sittings;
    EXPECT_EQ(Timeless(ReadAll(folder / "report")), whole) << "kill no. " << i;
    EXPECT_FALSE(std::filesystem::exists(folder / "journal"));
    if (i == 0) {
      EXPECT_GT(sittings, 1u);
    }
  }
}

// A journal of about half the campaign.
std::string HalfAJournal(const Folder& folder) {
  std::atomic<bool> stop{false};
  uint64_t outcomes = 0;
  CampaignHooks hooks;
  hooks.journal = folder / "journal";
  hooks.stop = &stop;
  hooks.on_outcome = [&](const std::string&, Outcome) { stop = ++outcomes >= 10; };
  const CampaignReport report = MustRun(Config(), hooks);
  EXPECT_TRUE(report.partial);
  return ReadAll(folder / "journal");
}

TEST(Resume, ADamagedJournalLosesOnlyWhatFollowsTheDamage) {  // I-121
  const Folder folder("resume_damaged");
  const std::string whole = Timeless(MustRun(Config()));
  const std::string journal = HalfAJournal(folder);
  const size_t head = journal.find('\n') + 1;
  ASSERT_GT(journal.size(), head + 1000);
  Rng rng(7);
  for (int i = 0; i < 6; ++i) {
    std::string damaged = journal;
    const size_t at = head + rng.Below(journal.size() - head);
    if (i % 2 == 0) {
      damaged.resize(at);
    } else {
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << rng.Below(7));
    }
    WriteAll(folder / "journal", damaged);
    CampaignHooks hooks;
    hooks.journal = folder / "journal";
    hooks.resume = true;
    EXPECT_EQ(Timeless(MustRun(Config(), hooks)), whole) << "damage at " << at;
  }
}

TEST(Resume, DoesOnlyWhatIsLeft) {
  const Folder folder("resume_left");
  HalfAJournal(folder);
  uint64_t first = 0;
  CampaignHooks hooks;
  hooks.journal = folder / "journal";
  hooks.resume = true;
  hooks.in_run = [&](uint64_t run, bool) { first = first == 0 ? run : first; };
  double fraction = 0;
  hooks.progress = [&](const CampaignProgress& p) {
    if (fraction == 0) fraction = p.fraction;
  };
  MustRun(Config(), hooks);
  EXPECT_GT(first, 2u) << "the no-fault run, and one with faults at least, were done";
  EXPECT_GT(fraction, 0.2);
}

TEST(Resume, WithoutItTheOldJournalIsSetAside) {
  const Folder folder("resume_aside");
  const std::string journal = HalfAJournal(folder);
  CampaignHooks hooks;
  hooks.journal = folder / "journal";
  uint64_t first = 0;
  hooks.in_run = [&](uint64_t run, bool) { first = first == 0 ? run : first; };
  EXPECT_FALSE(MustRun(Config(), hooks).partial);
  EXPECT_EQ(first, 1u);
  EXPECT_EQ(ReadAll(folder / "journal.old"), journal);
}

TEST(Resume, RefusesWhatIsNotThisCampaignsJournal) {
  const Folder folder("resume_refused");
  const std::string journal = HalfAJournal(folder);
  CampaignHooks hooks;
  hooks.journal = folder / "journal";
  hooks.resume = true;
  const auto refusal = [&](const CampaignConfig& config) {
    Result<CampaignReport> report = RunCampaign(config, hooks);
    return report.ok() ? "accepted" : report.status().message();
  };
  CampaignConfig other = Config();
  other.seed = 10;
  EXPECT_THAT(refusal(other), HasSubstr("is of another run: its seed is 9, not 10"));
  other = Config();
  other.faults = {"all"};
  EXPECT_THAT(refusal(other), HasSubstr("its faults is "));
  EXPECT_EQ(ReadAll(folder / "journal"), journal);
  WriteAll(folder / "journal", "{}\n");
  EXPECT_THAT(refusal(Config()), HasSubstr("isn't a campaign's journal"));
  EXPECT_EQ(ReadAll(folder / "journal"), "{}\n");
  hooks.journal = "/proc/no/such/journal";
  EXPECT_THAT(refusal(Config()), HasSubstr("cannot"));
}

TEST(Resume, OneAtATime) {
  const Folder folder("resume_locked");
  CampaignHooks hooks;
  hooks.journal = folder / "journal";
  std::string inner;
  hooks.on_outcome = [&](const std::string&, Outcome) {
    if (!inner.empty()) return;
    CampaignHooks second;
    second.journal = hooks.journal;
    second.resume = true;
    Result<CampaignReport> report = RunCampaign(Config(), second);
    inner = report.ok() ? "accepted" : report.status().message();
  };
  MustRun(Config(), hooks);
  EXPECT_THAT(inner, HasSubstr("another run is writing it"));
}

}  // namespace
}  // namespace kvfence
