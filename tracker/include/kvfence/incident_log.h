// Incident records on disk: JSON lines, rotated, written by a thread of their own.
//
// Idea: the thread that calls the fence hands a finished line over through a ring of fixed size and
// goes on; where the ring is full the line is lost and counted. Nothing asks this log for a
// decision (I-16), nothing waits for a disk (I-13). Invariant: a line is whole and in one file, and
// lines keep their order.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kvfence/status.h"

namespace kvfence {

struct IncidentLogOptions {
  std::string path;
  uint64_t max_bytes = uint64_t{64} << 20;  // the file is rotated before it grows beyond
  uint32_t kept = 4;                        // older files, PATH.1 the youngest; 0: none
  size_t waiting = 4096;                    // lines that may wait for the disk
  std::function<void()> on_lost{};          // for a counter; on either thread, must not block
};

class IncidentLog {
 public:
  // Appends to the file. A Status: it can't be opened, or an option is 0 that mustn't be.
  static Result<std::unique_ptr<IncidentLog>> Open(IncidentLogOptions options);
  ~IncidentLog();  // writes what waits
  IncidentLog(const IncidentLog&) = delete;
  IncidentLog& operator=(const IncidentLog&) = delete;

  // One record, without a newline. Never waits. From one thread at a time.
  void Add(std::string line);
  // Waits until what was added so far is written or lost.
  void Flush();

  uint64_t written() const { return written_.load(std::memory_order_relaxed); }
  // For want of room in the ring or on the disk.
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  IncidentLog(IncidentLogOptions options, int fd, uint64_t bytes);
  void Run();
  void Write(std::string line);
  void Rotate();
  void Lose();

  const IncidentLogOptions options_;
  int fd_;          // of the writing thread from here on; below 0: the file couldn't be reopened
  uint64_t bytes_;  // in the file
  std::vector<std::string> ring_;
  std::atomic<uint64_t> added_{0}, taken_{0};  // lines, ever; the difference waits in the ring
  std::atomic<uint32_t> wake_{0};              // grows when there's something to do
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> written_{0}, lost_{0};
  std::thread thread_;
};

}  // namespace kvfence
