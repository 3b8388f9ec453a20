// See log_format.h.
#include "log_format.h"

#include <charconv>

#include "kvfence/check.h"

namespace kvfence {
namespace {

// Bytes of the UTF-8 sequence at `text`'s begin; 0 if it isn't one (Unicode 15, table 3-7).
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned lead = byte(0), second = byte(1);
  const auto follows = [&](size_t i) { return byte(i) >= 0x80 && byte(i) <= 0xBF; };
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool good = second >= (lead == 0xE0 ? 0xA0u : 0x80u) &&
                      second <= (lead == 0xED ? 0x9Fu : 0xBFu) && follows(2);
    return good ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool good = second >= (lead == 0xF0 ? 0x90u : 0x80u) &&
                      second <= (lead == 0xF4 ? 0x8Fu : 0xBFu) && follows(2) && follows(3);
    return good ? 4 : 0;
  }
  return 0;
}

void AppendEscaped(unsigned char c, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  *out += "\\u00";
  *out += kHex[c >> 4];
  *out += kHex[c & 15];
}

template <class Int>
void AppendInt(Int value, std::string* out) {
  char text[24];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  out->append(text, end);
}

}  // namespace

void AppendJsonString(std::string_view text, std::string* out) {
  *out += '"';
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t length = c < 0x80 ? 1 : Utf8Length(text.substr(i));
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += text[i];
    } else if (c < 0x20 || length == 0) {
      AppendEscaped(c, out);
    } else {
      out->append(text.substr(i, length));
    }
    i += length == 0 ? 1 : length;
  }
  *out += '"';
}

void FieldWriter::Key(std::string_view key) {
  if (!first_) *out_ += ',';
  first_ = false;
  *out_ += '"';
  *out_ += key;
  *out_ += "\":";
}

void FieldWriter::Verb(std::string_view verb) { Need("ev", std::string(verb)); }

void FieldWriter::Put(uint64_t value) { AppendInt(value, out_); }
void FieldWriter::Put(int64_t value) { AppendInt(value, out_); }
void FieldWriter::Put(PoolId pool) { Put(format_.config->pools[pool.value()].name); }
void FieldWriter::Put(NameId name) {
  // Names are never empty; a digest that a page lacks is null.
  if (name == NameId{}) {
    *out_ += "null";
  } else {
    AppendJsonString(format_.names->NameOf(name), out_);
  }
}
void FieldWriter::Put(KeyId key) { AppendJsonString(format_.names->KeyNameOf(key), out_); }
void FieldWriter::Put(IdentityId identity) {
  *out_ += '{';
  bool first = true;
  for (const auto& [key, value] : format_.names->FieldsOf(identity)) {
    if (!first) *out_ += ',';
    first = false;
    AppendJsonString(key, out_);
    *out_ += ':';
    AppendJsonString(value, out_);
  }
  *out_ += '}';
}
void FieldWriter::Put(CopyDir dir) { *out_ += dir == CopyDir::kIn ? "\"in\"" : "\"out\""; }
void FieldWriter::Put(const ContentOf& as) {
  if (!as.req && !as.key) {
    *out_ += "null";
  } else {
    Object(as);
  }
}
void FieldWriter::Put(PoolKind kind) {
  *out_ += kind == PoolKind::kKv ? "\"kv\"" : kind == PoolKind::kState ? "\"state\"" : "\"cross\"";
}
void FieldWriter::Put(Frees frees) {
  *out_ += frees == Frees::kExplicit ? "\"explicit\"" : "\"implicit\"";
}
void FieldWriter::Put(Reuse reuse) {
  *out_ += reuse == Reuse::kStream ? "\"stream\"" : "\"retired\"";
}
void FieldWriter::Put(Level level) { AppendJsonString(LevelName(level), out_); }
void FieldWriter::Put(const TableEdit& edit) {
  *out_ += '[';
  Put(edit.index);
  *out_ += ',';
  Put(edit.page);
  *out_ += ']';
}
void FieldWriter::Put(const SlotRun& run) {
  if (run.n == 1) {
    Put(run.first);
    return;
  }
  *out_ += '[';
  Put(run.first);
  *out_ += ',';
  Put(run.n);
  *out_ += ']';
}
void FieldWriter::Put(std::span<const PrefixPlan> list) {
  if (list.size() == 1) {
    Put(list[0]);
    return;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    *out_ += i == 0 ? '[' : ',';
    Put(list[i]);
  }
  *out_ += ']';
}

