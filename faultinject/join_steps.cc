#include "join_steps.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;
using Name = std::pair<std::string, std::string>;

bool Is(const std::string& line, const char* verb) {
  return line.find(std::string("\"") + verb + '"') != std::string::npos &&
         Json::parse(line).at("ev") == verb;
}
std::string RankOf(const Json& event) {
  return event.contains("rank") ? event["rank"].dump() : "0";
}
Name RowName(const Json& event, const Json& row) { return {RankOf(event), row.at("req").dump()}; }
Name StepName(const Json& event) { return {RankOf(event), event.at("step").dump()}; }

// Slots in the order of their tokens; by pool where the rows say so.
void Append(Json* to, const Json& slots) {
  if (to->is_null()) {
    *to = slots;
  } else if (slots.is_object()) {
    for (const auto& [pool, of_pool] : slots.items()) Append(&(*to)[pool], of_pool);
  } else {
    for (const Json& slot : slots) to->push_back(slot);
  }
}

// `row` does `more`'s work first, then its own.
void Precede(Json* row, const Json& more) {
  if (more.is_null()) return;
  row->at("new") = row->at("new").get<uint64_t>() + more.at("new").get<uint64_t>();
  for (const char* key : {"write", "writes"}) {
    if (!more.contains(key)) continue;
    Json slots = more[key];
    if (row->contains(key)) Append(&slots, (*row)[key]);
    (*row)[key] = std::move(slots);
  }
}

}  // namespace

std::vector<size_t> StepLines(const std::vector<std::string>& lines) {
  std::vector<size_t> found;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (Is(lines[i], "step")) found.push_back(i);
  }
  return found;
}

std::vector<std::string> JoinSteps(const std::vector<std::string>& lines,
                                   const std::vector<size_t>& gone) {
  std::vector<std::string> out;
  std::map<Name, Json> waiting;  // rows whose work is still to be done
  std::set<Name> steps_gone;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool goes = std::ranges::binary_search(gone, i);
    const bool ends = !goes && (Is(lines[i], "confirm") || Is(lines[i], "retire"));
    if (ends && steps_gone.contains(StepName(Json::parse(lines[i])))) continue;
    if (!goes && (ends || waiting.empty() || !Is(lines[i], "step"))) {
      out.push_back(lines[i]);
      continue;
    }
    Json event = Json::parse(lines[i]);
    if (goes) steps_gone.insert(StepName(event));
    if (!event.contains("rows")) {  // padded rows alone
      if (!goes) out.push_back(lines[i]);
      continue;
    }
    for (Json& row : event.at("rows")) {
      Json& before = waiting[RowName(event, row)];
      Precede(&row, std::exchange(before, Json()));
      if (goes) before = row;
    }
    if (!goes) out.push_back(event.dump());
  }
  return out;
}

}  // namespace kvfence
