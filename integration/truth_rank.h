// One rank's part of the ground truth: its pages, and what its requests expect of them.
//
// See check_truth.h for the idea. A launched step writes first, then reads, at its own line of the
// log; what happens to it later (a mover's write while attention runs, a row that fails after all)
// is applied to what it read.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "check_truth.h"
#include "truth_content.h"

namespace kvfence {

class CheckTruth::Rank {
 public:
  Rank(const FenceConfig& config, uint32_t rank);

  void On(const AdmitEvent& e);
  void On(const AllocEvent& e);
  void On(const ShareEvent& e);
  void On(const ForkEvent& e);
  void On(const CowEvent& e);
  void On(const TrimEvent& e);
  void On(const DropEvent& e);
  void On(const ReleaseEvent& e);
  void On(const ReadyEvent& e);
  void On(const PublishEvent& e);
  void On(const UnpublishEvent& e);
  void On(const PinEvent& e);
  void On(const UnpinEvent& e);
  void On(const WriteEvent& e);
  void On(const ReadEvent& e);
  void On(const CopyEvent& e);
  template <class E>
  void On(const E&) {}  // the others move neither content nor expectations

  struct LaunchedRow {
    Row row;
    uint64_t tokens = 0;
    bool pad = false;
    bool failed = false;
    bool wrong = false;
    bool counted = false;
    size_t reads_begin = 0, reads_end = 0;
    size_t writes_begin = 0, writes_end = 0;
    RequestId req;
  };
  // Slots [first, first + n) of a page that a row read as its logical page `at`.
  struct Read {
    uint32_t pool = 0, at = 0;
    uint32_t first = 0, n = 0;
    int64_t page = 0;
    bool late = false;  // its copy may still arrive: judged at confirm
  };
  struct Written {
    uint32_t space = 0, first = 0, n = 0;
    int64_t page = 0;
    uint64_t id = 0;
  };
  struct Launch {
    StepId step;
    uint64_t serial = 0;
    bool confirmed = false;
    size_t reader = 0;  // index of the row whose reads are being judged
    std::vector<LaunchedRow> rows;
    std::vector<Read> reads;
    std::vector<Written> writes;
  };

  void Step(StepId step, std::span<const TruthRow> rows, std::span<const PrefixPlan> prefix,
            const std::function<bool(Row)>& fails);
  void Confirm(StepId step, std::span<const TruthRow> changed,
               const std::function<bool(Row)>& fails);
  // Null if the step isn't launched here.
  Launch* Find(StepId step);
  // The rows for which `failed` holds are void; the step is over.
  void Retire(StepId step, const std::function<bool(Row)>& failed);

 private:
  struct Page {
    RunList runs;
    CellPtr cell;              // what its latest holder expects
    uint64_t read_serial = 0;  // of the last launch that read it
    uint64_t write_serial = 0;
    size_t writer = 0;  // row index of the write of that launch; kManyRows: of several
  };
  static constexpr size_t kManyRows = ~size_t{0};
  static constexpr size_t kChunk = 1024;
  struct Space {
    uint64_t pages = 0;
    std::vector<std::unique_ptr<std::array<Page, kChunk>>> chunks;
  };
  // One logical page of a request; a null cell: it holds nothing there.
  struct Mapping {
    CellPtr cell;
    int64_t page = -1;
    uint32_t void_from = ~0u;  // slots from here on were trimmed, but spared for others
  };
  struct Request {
    bool alive = true;
    uint32_t bases = 0;                       // steps whose base the next trims are to say
    std::vector<std::vector<Mapping>> pools;  // [pool][logical page]
  };
  struct Pin {
    CopyDir dir = CopyDir::kIn;
    uint32_t pool = 0;
    std::vector<PageId> pages;
    std::optional<KeyId> key;
    std::vector<Written> brought;
  };
  // One page of what a key stands for.
  struct Key {
    CellPtr cell;
    bool published = false;
  };
  struct KeyPages {
    std::map<uint32_t, std::deque<Key>> pools;
    std::deque<std::optional<RunList>> stored;  // what an `out` copy under this key last read
  };

