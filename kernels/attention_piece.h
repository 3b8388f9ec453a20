// One thread's work on the CPU: a row, some of its KV heads and some parts of its context.
//
// A piece walks its parts in order. If it has all of the row's (`alone`) it joins them and writes
// the output; else it leaves each part's sums for JoinParts, which joins them in the same order, so
// that both give the same bits (I-62).
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>

#include "attention_cpu.h"
#include "attention_problem.h"

namespace kvfence::attention {

// Memory at a cache line's start, without a value.
template <class T>
class Buffer {
 public:
  explicit Buffer(uint64_t count)
      : data_(static_cast<T*>(
            ::operator new (std::max<uint64_t>(count, 1) * sizeof(T), std::align_val_t{64}))) {}
  ~Buffer() { ::operator delete (data_, std::align_val_t{64}); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* get() const { return data_; }

 private:
  T* const data_;
};

struct RowPlan {
  AttentionRow row;
  Span span;       // positions that its queries read
  Span chunks;     // parts of the context that these lie in
  uint64_t lines;  // per KV head
};

struct Piece {
  uint32_t row;
  uint32_t head, end_head;
  Span chunks;
  bool alone;
};

class PieceRun {
 public:
  // For pieces of at most that many lines per KV head, and that many KV heads.
  PieceRun(const Problem& a, const CpuBuild& build, uint64_t lines, uint32_t heads);

  // `partials`: [parts][lines of all KV heads][PartialFloats], of the row; unused when alone.
  void Run(const Piece& piece, const RowPlan& plan, float* partials);

 private:
  uint64_t LineAt(uint32_t head, uint64_t line) const {
    return (head - piece_->head) * plan_->lines + line;
  }
  void LoadQueries();
  void LoadPlane(const QueryPlane& plane, uint64_t out, uint32_t dims, float* to);
  void PlaceTokens(uint64_t begin, uint64_t end);
  void MaskTokens(uint64_t begin, uint64_t end);
  void PlaceInPage(uint64_t begin, uint64_t end, int64_t slot);
  void RunChunk(uint64_t chunk);
  void RunTile(uint64_t position, uint32_t head);
  void PointAt(const KvPlane& plane, uint32_t head, uint64_t position, int which,
               const uint8_t** rows) const;
  void Fetch(uint64_t position, uint32_t head, CpuTile* tile) const;
  uint32_t FetchPlane(const KvPlane& plane, uint32_t head, uint64_t position, int which,
                      uint32_t dims, const uint8_t** list) const;
  void KeepChunk(uint64_t chunk, float* partials);

  const Problem& a_;
  const CpuBuild& build_;
  const uint64_t size_;  // positions of a part
  const Piece* piece_ = nullptr;
  const RowPlan* plan_ = nullptr;
  uint64_t base_ = 0;  // position that the arrays by token begin with
  uint64_t end_ = 0;   // and the one behind their last token
  Buffer<float> q_, acc_, total_;
  Buffer<CpuLine> state_;
  Buffer<SoftmaxState> joined_;
  Buffer<Span> spans_;
  Buffer<float> weights_, keep_, tile_;
  Buffer<const uint8_t*> fetch_;
  Buffer<uint64_t> offsets_[3];  // of k0, k1, v
  Buffer<float> k_scale_, v_scale_;
  Buffer<int32_t> readable_;
};

// Joins what pieces left of a row in `partials`, and writes the row's output. A row without a part
// gets its neutral output.
void JoinParts(const Problem& a, const RowPlan& plan, const float* partials);

}  // namespace kvfence::attention
