// Writes out the tables that a log's steps give as patches of earlier ones, so that a step says the
// same whatever stands before it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

namespace kvfence {

class WholeTables {
 public:
  using Json = nlohmann::ordered_json;

  explicit WholeTables(const Json& header);
  // An event of the log, in its order. True: it had patches, and they are tables now.
  bool Expand(Json* event);

 private:
  struct Pool {
    std::string name;
    int64_t null_page = 0, page_size = 1;
    bool slots = false;
  };
  bool ExpandRow(const std::string& rank, Json* row);
  void Apply(const Pool& pool, const Json& edits, std::vector<Json>* words) const;

  std::vector<Pool> pools_;
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<Json>> last_;
};

}  // namespace kvfence
