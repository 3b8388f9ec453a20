#include "log_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

bool Has(const std::vector<uint8_t>& have, const std::vector<uint32_t>& needs) {
  return std::ranges::all_of(needs, [&](uint32_t token) { return have[token] != 0; });
}

std::string Text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

// Turns one line after another into parts.
class LogParts::Reading {
 public:
  explicit Reading(uint32_t* tokens) : tokens_(tokens) {}

  Line Read(const std::string& text) {
    Json json = Json::parse(text);
    Line line;
    line.verb = json.at("ev").get<std::string>();
    rank_ = json.contains("rank") ? json["rank"].dump() : "0";
    Names(json, &line);
    if (line.verb == "step") Step(&json, &line);
    if (line.verb == "confirm" && json.contains("rows")) {
      const std::string step = StepName(json);
      line.lists.push_back(Take(&json, "rows", [&](const Json& row, Item* item) {
        item->needs.push_back(Token("t/" + step + "/" + row.at("row").dump()));
      }));
    }
    if (line.verb == "free") {
      const std::string pool = Pool(json, "pool");
      line.lists.push_back(Take(&json, "pages", [&](const Json& page, Item* item) {
        item->needs.push_back(Page(pool, page));
      }));
      line.lists.back().vital = true;
      for (const Item& item : line.lists.back().items) {
        line.takes.insert(line.takes.end(), item.needs.begin(), item.needs.end());
      }
    }
    line.text = json.dump();
    return line;
  }

 private:
  uint32_t Token(const std::string& name) {
    const auto [found, fresh] = ids_.emplace(name, *tokens_);
    if (fresh) ++*tokens_;
    return found->second;
  }
  uint32_t Request(const Json& name) { return Token("r/" + Text(name)); }
  uint32_t Page(const std::string& pool, const Json& page) {
    return Token("p/" + pool + "/" + page.dump());
  }
  static std::string Pool(const Json& json, const char* key) {
    return json.contains(key) ? Text(json[key]) : "";
  }
  std::string StepName(const Json& json) const { return rank_ + "/" + json.at("step").dump(); }

  // Moves a list out of the line; `read` fills in each item's tokens.
  template <class ReadItem>
  List Take(Json* json, const char* key, ReadItem read) {
    List list;
    list.key = key;
    if (!json->contains(key)) return list;
    Json items = std::move((*json)[key]);
    if (!items.is_array()) items = Json::array({std::move(items)});  // one may stand for a list
    for (const Json& each : items) {
      Item& item = list.items.emplace_back();
      item.text = each.dump();
      read(each, &item);
    }
    json->erase(key);
    return list;
  }

  // The tokens of all verbs but `step`, whose rows have their own.
  void Names(const Json& json, Line* line) {
    const std::string& verb = line->verb;
    const std::string pool = Pool(json, "pool");
    const auto need = [&](uint32_t token) { line->needs.push_back(token); };
    const auto give = [&](uint32_t token) { line->gives.push_back(token); };
    if (verb == "admit") {
      line->admits = Text(json.at("req"));
      give(Request(json["req"]));
      return;
    }
    if (verb == "step" || verb == "free") return;
    for (const char* key : {"req", "from", "to"}) {
      if (json.contains(key) && json[key].is_string()) need(Request(json[key]));
    }
    if (verb == "confirm" || verb == "retire") need(Token("s/" + StepName(json)));
    if (verb == "row" && !json.at("req").is_null()) {
      give(Token("b/" + json.at("row").dump() + "/" + Text(json["req"])));
    }
    Pages(json, line, pool);
    Keys(json, line);
    Copies(json, line);
  }

