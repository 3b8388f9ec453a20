// See the header.
#include "kvfence/check_log.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "check_truth.h"
#include "expectations.h"
#include "kvfence/event_log_reader.h"
#include "player.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

// Reasons whose compared values are pages or slots.
constexpr CheckSet kIndexReasons = CheckSet(Reason::kPageOutOfRange) + Reason::kPageMismatch +
                                   Reason::kWriteTarget + Reason::kWriteShared + Reason::kRowTail +
                                   Reason::kPadRow;

// Plays until the log ends or can't be read further; the report says which.
void PlayAll(EventLogReader* reader, Fence* fence, CheckTruth* truth, Expectations* expectations,
             CheckReport* report) {
  TargetNames<Fence> names(fence);
  Player<Fence> player(fence, fence->config(), truth,
                       [&](StepId step, Row row) { return expectations->Named(step, row); });
  LogRecord record;
  for (;;) {
    const Result<bool> more = reader->Next(&names, &record);
    if (!more.ok()) {
      report->error = more.status().message();
      report->cut_off = reader->cut_off();
      return;
    }
    if (!*const_cast<Result<bool>&>(more)) return;
    expectations->set_line(record.line);
    if (const auto* expect = std::get_if<LogExpect>(&record.event)) {
      expectations->OnExpect(*expect);
      continue;
    }
    ++report->events;
    if (const Status status = player.Play(record.event); !status.ok()) {
      report->error =
          reader->Where() + ":1: expected an event that the fence accepts: " + status.message();
      return;
    }
    if (const auto* retire = std::get_if<RetireEvent>(&record.event)) {
      expectations->StepOver(retire->step);
    }
  }
}

Result<CheckReport> Check(EventLogReader* reader, const CheckOptions& options) {
  FenceConfig config = reader->config();
  if (options.on_header) options.on_header(config);
  if (options.level) config.level = *options.level;
  config.disabled = config.disabled + options.disabled;
  config.judge_afresh = true;
  Expectations expectations(options);
  std::vector<EventSink*> sinks{&expectations};
  sinks.insert(sinks.end(), options.sinks.begin(), options.sinks.end());
  auto fence = Fence::Create(config, sinks);
  if (!fence.ok()) {
    return Status(fence.status().code(),
                  reader->Where() +
                      ":1: expected a header that a fence accepts: " + fence.status().message());
  }
  Fence* const live = fence.value().get();
  live->LogIncidents(options.incidents);
  expectations.set_names([live](NameId name) { return live->NameOf(name); });
  CheckTruth truth(config);
  if (options.on_wrong_read) {
    truth.set_on_wrong([&](WrongRead wrong) {
      wrong.line = expectations.line();
      options.on_wrong_read(wrong);
    });
  }
  CheckReport report;
  for (const PoolConfig& pool : config.pools) report.pools.push_back(pool.name);
  PlayAll(reader, live, options.truth ? &truth : nullptr, &expectations, &report);
  expectations.Finish(&report);
  report.wrong_reads_published = truth.wrong_reads_published();
  report.stats = live->stats();
  return report;
}

Json OrNull(int64_t value) { return value < 0 ? Json(nullptr) : Json(value); }
Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json ToJsonValue(const LoggedViolation& logged, const std::vector<std::string>& pools) {
  const Violation& v = logged.violation;
  Json out;
  out["line"] = logged.line;
  out["step"] = OrNull(v.step);
  out["req"] = OrNull(logged.req);
  out["row"] = OrNull(v.row);
  out["pool"] = v.pool < 0 ? Json(nullptr) : Json(pools[static_cast<size_t>(v.pool)]);
  out["at"] = OrNull(v.at);
  out["page"] = v.page == -1 ? Json(nullptr) : Json(v.page);
  out["reason"] = ReasonName(v.reason);
  // Pages and slots may be negative; tags, stamps and lengths aren't.
  const bool index = kIndexReasons.Has(v.reason);
  out["expected"] = index ? Json(static_cast<int64_t>(v.expected)) : Json(v.expected);
  out["found"] = index ? Json(static_cast<int64_t>(v.found)) : Json(v.found);
  return out;
}

Json ToJsonValue(const LoggedExpect& logged, const std::vector<std::string>& pools) {
  const LogExpect& e = logged.expect;
  Json out;
  out["line"] = logged.line;
  if (e.clean) {
    out["clean"] = true;
    return out;
  }
  out["reason"] = ReasonName(e.reason);
  if (e.req) out["req"] = logged.req;
  if (e.req.incarnation() != 0) out["inc"] = e.req.incarnation();
  if (e.page) out["page"] = e.page->value();
  if (e.pool) out["pool"] = pools[e.pool->value()];
  if (e.at) out["at"] = *e.at;
  if (e.step) out["step"] = e.step->value();
  if (e.row) out["row"] = e.row->value();
  if (e.rank) out["rank"] = e.rank->value();
  return out;
}

std::string Text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Appends `"key":[items]`, item by item: a million findings as one tree would take gigabytes.
template <class T>
void AppendList(std::string* out, const char* key, const std::vector<T>& items,
                const std::vector<std::string>& pools) {
  *out += ",\"" + std::string(key) + "\":[";
  for (size_t i = 0; i < items.size(); ++i) {
    *out += (i == 0 ? "" : ",") + Text(ToJsonValue(items[i], pools));
  }
  *out += "]";
}

}  // namespace

std::string CheckReport::ToJson() const {
  std::string out = "{\"events\":" + std::to_string(events);
  AppendList(&out, "violations", violations, pools);
  AppendList(&out, "unmet", unmet, pools);
  AppendList(&out, "unexpected", unexpected, pools);
  Json rest;
  if (violations_not_kept > 0) rest["violations_not_kept"] = violations_not_kept;
  rest["wrong_reads_published"] = wrong_reads_published;
  rest["ok"] = ok();
  if (!error.empty()) {
    rest["error"] = error;
    rest["cut_off"] = cut_off;
  }
  return out + "," + Text(rest).substr(1);  // without its opening brace
}

Result<CheckReport> CheckLogFile(const std::string& path, const CheckOptions& options) {
  auto reader = EventLogReader::Open(path, {.more = options.more});
  if (!reader.ok()) return Status(reader.status().code(), reader.status().message());
  return Check(reader.value().get(), options);
}

Result<CheckReport> CheckLog(std::istream* in, std::string name, const CheckOptions& options) {
  auto reader = EventLogReader::FromStream(in, std::move(name), {.more = options.more});
  if (!reader.ok()) return Status(reader.status().code(), reader.status().message());
  return Check(reader.value().get(), options);
}

}  // namespace kvfence
