// What a campaign has done so far, kept in a file so that it can go on after being killed.
//
// One line each: sixteen hex digits of checksum, a space, JSON. The first says what campaign it is;
// a second may hold a fold of all runs so far; then one line per run, in the order of their
// numbers. Lines are appended in blocks, each by one write. When the file has grown large it's
// written anew beside itself, with one fold in place of the runs, and renamed. Invariant: I-121,
// what is read back is a prefix of the campaign: reading ends at the first line that isn't whole.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "campaign_fold.h"
#include "campaign_plan.h"

namespace kvfence {

// Where a campaign stands.
struct CampaignState {
  CampaignFold fold;
  uint64_t next = 1;   // number of the first run that isn't folded
  double seconds = 0;  // of all sittings
};

class ProgressJournal {
 public:
  // With `resume`, what `path` holds is read into `state`, and the rest of it is cut off; else, or
  // where nothing is, it begins anew (what was there is kept as PATH.old). Refuses a journal of
  // another campaign or program, and one that another process has open.
  static Result<std::unique_ptr<ProgressJournal>> Open(const std::string& path,
                                                       const CampaignPlan& plan, bool resume,
                                                       CampaignState* state);
  ~ProgressJournal();
  ProgressJournal(const ProgressJournal&) = delete;
  ProgressJournal& operator=(const ProgressJournal&) = delete;

  // `run` has just been folded into `state`. Written soon; see Flush.
  Status Append(const CampaignRun& run, const CampaignState& state);
  // What was appended is in the file when this returns, and on the disk at least once a second.
  Status Flush();
  // The campaign is over.
  void Remove();

 private:
  ProgressJournal(std::string path, nlohmann::ordered_json identity);
  Status Begin(const CampaignState* state);
  Status Read(const CampaignPlan& plan, CampaignState* state);
  Status Lock();
  Status Failed(const char* what) const;

  static constexpr size_t kBlock = size_t{1} << 16;
  static constexpr uint64_t kCompactAt = uint64_t{1} << 22;

  std::string path_;
  nlohmann::ordered_json identity_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::string block_;
  std::chrono::steady_clock::time_point synced_{}, flushed_{};
};

}  // namespace kvfence