  void Pages(const Json& json, Line* line, const std::string& pool) {
    const bool issues = line->verb == "alloc" || line->verb == "cow";
    Tokens& tokens = issues ? line->gives : line->needs;
    if (json.contains("pages")) {
      for (const Json& page : json["pages"]) tokens.push_back(Page(pool, page));
    }
    if (json.contains("page")) tokens.push_back(Page(pool, json["page"]));
    if (line->verb != "copy") return;
    for (const auto& [key, where] : {std::pair("from", "from_pool"), std::pair("to", "to_pool")}) {
      tokens.push_back(Page(Pool(json, where), json.at(key)));
    }
  }

  // An entry is in the index until it's unpublished; what a key stood for is known for ever.
  void Keys(const Json& json, Line* line) {
    const auto now = [&](const Json& key) { return Token("k/" + Text(key)); };
    const auto ever = [&](const Json& key) { return Token("K/" + Text(key)); };
    if (json.contains("keys")) {
      for (const Json& key : json["keys"]) line->needs.push_back(now(key));
    }
    if (json.contains("from_key")) line->needs.push_back(now(json["from_key"]));
    if (json.contains("as") && json["as"].is_object() && json["as"].contains("key")) {
      line->needs.push_back(ever(json["as"]["key"]));
    }
    if (!json.contains("key")) return;
    if (line->verb == "publish") {
      line->gives.push_back(now(json["key"]));
      line->gives.push_back(ever(json["key"]));
    } else if (line->verb == "unpublish") {
      line->needs.push_back(now(json["key"]));
      line->takes.push_back(now(json["key"]));
    } else if (line->verb == "pin") {
      (json.at("dir") == "out" ? line->gives : line->needs).push_back(ever(json["key"]));
    }
  }

  void Copies(const Json& json, Line* line) {
    const auto copy = [&](const Json& id) { return Token("x/" + Text(id)); };
    if (line->verb == "pin") line->gives.push_back(copy(json.at("id")));
    if (line->verb == "unpin") {
      line->needs.push_back(copy(json.at("id")));
      line->takes.push_back(copy(json["id"]));
    }
    if (json.contains("xfer")) line->needs.push_back(copy(json["xfer"]));
  }

  void Step(Json* json, Line* line) {
    const std::string step = StepName(*json);
    line->step = step;
    line->gives.push_back(Token("s/" + step));
    const auto row_token = [&](const Json& row) { return Token("t/" + step + "/" + row.dump()); };
    line->lists.push_back(Take(json, "rows", [&](const Json& row, Item* item) {
      const Json& number = row.at("row");
      item->needs = {Request(row.at("req")),
                     Token("b/" + number.dump() + "/" + Text(row.at("req")))};
      if (row.contains("loads")) {
        for (const Json& id : row["loads"]) item->needs.push_back(Token("x/" + Text(id)));
      }
      item->gives = {row_token(number)};
    }));
    line->lists.back().vital = true;
    line->lists.push_back(Take(json, "pads", [](const Json&, Item*) {}));
    line->lists.back().vital = true;
    line->lists.push_back(Take(json, "prefix", [&](const Json& prefix, Item* item) {
      for (const Json& row : prefix.at("rows")) item->needs.push_back(row_token(row));
    }));
  }

  uint32_t* tokens_;
  std::map<std::string, uint32_t> ids_;
  std::string rank_;
};

LogParts::LogParts(const std::vector<std::string>& lines) {
  Reading reading(&tokens_);
  for (const std::string& line : lines) lines_.push_back(reading.Read(line));
  ForgetWhatWasNeverThere();
}

// Nobody is held to a token that it hadn't in the whole log.
void LogParts::ForgetWhatWasNeverThere() {
  std::vector<uint8_t> have(tokens_, 0);
  const auto forget = [&](Tokens* needs) {
    std::erase_if(*needs, [&](uint32_t token) { return have[token] == 0; });
  };
  for (Line& line : lines_) {
    forget(&line.needs);
    for (const uint32_t token : line.gives) have[token] = 1;
    for (List& list : line.lists) {
      for (Item& item : list.items) {
        forget(&item.needs);
        for (const uint32_t token : item.gives) have[token] = 1;
      }
    }
    for (const uint32_t token : line.takes) have[token] = 0;
  }
}

