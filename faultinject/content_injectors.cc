// Faults of content, brought by other streams, and of the fence's own records of it.
#include <algorithm>

#include "injector.h"
#include "kvfence/device_types.h"

namespace kvfence {
namespace {

// Something that hits a page of a request at a seeded moment, if the page is still its own then.
class HitsAPage : public Injector {
  bool Queue(Scene& s) override {
    const Target target = PickTarget(s.at, s.rng, kNoRequest);
    if (target.request == kNoRequest) return false;
    const RequestId victim = s.at.IdOf(target.request);
    const uint64_t word = s.rng.Next();
    const auto begin = s.Begin;
    Fence* fence = s.fence;
    s.Async(StepId(s.at.step().value() + 1), [=, this](FaultSurface& at) {
      const std::span<const PageId> pages = at.PagesOf(target.request);
      if (at.IdOf(target.request) != victim || pages.size() <= target.at) return false;
      if (pages[target.at] != target.page || pages.size() < LeastPages()) return false;
      begin(at, {.text = Text(target), .pages = {target.page}, .requests = {target.request}});
      Hit(at, fence, target, victim, word);
      return true;
    });
    return true;
  }
  virtual size_t LeastPages() const { return 1; }
  virtual std::string Text(const Target& target) const = 0;
  virtual void Hit(FaultSurface& at, Fence* fence, const Target& target, RequestId victim,
                   uint64_t word) = 0;

 protected:
  // In the fence-off arm there is no record.
  static PageRecord* RecordOf(Fence* fence, PageId page) {
    return fence == nullptr ? nullptr : fence->DeviceRecord(RankId(0), PoolId(0), page);
  }
};

class StrayWrite final : public HitsAPage {
  std::string Text(const Target& t) const override {
    return "a copy of nobody's lands in " + Name(t.page) + " of " + Name(t.request);
  }
  void Hit(FaultSurface& at, Fence*, const Target& t, RequestId, uint64_t word) override {
    at.Write({.page = t.page, .first = 0, .n = t.slots, .content = word});
  }
};

class MisplacedCopy final : public HitsAPage {
  static uint64_t Other(const Target& t) { return t.at > 0 ? t.at - 1 : 1; }
  size_t LeastPages() const override { return 2; }
  std::string Text(const Target& t) const override {
    return "a copy of " + Name(t.request) + "'s own logical page " + std::to_string(Other(t)) +
           " lands in " + Name(t.page) + ", its logical page " + std::to_string(t.at);
  }
  void Hit(FaultSurface& at, Fence*, const Target& t, RequestId victim, uint64_t word) override {
    at.Write({.page = t.page,
              .first = 0,
              .n = t.slots,
              .content = word,
              .as = {.req = victim, .at = Other(t)}});
  }
};

// What a copy brings back from the host is the right page, in another order than it was read.
class LoadPermuted final : public Injector {
  bool OnArrive(Scene& s, const ContentMove& move, uint64_t slots) override {
    const std::vector<RequestIndex> holders = s.at.HoldersOf(*move.to);
    if (slots < 2 || holders.empty()) return false;
    const uint64_t a = s.rng.Below(slots);
    const uint64_t b = (a + 1 + s.rng.Below(slots - 1)) % slots;
    s.Begin(s.at, {.text = "a copy from the host brings slots " + std::to_string(a) + " and " +
                           std::to_string(b) + " of " + Name(*move.to) + " (" + Name(holders[0]) +
                           "'s) in each other's place",
                   .pages = {*move.to}});
    s.at.SwapSlots(*move.to, a, b);
    return true;
  }
};

class StampFlip final : public HitsAPage {
  std::string Text(const Target& t) const override {
    return "a bit flips in the device's stamp of " + Name(t.page) + ", held by " + Name(t.request);
  }
  void Hit(FaultSurface&, Fence* fence, const Target& t, RequestId, uint64_t word) override {
    if (PageRecord* record = RecordOf(fence, t.page)) {
      // A high bit of the serial: it never turns into "no stamp", which would be another finding.
      record->stamp ^= uint64_t{1} << (44 + word % 20);
    }
  }
};

class ScaleFlip final : public HitsAPage {
  std::string Text(const Target& t) const override {
    return "a bit flips in the device's scale mark of " + Name(t.page) + ", held by " +
           Name(t.request);
  }
  void Hit(FaultSurface&, Fence* fence, const Target& t, RequestId, uint64_t word) override {
    if (PageRecord* record = RecordOf(fence, t.page)) {
      record->scale = static_cast<uint16_t>(record->scale ^ 1u << word % 16);
    }
  }
};

class FillLost final : public HitsAPage {
  std::string Text(const Target& t) const override {
    return "the device forgets that " + Name(t.page) + " of " + Name(t.request) + " is written";
  }
  void Hit(FaultSurface&, Fence* fence, const Target& t, RequestId, uint64_t) override {
    if (PageRecord* record = RecordOf(fence, t.page)) {
      record->fill_flags = static_cast<uint16_t>(record->fill_flags & ~kFillMask);
    }
  }
};

}  // namespace

std::unique_ptr<Injector> MakeContentInjector(std::string_view kind) {
  if (kind == "stray_write") return std::make_unique<StrayWrite>();
  if (kind == "misplaced_copy") return std::make_unique<MisplacedCopy>();
  if (kind == "load_permuted") return std::make_unique<LoadPermuted>();
  if (kind == "stamp_flip") return std::make_unique<StampFlip>();
  if (kind == "scale_flip") return std::make_unique<ScaleFlip>();
  if (kind == "fill_lost") return std::make_unique<FillLost>();
  return nullptr;
}

}  // namespace kvfence
