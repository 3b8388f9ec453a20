#include "injector.h"

#include <algorithm>

namespace kvfence {

std::unique_ptr<Injector> MakeInjector(std::string_view kind) {
  using Make = std::unique_ptr<Injector> (*)(std::string_view);
  constexpr Make kMakers[] = {MakePageInjector,  MakeTableInjector,    MakeStepInjector,
                              MakeEntryInjector, MakeLateInjector,     MakeContentInjector,
                              MakeBooksInjector, MakeIdentityInjector, MakeStartInjector};
  for (const Make make : kMakers) {
    if (auto injector = make(kind)) return injector;
  }
  return nullptr;
}

Target PickTarget(FaultSurface& at, Rng& rng, RequestIndex but) {
  std::vector<RequestIndex> running = at.Running();
  std::erase_if(running, [&](RequestIndex r) { return r == but || at.LengthOf(r) == 0; });
  Target target;
  if (running.empty()) return target;
  const RequestIndex request = running[rng.Below(running.size())];
  const uint64_t length = at.LengthOf(request);
  const uint64_t used = std::min<uint64_t>((length + at.page_size() - 1) / at.page_size(),
                                           at.PagesOf(request).size());
  if (used == 0) return target;
  target.request = request;
  target.at = rng.Chance(1, 2) ? used - 1 : rng.Below(used);  // the last one is its own for sure
  target.page = at.PagesOf(request)[target.at];
  target.slots = std::min(at.page_size(), length - target.at * at.page_size());
  return target;
}

}  // namespace kvfence
