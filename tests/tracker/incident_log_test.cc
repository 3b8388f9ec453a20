// Incident records on disk: whole lines in order, rotated; a slow or full disk costs records, never
// time (I-13).
#include "kvfence/incident_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace kvfence {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class IncidentLogTest : public ::testing::Test {
 protected:
  IncidentLogTest() {
    folder_ = ::testing::TempDir() + "kvfence_incidents_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~IncidentLogTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name = "incidents.jsonl") const {
    return folder_ + "/" + name;
  }
  std::vector<std::string> Lines(const std::string& name = "incidents.jsonl") const {
    std::vector<std::string> lines;
    std::ifstream in(Path(name));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  static std::unique_ptr<IncidentLog> Open(IncidentLogOptions options) {
    auto log = IncidentLog::Open(std::move(options));
    EXPECT_TRUE(log.ok()) << log.status().message();
    return std::move(log).value();
  }

 private:
  std::string folder_;
};

TEST_F(IncidentLogTest, LinesAreWholeAndInOrderOverFiles) {
  const auto log = Open({.path = Path(), .max_bytes = 13, .kept = 2});
  for (const char* line : {"one 1", "two 2", "three 3", "four 4", "five 5", "six 6"})
    log->Add(line);
  log->Flush();
  EXPECT_EQ(log->written(), 6u);
  EXPECT_EQ(log->lost(), 0u);
  EXPECT_THAT(Lines("incidents.jsonl.2"), ElementsAre("three 3"));
  EXPECT_THAT(Lines("incidents.jsonl.1"), ElementsAre("four 4"));
  EXPECT_THAT(Lines(), ElementsAre("five 5", "six 6"));
}

TEST_F(IncidentLogTest, AppendsToWhatIsThereAndRotatesItToo) {
  Open({.path = Path()})->Add("before");
  { Open({.path = Path()})->Add("after"); }
  EXPECT_THAT(Lines(), ElementsAre("before", "after"));
  Open({.path = Path(), .max_bytes = 14, .kept = 1})->Add("third");
  EXPECT_THAT(Lines("incidents.jsonl.1"), ElementsAre("before", "after"));
  EXPECT_THAT(Lines(), ElementsAre("third"));
}

TEST_F(IncidentLogTest, WithoutOlderFilesTheNewestLinesStay) {
  const auto log = Open({.path = Path(), .max_bytes = 6, .kept = 0});
  for (const char* line : {"aaaa", "bbbb", "cccc"}) log->Add(line);
  log->Flush();
  EXPECT_THAT(Lines(), ElementsAre("cccc"));
  EXPECT_FALSE(std::filesystem::exists(Path("incidents.jsonl.1")));
}

// A pipe that nobody reads stands for a disk that has stalled.
TEST_F(IncidentLogTest, AStalledDiskCostsRecordsNotTime) {
  const std::string pipe = Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_GE(fcntl(reader, F_SETPIPE_SZ, 4096), 4096);
  int told = 0;  // by Add alone: the other thread writes, it doesn't lose
  auto log = Open({.path = pipe, .waiting = 4, .on_lost = [&] { ++told; }});
  const std::string big(16384, 'x');
  for (int i = 0; i < 100; ++i) log->Add(big);  // a wait here would never end
  EXPECT_GE(log->lost(), 95u);
  EXPECT_EQ(static_cast<uint64_t>(told), log->lost());
  const uint64_t added = 100 - log->lost();
  std::string buffer(65536, '\0');
  for (uint64_t left = added * (big.size() + 1); left > 0;) {
    const ssize_t n = read(reader, buffer.data(), buffer.size());
    ASSERT_GT(n, 0);
    left -= static_cast<uint64_t>(n);
  }
  log->Flush();
  EXPECT_EQ(log->written(), added);
  log.reset();
  close(reader);
}

TEST_F(IncidentLogTest, AFullDiskIsCounted) {
  const auto log = Open({.path = "/dev/full"});
  log->Add("one");
  log->Add("two");
  log->Flush();
  EXPECT_EQ(log->written(), 0u);
  EXPECT_EQ(log->lost(), 2u);
}

TEST_F(IncidentLogTest, RefusesWhatCannotBeOpened) {
  const auto log = IncidentLog::Open({.path = Path("absent/file")});
  ASSERT_FALSE(log.ok());
  EXPECT_THAT(log.status().message(), HasSubstr(Path("absent/file")));
  EXPECT_FALSE(IncidentLog::Open({.path = Path(), .max_bytes = 0}).ok());
  EXPECT_FALSE(IncidentLog::Open({.path = Path(), .waiting = 0}).ok());
}

}  // namespace
}  // namespace kvfence
