// Names in two deques (stable addresses) and two hash maps; see the header.
#include "kvfence/name_table.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvfence/check.h"

namespace kvfence {
namespace {

absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

// One string per identity: fields in order, each part preceded by its size, so none can run over.
std::string Canonical(std::vector<IdentityField> fields) {
  std::sort(fields.begin(), fields.end());
  std::string out;
  for (const auto& [key, value] : fields) {
    for (const std::string* part : {&key, &value}) {
      out += std::to_string(part->size()) + ':' + *part;
    }
  }
  return out;
}

}  // namespace

struct NameTable::Rep {
  std::deque<std::string> names{std::string()};
  absl::flat_hash_map<absl::string_view, uint32_t> ids;
  std::deque<std::vector<IdentityField>> identities{std::vector<IdentityField>()};
  absl::flat_hash_map<std::string, uint32_t> identity_ids{{std::string(), 0}};
};

NameTable::NameTable() : rep_(std::make_unique<Rep>()) {}
NameTable::~NameTable() = default;

NameId NameTable::Intern(std::string_view name) {
  const auto found = rep_->ids.find(Abseil(name));
  if (found != rep_->ids.end()) return NameId(found->second);
  KVF_CHECK(rep_->names.size() < UINT32_MAX, "names are 32-bit numbers");
  const auto id = static_cast<uint32_t>(rep_->names.size());
  rep_->names.emplace_back(name);
  rep_->ids.emplace(Abseil(rep_->names.back()), id);
  return NameId(id);
}

IdentityId NameTable::InternIdentity(std::span<const IdentityField> fields) {
  std::vector<IdentityField> copy(fields.begin(), fields.end());
  const auto id = static_cast<uint32_t>(rep_->identities.size());
  const auto [found, fresh] = rep_->identity_ids.emplace(Canonical(copy), id);
  if (fresh) rep_->identities.push_back(std::move(copy));
  return IdentityId(found->second);
}

std::string_view NameTable::NameOf(NameId id) const {
  KVF_CHECK(id.value() < rep_->names.size(), "a name that this table never gave out");
  return rep_->names[id.value()];
}

std::string NameTable::KeyNameOf(KeyId key) const {
  if (key.value() != 0 && key.value() < rep_->names.size()) {
    return std::string(rep_->names[key.value()]);
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(key.value()));
  return text;
}

std::span<const IdentityField> NameTable::FieldsOf(IdentityId id) const {
  KVF_CHECK(id.value() < rep_->identities.size(), "an identity that this table never gave out");
  return rep_->identities[id.value()];
}

}  // namespace kvfence
