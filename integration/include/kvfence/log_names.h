// Names: the strings of a log (request ids, copies, digests, keys, identities) as small integers.
//
// A log's reader asks a NameIntern, its writer a NameLookup; a fence can stand behind both, and
// LogNames is both for those who read or write a log without one. Invariant: the same string gives
// the same id for life, 0 is "none given" and is never given out.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvfence/name_table.h"
#include "kvfence/types.h"

namespace kvfence {

using IdentityField = std::pair<std::string, std::string>;

class NameIntern {
 public:
  virtual ~NameIntern() = default;
  virtual NameId Intern(std::string_view name) = 0;
  // The order of the fields doesn't matter; no fields are the empty identity, 0.
  virtual IdentityId InternIdentity(std::span<const IdentityField> fields) = 0;
};

// Ids must have been given out before.
class NameLookup {
 public:
  virtual ~NameLookup() = default;
  virtual std::string_view NameOf(NameId id) const = 0;
  // A key that stands for a string (as a reader makes them: the id of its name), else 16 hex
  // digits: engines pass their own 64-bit block hashes.
  virtual std::string KeyNameOf(KeyId key) const = 0;
  virtual std::span<const IdentityField> FieldsOf(IdentityId id) const = 0;
};

// Not thread-safe. Views stay valid as long as the table.
class LogNames : public NameIntern, public NameLookup {
 public:
  NameId Intern(std::string_view name) override;
  IdentityId InternIdentity(std::span<const IdentityField> fields) override;
  std::string_view NameOf(NameId id) const override;
  std::string KeyNameOf(KeyId key) const override;
  std::span<const IdentityField> FieldsOf(IdentityId id) const override;

 private:
  NameTable names_;
  NameTable identity_texts_;
  std::deque<std::vector<IdentityField>> identities_{std::vector<IdentityField>()};
};

// One text per identity, whatever the order of its fields; none runs into another.
std::string CanonicalIdentity(std::span<const IdentityField> fields);

}  // namespace kvfence
