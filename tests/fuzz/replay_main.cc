// A main() for fuzz targets where libFuzzer isn't: plays the seeds, then mutants of them.
//
// usage: NAME_fuzz [--mutants=N] [--dictionary=FILE] [--seed=N] [FILE | FOLDER]...
// The same arguments give the same inputs. An input that brings the process down is named by a
// signal handler, and written where the environment variable KVFENCE_FINDING says.
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "kvfence/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using kvfence::Rng;

std::string g_input;  // the one being played

extern "C" void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));

extern "C" void Tell(int);
void TellSanitizer() { Tell(0); }

extern "C" void Tell(int) {
  const char* path = std::getenv("KVFENCE_FINDING");
  if (path == nullptr) path = "fuzz-finding";
  if (FILE* file = std::fopen(path, "wb")) {
    std::fwrite(g_input.data(), 1, g_input.size(), file);
    std::fclose(file);
    std::fprintf(stderr, "the input that did it was written to %s\n", path);
  }
  std::_Exit(77);
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Entries of a libFuzzer dictionary: what stands between the first and the last quote of a line.
std::vector<std::string> ReadDictionary(const std::string& path) {
  std::vector<std::string> words;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find('"'), last = line.rfind('"');
    if (line.empty() || line[0] == '#' || first >= last) continue;
    std::string word;
    for (size_t i = first + 1; i < last; ++i) {
      if (line[i] == '\\' && i + 1 < last) ++i;
      if (line[i] == 'x' && line[i - 1] == '\\' && i + 2 < last) {
        word += static_cast<char>(std::strtol(line.substr(i + 1, 2).c_str(), nullptr, 16));
        i += 2;
      } else {
        word += line[i];
      }
    }
    words.push_back(std::move(word));
  }
  return words;
}

// Where a line that holds position i begins, and one past its end.
std::pair<size_t, size_t> LineAt(const std::string& text, size_t i) {
  const size_t before = i == 0 ? std::string::npos : text.rfind('\n', i - 1);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  const size_t end = text.find('\n', i);
  return {begin, end == std::string::npos ? text.size() : end + 1};
}

void ChangeNumber(std::string* text, size_t i, Rng* rng) {
  while (i < text->size() && ((*text)[i] < '0' || (*text)[i] > '9')) ++i;
  size_t end = i;
  while (end < text->size() && (*text)[end] >= '0' && (*text)[end] <= '9') ++end;
  uint64_t value = 0;
  std::from_chars(text->data() + i, text->data() + end, value);
  const uint64_t values[] = {value + 1, value - 1, value * 2, 0, 1, rng->Below(64), rng->Next()};
  text->replace(i, end - i, std::to_string(values[rng->Below(std::size(values))]));
}

void Mutate(std::string* text, const std::vector<std::string>& words, Rng* rng) {
  const size_t i = rng->Below(text->size() + 1);
  const auto [begin, end] = LineAt(*text, i);
  switch (rng->Below(8)) {
    case 0:
      if (i < text->size()) (*text)[i] = static_cast<char>(rng->Next());
      break;
    case 1:
      text->insert(i, 1, static_cast<char>(rng->Next()));
      break;
    case 2:
      text->erase(i, rng->Between(1, 8));
      break;
    case 3:
      if (!words.empty()) text->insert(i, words[rng->Below(words.size())]);
      break;
    case 4:
      text->erase(begin, end - begin);
      break;
    case 5: {  // a line once more, somewhere else
      const std::string line = text->substr(begin, end - begin);
      text->insert(LineAt(*text, rng->Below(text->size() + 1)).first, line);
      break;
    }
    case 6:
      text->resize(i);
      break;
    default:
      ChangeNumber(text, i, rng);
      break;
  }
}

void Play(std::string input) {
  g_input = std::move(input);
  // A copy of exactly this size: ASan sees each byte read behind it.
  const std::vector<uint8_t> exact(g_input.begin(), g_input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t mutants = 1000, seed = 1;
  std::vector<std::string> words, seeds;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto value = [&](std::string_view name) {
      return arg.starts_with(name) ? argv[i] + name.size() : nullptr;
    };
    if (const char* n = value("--mutants=")) {
      mutants = std::strtoull(n, nullptr, 10);
    } else if (const char* s = value("--seed=")) {
      seed = std::strtoull(s, nullptr, 10);
    } else if (const char* path = value("--dictionary=")) {
      words = ReadDictionary(path);
    } else if (std::filesystem::is_directory(arg)) {
      for (const auto& entry : std::filesystem::directory_iterator(arg)) {
        if (entry.path().extension() == ".kvlog") files.push_back(entry.path());
      }
    } else if (std::filesystem::exists(arg)) {
      files.emplace_back(arg);
    } else {
      std::fprintf(stderr, "no such file or option: %s\n", argv[i]);
      return 2;
    }
  }
  std::signal(SIGABRT, Tell);
  std::signal(SIGSEGV, Tell);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(TellSanitizer);
  std::sort(files.begin(), files.end());
  for (const auto& file : files) seeds.push_back(ReadFile(file));
  for (const std::string& one : seeds) Play(one);
  Rng rng(seed);
  if (seeds.empty()) seeds.emplace_back();
  for (uint64_t n = 0; n < mutants; ++n) {
    std::string input = seeds[rng.Below(seeds.size())];
    for (uint64_t changes = rng.Between(1, 4); changes > 0; --changes) {
      Mutate(&input, words, &rng);
    }
    Play(std::move(input));
  }
  std::printf("%zu seeds and %llu mutants played\n", files.size(),
              static_cast<unsigned long long>(mutants));
  return 0;
}
