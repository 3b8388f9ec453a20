// See line_parser.h: verbs, and the demands that concern more than one key of a record.
#include "line_parser.h"

#include "log_fields.h"
#include "log_schema.h"

namespace kvfence {
namespace {

// What a whole record must satisfy; the text completes "expected ...", empty when all is well.
template <class E>
std::string Demand(const FenceConfig&, const E&) {
  return "";
}
std::string Demand(const FenceConfig&, const ShareEvent& e) {
  const auto other = [&](const auto& list) {  // an empty one may have been given too
    return list.data() != nullptr && list.size() != e.pages.size();
  };
  if (other(e.keys)) return "as many keys as pages";
  if (other(e.digests)) return "as many digests as pages";
  return "";
}
std::string Demand(const FenceConfig& config, const FreeEvent&) {
  if (config.frees == Frees::kExplicit) return "";
  return "no \"free\" in a log whose frees are implicit";
}
std::string Demand(const FenceConfig&, const PublishEvent& e) {
  const bool moved = e.page || e.from_key;
  if (static_cast<bool>(e.req) != moved && (!moved || (e.page && e.from_key))) return "";
  return "req and at, or page and from_key, in \"publish\"";
}
std::string Demand(const FenceConfig&, const LogExpect& e) {
  const bool keyed = e.has_reason || e.req || e.page || e.pool || e.at || e.step || e.row || e.rank;
  return e.clean && keyed ? "no other key beside \"clean\"" : "";
}

}  // namespace

LineParser::LineParser(FenceConfig config)
    : config_(std::move(config)),
      first_block_(size_t{256} << 10),
      arena_(first_block_.data(), first_block_.size()),
      row_seen_(config_.rows, 0) {}

template <class E>
bool LineParser::ParseAs(JsonPull* json, bool skip_ev, LogEvent* event) {
  E& record = event->emplace<E>();
  static const std::string noun = '"' + std::string(kVerb<E>) + '"';
  if (!ReadObject(json, this, noun, &record, skip_ev)) return false;
  std::string demand = Demand(config_, record);
  return demand.empty() || json->Fail(json->consumed() - 1, std::move(demand));
}

namespace {

template <class Variant>
struct Verbs;
template <class... E>
struct Verbs<std::variant<E...>> {
  static std::string List() {
    std::string list;
    ((list += (list.empty() ? "" : ", ") + std::string(kVerb<E>)), ...);
    return list;
  }
  // Calls `parse` with the type whose verb this is; false if there's none.
  template <class Parse>
  static bool Find(std::string_view verb, Parse parse) {
    return ((verb == kVerb<E> && (parse(static_cast<E*>(nullptr)), true)) || ...);
  }
};

}  // namespace

bool LineParser::Dispatch(std::string_view verb, size_t offset, JsonPull* json, bool skip_ev,
                          LogEvent* event) {
  bool parsed = false;
  const bool known = Verbs<LogEvent>::Find(verb, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    parsed = ParseAs<E>(json, skip_ev, event);
  });
  if (known) return parsed;
  return json->Fail(offset, "a verb (" + Verbs<LogEvent>::List() + "), found " + Quoted(verb));
}

// The verb of a line that doesn't begin with it.
bool LineParser::FindVerb(std::string_view line, std::string* verb, size_t* offset,
                          JsonPull* json) {
  JsonPull scan(line);
  std::string_view key, text;
  size_t at = 0;
  scan.BeginObject("an object");
  while (scan.NextKey(&key, &at)) {
    if (key != "ev") {
      scan.Skip();
      continue;
    }
    *offset = scan.Offset();
    if (scan.String("a verb", &text)) {
      *verb = text;
      return true;
    }
  }
  if (!scan.ok()) {
    return json->Fail(scan.error_offset(), scan.error().substr(std::string("expected ").size()));
  }
  return json->Fail(scan.consumed() - 1, "\"ev\"");
}

bool LineParser::Parse(std::string_view line, NameIntern* names, LogEvent* event) {
  names_ = names;
  arena_.release();
  ++serial_;
  JsonPull json(line);
  std::string_view key, text;
  std::string verb;
  size_t at = 0;
  bool good = json.BeginObject("an object");
  const bool has_key = good && json.NextKey(&key, &at);
  if (has_key && key == "ev") {
    at = json.Offset();
    good = json.String("a verb", &text);
    if (good) {
      verb = text;
      good = Dispatch(verb, at, &json, false, event);
    }
  } else if (has_key) {
    good = FindVerb(line, &verb, &at, &json);
    if (good) {
      json = JsonPull(line);
      json.BeginObject("an object");
      good = Dispatch(verb, at, &json, true, event);
    }
  } else if (json.ok()) {
    good = json.Fail(json.consumed() - 1, "\"ev\"");
  } else {
    good = false;
  }
  if (good) good = json.End();
  if (!good) error_ = {json.error_offset(), json.error(), json.ran_out()};
  return good;
}

bool ParseHeader(std::string_view line, FenceConfig* config, LineError* error) {
  JsonPull json(line);
  *config = FenceConfig();
  if (json.BeginObject("the header, an object") &&
      ReadObject(&json, nullptr, "the header", config) && json.End()) {
    return true;
  }
  *error = {json.error_offset(), json.error(), json.ran_out()};
  return false;
}

}  // namespace kvfence
