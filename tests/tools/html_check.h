// A strict little reader of HTML, for tests: what a browser would forgive is an error here.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kvfence::tools {

struct HtmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;  // raw, as written between the quotes
  std::string text;                               // raw text directly inside, all pieces joined
};

struct HtmlDocument {
  std::string error;  // empty: every element is closed in order, every attribute is quoted
  std::vector<HtmlElement> elements;  // in the order of their start tags

  std::vector<const HtmlElement*> Named(std::string_view name) const;
  const HtmlElement* WithId(std::string_view id) const;
};

HtmlDocument ReadHtml(std::string_view html);

}  // namespace kvfence::tools
