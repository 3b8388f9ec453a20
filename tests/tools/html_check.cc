#include "tests/tools/html_check.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace kvfence::tools {
namespace {

const std::set<std::string, std::less<>> kVoid = {"meta", "br", "hr", "link", "input", "img"};
const std::set<std::string, std::less<>> kRaw = {"script", "style"};
const std::set<std::string, std::less<>> kEntities = {"amp", "lt", "gt", "quot"};

class Reader {
 public:
  explicit Reader(std::string_view html) : html_(html) {}

  HtmlDocument Read() {
    if (!Eat("<!DOCTYPE html>")) return Fail("no doctype");
    while (at_ < html_.size() && document_.error.empty()) {
      if (html_[at_] == '<') {
        ReadTag();
      } else {
        ReadText();
      }
    }
    if (document_.error.empty() && !open_.empty()) {
      return Fail("<" + document_.elements[open_.back()].name + "> is never closed");
    }
    return std::move(document_);
  }

 private:
  HtmlDocument Fail(const std::string& why) {
    if (document_.error.empty()) {
      document_.error = "at byte " + std::to_string(at_) + ": " + why + " near '" +
                        std::string(html_.substr(at_ < 40 ? 0 : at_ - 40, 80)) + "'";
    }
    return std::move(document_);
  }
  void Wrong(const std::string& why) { document_ = Fail(why); }

  bool Eat(std::string_view text) {
    if (html_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  std::string Name() {
    const size_t begin = at_;
    while (at_ < html_.size() && (std::isalnum(static_cast<unsigned char>(html_[at_])) != 0 ||
                                  html_[at_] == '-' || html_[at_] == '_')) {
      ++at_;
    }
    return std::string(html_.substr(begin, at_ - begin));
  }

  void CheckEntities(std::string_view text) {
    for (size_t i = text.find('&'); i != std::string_view::npos; i = text.find('&', i + 1)) {
      const size_t end = text.find(';', i);
      const std::string_view name =
          text.substr(i + 1, end == std::string_view::npos ? 0 : end - i - 1);
      const bool number = name.size() > 1 && name[0] == '#' &&
                          std::all_of(name.begin() + 1, name.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
      if (!number && kEntities.count(name) == 0) return Wrong("a bare &");
    }
  }

  void ReadText() {
    const size_t end = std::min(html_.find('<', at_), html_.size());
    const std::string_view text = html_.substr(at_, end - at_);
    CheckEntities(text);
    if (text.find('>') != std::string_view::npos) return Wrong("a bare >");
    if (open_.empty() && text.find_first_not_of(" \n") != std::string_view::npos) {
      return Wrong("text outside of every element");
    }
    if (!open_.empty()) document_.elements[open_.back()].text += text;
    at_ = end;
  }

  void ReadTag() {
    if (Eat("</")) {
      const std::string name = Name();
      if (!Eat(">")) return Wrong("a closing tag with more in it");
      if (open_.empty() || document_.elements[open_.back()].name != name) {
        return Wrong("</" + name + "> closes nothing");
      }
      return open_.pop_back();
    }
    ++at_;
    HtmlElement element;
    element.name = Name();
    if (element.name.empty()) return Wrong("a bare <");
    bool closed = false;
    if (!ReadAttributes(&element, &closed)) return Wrong("a bad attribute");
    const std::string name = element.name;
    document_.elements.push_back(std::move(element));
    if (closed || kVoid.count(name) != 0) return;
    open_.push_back(document_.elements.size() - 1);
    if (kRaw.count(name) == 0) return;
    const size_t end = html_.find("</" + name, at_);
    if (end == std::string_view::npos) return Wrong("<" + name + "> is never closed");
    document_.elements.back().text = std::string(html_.substr(at_, end - at_));
    at_ = end;
  }

  bool ReadAttributes(HtmlElement* element, bool* closed) {
    while (true) {
      while (Eat(" ") || Eat("\n")) {
      }
      if (Eat(">")) return true;
      if (Eat("/>")) return *closed = true;
      const std::string name = Name();
      if (name.empty() || element->attributes.count(name) != 0) return false;
      std::string value;
      if (Eat("=")) {
        if (!Eat("\"")) return false;
        const size_t end = html_.find('"', at_);
        if (end == std::string_view::npos) return false;
        value = std::string(html_.substr(at_, end - at_));
        at_ = end + 1;
        CheckEntities(value);
        if (value.find('<') != std::string::npos) return false;
      }
      element->attributes[name] = value;
    }
  }

  std::string_view html_;
  size_t at_ = 0;
  std::vector<size_t> open_;
  HtmlDocument document_;
};

}  // namespace

std::vector<const HtmlElement*> HtmlDocument::Named(std::string_view name) const {
  std::vector<const HtmlElement*> found;
  for (const HtmlElement& element : elements) {
    if (element.name == name) found.push_back(&element);
  }
  return found;
}

const HtmlElement* HtmlDocument::WithId(std::string_view id) const {
  for (const HtmlElement& element : elements) {
    const auto it = element.attributes.find("id");
    if (it != element.attributes.end() && it->second == id) return &element;
  }
  return nullptr;
}

HtmlDocument ReadHtml(std::string_view html) { return Reader(html).Read(); }

}  // namespace kvfence::tools
