// See the header. Grammar: RFC 8259; UTF-8 well-formedness: Unicode 15, table 3-7.
#include "json_pull.h"

#include <charconv>

namespace kvfence {
namespace {

std::string KindOf(std::string_view text, size_t pos) {
  if (pos >= text.size()) return "the end of the line";
  const char c = text[pos];
  switch (c) {
    case '{':
      return "an object";
    case '[':
      return "an array";
    case '"':
      return "a string";
    case 't':
      return "true";
    case 'f':
      return "false";
    case 'n':
      return "null";
    default:
      break;
  }
  if (c == '-' || (c >= '0' && c <= '9')) return "a number";
  if (c > ' ' && c < 0x7F) return std::string("'") + c + "'";
  constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  return std::string("byte 0x") + kHex[byte >> 4] + kHex[byte & 15];
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code >> 6));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code >> 12));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | code >> 18));
    out->push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

}  // namespace

bool JsonPull::Fail(size_t offset, std::string expected) {
  if (error_.empty()) {
    error_ = "expected " + std::move(expected);
    error_offset_ = offset;
    ran_out_ = offset >= text_.size();
  }
  return false;
}

bool JsonPull::Wrong(std::string_view what) {
  SkipSpace();
  return Fail(pos_, std::string(what) + ", found " + KindOf(text_, pos_));
}

size_t JsonPull::Offset() {
  SkipSpace();
  return pos_;
}

char JsonPull::Peek() {
  SkipSpace();
  return pos_ < text_.size() ? text_[pos_] : '\0';
}

bool JsonPull::BeginObject(std::string_view what) {
  if (!ok()) return false;
  if (Peek() != '{') return Wrong(what);
  ++pos_;
  first_ = true;
  return true;
}

bool JsonPull::BeginArray(std::string_view what) {
  if (!ok()) return false;
  if (Peek() != '[') return Wrong(what);
  ++pos_;
  first_ = true;
  return true;
}

// Consumes the closing bracket (then false) or what stands before a further item.
bool JsonPull::Separator(char close, std::string_view item) {
  if (!ok()) return false;
  const char c = Peek();
  const bool first = first_;
  first_ = false;
  if (c == close && pos_ < text_.size()) {
    ++pos_;
    return false;
  }
  if (first) {
    if (pos_ < text_.size()) return true;
    return Wrong(std::string(item) + " or '" + close + "'");
  }
  if (c != ',') return Wrong(std::string("',' or '") + close + "'");
  ++pos_;
  SkipSpace();
  if (pos_ >= text_.size() || text_[pos_] == close) return Wrong(item);
  return true;
}

bool JsonPull::NextKey(std::string_view* key, size_t* offset) {
  if (!Separator('}', "a key")) return false;
  *offset = Offset();
  if (!Quoted("a key", &key_scratch_, key)) return false;
  if (Peek() != ':') return Wrong("':'");
  ++pos_;
  return true;
}

bool JsonPull::NextItem() { return Separator(']', "a value"); }

bool JsonPull::String(std::string_view what, std::string_view* value) {
  return ok() && Quoted(what, &value_scratch_, value);
}

bool JsonPull::Quoted(std::string_view what, std::string* scratch, std::string_view* value) {
  if (Peek() != '"') return Wrong(what);
  const size_t begin = ++pos_;
  bool copied = false;
  size_t kept = begin;  // up to here the text is in `scratch`
  while (pos_ < text_.size()) {
    const auto c = static_cast<unsigned char>(text_[pos_]);
    if (c == '"') {
      if (copied) scratch->append(text_.substr(kept, pos_ - kept));
      *value = copied ? std::string_view(*scratch) : text_.substr(begin, pos_ - begin);
      ++pos_;
      return true;
    }
    if (c == '\\') {
      if (!copied) scratch->clear();
      copied = true;
      scratch->append(text_.substr(kept, pos_ - kept));
      if (!Escape(scratch)) return false;
      kept = pos_;
    } else if (c < 0x20) {
      return Fail(pos_, "no control character in a string, found " + KindOf(text_, pos_));
    } else if (c >= 0x80) {
      if (!Utf8Sequence()) return false;
    } else {
      ++pos_;
    }
  }
  return Fail(pos_, "'\"'");
}

bool JsonPull::Hex4(uint32_t* value) {
  *value = 0;
  for (int i = 0; i < 4; ++i, ++pos_) {
    if (pos_ >= text_.size()) return Fail(pos_, "four hexadecimal digits");
    const char c = text_[pos_];
    uint32_t digit = 0;
    if (IsDigit(c)) {
      digit = static_cast<uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint32_t>(c - 'a' + 10);
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<uint32_t>(c - 'A' + 10);
    } else {
      return Fail(pos_, "four hexadecimal digits");
    }
    *value = *value << 4 | digit;
  }
  return true;
}

bool JsonPull::Escape(std::string* out) {
  const size_t begin = pos_++;
  if (pos_ >= text_.size()) return Fail(pos_, "an escape");
  const char c = text_[pos_++];
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kBytes = "\"\\/\b\f\n\r\t";
  const size_t simple = kNames.find(c);
  if (simple != std::string_view::npos) {
    out->push_back(kBytes[simple]);
    return true;
  }
  if (c != 'u') return Fail(begin, "an escape of JSON");
  uint32_t code = 0;
  if (!Hex4(&code)) return false;
  if (code >= 0xDC00 && code < 0xE000) return Fail(begin, "no low surrogate without a high one");
  if (code >= 0xD800 && code < 0xDC00) {
    uint32_t low = 0;
    const std::string_view rest = text_.substr(pos_);
    if (rest.size() < 2 && std::string_view("\\u").starts_with(rest)) {
      return Fail(text_.size(), "a low surrogate");
    }
    if (!rest.starts_with("\\u")) return Fail(pos_, "a low surrogate");
    const size_t second = pos_;
    pos_ += 2;
    if (!Hex4(&low)) return false;
    if (low < 0xDC00 || low >= 0xE000) return Fail(second, "a low surrogate");
    code = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00));
  }
  AppendUtf8(code, out);
  return true;
}

