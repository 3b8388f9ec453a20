// Predicted times of the fence's launches and of attention on GPUs: nothing here is measured.
//
// Idea: formulas and assumptions stand in gpu_prediction.h; this prints them for the devices whose
// data sheets are there, so that a measurement (gpu_bench) has something to be held against that
// was written down before.
#include <cstdio>
#include <string>
#include <string_view>

#include "gpu_prediction_json.h"

namespace kvfence {
namespace {

constexpr const char* kHelp =
    "usage: gpu_prediction [--json]    predicted device times, from bytes, launches and waits\n"
    "  --json   one JSON object instead of tables\n"
    "example: gpu_prediction --json > bench/results/gpu_prediction.json\n";

void PrintValidator(const Json& device) {
  std::printf(
      "page size  sharing    entries  validate MB   validate us: floor  expected   "
      "all us: floor  expected   in a graph: floor  expected\n");
  for (const Json& row : device["validator"]) {
    std::printf("%9d %8d %10d %12.2f %20.1f %9.1f %15.1f %9.1f %19.1f %9.1f\n",
                row["page_size"].get<int>(), row["sharing"].get<int>(), row["entries"].get<int>(),
                row["validate_bytes"]["total"].get<double>() / 1e6,
                row["validate_us"]["floor"].get<double>(),
                row["validate_us"]["expected"].get<double>(), row["all_us"]["floor"].get<double>(),
                row["all_us"]["expected"].get<double>(), row["all_graph_us"]["floor"].get<double>(),
                row["all_graph_us"]["expected"].get<double>());
  }
}

void PrintAttention(const Json& device) {
  std::printf("%-22s %10s %12s %18s %24s %10s\n", "attention", "KV MB", "us by bytes",
              "us by bf16 flops", "by this kernel's flops", "KV reads");
  for (const Json& row : device["attention"]) {
    std::printf("%-22s %10.0f %12.1f %18.1f %24.1f %10.0f\n",
                row["form"].get<std::string>().c_str(), row["kv_bytes"].get<double>() / 1e6,
                row["floor_us"].get<double>(), row["tensor_core_us"].get<double>(),
                row["own_tensor_core_us"].get<double>(), row["own_kv_reads"].get<double>());
  }
}

void PrintSteps(const Json& device) {
  for (const Json& row : device["step"]) {
    std::printf(
        "step of 61 layers of FP8 MLA, page size %2d: attention >= %.0f us; added %.1f us "
        "(%.2f %%), in a graph %.1f us (%.2f %%)\n",
        row["page_size"].get<int>(), row["attention_floor_us"].get<double>(),
        row["added_us"]["expected"].get<double>(), row["added_percent"].get<double>(),
        row["added_graph_us"]["expected"].get<double>(), row["added_graph_percent"].get<double>());
  }
}

int Print(bool json) {
  const Json all = Predictions();
  if (json) {
    std::printf("%s\n", all.dump(1).c_str());
    return 0;
  }
  std::printf("predicted, not measured; 1.37M tokens in 64 rows, then 64 rows of 8,192\n");
  for (const Json& device : all["devices"]) {
    std::printf("\n%s: %.2f TB/s\n", device["device"].get<std::string>().c_str(),
                device["tb_per_s"].get<double>());
    PrintValidator(device);
    PrintAttention(device);
    PrintSteps(device);
  }
  return 0;
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) {
  const std::string_view argument = argc == 2 ? argv[1] : "";
  if (argc == 1 || argument == "--json") return kvfence::Print(argc == 2);
  std::fputs(kvfence::kHelp, argument == "--help" ? stdout : stderr);
  return argument == "--help" ? 0 : 2;
}
