// FieldReader: the visitor of log_schema.h that reads the value of one key.
//
// It's called with every key of the record's schema and acts on the one that the line brought;
// `seen` remembers keys, so that none stands twice. One FieldReader per key of a line: it's four
// words and its comparisons compile to a few instructions.
#pragma once

#include <bit>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json_pull.h"
#include "line_parser.h"
#include "log_schema.h"

namespace kvfence {

// A string for a message: quoted, control characters and length tamed.
std::string Quoted(std::string_view text);

// Finds the first key that a record needs and `seen` lacks; lists all keys if asked to.
class KeyLister {
 public:
  explicit KeyLister(uint64_t seen, bool list = false) : seen_(seen), list_(list) {}
  const std::string& known() const { return known_; }
  const std::string& missing() const { return missing_; }

  template <class T>
  void Need(std::string_view key, T&) {
    Key(key, true);
  }
  template <class T>
  void Opt(std::string_view key, T&) {
    Key(key, false);
  }
  template <class T>
  void Opt(std::string_view key, T&, const T&) {
    Key(key, false);
  }
  template <class T>
  void OptList(std::string_view key, T&) {
    Key(key, false);
  }
  template <class T>
  void Rows(std::string_view key, T&) {
    Key(key, false);
  }
  void OptAt(std::string_view key, uint64_t&, bool need) { Key(key, need); }
  void Request(std::string_view key, RequestId&, bool need, std::string_view inc = "inc") {
    const bool has_inc = (seen_ >> (index_ + 1) & 1) != 0;
    Key(key, need || has_inc);
    Key(inc, false);
  }
  void RequestOrNull(std::string_view key, RequestId&) { Request(key, *this); }
  void Within(std::string_view key, uint64_t&, uint64_t, uint64_t) { Key(key, true); }
  void Within(std::string_view key, uint64_t&, uint64_t, uint64_t, uint64_t) { Key(key, false); }
  template <class T>
  void Tables(T&, bool allow_patch) {
    Either("table", "tables", allow_patch ? "patch" : "");
  }
  template <class T>
  void Writes(T&) {
    Either("write", "writes", "");
  }
  template <class T>
  void Drafts(uint64_t&, T&) {
    Key("draft", false);
  }
  void ReasonOrClean(Reason&, bool&, bool&) { Either("reason", "clean", ""); }
  void Entries(std::string_view key, bool&) { Key(key, false); }
  void Interleave(std::string_view key, uint64_t&, uint64_t&) { Key(key, false); }
  void Version(std::string_view key) { Key(key, true); }

 private:
  void Request(std::string_view key, KeyLister&) {
    Key(key, true);
    Key("inc", false);
  }
  void Key(std::string_view key, bool need) {
    const bool seen = (seen_ >> index_++ & 1) != 0;
    if (list_) {
      known_ += known_.empty() ? "" : ", ";
      known_ += key;
    }
    if (need && !seen && missing_.empty()) missing_ = '"' + std::string(key) + '"';
  }
  // One of two keys, or the third (which counts with them), is needed.
  void Either(std::string_view a, std::string_view b, std::string_view c) {
    const uint64_t bits = c.empty() ? 3 : 7;
    const bool none = (seen_ >> index_ & bits) == 0;
    if (none && missing_.empty()) {
      missing_ = '"' + std::string(a) + "\" or \"" + std::string(b) + '"';
    }
    Key(a, false);
    Key(b, false);
    if (!c.empty()) Key(c, false);
  }

  uint64_t seen_;
  bool list_;
  int index_ = 0;
  std::string known_, missing_;
};

class FieldReader {
 public:
  // `parser` is null for headers.
  FieldReader(JsonPull* json, LineParser* parser, std::string_view key, size_t key_offset,
              uint64_t* seen)
      : json_(json), parser_(parser), key_(key), key_offset_(key_offset), seen_(seen) {}

  bool matched() const { return matched_; }

  template <class T>
  void Need(std::string_view key, T& field) {
    if (Match(key)) Read(field);
  }
  template <class T>
  void Opt(std::string_view key, std::optional<T>& field) {
    if (Match(key)) Read(field.emplace());
  }
  template <class T>
  void Opt(std::string_view key, T& field, const T&) {
    if (Match(key)) Read(field);
  }
  template <class T>
  void OptList(std::string_view key, T& field) {
    if (Match(key)) Read(field);
  }
  template <class T>
  void Rows(std::string_view key, T& field) {
    if (Match(key)) Read(field);
  }
  void OptAt(std::string_view key, uint64_t& field, bool) {
    if (Match(key)) Read(field);
  }
  void Request(std::string_view key, RequestId& field, bool, std::string_view inc = "inc");
  void RequestOrNull(std::string_view key, RequestId& field);
  void Within(std::string_view key, uint64_t& field, uint64_t min, uint64_t max);
  void Within(std::string_view key, uint64_t& field, uint64_t min, uint64_t max, uint64_t) {
    Within(key, field, min, max);
  }
  void Tables(std::span<const LogTable>& tables, bool allow_patch);
  void Writes(std::span<const LogWrites>& writes);
  void Drafts(uint64_t& count, std::span<const LogWrites>& drafts);
  void ReasonOrClean(Reason& reason, bool& clean, bool& has_reason);
  void Entries(std::string_view key, bool& slots);
  void Interleave(std::string_view key, uint64_t& ranks, uint64_t& stride);
  void Version(std::string_view key);

