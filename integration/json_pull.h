// A pull parser for one line of a log: JSON values are asked for one by one, by the type wanted.
//
// Why not the JSON library here: its SAX parser takes about 800 ns for a 70-byte line and doesn't
// say where a value stood; a player that plays 2 M events a second has 500 ns for everything, and
// every refusal names its column. The tests hold this parser against the library on random lines.
// Invariant: nothing recurses and nothing is expanded; the first failure stays and everything after
// it is false. Text must be UTF-8; views live until the next value is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace kvfence {

class JsonPull {
 public:
  explicit JsonPull(std::string_view text) : text_(text) {}

  bool ok() const { return error_.empty(); }
  // "expected ..." and the byte offset where it was expected.
  const std::string& error() const { return error_; }
  size_t error_offset() const { return error_offset_; }
  // The failure is that the text ended.
  bool ran_out() const { return ran_out_; }
  // Keeps the first failure. Always false.
  bool Fail(size_t offset, std::string expected);
  // Fails with "expected <what>, found <what stands here>".
  bool Wrong(std::string_view what);

  // The offset of the next value (white space skipped), and its first byte; 0 at the end.
  size_t Offset();
  char Peek();
  // One past the last byte that was taken.
  size_t consumed() const { return pos_; }

  bool BeginObject(std::string_view what);
  // The next key; false at the closing brace (which is consumed) and on failure.
  bool NextKey(std::string_view* key, size_t* offset);
  bool BeginArray(std::string_view what);
  // Is there a further item? false at the closing bracket (consumed) and on failure.
  bool NextItem();
  bool String(std::string_view what, std::string_view* value);
  bool Int(std::string_view what, int64_t* value);
  bool Uint(std::string_view what, uint64_t* value,
            uint64_t max = std::numeric_limits<uint64_t>::max());
  bool Bool(std::string_view what, bool* value);
  // Consumes `null` if it stands here.
  bool TakeNull();
  // Any value, nested to any depth, unread but for its brackets and strings.
  bool Skip();
  // Nothing but white space is left.
  bool End();

 private:
  void SkipSpace() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\t' ||
                                   text_[pos_] == '\r' || text_[pos_] == '\n')) {
      ++pos_;
    }
  }
  bool Digits(std::string_view what, bool* negative, uint64_t* magnitude);
  bool Quoted(std::string_view what, std::string* scratch, std::string_view* value);
  bool Escape(std::string* out);
  bool Hex4(uint32_t* value);
  bool Utf8Sequence();
  bool Separator(char close, std::string_view item);

  std::string_view text_;
  size_t pos_ = 0;
  bool first_ = false;  // right after an opening bracket
  bool ran_out_ = false;
  size_t error_offset_ = 0;
  std::string error_;
  std::string key_scratch_;
  std::string value_scratch_;
};

}  // namespace kvfence
