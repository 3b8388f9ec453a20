#include "whole_tables.h"

#include <utility>

namespace kvfence {
namespace {

std::vector<nlohmann::ordered_json> Words(const nlohmann::ordered_json& table) {
  return {table.begin(), table.end()};
}

}  // namespace

WholeTables::WholeTables(const Json& header) {
  for (const Json& each : header.at("pools")) {
    Pool& pool = pools_.emplace_back();
    pool.name = each.at("name").get<std::string>();
    pool.page_size = each.at("page_size").get<int64_t>();
    pool.null_page = each.value("null_page", int64_t{0});
    pool.slots = each.value("entries", std::string()) == "slots";
  }
}

bool WholeTables::Expand(Json* event) {
  if (event->at("ev") != "step") return false;
  const std::string rank = event->contains("rank") ? (*event)["rank"].dump() : "0";
  bool patched = false;
  for (const char* key : {"rows", "pads"}) {
    if (!event->contains(key)) continue;
    for (Json& row : (*event)[key]) patched |= ExpandRow(rank, &row);
  }
  return patched;
}

// Entries that no table has named are null.
void WholeTables::Apply(const Pool& pool, const Json& edits, std::vector<Json>* words) const {
  for (const Json& edit : edits) {
    const auto index = edit.at(0).get<size_t>();
    for (size_t i = words->size(); i <= index; ++i) {
      const auto offset = static_cast<int64_t>(i) % pool.page_size;
      words->push_back(pool.slots ? pool.null_page * pool.page_size + offset : pool.null_page);
    }
    (*words)[index] = edit.at(1);
  }
}

bool WholeTables::ExpandRow(const std::string& rank, Json* row) {
  const std::string number = row->at("row").dump();
  const auto last = [&](const std::string& pool) -> std::vector<Json>& {
    return last_[{rank, number, pool}];
  };
  if (row->contains("table")) last(pools_[0].name) = Words((*row)["table"]);
  if (row->contains("tables")) {
    for (const auto& [pool, table] : (*row)["tables"].items()) last(pool) = Words(table);
  }
  if (!row->contains("patch")) return false;
  Json patch = std::move((*row)["patch"]);
  row->erase("patch");
  if (patch.is_array()) {  // of the first pool
    Apply(pools_[0], patch, &last(pools_[0].name));
    (*row)["table"] = last(pools_[0].name);
    return true;
  }
  for (const Pool& pool : pools_) {
    if (!patch.contains(pool.name)) continue;
    Apply(pool, patch[pool.name], &last(pool.name));
    (*row)["tables"][pool.name] = last(pool.name);
  }
  return true;
}

}  // namespace kvfence