 private:
  bool Match(std::string_view key);
  // Reads a string that stands for one of `names`; its index, or -1 after failing.
  template <size_t N>
  int OneOf(const std::string_view (&names)[N]);
  bool Name(NameId* id);
  void ReadKey(KeyId* key);
  void ReadRow(Row* row);

  void Read(uint64_t& field) { json_->Uint("a count", &field); }
  void Read(int64_t& field) { json_->Int("an integer", &field); }
  void Read(bool& field) { json_->Bool("true or false", &field); }
  void Read(std::string& field);
  void Read(PageId& field);
  void Read(StepId& field);
  void Read(RankId& field);
  void Read(PoolId& field);
  void Read(Row& field) { ReadRow(&field); }
  void Read(NameId& field) { Name(&field); }
  void Read(KeyId& field) { ReadKey(&field); }
  void Read(IdentityId& field);
  void Read(CopyDir& field);
  void Read(ContentOf& field);
  void Read(Pages& field);
  void Read(std::span<const KeyId>& field);
  void Read(std::span<const NameId>& field);
  void Read(std::span<const Row>& field);
  void Read(std::span<const int64_t>& field);  // a table of the widest pool
  void Read(std::span<const LogRow>& field);
  void Read(std::span<const LogPad>& field);
  void Read(std::span<const PrefixPlan>& field);
  void Read(std::span<const LogConfirmRow>& field);
  void Read(std::vector<PoolConfig>& field);
  void Read(Frees& field);
  void Read(Reuse& field);
  void Read(Level& field);
  void Read(PoolKind& field);

  bool ReadTable(PoolId pool, LogTable* table);
  bool ReadPatch(PoolId pool, LogTable* table);
  bool ReadRuns(PoolId pool, LogWrites* writes);
  uint64_t WidthOf(PoolId pool) const;
  bool NotTwice(Row row, size_t offset);
  template <class T, class ReadOne>
  void ReadByPool(std::span<const T>& field, ReadOne read_one);
  template <class T, class ReadOne>
  void ReadFirstPool(std::span<const T>& field, ReadOne read_one);
  template <class T>
  void ReadList(std::string_view what, std::span<const T>& field);
  template <class T>
  std::span<const T> Keep(const std::vector<T>& values);
  template <class T>
  std::span<const T> Given(const std::vector<T>& values);
  template <class T>
  std::span<const T> Append(std::span<const T> list, const T& value);

  JsonPull* json_;
  LineParser* parser_;
  std::string_view key_;
  size_t key_offset_;
  uint64_t* seen_;
  int index_ = 0;
  bool matched_ = false;
};

// Reads the keys of an object whose brace is open, up to and with the closing one. `noun` names the
// record in messages. `skip_ev`: its verb, which isn't in the schema, may stand once.
template <class E>
bool ReadObject(JsonPull* json, LineParser* parser, std::string_view noun, E* record,
                bool skip_ev = false) {
  uint64_t seen = 0;
  std::string_view key;
  size_t offset = 0;
  while (json->NextKey(&key, &offset)) {
    if (skip_ev && key == "ev") {
      skip_ev = false;
      if (!json->Skip()) return false;
      continue;
    }
    FieldReader reader(json, parser, key, offset, &seen);
    Describe(reader, *record);
    if (!json->ok()) return false;
    if (!reader.matched()) {
      if (key == "ev" && noun.front() == '"') return json->Fail(offset, "\"ev\" once");
      KeyLister lister(0, true);
      Describe(lister, *record);
      return json->Fail(offset, "a key of " + std::string(noun) + " (" + lister.known() +
                                    "), found " + Quoted(key));
    }
  }
  if (!json->ok()) return false;
  KeyLister lister(seen);
  Describe(lister, *record);
  if (lister.missing().empty()) return true;
  return json->Fail(json->consumed() - 1, lister.missing() + " in " + std::string(noun));
}

}  // namespace kvfence
