// FieldWriter: the visitor of log_schema.h that writes a record's line.
//
// Invariant: a field at its fallback isn't written, so one record has one line.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/config.h"
#include "kvfence/event_log.h"
#include "kvfence/log_names.h"
#include "log_schema.h"

namespace kvfence {

// What a line is written with; `names` is null for headers.
struct LogFormat {
  const FenceConfig* config = nullptr;
  const NameLookup* names = nullptr;
  std::function<RequestId(NameId)> latest{};
};

// A JSON string. Bytes that aren't UTF-8 are written as the code points of the same number: names
// stay apart from one another and the log stays readable.
void AppendJsonString(std::string_view text, std::string* out);
// The line of a record, and the header, without newline.
void AppendRecord(const LogFormat& format, const LogEvent& event, std::string* out);
void AppendHeader(const FenceConfig& config, std::string* out);

class FieldWriter {
 public:
  FieldWriter(const LogFormat& format, std::string* out) : format_(format), out_(out) {}

  template <class T>
  void Need(std::string_view key, const T& field) {
    Key(key);
    Put(field);
  }
  template <class T>
  void Opt(std::string_view key, const std::optional<T>& field) {
    if (field) Need(key, *field);
  }
  template <class T>
  void Opt(std::string_view key, const T& field, const T& fallback) {
    if (!(field == fallback)) Need(key, field);
  }
  template <class T>
  void OptList(std::string_view key, const T& list) {
    if (!list.empty()) Need(key, list);
  }
  template <class T>
  void Rows(std::string_view key, const T& list) {
    Need(key, list);
  }
  void OptAt(std::string_view key, uint64_t field, bool given) {
    if (given) Need(key, field);
  }
  void Request(std::string_view key, RequestId req, bool, std::string_view inc = "inc");
  void RequestOrNull(std::string_view key, RequestId req);
  void Within(std::string_view key, uint64_t field, uint64_t, uint64_t) { Need(key, field); }
  void Within(std::string_view key, uint64_t field, uint64_t, uint64_t, uint64_t fallback) {
    Opt(key, field, fallback);
  }
  void Tables(std::span<const LogTable> tables, bool);
  void Writes(std::span<const LogWrites> writes);
  void Drafts(uint64_t count, std::span<const LogWrites> drafts);
  void ReasonOrClean(Reason reason, bool clean, bool);
  void Entries(std::string_view key, bool slots);
  void Interleave(std::string_view key, uint64_t ranks, uint64_t stride);
  void Version(std::string_view key) { Need(key, uint64_t{1}); }
  // First key of a record.
  void Verb(std::string_view verb);

 private:
  void Key(std::string_view key);
  void Put(uint64_t value);
  void Put(int64_t value);
  void Put(bool value) { *out_ += value ? "true" : "false"; }
  void Put(const std::string& text) { AppendJsonString(text, out_); }
  void Put(PageId page) { Put(page.value()); }
  void Put(StepId step) { Put(step.value()); }
  void Put(RankId rank) { Put(uint64_t{rank.value()}); }
  void Put(Row row) { Put(uint64_t{row.value()}); }
  void Put(PoolId pool);
  void Put(NameId name);
  void Put(KeyId key);
  void Put(IdentityId identity);
  void Put(CopyDir dir);
  void Put(const ContentOf& as);
  void Put(PoolKind kind);
  void Put(Frees frees);
  void Put(Reuse reuse);
  void Put(Level level);
  void Put(const PoolConfig& pool) { Object(pool); }
  void Put(const LogRow& row) { Object(row); }
  void Put(const LogPad& pad) { Object(pad); }
  void Put(const LogConfirmRow& row) { Object(row); }
  void Put(const PrefixPlan& prefix) { Object(prefix); }
  void Put(const TableEdit& edit);
  void Put(const SlotRun& run);
  void Put(std::span<const PrefixPlan> list);
  template <class T>
  void Put(std::span<const T> list) {
    *out_ += '[';
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) *out_ += ',';
      Put(list[i]);
    }
    *out_ += ']';
  }
  void Put(const std::vector<PoolConfig>& pools) { Put(std::span<const PoolConfig>(pools)); }
  template <class E>
  void Object(const E& record);
  template <class T, class PutOne>
  void ByPool(std::string_view key, std::span<const T> list, PutOne put);

  const LogFormat& format_;
  std::string* out_;
  bool first_ = true;
};

}  // namespace kvfence
