// What the fence and attention cost on a GPU, each figure beside a baseline of the same run.
//
// Idea: three parts (validator, attention, step) over the shapes of gpu_shapes.h, whose predictions
// (gpu_prediction) were written down before anything was measured. Device 0, one stream. Without a
// GPU it says why and exits 3; --dry checks there that all batches are what they should be.
#include <charconv>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "gpu_measure.h"
#include "kvfence/backend.h"

namespace kvfence {
namespace {

constexpr const char* kHelp =
    "usage: gpu_bench [flags]    the fence's launches and attention on a GPU, medians\n"
    "  --rounds=30    repetitions of each measurement, after a warm-up\n"
    "  --layers=61    of the decode step\n"
    "  --part=NAME    validator, attention or step only\n"
    "  --json         one JSON object instead of tables\n"
    "  --dry          no GPU: runs the launches on the CPU over every batch that would be "
    "measured\n"
    "examples: gpu_bench --json > build/gpu/gpu.json\n"
    "          gpu_bench --part=step --rounds=100\n"
    "exit: 0 measured, 1 a CUDA error or a batch that wasn't clean, 2 usage, 3 no GPU\n";

struct Options {
  uint32_t rounds = 30, layers = kStepLayers;
  std::string part;
  bool json = false, dry = false, help = false;
};

bool Number(std::string_view text, uint32_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 1 && *out <= 10000;
}

bool Read(std::string_view argument, Options* options) {
  const size_t equals = argument.find('=');
  const std::string_view value = equals == argument.npos ? "" : argument.substr(equals + 1);
  if (argument.starts_with("--rounds=")) return Number(value, &options->rounds);
  if (argument.starts_with("--layers=")) return Number(value, &options->layers);
  if (argument.starts_with("--part=")) {
    options->part = value;
    return value == "validator" || value == "attention" || value == "step";
  }
  if (argument == "--json") return options->json = true;
  if (argument == "--dry") return options->dry = true;
  if (argument == "--help") return options->help = true;
  return false;
}

bool Wanted(const Options& options, std::string_view part) {
  return options.part.empty() || options.part == part;
}

// --- without a GPU ------------------------------------------------------------------------------

int Dry() {
  std::vector<BatchShape> shapes = ValidatorShapes();
  for (const uint32_t page_size : kGpuPageSizes) {
    shapes.push_back(ShapeOfTokens(uint64_t{kGpuRows} * kGpuContext, page_size, 1));
  }
  for (const BatchShape& shape : shapes) {
    BatchPool pool(shape.Pages() + 1, shape);
    ValidatorBatch batch(shape, AllPages(shape.Pages() + 1), &pool);
    BatchScratch scratch(shape);
    const bool clean = CleanOnCpu(&batch, &pool, &scratch);
    std::printf("pages of %2u, sharing %u: %7llu entries of %7u pages: %s\n", shape.page_size,
                shape.sharing, static_cast<unsigned long long>(shape.Entries()), shape.Pages(),
                clean ? "clean" : "NOT CLEAN");
    if (!clean) return 1;
  }
  return 0;
}

// --- tables -------------------------------------------------------------------------------------

double At(const Json& row, const char* key) { return row[key].get<double>(); }

void PrintDevice(const Json& all) {
  const Json& device = all["device"];
  std::printf(
      "%s: copy %.0f GB/s, straight read %.0f GB/s, empty launch %.2f us, in a graph %.2f\n",
      device["name"].get<std::string>().c_str(), At(device, "copy_gb_per_s"),
      At(device, "read_gb_per_s"), At(device, "launch_us"), At(device, "node_us"));
}

void PrintValidator(const Json& rows) {
  std::printf(
      "\nvalidator, us\npage size  sharing    entries    apply  validate  confirm       all  in a "
      "graph     warm  copy of bytes  validate / predicted  all / predicted\n");
  for (const Json& row : rows) {
    std::printf("%9.0f %8.0f %10.0f %8.1f %9.1f %8.1f %9.1f %11.1f %8.1f %14.1f %21.2f %16.2f\n",
                At(row, "page_size"), At(row, "sharing"), At(row, "entries"), At(row, "apply_us"),
                At(row, "validate_us"), At(row, "confirm_us"), At(row, "all_us"),
                At(row, "all_graph_us"), At(row, "all_warm_us"), At(row, "copy_of_bytes_us"),
                At(row, "validate_to_predicted"), At(row, "all_to_predicted"));
  }
}

void PrintAttention(const Json& rows) {
  std::printf("\n%-22s page size        us      GB/s   of copy   of read  floor us\n", "attention");
  for (const Json& row : rows) {
    std::printf("%-22s %9.0f %9.1f %9.0f %9.2f %9.2f %9.1f\n",
                row["form"].get<std::string>().c_str(), At(row, "page_size"), At(row, "us"),
                At(row, "gb_per_s"), At(row, "of_copy"), At(row, "of_read"), At(row, "floor_us"));
  }
}

void PrintSteps(const Json& rows) {
  std::printf(
      "\ndecode step, FP8 MLA, us\npage size  layers  how         without    added "
      "(95 %% interval)   percent  predicted  host\n");
  for (const Json& row : rows) {
    for (const char* how : {"launched", "graph"}) {
      const bool graph = how[0] == 'g';
      const Json& arm = row[how];
      std::printf(
          "%9.0f %7.0f  %-8s %10.1f %8.1f (%.1f to %.1f) %11.4f %10.1f %5.1f\n",
          At(row, "page_size"), At(row, "layers"), how, At(arm, "without_us"), At(arm, "added_us"),
          At(arm, "added_us_low"), At(arm, "added_us_high"), At(arm, "added_percent"),
          At(row[graph ? "predicted_graph_us" : "predicted_us"], "expected"), At(row, "host_us"));
    }
  }
}

// --- measuring ----------------------------------------------------------------------------------

Json DeviceToJson(const Gpu& gpu) {
  int driver = 0;
  int runtime = 0;
  Must(cudaDriverGetVersion(&driver), "the driver's version");
  Must(cudaRuntimeGetVersion(&runtime), "the runtime's version");
  const cudaDeviceProp& properties = gpu.properties();
  return {{"name", properties.name},
          {"sm", properties.major * 10 + properties.minor},
          {"multiprocessors", properties.multiProcessorCount},
          {"l2_bytes", properties.l2CacheSize},
          {"memory_bytes", properties.totalGlobalMem},
          {"driver", driver},
          {"runtime", runtime},
          {"copy_gb_per_s", Hundredths(gpu.copy_gb_per_s)},
          {"read_gb_per_s", Hundredths(gpu.read_gb_per_s)},
          {"launch_us", Hundredths(gpu.launch_us)},
          {"node_us", Hundredths(gpu.node_us)}};
}

// Rows of one part, with a word to standard error before each.
template <class Shapes, class Measure>
Json Part(const char* name, const Shapes& shapes, const Measure& measure) {
  Json rows = Json::array();
  for (const auto& shape : shapes) {
    std::fprintf(stderr, "gpu_bench: %s, %zu of %zu\n", name, rows.size() + 1, std::size(shapes));
    rows.push_back(measure(shape));
  }
  return rows;
}

int Measure(const Options& options) {
  Gpu gpu(options.rounds);
  Json all = {{"measured", true}, {"rounds", options.rounds}, {"device", DeviceToJson(gpu)}};
  if (!options.json) PrintDevice(all);
  if (Wanted(options, "validator")) {
    all["validator"] = Part("validator", ValidatorShapes(),
                            [&](const BatchShape& shape) { return MeasureValidator(shape, &gpu); });
    if (!options.json) PrintValidator(all["validator"]);
  }
  if (Wanted(options, "attention")) {
    all["attention"] = Part("attention", AttentionShapes(), [&](const AttentionShape& shape) {
      return MeasureAttention(shape, &gpu);
    });
    if (!options.json) PrintAttention(all["attention"]);
  }
  if (Wanted(options, "step")) {
    all["step"] = Part("step", kGpuPageSizes, [&](uint32_t page_size) {
      return MeasureStep(page_size, options.layers, &gpu);
    });
    if (!options.json) PrintSteps(all["step"]);
  }
  if (options.json) std::printf("%s\n", all.dump(1).c_str());
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (Read(argv[i], &options)) continue;
    std::fprintf(stderr, "gpu_bench: cannot use %s\n%s", argv[i], kHelp);
    return 2;
  }
  if (options.help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  if (options.dry) return Dry();
  std::string why;
  if (CudaAvailable(&why)) return Measure(options);
  std::fprintf(stderr, "gpu_bench: no GPU to measure on: %s\n", why.c_str());
  return 3;
}

}  // namespace
}  // namespace kvfence

int main(int argc, char** argv) { return kvfence::Main(argc, argv); }
