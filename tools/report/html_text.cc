#include "report/html_text.h"

#include <algorithm>
#include <cstdio>

namespace kvfence::tools {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the well-formed UTF-8 character at the start of `text`, 0 if there is none.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t n = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < n) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  if (byte(0) == 0xE0 && byte(1) < 0xA0) return 0;
  if (byte(0) == 0xED && byte(1) > 0x9F) return 0;
  if (byte(0) == 0xF0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xF4 && byte(1) > 0x8F) return 0;
  return n;
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
}

}  // namespace

std::string Escape(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    const size_t n = CharacterLength(text);
    if (n == 0 || IsControl(text[0])) {
      out += kReplacement;
    } else if (text[0] == '&') {
      out += "&amp;";
    } else if (text[0] == '<') {
      out += "&lt;";
    } else if (text[0] == '>') {
      out += "&gt;";
    } else if (text[0] == '"') {
      out += "&quot;";
    } else if (text[0] == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(std::max<size_t>(n, 1));
  }
  return out;
}

std::string ScriptJson(std::string_view json) {
  std::string out;
  out.reserve(json.size() + json.size() / 8);
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else if (c == '>') {
      out += "\\u003e";
    } else if (c == '&') {
      out += "\\u0026";
    } else {
      out += c;
    }
  }
  return out;
}

std::string LinkTo(std::string_view file) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
  std::string out = "./";  // a name with a colon would otherwise read as a scheme
  for (const char c : file) {
    if (kPlain.find(c) != std::string_view::npos) {
      out += c;
    } else {
      char code[8];
      std::snprintf(code, sizeof(code), "%%%02X", static_cast<unsigned char>(c));
      out += code;
    }
  }
  return out;
}

std::string Grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string Percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  if (part == 0) return "0%";
  if (part >= whole) return "100%";
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  if (percent < 0.1) return "<0.1%";
  if (percent > 99.9) return ">99.9%";
  char text[16];
  std::snprintf(text, sizeof(text), "%.1f%%", percent);
  return text;
}

std::string Count(uint64_t number, std::string_view noun) {
  return Grouped(number) + " " + std::string(noun) + (number == 1 ? "" : "s");
}

std::string Fraction(double value) {
  char text[16];
  std::snprintf(text, sizeof(text), "%.3f", std::clamp(value, 0.0, 1.0));
  return text;
}

}  // namespace kvfence::tools
