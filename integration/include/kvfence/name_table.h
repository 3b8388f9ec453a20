// Names: the strings of a log (request ids, copies, digests, keys, identities) as small integers.
//
// Invariant: the same string gives the same id for the table's life, 0 is "none given" and is never
// given out; views stay valid as long as the table.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kvfence/types.h"

namespace kvfence {

using IdentityField = std::pair<std::string, std::string>;

// String to id: what a log's reader asks.
class NameIntern {
 public:
  virtual ~NameIntern() = default;
  virtual NameId Intern(std::string_view name) = 0;
  // The order of the fields doesn't matter; no fields are the empty identity, 0.
  virtual IdentityId InternIdentity(std::span<const IdentityField> fields) = 0;
};

// Id to string: what a log's writer asks. Ids must have been given out before.
class NameLookup {
 public:
  virtual ~NameLookup() = default;
  virtual std::string_view NameOf(NameId id) const = 0;
  // A key that stands for a string (as a reader makes them: the id of its name), else 16 hex
  // digits: engines pass their own 64-bit block hashes.
  virtual std::string KeyNameOf(KeyId key) const = 0;
  virtual std::span<const IdentityField> FieldsOf(IdentityId id) const = 0;
};

// Both, in memory. Not thread-safe.
class NameTable : public NameIntern, public NameLookup {
 public:
  NameTable();
  ~NameTable() override;
  NameId Intern(std::string_view name) override;
  IdentityId InternIdentity(std::span<const IdentityField> fields) override;
  std::string_view NameOf(NameId id) const override;
  std::string KeyNameOf(KeyId key) const override;
  std::span<const IdentityField> FieldsOf(IdentityId id) const override;

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace kvfence
