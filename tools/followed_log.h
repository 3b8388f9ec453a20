// A log that is still being written, as a stream: at its end it waits for more.
//
// Only bytes are waited for; that a line is whole is the reader's business. Invariant: bytes come
// in the order of the file, each once; a file that shrinks, or whose name goes to another file,
// ends the stream and says so, since what was read is then no beginning of what stands there.
#pragma once

#include <atomic>
#include <cstdint>
#include <istream>
#include <memory>
#include <streambuf>
#include <string>

#include "kvfence/status.h"

namespace kvfence::tools {

class FollowedLog {
 public:
  // "-": standard input. `stop`: ends the waiting, must outlive this. kUnavailable: can't be
  // opened.
  static Result<std::unique_ptr<FollowedLog>> Open(const std::string& path,
                                                   const std::atomic<bool>& stop);
  ~FollowedLog();
  FollowedLog(const FollowedLog&) = delete;
  FollowedLog& operator=(const FollowedLog&) = delete;

  std::istream* stream() { return &stream_; }
  // To be asked at the stream's end: waits until there's more (true), or until there will be none:
  // stopped, a pipe whose writer has gone, or trouble.
  bool More();
  // Why it can't be followed any further, one line; empty: it was stopped, or the pipe has ended.
  const std::string& trouble() const { return trouble_; }

 private:
  class Bytes : public std::streambuf {
   public:
    explicit Bytes(FollowedLog* log) : log_(log) {}

   protected:
    // What is there now, at most n bytes.
    std::streamsize xsgetn(char* to, std::streamsize n) override;

   private:
    FollowedLog* log_;
  };

  FollowedLog(int fd, std::string path, bool is_file, const std::atomic<bool>& stop)
      : fd_(fd), path_(std::move(path)), is_file_(is_file), stop_(stop) {}
  // Bytes behind what was read; negative: fewer than were read. Sets trouble if it can't be told.
  int64_t Ahead();
  bool SameName() const;

  const int fd_;
  const std::string path_;
  const bool is_file_;
  const std::atomic<bool>& stop_;
  int64_t read_ = 0;    // bytes
  bool ended_ = false;  // the last read found nothing
  std::string trouble_;
  Bytes bytes_{this};
  std::istream stream_{&bytes_};
};

}  // namespace kvfence::tools
