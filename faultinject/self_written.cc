#include "self_written.h"

#include <algorithm>
#include <utility>

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;

// Runs of slots of the positions 0 .. length-1, as the table has them; nothing where it's too
// short. What has no page is skipped.
Json SlotsOf(const Json& pool, const Json& table, uint64_t length) {
  const auto size = pool.at("page_size").get<uint64_t>();
  const auto null_page = pool.value("null_page", int64_t{0});
  if (pool.contains("entries") || table.size() * size < length) return {};
  Json slots = Json::array();
  for (uint64_t begin = 0; begin < length; begin += size) {
    const auto page = table[begin / size].get<int64_t>();
    const uint64_t n = std::min(size, length - begin);
    if (page == null_page) {
      for (uint64_t i = 0; i < n; ++i) slots.push_back(-1);
    } else {
      slots.push_back({page * static_cast<int64_t>(size), n});
    }
  }
  return slots;
}

// False: it can't be said.
bool WriteAll(const Json& header, Json* row) {
  const auto length = row->at("len").get<int64_t>();
  if (length <= row->at("new").get<int64_t>()) return false;
  const auto tokens = static_cast<uint64_t>(length);
  Json by_pool = Json::object();
  for (const Json& pool : header.at("pools")) {
    const std::string name = pool.at("name").get<std::string>();
    const bool first = name == header["pools"][0].at("name");
    const Json* table = first && row->contains("table") ? &(*row)["table"] : nullptr;
    if (row->contains("tables") && (*row)["tables"].contains(name)) table = &(*row)["tables"][name];
    if (table == nullptr) continue;
    Json slots = SlotsOf(pool, *table, tokens);
    if (slots.is_null()) return false;
    by_pool[name] = std::move(slots);
  }
  if (by_pool.empty()) return false;
  row->erase("write");
  (*row)["writes"] = std::move(by_pool);
  (*row)["new"] = tokens;
  return true;
}

}  // namespace

std::vector<std::string> SelfWritten(const Json& header, const std::vector<std::string>& lines,
                                     size_t step) {
  Json event = Json::parse(lines[step]);
  if (event.at("ev") != "step" || !event.contains("rows")) return lines;
  std::vector<size_t> gone;
  for (Json& row : event["rows"]) {
    if (!row.contains("len") || row.contains("base")) continue;
    std::vector<size_t> ready;
    for (size_t i = 0; i < step; ++i) {
      if (lines[i].find("\"ready\"") == std::string::npos) continue;
      const Json earlier = Json::parse(lines[i]);
      if (earlier.at("ev") == "ready" && earlier.at("req") == row.at("req")) ready.push_back(i);
    }
    if (ready.empty() || !WriteAll(header, &row)) continue;
    gone.insert(gone.end(), ready.begin(), ready.end());
  }
  std::vector<std::string> out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (std::ranges::find(gone, i) != gone.end()) continue;
    out.push_back(i == step && !gone.empty() ? event.dump() : lines[i]);
  }
  return out;
}

}  // namespace kvfence