void FieldWriter::Request(std::string_view key, RequestId req, bool, std::string_view inc) {
  if (!req) return;
  Need(key, req.name());
  if (req.incarnation() == 0) return;
  if (format_.latest && format_.latest(req.name()) == req) return;
  Need(inc, uint64_t{req.incarnation()});
}
void FieldWriter::RequestOrNull(std::string_view key, RequestId req) {
  if (req) {
    Request(key, req, true);
  } else {
    Need(key, NameId{});
  }
}

template <class T, class PutOne>
void FieldWriter::ByPool(std::string_view key, std::span<const T> list, PutOne put) {
  Key(key);
  *out_ += '{';
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) *out_ += ',';
    Put(list[i].pool);
    *out_ += ':';
    put(list[i]);
  }
  *out_ += '}';
}

void FieldWriter::Tables(std::span<const LogTable> tables, bool) {
  if (format_.config->pools.size() == 1) {
    if (tables.empty()) {
      Need("table", std::span<const int64_t>());
    } else if (tables[0].is_patch) {
      Need("patch", tables[0].edits);
    } else {
      Need("table", tables[0].entries);
    }
    return;
  }
  std::vector<LogTable> whole, patched;
  for (const LogTable& table : tables) (table.is_patch ? patched : whole).push_back(table);
  if (!whole.empty() || patched.empty()) {
    ByPool("tables", std::span<const LogTable>(whole),
           [&](const LogTable& table) { Put(table.entries); });
  }
  if (!patched.empty()) {
    ByPool("patch", std::span<const LogTable>(patched),
           [&](const LogTable& table) { Put(table.edits); });
  }
}

void FieldWriter::Writes(std::span<const LogWrites> writes) {
  if (format_.config->pools.size() == 1) {
    Need("write", writes.empty() ? std::span<const SlotRun>() : writes[0].runs);
  } else {
    ByPool("writes", writes, [&](const LogWrites& one) { Put(one.runs); });
  }
}

void FieldWriter::Drafts(uint64_t count, std::span<const LogWrites> drafts) {
  if (drafts.empty()) {
    Opt("draft", count, uint64_t{0});
  } else if (format_.config->pools.size() == 1) {
    Need("draft", drafts[0].runs);
  } else {
    ByPool("draft", drafts, [&](const LogWrites& one) { Put(one.runs); });
  }
}

void FieldWriter::ReasonOrClean(Reason reason, bool clean, bool) {
  if (clean) {
    Need("clean", true);
  } else {
    Need("reason", std::string(ReasonName(reason)));
  }
}

void FieldWriter::Entries(std::string_view key, bool slots) {
  if (slots) Need(key, std::string("slots"));
}

void FieldWriter::Interleave(std::string_view key, uint64_t ranks, uint64_t stride) {
  if (ranks == 0) return;
  const uint64_t both[] = {ranks, stride};
  Need(key, std::span<const uint64_t>(both));
}

template <class E>
void FieldWriter::Object(const E& record) {
  const bool outer = first_;
  first_ = true;
  *out_ += '{';
  Describe(*this, record);
  *out_ += '}';
  first_ = outer;
}

void AppendRecord(const LogFormat& format, const LogEvent& event, std::string* out) {
  FieldWriter writer(format, out);
  *out += '{';
  std::visit(
      [&]<class E>(const E& record) {
        writer.Verb(kVerb<E>);
        Describe(writer, record);
      },
      event);
  *out += '}';
}

void AppendHeader(const FenceConfig& config, std::string* out) {
  KVF_CHECK(config.level != Level::kOff, "a fence that is off has no log");
  const LogFormat format{&config, nullptr, {}};
  FieldWriter writer(format, out);
  *out += '{';
  Describe(writer, config);
  *out += '}';
}

}  // namespace kvfence
