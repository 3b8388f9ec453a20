// See log_fields.h: how each type of value is read, and what is expected of it.
#include "log_fields.h"

#include <algorithm>
#include <new>
#include <type_traits>

namespace kvfence {

std::string Quoted(std::string_view text) {
  constexpr size_t kMost = 48;
  std::string out = "\"";
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      constexpr char kHex[] = "0123456789abcdef";
      out += std::string("\\x") + kHex[byte >> 4] + kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + (text.size() > kMost ? "...\"" : "\"");
}

bool FieldReader::Match(std::string_view key) {
  const int index = index_++;
  if (matched_ || key != key_) return false;
  matched_ = true;
  if ((*seen_ >> index & 1) != 0) {
    return json_->Fail(key_offset_, '"' + std::string(key) + "\" once");
  }
  *seen_ |= uint64_t{1} << index;
  return true;
}

template <class T>
std::span<const T> FieldReader::Keep(const std::vector<T>& values) {
  static_assert(std::is_trivially_destructible_v<T>);
  if (values.empty()) return {};
  T* const begin = static_cast<T*>(parser_->arena_.allocate(values.size() * sizeof(T), alignof(T)));
  std::uninitialized_copy(values.begin(), values.end(), begin);
  return {begin, values.size()};
}

// A list that was given, even an empty one, has a place: one that wasn't has none.
template <class T>
std::span<const T> FieldReader::Given(const std::vector<T>& values) {
  if (!values.empty()) return Keep(values);
  return {static_cast<T*>(parser_->arena_.allocate(sizeof(T), alignof(T))), 0};
}

template <class T>
std::span<const T> FieldReader::Append(std::span<const T> list, const T& value) {
  std::vector<T> longer(list.begin(), list.end());
  longer.push_back(value);
  return Keep(longer);
}

template <size_t N>
int FieldReader::OneOf(const std::string_view (&names)[N]) {
  std::string what;
  for (size_t i = 0; i < N; ++i) {
    what += (i == 0 ? "\"" : i + 1 == N ? " or \"" : ", \"") + std::string(names[i]) + '"';
  }
  const size_t at = json_->Offset();
  std::string_view text;
  if (!json_->String(what, &text)) return -1;
  for (size_t i = 0; i < N; ++i) {
    if (text == names[i]) return static_cast<int>(i);
  }
  json_->Fail(at, what + ", found " + Quoted(text));
  return -1;
}

// --- single values -------------------------------------------------------------------------------

bool FieldReader::Name(NameId* id) {
  const size_t at = json_->Offset();
  std::string_view text;
  if (!json_->String("a string", &text)) return false;
  if (text.empty()) return json_->Fail(at, "a string that isn't empty");
  *id = parser_->names_->Intern(text);
  return true;
}

void FieldReader::ReadKey(KeyId* key) {
  NameId name;
  if (Name(&name)) *key = KeyId(name.value());
}

void FieldReader::ReadRow(Row* row) {
  const size_t at = json_->Offset();
  const uint64_t rows = parser_->config_.rows;
  uint64_t value = 0;
  if (!json_->Uint("a row", &value)) return;
  if (value >= rows) {
    json_->Fail(at, "a row below " + std::to_string(rows) + ", found " + std::to_string(value));
    return;
  }
  *row = Row(static_cast<uint32_t>(value));
}

void FieldReader::Request(std::string_view key, RequestId& field, bool, std::string_view inc) {
  if (Match(key)) {
    NameId name;
    if (Name(&name)) field = RequestId(name, field.incarnation());
  }
  if (Match(inc)) {
    const size_t at = json_->Offset();
    uint64_t value = 0;
    if (!json_->Uint("an incarnation", &value, UINT32_MAX)) return;
    if (value == 0) {
      json_->Fail(at, "an incarnation of at least 1, found 0");
      return;
    }
    field = RequestId(field.name(), static_cast<uint32_t>(value));
  }
}

void FieldReader::RequestOrNull(std::string_view key, RequestId& field) {
  if (key == key_ && json_->Peek() == 'n') {
    if (Match(key)) json_->TakeNull();
    return;
  }
  Request(key, field, true);
}

void FieldReader::Within(std::string_view key, uint64_t& field, uint64_t min, uint64_t max) {
  if (!Match(key)) return;
  const size_t at = json_->Offset();
  if (!json_->Uint("a count", &field, max)) return;
  if (field < min) {
    json_->Fail(at,
                "a count of at least " + std::to_string(min) + ", found " + std::to_string(field));
  }
}

void FieldReader::ReasonOrClean(Reason& reason, bool& clean, bool& has_reason) {
  if (Match("reason")) {
    const size_t at = json_->Offset();
    std::string_view text;
    if (!json_->String("a reason", &text)) return;
    const std::optional<Reason> known = ReasonFromName(text);
    if (!known) {
      json_->Fail(at, "a reason, found " + Quoted(text));
      return;
    }
    reason = *known;
    has_reason = true;
  }
  if (Match("clean")) {
    const size_t at = json_->Offset();
    if (json_->Bool("true", &clean) && !clean) json_->Fail(at, "true, found false");
  }
}

void FieldReader::Entries(std::string_view key, bool& slots) {
  if (Match(key)) slots = OneOf({"pages", "slots"}) == 1;
}

void FieldReader::Interleave(std::string_view key, uint64_t& ranks, uint64_t& stride) {
  if (!Match(key)) return;
  const std::string_view what = "[ranks, stride]";
  const size_t at = json_->Offset();
  if (!json_->BeginArray(what)) return;
  for (uint64_t* part : {&ranks, &stride}) {
    if (!json_->NextItem()) {
      json_->Fail(at, std::string(what));
      return;
    }
    if (!json_->Uint("a count", part, UINT32_MAX)) return;
  }
  if (json_->NextItem() || ranks == 0 || stride == 0) {
    json_->Fail(at, std::string(what) + ", both at least 1");
  }
}

void FieldReader::Version(std::string_view key) {
  if (!Match(key)) return;
  const size_t at = json_->Offset();
  uint64_t version = 0;
  if (json_->Uint("format version 1", &version) && version != 1) {
    json_->Fail(at, "format version 1, found " + std::to_string(version));
  }
}

void FieldReader::Read(std::string& field) {
  std::string_view text;
  if (json_->String("a string", &text)) field = text;
}

void FieldReader::Read(PageId& field) {
  int64_t value = 0;
  if (json_->Int("a page", &value)) field = PageId(value);
}

void FieldReader::Read(StepId& field) {
  uint64_t value = 0;
  if (json_->Uint("a step", &value)) field = StepId(value);
}

void FieldReader::Read(RankId& field) {
  const size_t at = json_->Offset();
  const uint64_t ranks = parser_->config_.ranks;
  uint64_t value = 0;
  if (!json_->Uint("a rank", &value)) return;
  if (value >= ranks) {
    json_->Fail(at, "a rank below " + std::to_string(ranks) + ", found " + std::to_string(value));
    return;
  }
  field = RankId(static_cast<uint32_t>(value));
}

void FieldReader::Read(PoolId& field) {
  const size_t at = json_->Offset();
  std::string_view text;
  if (!json_->String("the name of a pool", &text)) return;
  const std::vector<PoolConfig>& pools = parser_->config_.pools;
  for (size_t i = 0; i < pools.size(); ++i) {
    if (pools[i].name == text) {
      field = PoolId(static_cast<uint32_t>(i));
      return;
    }
  }
  json_->Fail(at, "the name of a pool, found " + Quoted(text));
}

void FieldReader::Read(IdentityId& field) {
  std::vector<IdentityField> fields;
  std::string_view key, value;
  size_t at = 0;
  if (!json_->BeginObject("an object of strings")) return;
  while (json_->NextKey(&key, &at)) {
    for (const IdentityField& other : fields) {
      if (other.first == key) json_->Fail(at, Quoted(key) + " once");
    }
    IdentityField pair{std::string(key), std::string()};
    if (!json_->String("a string", &value)) return;
    pair.second = value;
    fields.push_back(std::move(pair));
  }
  if (json_->ok()) field = parser_->names_->InternIdentity(fields);
}

void FieldReader::Read(CopyDir& field) {
  field = OneOf({"in", "out"}) == 1 ? CopyDir::kOut : CopyDir::kIn;
}
void FieldReader::Read(Frees& field) {
  field = OneOf({"implicit", "explicit"}) == 1 ? Frees::kExplicit : Frees::kImplicit;
}
void FieldReader::Read(Reuse& field) {
  field = OneOf({"retired", "stream"}) == 1 ? Reuse::kStream : Reuse::kRetired;
}
void FieldReader::Read(Level& field) {
  const int index = OneOf({"map", "full", "audit"});
  field = index == 0 ? Level::kMap : index == 2 ? Level::kAudit : Level::kFull;
}
void FieldReader::Read(PoolKind& field) {
  const int index = OneOf({"kv", "state", "cross"});
  field = index == 1 ? PoolKind::kState : index == 2 ? PoolKind::kCross : PoolKind::kKv;
}

void FieldReader::Read(ContentOf& field) {
  const size_t at = json_->Offset();
  if (json_->TakeNull() || !json_->BeginObject("an object or null")) return;
  if (!ReadObject(json_, parser_, "\"as\"", &field)) return;
  const bool of_request = field.req && field.at && !field.key;
  const bool of_key = !field.req && !field.at && field.key;
  if (!of_request && !of_key) json_->Fail(at, "req and at, or key, or null");
}

// --- arrays --------------------------------------------------------------------------------------

void FieldReader::Read(std::span<const int64_t>& field) {
  std::vector<int64_t>& ints = parser_->ints_;
  ints.clear();
  if (!json_->BeginArray("an array of pages")) return;
  while (json_->NextItem()) {
    int64_t value = 0;
    if (!json_->Int("a page", &value)) return;
    ints.push_back(value);
  }
  if (json_->ok()) field = Keep(ints);
}

void FieldReader::Read(Pages& field) {
  std::span<const int64_t> ints;
  Read(ints);
  PageId* const pages = static_cast<PageId*>(
      parser_->arena_.allocate(std::max<size_t>(1, ints.size()) * sizeof(PageId), alignof(PageId)));
  for (size_t i = 0; i < ints.size(); ++i) new (pages + i) PageId(ints[i]);
  field = Pages(pages, ints.size());
}

void FieldReader::Read(std::span<const KeyId>& field) {
  std::vector<KeyId> keys;
  if (!json_->BeginArray("an array of strings")) return;
  while (json_->NextItem()) ReadKey(&keys.emplace_back());
  if (json_->ok()) field = Given(keys);
}

void FieldReader::Read(std::span<const NameId>& field) {
  std::vector<NameId> names;
  if (!json_->BeginArray("an array of strings")) return;
  while (json_->NextItem()) {
    NameId& name = names.emplace_back();
    if (!json_->TakeNull()) Name(&name);
  }
  if (json_->ok()) field = Given(names);
}

void FieldReader::Read(std::span<const Row>& field) {
  std::vector<Row> rows;
  if (!json_->BeginArray("an array of rows")) return;
  while (json_->NextItem()) ReadRow(&rows.emplace_back());
  if (json_->ok()) field = Keep(rows);
}

template <class T>
void FieldReader::ReadList(std::string_view what, std::span<const T>& field) {
  std::vector<T> list;
  if (!json_->BeginArray("an array")) return;
  while (json_->NextItem()) {
    const size_t at = json_->Offset();
    if (!json_->BeginObject("an object") || !ReadObject(json_, parser_, what, &list.emplace_back()))
      return;
    if constexpr (std::is_same_v<T, LogRow>) {
      if (!NotTwice(list.back().plan.row, at)) return;
    } else {
      if (!NotTwice(list.back().row, at)) return;
    }
  }
  if (json_->ok()) field = Keep(list);
}

void FieldReader::Read(std::span<const LogRow>& field) { ReadList("a row", field); }
void FieldReader::Read(std::span<const LogPad>& field) { ReadList("a padded row", field); }
void FieldReader::Read(std::span<const LogConfirmRow>& field) {
  ReadList("a row of \"confirm\"", field);
}

// One shared-prefix table, or an array of them.
void FieldReader::Read(std::span<const PrefixPlan>& field) {
  std::vector<PrefixPlan> list;
  const bool several = json_->Peek() == '[';
  if (several && !json_->BeginArray("an array")) return;
  while (several ? json_->NextItem() : list.empty()) {
    const size_t at = json_->Offset();
    PrefixPlan& plan = list.emplace_back();
    if (!json_->BeginObject("an object") || !ReadObject(json_, parser_, "\"prefix\"", &plan))
      return;
    if (plan.table.size() > WidthOf(plan.pool)) {
      json_->Fail(at, "a table of at most " + std::to_string(WidthOf(plan.pool)) +
                          " entries, found " + std::to_string(plan.table.size()));
    }
  }
  if (json_->ok()) field = Keep(list);
}

bool FieldReader::NotTwice(Row row, size_t offset) {
  uint64_t& seen = parser_->row_seen_[row.value()];
  if (seen == parser_->serial_) {
    return json_->Fail(offset,
                       "each row once, found row " + std::to_string(row.value()) + " again");
  }
  seen = parser_->serial_;
  return true;
}

uint64_t FieldReader::WidthOf(PoolId pool) const {
  const uint64_t own = parser_->config_.pools[pool.value()].width;
  return own != 0 ? own : parser_->config_.width;
}

// --- tables and write slots of a step's rows -----------------------------------------------------

bool FieldReader::ReadTable(PoolId pool, LogTable* table) {
  const size_t at = json_->Offset();
  table->pool = pool;
  Read(table->entries);
  if (table->entries.size() > WidthOf(pool)) {
    return json_->Fail(at, "a table of at most " + std::to_string(WidthOf(pool)) +
                               " entries, found " + std::to_string(table->entries.size()));
  }
  return json_->ok();
}

bool FieldReader::ReadPatch(PoolId pool, LogTable* table) {
  constexpr std::string_view kWhat = "an array of [index, page]";
  table->pool = pool;
  table->is_patch = true;
  std::vector<TableEdit> edits;
  if (!json_->BeginArray(kWhat)) return false;
  while (json_->NextItem()) {
    TableEdit& edit = edits.emplace_back();
    const size_t at = json_->Offset();
    if (!json_->BeginArray("[index, page]")) return false;
    if (!json_->NextItem()) return json_->Fail(at, "[index, page]");
    const size_t index_at = json_->Offset();
    if (!json_->Uint("an index", &edit.index)) return false;
    if (edit.index >= WidthOf(pool)) {
      return json_->Fail(index_at, "an index below " + std::to_string(WidthOf(pool)) + ", found " +
                                       std::to_string(edit.index));
    }
    if (!json_->NextItem()) return json_->Fail(at, "[index, page]");
    if (!json_->Int("a page", &edit.page)) return false;
    if (json_->NextItem()) return json_->Fail(at, "[index, page]");
  }
  if (json_->ok()) table->edits = Keep(edits);
  return json_->ok();
}

bool FieldReader::ReadRuns(PoolId pool, LogWrites* writes) {
  writes->pool = pool;
  std::vector<SlotRun> runs;
  if (!json_->BeginArray("an array of slots and runs")) return false;
  while (json_->NextItem()) {
    SlotRun& run = runs.emplace_back();
    if (json_->Peek() != '[') {
      if (!json_->Int("a slot or [first, n]", &run.first)) return false;
      continue;
    }
    const size_t at = json_->Offset();
    json_->BeginArray("[first, n]");
    if (!json_->NextItem()) return json_->Fail(at, "[first, n]");
    if (!json_->Int("a slot", &run.first)) return false;
    if (!json_->NextItem()) return json_->Fail(at, "[first, n]");
    if (!json_->Uint("a count", &run.n)) return false;
    if (json_->NextItem()) return json_->Fail(at, "[first, n]");
  }
  if (json_->ok()) writes->runs = Keep(runs);
  return json_->ok();
}

// `{"pool": value, ...}`; each pool once, also over both keys that can name it.
template <class T, class ReadOne>
void FieldReader::ReadByPool(std::span<const T>& field, ReadOne read_one) {
  if (!json_->BeginObject("an object keyed by pool")) return;
  std::string_view key;
  size_t at = 0;
  while (json_->NextKey(&key, &at)) {
    const std::vector<PoolConfig>& pools = parser_->config_.pools;
    const auto pool = std::find_if(pools.begin(), pools.end(),
                                   [&](const PoolConfig& p) { return p.name == key; });
    if (pool == pools.end()) {
      json_->Fail(at, "the name of a pool, found " + Quoted(key));
      return;
    }
    const PoolId id(static_cast<uint32_t>(pool - pools.begin()));
    for (const T& other : field) {
      if (other.pool == id) json_->Fail(at, "pool " + Quoted(key) + " once");
    }
    T value;
    if (!json_->ok() || !(this->*read_one)(id, &value)) return;
    field = Append(field, value);
  }
}

template <class T, class ReadOne>
void FieldReader::ReadFirstPool(std::span<const T>& field, ReadOne read_one) {
  for (const T& other : field) {
    if (other.pool == PoolId(0)) {
      json_->Fail(key_offset_, "the first pool once");
      return;
    }
  }
  T value;
  if ((this->*read_one)(PoolId(0), &value)) field = Append(field, value);
}

void FieldReader::Tables(std::span<const LogTable>& tables, bool allow_patch) {
  if (Match("table")) ReadFirstPool(tables, &FieldReader::ReadTable);
  if (Match("tables")) ReadByPool(tables, &FieldReader::ReadTable);
  if (!allow_patch || !Match("patch")) return;
  if (json_->Peek() == '{') {
    ReadByPool(tables, &FieldReader::ReadPatch);
  } else {
    ReadFirstPool(tables, &FieldReader::ReadPatch);
  }
}

void FieldReader::Writes(std::span<const LogWrites>& writes) {
  if (Match("write")) ReadFirstPool(writes, &FieldReader::ReadRuns);
  if (Match("writes")) ReadByPool(writes, &FieldReader::ReadRuns);
}

// A count, whose slots then stand in "write", or the slots themselves.
void FieldReader::Drafts(uint64_t& count, std::span<const LogWrites>& drafts) {
  if (!Match("draft")) return;
  if (json_->Peek() == '[') {
    ReadFirstPool(drafts, &FieldReader::ReadRuns);
  } else if (json_->Peek() == '{') {
    ReadByPool(drafts, &FieldReader::ReadRuns);
  } else {
    Read(count);
    return;
  }
  for (const LogWrites& one : drafts) {
    uint64_t slots = 0;
    for (const SlotRun& run : one.runs) slots += std::min(run.n, ~uint64_t{0} - slots);
    count = std::max(count, slots);
  }
}

// --- headers -------------------------------------------------------------------------------------

void FieldReader::Read(std::vector<PoolConfig>& field) {
  if (!json_->BeginArray("an array of pools")) return;
  while (json_->NextItem()) {
    const size_t at = json_->Offset();
    PoolConfig pool;
    if (field.size() == kMaxLogPools) {
      json_->Fail(at, "at most " + std::to_string(kMaxLogPools) + " pools");
      return;
    }
    if (!json_->BeginObject("a pool") || !ReadObject(json_, parser_, "a pool", &pool)) return;
    if (pool.name.empty()) json_->Fail(at, "a pool with a name");
    if (pool.null_page >= pool.pages) json_->Fail(at, "a pool that has its null page");
    for (const PoolConfig& other : field) {
      if (other.name == pool.name) json_->Fail(at, "pool " + Quoted(pool.name) + " once");
    }
    field.push_back(std::move(pool));
  }
  if (json_->ok() && field.empty()) json_->Fail(json_->consumed() - 1, "at least one pool");
}

}  // namespace kvfence
