// Fault kinds as data: what each deliberate corruption is, where it enters, what may answer it.
//
// A kind is one operator of the bug catalogue. It enters through a named hook point of the
// reference engine, as altered data, never by a macro in production code. docs/FAULTS.md shows this
// list.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kvfence/reason.h"

namespace kvfence {

struct FaultKind {
  std::string_view name;      // stale_mapping, double_free ...
  char fault_class;           // the catalogue's letter, A..O
  std::string_view hook;      // name of the engine's hook point it enters by
  CheckSet reasons;           // those that may answer it
  bool bookkeeping_only;      // can't make a wrong read by itself (a leak): the off arm stays right
  std::string_view corrupts;  // one line for people
  // Features of the engine without which it finds no occasion, and those it can't be told apart
  // with; names, comma-separated.
  std::string_view needs{};
  std::string_view without{};
  uint64_t rows = 1;  // batch rows without which it finds no occasion

  // The engine doesn't start once it's found, so no other kind has its turn beside it.
  bool at_start() const { return hook == "at_start"; }
};

// All kinds, in a fixed order.
std::span<const FaultKind> FaultKinds();
const FaultKind* FindFaultKind(std::string_view name);

// docs/FAULTS.md.
std::string FaultsMarkdown();

}  // namespace kvfence
