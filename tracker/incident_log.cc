// See the header.
#include "kvfence/incident_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace kvfence {
namespace {

int OpenForAppending(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<IncidentLog>> IncidentLog::Open(IncidentLogOptions options) {
  if (options.max_bytes == 0) return Status::Invalid("max_bytes must be at least 1");
  if (options.waiting == 0) return Status::Invalid("waiting must be at least 1");
  const int fd = OpenForAppending(options.path);
  if (fd < 0) {
    return Status::Invalid(options.path +
                           ": can't be opened for incident records: " + std::strerror(errno));
  }
  struct stat file {};
  const bool known = fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
  const uint64_t bytes = known ? static_cast<uint64_t>(file.st_size) : 0;
  return std::unique_ptr<IncidentLog>(new IncidentLog(std::move(options), fd, bytes));
}

IncidentLog::IncidentLog(IncidentLogOptions options, int fd, uint64_t bytes)
    : options_(std::move(options)), fd_(fd), bytes_(bytes), ring_(options_.waiting) {
  thread_ = std::thread([this] { Run(); });
}

IncidentLog::~IncidentLog() {
  stop_.store(true, std::memory_order_release);
  wake_.fetch_add(1, std::memory_order_release);
  wake_.notify_one();
  thread_.join();
  if (fd_ >= 0) close(fd_);
}

void IncidentLog::Lose() {
  lost_.fetch_add(1, std::memory_order_relaxed);
  if (options_.on_lost) options_.on_lost();
}

void IncidentLog::Add(std::string line) {
  const uint64_t added = added_.load(std::memory_order_relaxed);
  if (added - taken_.load(std::memory_order_acquire) == ring_.size()) {
    Lose();
    return;
  }
  ring_[added % ring_.size()] = std::move(line);
  added_.store(added + 1, std::memory_order_release);
  wake_.fetch_add(1, std::memory_order_release);
  wake_.notify_one();
}

void IncidentLog::Flush() {
  const uint64_t added = added_.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t taken = taken_.load(std::memory_order_acquire);
    if (taken >= added) return;
    taken_.wait(taken, std::memory_order_acquire);
  }
}

void IncidentLog::Run() {
  for (;;) {
    const uint32_t wake = wake_.load(std::memory_order_acquire);
    const uint64_t taken = taken_.load(std::memory_order_relaxed);
    if (taken != added_.load(std::memory_order_acquire)) {
      Write(std::move(ring_[taken % ring_.size()]));
      taken_.store(taken + 1, std::memory_order_release);
      taken_.notify_all();
    } else if (stop_.load(std::memory_order_acquire)) {
      return;
    } else {
      wake_.wait(wake, std::memory_order_acquire);
    }
  }
}

void IncidentLog::Write(std::string line) {
  line += '\n';
  if (bytes_ > 0 && bytes_ + line.size() > options_.max_bytes) Rotate();
  // After an error (a full disk) the next line tries again; what the failed one left is cut off.
  if (fd_ < 0) fd_ = OpenForAppending(options_.path);
  if (fd_ < 0 || !WriteAll(fd_, line.data(), line.size())) {
    if (fd_ >= 0 && ftruncate(fd_, static_cast<off_t>(bytes_)) != 0) bytes_ = 0;  // not a file
    Lose();
    return;
  }
  bytes_ += line.size();
  written_.fetch_add(1, std::memory_order_relaxed);
}

void IncidentLog::Rotate() {
  const auto name = [&](uint32_t age) {
    return age == 0 ? options_.path : options_.path + "." + std::to_string(age);
  };
  if (options_.kept == 0) {
    std::remove(options_.path.c_str());
  }
  for (uint32_t age = options_.kept; age > 0; --age) {
    std::rename(name(age - 1).c_str(), name(age).c_str());  // one that isn't there: nothing to do
  }
  if (fd_ >= 0) close(fd_);
  fd_ = OpenForAppending(options_.path);
  bytes_ = 0;
}

}  // namespace kvfence
