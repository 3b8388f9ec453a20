// See the header.
#include "kvfence/log_names.h"

#include <algorithm>
#include <cstdio>

#include "kvfence/check.h"

namespace kvfence {

std::string CanonicalIdentity(std::span<const IdentityField> fields) {
  std::vector<IdentityField> sorted(fields.begin(), fields.end());
  std::sort(sorted.begin(), sorted.end());
  std::string out;
  for (const auto& [key, value] : sorted) {
    for (const std::string* part : {&key, &value}) {
      out += std::to_string(part->size()) + ':' + *part;
    }
  }
  return out;
}

NameId LogNames::Intern(std::string_view name) { return NameId(names_.Intern(name)); }

IdentityId LogNames::InternIdentity(std::span<const IdentityField> fields) {
  if (fields.empty()) return IdentityId{};
  const uint32_t id = identity_texts_.Intern(CanonicalIdentity(fields));
  if (id == identities_.size()) identities_.emplace_back(fields.begin(), fields.end());
  return IdentityId(id);
}

std::string_view LogNames::NameOf(NameId id) const { return names_.NameOf(id.value()); }

std::string LogNames::KeyNameOf(KeyId key) const {
  if (key.value() != 0 && key.value() <= names_.size()) {
    return std::string(names_.NameOf(static_cast<uint32_t>(key.value())));
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(key.value()));
  return text;
}

std::span<const IdentityField> LogNames::FieldsOf(IdentityId id) const {
  KVF_CHECK(id.value() < identities_.size(), "an identity that this table never gave out");
  return identities_[id.value()];
}

}  // namespace kvfence
