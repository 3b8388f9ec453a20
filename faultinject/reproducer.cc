#include "reproducer.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "kvfence/shrink_log.h"

namespace kvfence {
namespace {

// A campaign has other things to do: what these haven't removed stays.
constexpr uint64_t kMostPlays = 2000;

}  // namespace

std::string SmallestNameOf(const std::string& log) {
  return std::filesystem::path(log).stem().string() + ".min.kvlog";
}

std::string WriteSmallest(const std::string& dir, const std::string& log,
                          const std::atomic<bool>* stop) {
  std::ifstream in(dir + "/" + log, std::ios::binary);
  ShrinkOptions options;
  options.stop = stop;
  options.max_plays = kMostPlays;
  Result<ShrunkLog> shrunk = ShrinkLog(&in, log, options);
  if (!shrunk.ok()) return "";
  const std::string name = SmallestNameOf(log);
  const std::string path = dir + "/" + name, temporary = path + ".tmp";
  std::error_code error;
  std::ofstream out(temporary, std::ios::binary);
  out << shrunk->text;
  out.close();
  if (out) {
    std::filesystem::rename(temporary, path, error);
    if (!error) return name;
  }
  std::filesystem::remove(temporary, error);
  return "";
}

}  // namespace kvfence
