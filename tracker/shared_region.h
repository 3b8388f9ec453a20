// A named piece of memory that several processes map: POSIX shared memory, made whole at once.
//
// Idea: one process owns what the memory says (the writer of a ring, the decider of a board); it
// claims the name by a lock that the kernel drops when the process dies, however it dies, so that
// a restarted owner can take the same memory over while readers still map it. All bytes are
// allocated when it is made: a full /dev/shm is a refusal then, not a SIGBUS in some later store.
// The name stays until Remove, also when its owner has gone; mapping outlives both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kvfence/status.h"

namespace kvfence {

class SharedRegion {
 public:
  // Makes `bytes` of zeros under `name` ("/word"), or takes over what is there: its first word,
  // which its owner sets last, says whether it was ever finished. kFailedPrecondition: another
  // process holds the claim; kInvalidArgument: a bad name, or memory of another size is there;
  // kResourceExhausted: no room. The claim is kept until the region is destroyed (a forked child
  // shares it: fork before claiming).
  static Result<SharedRegion> Claim(const std::string& name, uint64_t bytes);
  // Maps [offset, offset + bytes) of what is there; bytes 0: all. Offsets are whole pages.
  static Result<SharedRegion> Map(const std::string& name, bool writable, uint64_t offset = 0,
                                  uint64_t bytes = 0);
  // Takes the name away; who maps the memory keeps it. Not being there is no error.
  static Status Remove(const std::string& name);

  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  void* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  SharedRegion(int fd, void* data, uint64_t bytes) : fd_(fd), data_(data), bytes_(bytes) {}

  int fd_ = -1;  // open only for who holds the claim
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace kvfence
