#include "kvfence/incident.h"

#include <nlohmann/json.hpp>

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

// "R" or, for a later use of the id, "R#2".
std::string RequestText(RequestId req, const IncidentNames& names) {
  std::string text(names.request(req.name()));
  if (req.incarnation() > 1) text += "#" + std::to_string(req.incarnation());
  return text;
}

}  // namespace

std::string ToJson(const IncidentRecord& record, const IncidentNames& names) {
  const Violation& v = record.violation;
  Json json;
  json["reason"] = std::string(ReasonName(v.reason));
  json["event"] = record.event;
  if (v.step >= 0) json["step"] = v.step;
  if (v.req) json["req"] = RequestText(v.req, names);
  if (v.row >= 0) json["row"] = v.row;
  if (v.pool >= 0) json["pool"] = std::string(names.pool(static_cast<uint32_t>(v.pool)));
  if (v.at >= 0) json["at"] = v.at;
  if (v.page >= 0) json["page"] = v.page;
  json["expected"] = v.expected;
  json["found"] = v.found;
  json["rank"] = v.rank;
  json["holders"] = Json::array();
  for (const RequestId holder : record.holders) {
    json["holders"].push_back(RequestText(holder, names));
  }
  json["history"] = Json::array();
  for (const PageHistoryEntry& entry : record.history) {
    Json line;
    line["event"] = entry.event;
    if (entry.step >= 0) line["step"] = entry.step;
    line["verb"] = PageVerbName(entry.verb);
    if (entry.req) line["req"] = RequestText(entry.req, names);
    json["history"].push_back(std::move(line));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kvfence
