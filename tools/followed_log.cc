#include "followed_log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace kvfence::tools {
namespace {

constexpr int kLookEveryMs = 50;  // files on any file system, also where nobody tells of changes

}  // namespace

Result<std::unique_ptr<FollowedLog>> FollowedLog::Open(const std::string& path,
                                                       const std::atomic<bool>& stop) {
  const bool standard_input = path == "-";
  const int fd = standard_input ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat is {};
  if (fd < 0 || fstat(fd, &is) != 0) {
    const int why = errno;
    if (fd >= 0) close(fd);
    return Status(StatusCode::kUnavailable, path + ": " + std::strerror(why));
  }
  if (S_ISDIR(is.st_mode)) {
    close(fd);
    return Status(StatusCode::kUnavailable, path + ": is a folder");
  }
  return std::unique_ptr<FollowedLog>(new FollowedLog(fd, path, S_ISREG(is.st_mode), stop));
}

FollowedLog::~FollowedLog() { close(fd_); }

std::streamsize FollowedLog::Bytes::xsgetn(char* to, std::streamsize n) {
  pollfd wait{log_->fd_, POLLIN, 0};
  while (!log_->is_file_ && poll(&wait, 1, kLookEveryMs) <= 0) {
    if (log_->stop_) return 0;
  }
  const ssize_t got = ::read(log_->fd_, to, static_cast<size_t>(n));
  if (got < 0) {
    if (errno != EINTR) log_->trouble_ = log_->path_ + ": " + std::strerror(errno);
    return 0;
  }
  log_->ended_ = got == 0;
  log_->read_ += got;
  return got;
}

int64_t FollowedLog::Ahead() {
  struct stat now {};
  if (fstat(fd_, &now) == 0) return static_cast<int64_t>(now.st_size) - read_;
  trouble_ = path_ + ": " + std::strerror(errno);
  return 0;
}

bool FollowedLog::SameName() const {
  struct stat open_file {
  }, named{};
  if (path_ == "-") return true;
  return fstat(fd_, &open_file) == 0 && stat(path_.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

bool FollowedLog::More() {
  while (trouble_.empty() && !stop_) {
    if (!is_file_) return !ended_;  // the stream itself waits
    const bool same = SameName();
    const int64_t ahead = Ahead();  // asked after: all that was written under this name counts
    if (ahead > 0) return true;
    if (ahead < 0) {
      trouble_ = path_ + ": was truncated while it was followed";
    } else if (!same) {
      trouble_ = path_ + ": was moved, removed or replaced while it was followed";
    } else {
      poll(nullptr, 0, kLookEveryMs);
    }
  }
  return false;
}

}  // namespace kvfence::tools
