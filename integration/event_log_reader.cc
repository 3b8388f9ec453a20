// Lines out of chunks, and errors with their place; see the header. What a line says is
// line_parser's.
#include "kvfence/event_log_reader.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "line_parser.h"

namespace kvfence {
namespace {

// Cuts a stream into lines with one buffer, which grows only to hold the longest line.
class LineSource {
 public:
  enum class Line { kWhole, kUnended, kNone, kTooLong, kUnreadable };

  LineSource(std::istream* in, const EventLogReaderOptions& options)
      : in_(in), options_(options), buffer_(size_t{1} << 16) {}

  // kUnended: the last line has no newline. The line lives until the next call.
  Line Next(std::string_view* line) {
    size_t looked = begin_;
    for (;;) {
      const void* newline = std::memchr(buffer_.data() + looked, '\n', end_ - looked);
      if (newline != nullptr) {
        const auto stop = static_cast<size_t>(static_cast<const char*>(newline) - buffer_.data());
        *line = std::string_view(buffer_.data() + begin_, stop - begin_);
        begin_ = stop + 1;
        return line->size() > options_.max_line ? Line::kTooLong : Line::kWhole;
      }
      const size_t held = end_ - begin_;
      if (held > options_.max_line) return Line::kTooLong;
      const bool more = Fill();
      looked = begin_ + held;
      if (more) continue;
      if (in_->bad()) return Line::kUnreadable;
      *line = std::string_view(buffer_.data() + begin_, held);
      begin_ = end_;
      return held == 0 ? Line::kNone : Line::kUnended;
    }
  }

 private:
  bool Fill() {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (end_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);
    for (;;) {
      in_->read(buffer_.data() + end_, static_cast<std::streamsize>(buffer_.size() - end_));
      const auto got = static_cast<size_t>(in_->gcount());
      end_ += got;
      if (got > 0) return true;
      if (in_->bad() || !options_.more || !options_.more()) return false;
      in_->clear();
    }
  }

  std::istream* in_;
  const EventLogReaderOptions& options_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
};

bool Blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

struct EventLogReader::Rep {
  Rep(std::istream* in, std::string name_in, EventLogReaderOptions options_in)
      : name(std::move(name_in)), options(std::move(options_in)), source(in, options) {}

  Status Error(size_t offset, const std::string& expected) {
    failure =
        name + ':' + std::to_string(line) + ':' + std::to_string(offset + 1) + ": " + expected;
    return Status::Invalid(*failure);
  }
  Status Refused(const LineError& error, bool unended) {
    cut_off = unended && error.ran_out;
    if (!cut_off) return Error(error.offset, error.expected);
    return Error(error.offset, error.expected + "; the log is cut off here");
  }
  // The next line that isn't blank; `*found` is false at the end.
  Status NextLine(std::string_view* text, bool* found, bool* unended) {
    for (;;) {
      ++line;
      const LineSource::Line got = source.Next(text);
      *found = got != LineSource::Line::kNone;
      *unended = got == LineSource::Line::kUnended;
      if (!*found) return Status();
      if (got == LineSource::Line::kUnreadable) return Error(0, "expected a file that can be read");
      if (got == LineSource::Line::kTooLong) {
        return Error(options.max_line,
                     "expected a line of at most " + std::to_string(options.max_line) + " bytes");
      }
      if (!Blank(*text)) return Status();
    }
  }

  std::string name;
  EventLogReaderOptions options;
  LineSource source;
  std::unique_ptr<std::ifstream> file;
  std::optional<LineParser> parser;
  uint64_t line = 0;
  bool cut_off = false;
  std::optional<std::string> failure;
};

EventLogReader::EventLogReader(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
EventLogReader::~EventLogReader() = default;

Result<std::unique_ptr<EventLogReader>> EventLogReader::Open(const std::string& path,
                                                             EventLogReaderOptions options) {
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (!file->is_open()) {
    return Status(StatusCode::kUnavailable, path + ": " + std::strerror(errno));
  }
  std::istream* const in = file.get();
  auto reader = FromStream(in, path, std::move(options));
  if (reader.ok()) reader.value()->rep_->file = std::move(file);
  return reader;
}

Result<std::unique_ptr<EventLogReader>> EventLogReader::FromStream(std::istream* in,
                                                                   std::string name,
                                                                   EventLogReaderOptions options) {
  auto rep = std::make_unique<Rep>(in, std::move(name), std::move(options));
  std::string_view text;
  bool found = false, unended = false;
  Status status = rep->NextLine(&text, &found, &unended);
  if (!status.ok()) return status;
  if (!found) {
    rep->line = 1;
    return rep->Error(0, "expected the header of a log, found an empty file");
  }
  FenceConfig config;
  LineError error;
  if (!ParseHeader(text, &config, &error)) return rep->Refused(error, unended);
  rep->parser.emplace(std::move(config));
  return std::unique_ptr<EventLogReader>(new EventLogReader(std::move(rep)));
}

const FenceConfig& EventLogReader::config() const { return rep_->parser->config(); }
const std::string& EventLogReader::name() const { return rep_->name; }
bool EventLogReader::cut_off() const { return rep_->cut_off; }

std::string EventLogReader::Where() const { return rep_->name + ':' + std::to_string(rep_->line); }

Result<bool> EventLogReader::Next(NameIntern* names, LogRecord* record) {
  if (rep_->failure) return Status::Invalid(*rep_->failure);
  std::string_view text;
  bool found = false, unended = false;
  Status status = rep_->NextLine(&text, &found, &unended);
  if (!status.ok()) return status;
  if (!found) return false;
  record->line = rep_->line;
  if (rep_->parser->Parse(text, names, &record->event)) return true;
  return rep_->Refused(rep_->parser->error(), unended);
}

}  // namespace kvfence