bool JsonPull::Utf8Sequence() {
  const auto lead = static_cast<unsigned char>(text_[pos_]);
  size_t more = 0;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    more = 1;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    more = 2;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    more = 3;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return Fail(pos_, "UTF-8, found " + KindOf(text_, pos_));
  }
  ++pos_;
  for (size_t i = 0; i < more; ++i, ++pos_) {
    const auto c = pos_ < text_.size() ? static_cast<unsigned char>(text_[pos_]) : 0;
    if (pos_ >= text_.size() || c < low || c > high) {
      return Fail(pos_, "UTF-8, found " + KindOf(text_, pos_));
    }
    low = 0x80;
    high = 0xBF;
  }
  return true;
}

// An integer as the grammar has it, without fraction and exponent.
bool JsonPull::Digits(std::string_view what, bool* negative, uint64_t* magnitude) {
  if (!ok()) return false;
  const char first = Peek();
  *negative = first == '-';
  const size_t begin = pos_;
  size_t p = pos_ + (*negative ? 1 : 0);
  if (!*negative && !IsDigit(first)) return Wrong(what);
  if (p >= text_.size() || !IsDigit(text_[p])) return Fail(p, "a digit");
  if (text_[p] == '0' && p + 1 < text_.size() && IsDigit(text_[p + 1])) {
    return Fail(begin, std::string(what) + ", found a number with a leading zero");
  }
  const char* const end = text_.data() + text_.size();
  const auto [stop, status] = std::from_chars(text_.data() + p, end, *magnitude);
  if (stop != end && (*stop == '.' || *stop == 'e' || *stop == 'E')) {
    return Fail(begin, std::string(what) + ", found a number with a fraction or exponent");
  }
  if (status != std::errc()) {
    return Fail(begin, std::string(what) + ", found a number beyond 64 bits");
  }
  pos_ = static_cast<size_t>(stop - text_.data());
  return true;
}

bool JsonPull::Int(std::string_view what, int64_t* value) {
  const size_t at = Offset();
  bool negative = false;
  uint64_t magnitude = 0;
  if (!Digits(what, &negative, &magnitude)) return false;
  const uint64_t limit = uint64_t{1} << 63;
  if (negative ? magnitude > limit : magnitude >= limit) {
    return Fail(at, std::string(what) + ", found a number beyond 64 bits");
  }
  *value = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  return true;
}

bool JsonPull::Uint(std::string_view what, uint64_t* value, uint64_t max) {
  const size_t at = Offset();
  bool negative = false;
  uint64_t magnitude = 0;
  if (!Digits(what, &negative, &magnitude)) return false;
  if (negative && magnitude != 0) {
    return Fail(at, std::string(what) + ", found a negative number");
  }
  if (magnitude > max) {
    return Fail(at, std::string(what) + " of at most " + std::to_string(max) + ", found " +
                        std::to_string(magnitude));
  }
  *value = magnitude;
  return true;
}

bool JsonPull::Bool(std::string_view what, bool* value) {
  if (!ok()) return false;
  const char c = Peek();
  if (c != 't' && c != 'f') return Wrong(what);
  const std::string_view word = c == 't' ? "true" : "false";
  const std::string_view rest = text_.substr(pos_, word.size());
  if (rest != word) {
    return word.starts_with(rest) ? Fail(text_.size(), std::string(what))
                                  : Fail(pos_, std::string(what));
  }
  pos_ += word.size();
  *value = c == 't';
  return true;
}

bool JsonPull::TakeNull() {
  if (!ok() || Peek() != 'n') return false;
  const std::string_view rest = text_.substr(pos_, 4);
  if (rest != "null") {
    return std::string_view("null").starts_with(rest) ? Fail(text_.size(), "null")
                                                      : Fail(pos_, "null");
  }
  pos_ += 4;
  return true;
}

// Only where the verb doesn't come first: what is skipped is parsed for good afterwards.
bool JsonPull::Skip() {
  uint64_t depth = 0;
  std::string_view ignored;
  do {
    if (!ok()) return false;
    const char c = Peek();
    if (pos_ >= text_.size()) return Wrong("a value");
    if (c == '"') {
      if (!Quoted("a string", &value_scratch_, &ignored)) return false;
    } else if (c == '{' || c == '[') {
      ++depth;
      ++pos_;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return Wrong("a value");
      --depth;
      ++pos_;
    } else if (depth > 0) {
      ++pos_;
    } else {
      const size_t begin = pos_;
      while (pos_ < text_.size() &&
             std::string_view(",}] \t\r\n").find(text_[pos_]) == std::string_view::npos) {
        ++pos_;
      }
      if (pos_ == begin) return Wrong("a value");
    }
  } while (depth > 0);
  first_ = false;
  return true;
}

bool JsonPull::End() {
  if (!ok()) return false;
  SkipSpace();
  return pos_ == text_.size() || Wrong("the end of the line");
}

}  // namespace kvfence
