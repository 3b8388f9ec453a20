#include "atomic_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace kvfence::tools {
namespace {

Status Unavailable(const std::string& path, const std::string& why) {
  return Status(StatusCode::kUnavailable, path + ": " + why);
}

}  // namespace

Status PrepareFolder(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return Unavailable(dir, "cannot make this output folder: " + error.message());
  if (!std::filesystem::is_directory(dir, error)) return Unavailable(dir, "is not a folder");
  const std::string probe = dir + "/.kvfence.tmp";
  std::FILE* file = std::fopen(probe.c_str(), "wb");
  if (file == nullptr) {
    return Unavailable(dir,
                       std::string("cannot write in this output folder: ") + std::strerror(errno));
  }
  std::fclose(file);
  std::filesystem::remove(probe, error);
  return Status();
}

Status WriteFile(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) return Unavailable(path, std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                       std::fflush(file) == 0 && fsync(fileno(file)) == 0;
  const int why = errno;
  if (std::fclose(file) != 0 || !written) {
    std::remove(temporary.c_str());
    return Unavailable(path, std::strerror(why));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int rename_why = errno;
    std::remove(temporary.c_str());
    return Unavailable(path, std::strerror(rename_why));
  }
  return Status();
}

}  // namespace kvfence::tools
