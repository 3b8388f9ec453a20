// Lines into a buffer, the buffer into a file; see the header.
#include "kvfence/event_log_writer.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "log_format.h"
#include "step_record.h"

namespace kvfence {
namespace {

constexpr size_t kBuffer = size_t{1} << 16;

}  // namespace

struct EventLogWriter::Rep {
  Rep(const FenceConfig& config_in, const NameLookup* names, EventLogWriterOptions options)
      : config(config_in), format{&config, names, std::move(options.latest)} {}
  ~Rep() {
    if (file != nullptr) {
      Drain();
      std::fclose(file);
    }
  }

  void Fail(const std::string& what) {
    if (!status.ok()) return;
    status = Status(StatusCode::kUnavailable, what + ' ' + path + ": " + std::strerror(errno));
  }
  void Line(const LogEvent& event) {
    if (!status.ok()) return;
    AppendRecord(format, event, &buffer);
    buffer += '\n';
    if (buffer.size() >= kBuffer) Drain();
  }
  void Drain() {
    if (status.ok() && !buffer.empty()) {
      errno = 0;
      if (file != nullptr) {
        const bool good = std::fwrite(buffer.data(), 1, buffer.size(), file) == buffer.size();
        if (!good || std::fflush(file) != 0) Fail("cannot write");
      } else if (!out->write(buffer.data(), static_cast<std::streamsize>(buffer.size())).flush()) {
        Fail("cannot write");
      }
    }
    buffer.clear();
  }

  FenceConfig config;
  LogFormat format;
  std::string path = "the stream";
  std::FILE* file = nullptr;  // under the temporary name
  std::ostream* out = nullptr;
  std::string buffer;
  Status status;
  // Steps between Step and Confirm, by rank and number.
  std::map<std::pair<uint32_t, uint64_t>, std::unique_ptr<RecordedStep>> open_steps;
};

EventLogWriter::EventLogWriter(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
EventLogWriter::~EventLogWriter() = default;

Result<std::unique_ptr<EventLogWriter>> EventLogWriter::Open(const std::string& path,
                                                             const FenceConfig& config,
                                                             const NameLookup* names,
                                                             EventLogWriterOptions options) {
  if (config.level == Level::kOff) return Status::Invalid("a fence that is off has no log");
  auto rep = std::make_unique<Rep>(config, names, std::move(options));
  rep->path = path;
  rep->file = std::fopen((path + ".part").c_str(), "wb");
  if (rep->file == nullptr) {
    return Status(StatusCode::kUnavailable,
                  "cannot write " + path + ".part: " + std::strerror(errno));
  }
  AppendHeader(rep->config, &rep->buffer);
  rep->buffer += '\n';
  return std::unique_ptr<EventLogWriter>(new EventLogWriter(std::move(rep)));
}

Result<std::unique_ptr<EventLogWriter>> EventLogWriter::ToStream(std::ostream* out,
                                                                 const FenceConfig& config,
                                                                 const NameLookup* names,
                                                                 EventLogWriterOptions options) {
  if (config.level == Level::kOff) return Status::Invalid("a fence that is off has no log");
  auto rep = std::make_unique<Rep>(config, names, std::move(options));
  rep->out = out;
  AppendHeader(rep->config, &rep->buffer);
  rep->buffer += '\n';
  return std::unique_ptr<EventLogWriter>(new EventLogWriter(std::move(rep)));
}

void EventLogWriter::Write(const LogEvent& event) { rep_->Line(event); }

void EventLogWriter::On(const RetireEvent& event) { Write(event); }

void EventLogWriter::On(const StepEvent& event) {
  auto record = std::make_unique<RecordedStep>(rep_->config, event);
  Write(record->step());
  rep_->open_steps[{event.rank.value(), event.step.value()}] = std::move(record);
}

void EventLogWriter::On(const ConfirmEvent& event, const std::function<bool(Row)>& failed) {
  LogConfirm confirm{event.step, event.rank, {}};
  const auto found = rep_->open_steps.find({event.rank.value(), event.step.value()});
  if (found != rep_->open_steps.end()) confirm = found->second->Reread(rep_->config, failed);
  Write(confirm);
  if (found != rep_->open_steps.end()) rep_->open_steps.erase(found);
}

Status EventLogWriter::Flush() {
  rep_->Drain();
  return rep_->status.ok() ? Status() : Status(rep_->status.code(), rep_->status.message());
}

Status EventLogWriter::Close() {
  rep_->Drain();
  if (rep_->file != nullptr) {
    errno = 0;
    if (std::fclose(rep_->file) != 0) rep_->Fail("cannot write");
    rep_->file = nullptr;
    if (rep_->status.ok() && std::rename((rep_->path + ".part").c_str(), rep_->path.c_str()) != 0) {
      rep_->Fail("cannot rename to");
    }
  }
  return Flush();
}

const Status& EventLogWriter::status() const { return rep_->status; }

}  // namespace kvfence
