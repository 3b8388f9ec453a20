// A model's geometry from a config.json as Hugging Face's hub keeps them, and the models built in.
//
// Only keys that count bytes are read; `text_config` is looked into where a model has several
// parts. Invariant: nothing is guessed. A key that is missing or makes no sense, and a layer kind
// whose cache isn't paged, is refused with file and key.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/status.h"
#include "plan_capacity.h"

namespace kvfence::tools {

struct ModelConfig {
  ModelGeometry geometry;
  // The format that the checkpoint is in; none: `format_trouble` says what stands there instead.
  std::optional<WeightFormat> format;
  std::string format_trouble;
};

// kUnavailable: no such file; kInvalidArgument: no JSON, or not a model that plan can count. The
// model's name is the file's folder where the file is called config.json, else the file's stem.
Result<ModelConfig> ReadModelConfig(const std::string& path);
// The same of text; `path` is for messages and the name.
Result<ModelConfig> ParseModelConfig(const std::string& text, const std::string& path);

// Models whose shapes are built in; nullopt: none of that name.
const std::vector<std::string_view>& KnownModels();
std::optional<ModelConfig> KnownModel(std::string_view name);

}  // namespace kvfence::tools