  // Null: beyond the pool.
  Page* PageOf(uint32_t pool, int64_t page) {
    if (page < 0 || static_cast<uint64_t>(page) >= PoolOf(pool).pages) return nullptr;
    const auto index = static_cast<size_t>(page);
    auto& chunk = spaces_[space_of_[pool]].chunks[index / kChunk];
    if (chunk == nullptr) chunk = std::make_unique<std::array<Page, kChunk>>();
    return &(*chunk)[index % kChunk];
  }
  const PoolConfig& PoolOf(uint32_t pool) const { return config_.pools[pool]; }
  Request* Find(RequestId req);    // alive or ended; null: unknown
  Request* Living(RequestId req);  // null: ended or unknown
  RequestId Resolve(RequestId req) const;
  CellPtr NewCell(RequestId owner);
  // The key's page in this pool; where the pool has no such key, in one that has.
  Key& KeyAt(KeyId key, uint32_t pool, size_t number);
  CellPtr KeyCell(KeyId key, uint32_t pool, size_t number = 0);
  void Publish(KeyId key, uint32_t pool, CellPtr cell);
  void Map(Request* req, uint32_t pool, uint64_t at, CellPtr cell, int64_t page);
  // Voids what trims spared in a page that is a request's alone by now.
  void CutSpared(uint32_t pool, const Page& page);
  // Null: the request holds nothing there.
  Mapping* At(Request* req, uint32_t pool, uint64_t at);

  // Lets `change` alter the page, and marks rows wrong whose attention may have read it meanwhile.
  void Outside(uint32_t pool, int64_t page, const std::function<void(Page*)>& change);
  // Fills slots of a page with what `cell` expects there; what it doesn't know yet is born now.
  void Bring(NameId xfer, uint32_t pool, int64_t number, uint32_t first, uint32_t n);
  void Fill(RunList* page, Cell* cell, uint32_t first, uint32_t n);

  void WriteTokens(Launch* launch, const TruthRow& row, const TruthRow::Pool& part);
  uint64_t Birth(Request* req, const TruthRow& row, const TruthRow::Pool& part, uint64_t token,
                 int64_t page, uint32_t offset, uint32_t n);
  uint64_t OwnContent(Request* req, RequestId id, uint32_t pool, uint64_t at, uint32_t first,
                      uint32_t n, int64_t page);
  // What one row reads in one pool; false: not what it should. Reads are kept in the launch.
  bool ReadPool(Launch* launch, Request* req, const TruthRow& row, const TruthRow::Pool& part,
                std::span<const PrefixPlan> prefix);
  bool ReadPlain(Launch* launch, Request* req, const TruthRow& row, const TruthRow::Pool& part,
                 uint64_t begin, uint64_t end);
  bool ReadPage(Launch* launch, Request* req, const TruthRow& row, const TruthRow::Pool& part,
                std::span<const PrefixPlan> prefix, uint64_t begin, uint64_t end);
  bool ReadWhole(Launch* launch, Request* req, const TruthRow& row, const TruthRow::Pool& part);
  bool Keep(Launch* launch, Request* req, const TruthRow& row, const Read& read);
  bool Judge(Request* req, const Read& read);
  bool IsLate(const TruthRow& row, uint32_t pool, int64_t page) const;
  bool WrittenByOthers(const Launch& launch, const Read& read) const;
  void Void(Launch* launch, LaunchedRow* row);
  bool Relies(const LaunchedRow& row, const Read& read, const Written& w);

  const FenceConfig& config_;
  const uint32_t rank_;
  std::vector<uint32_t> space_of_;  // [pool]
  std::vector<Space> spaces_;
  std::unordered_map<uint32_t, uint32_t> incarnations_;  // name -> latest
  std::unordered_map<uint64_t, Request> requests_;
  std::deque<uint64_t> ended_;
  std::unordered_map<uint64_t, KeyPages> keys_;
  std::unordered_map<uint32_t, Pin> pins_;
  std::deque<Launch> launches_;
  uint64_t next_id_ = 1;
  uint64_t serial_ = 0;
};

}  // namespace kvfence
