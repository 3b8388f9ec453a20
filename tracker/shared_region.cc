#include "shared_region.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace kvfence {
namespace {

// A descriptor that closes itself unless it's released.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

Status Refusal(StatusCode code, const std::string& name, const std::string& what, int error) {
  return Status(code, "shared memory " + name + ": " + what + ": " + std::strerror(error));
}

Status CheckName(const std::string& name) {
  const bool good = name.size() >= 2 && name.size() < 250 && name[0] == '/' &&
                    name.find('/', 1) == std::string::npos;
  return good ? Status() : Status::Invalid("shared memory is named \"/word\", not \"" + name + '"');
}

}  // namespace

Result<SharedRegion> SharedRegion::Claim(const std::string& name, uint64_t bytes) {
  if (Status status = CheckName(name); !status.ok()) return status;
  Fd fd(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (fd.get() < 0) return Refusal(StatusCode::kUnavailable, name, "can't be made", errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return Refusal(StatusCode::kFailedPrecondition, name, "another process owns it", errno);
  }
  struct stat found {};
  if (::fstat(fd.get(), &found) != 0) {
    return Refusal(StatusCode::kUnavailable, name, "can't be measured", errno);
  }
  if (found.st_nlink == 0) {
    return Status(StatusCode::kUnavailable, "shared memory " + name + " was removed meanwhile");
  }
  if (found.st_size == 0) {
    const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
    if (error != 0) return Refusal(StatusCode::kResourceExhausted, name, "no room", error);
  } else if (static_cast<uint64_t>(found.st_size) != bytes) {
    return Status::Invalid("shared memory " + name + " has " + std::to_string(found.st_size) +
                           " bytes, not " + std::to_string(bytes) + ": remove it first");
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    return Refusal(StatusCode::kResourceExhausted, name, "can't be mapped", errno);
  }
  return SharedRegion(fd.Release(), data, bytes);
}

Result<SharedRegion> SharedRegion::Map(const std::string& name, bool writable, uint64_t offset,
                                       uint64_t bytes) {
  if (Status status = CheckName(name); !status.ok()) return status;
  const Fd fd(::shm_open(name.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC, 0));
  if (fd.get() < 0) return Refusal(StatusCode::kUnavailable, name, "can't be opened", errno);
  struct stat found {};
  if (::fstat(fd.get(), &found) != 0) {
    return Refusal(StatusCode::kUnavailable, name, "can't be measured", errno);
  }
  const auto size = static_cast<uint64_t>(found.st_size);
  if (bytes == 0 && offset < size) bytes = size - offset;
  if (bytes == 0 || offset > size || bytes > size - offset) {
    return Status(StatusCode::kUnavailable, "shared memory " + name + " isn't made yet");
  }
  const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = ::mmap(nullptr, bytes, access, MAP_SHARED, fd.get(), static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    return Refusal(StatusCode::kResourceExhausted, name, "can't be mapped", errno);
  }
  return SharedRegion(-1, data, bytes);
}

Status SharedRegion::Remove(const std::string& name) {
  if (Status status = CheckName(name); !status.ok()) return status;
  if (::shm_unlink(name.c_str()) == 0 || errno == ENOENT) return {};
  return Refusal(StatusCode::kUnavailable, name, "can't be removed", errno);
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedRegion::~SharedRegion() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace kvfence