void LogParts::Walk(
    const std::function<bool(const PartRef&)>& gone,
    const std::function<void(const Line&, const std::vector<std::vector<const Item*>>&)>& keep)
    const {
  std::vector<uint8_t> have(tokens_, 0);
  for (uint32_t i = 0; i < lines_.size(); ++i) {
    const Line& line = lines_[i];
    if (gone({i}) || !Has(have, line.needs)) continue;
    std::vector<std::vector<const Item*>> kept(line.lists.size());
    bool lives = false, has_vital = false;
    for (size_t l = 0; l < line.lists.size(); ++l) {
      const List& list = line.lists[l];
      for (size_t k = 0; k < list.items.size(); ++k) {
        const Item& item = list.items[k];
        if (gone({i, static_cast<int32_t>(l), static_cast<int32_t>(k)})) continue;
        if (!Has(have, item.needs)) continue;
        kept[l].push_back(&item);
        for (const uint32_t token : item.gives) have[token] = 1;
      }
      has_vital |= list.vital && !list.items.empty();
      lives |= list.vital && !kept[l].empty();
    }
    if (has_vital && !lives) continue;
    for (const uint32_t token : line.gives) have[token] = 1;
    for (const uint32_t token : line.takes) have[token] = 0;
    keep(line, kept);
  }
}

std::vector<std::string> LogParts::Without(const std::vector<PartRef>& parts) const {
  std::set<std::tuple<uint32_t, int32_t, int32_t>> gone;
  for (const PartRef& part : parts) gone.insert({part.line, part.list, part.item});
  std::vector<std::string> out;
  Walk(
      [&](const PartRef& part) {
        return gone.contains({part.line, part.list, part.item});
      },
      [&](const Line& line, const std::vector<std::vector<const Item*>>& kept) {
        std::string text = line.text;
        text.pop_back();
        for (size_t l = 0; l < kept.size(); ++l) {
          const bool must = line.lists[l].key == "rows" && line.verb == "step";
          if (kept[l].empty() && !must) continue;
          text += ",\"" + line.lists[l].key + "\":[";
          for (size_t k = 0; k < kept[l].size(); ++k) {
            if (k != 0) text += ',';
            text += kept[l][k]->text;
          }
          text += ']';
        }
        out.push_back(text + "}");
      });
  return out;
}

std::vector<std::vector<PartRef>> LogParts::Requests() const {
  std::vector<std::vector<PartRef>> groups;
  std::map<std::string, size_t> group_of;
  for (uint32_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].verb != "admit") continue;
    const auto [found, fresh] = group_of.emplace(lines_[i].admits, groups.size());
    if (fresh) groups.emplace_back();
    groups[found->second].push_back({i});
  }
  return groups;
}

std::vector<std::vector<PartRef>> LogParts::Steps() const {
  std::vector<std::vector<PartRef>> groups;
  for (uint32_t i = 0; i < lines_.size(); ++i) {
    if (!lines_[i].step.empty()) groups.push_back({{i}});
  }
  return groups;
}

std::vector<std::vector<PartRef>> LogParts::Lines() const {
  std::vector<std::vector<PartRef>> groups;
  for (uint32_t i = 0; i < lines_.size(); ++i) groups.push_back({{i}});
  return groups;
}

std::vector<std::vector<PartRef>> LogParts::Items() const {
  std::vector<std::vector<PartRef>> groups;
  for (uint32_t i = 0; i < lines_.size(); ++i) {
    for (size_t l = 0; l < lines_[i].lists.size(); ++l) {
      for (size_t k = 0; k < lines_[i].lists[l].items.size(); ++k) {
        groups.push_back({{i, static_cast<int32_t>(l), static_cast<int32_t>(k)}});
      }
    }
  }
  return groups;
}

}  // namespace kvfence
