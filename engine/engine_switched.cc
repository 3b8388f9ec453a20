// The engine with a fence that may be absent.
#include "engine_impl.h"
#include "kvfence/switched_tracker.h"

namespace kvfence {

template class Engine<SwitchedTracker>;

}  // namespace kvfence
