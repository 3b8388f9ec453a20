#include "attention_piece.h"

#include <cstring>
#include <vector>

namespace kvfence::attention {
namespace {

constexpr uint64_t kMasked = ~uint64_t{0};
alignas(64) constexpr uint8_t kZeroes[2 * kMlaCkvDim] = {};

uint32_t KeyDims(const Problem& a) { return a.dim_k0 + a.dim_k1; }
// Codes of e4m3 are decoded to 2^-8 of their value.
float CodeScale(const Problem& a) { return a.kv_type == KvType::kE4m3 ? 256.0f : 1.0f; }

SoftmaxState StateOf(const CpuLine& line) {
  float sum[16];
  std::copy_n(line.sum, 16, sum);
  for (uint32_t width = 8; width > 0; width /= 2) {
    for (uint32_t i = 0; i < width; ++i) sum[i] += sum[i + width];
  }
  return {line.max, sum[0]};
}

// Takes a part's result into the line's total.
void TakePart(SoftmaxState part, const float* acc, uint32_t dims, SoftmaxState* state,
              float* total) {
  const TokenWeight joined = TakeState(state, part);
  for (uint32_t d = 0; d < dims; ++d) total[d] = total[d] * joined.keep + acc[d] * joined.weight;
}

void WriteLine(const Problem& a, const RowPlan& plan, uint32_t head, uint32_t line,
               SoftmaxState state, const float* total) {
  const float scale = OutputScale(a, head, state) * CodeScale(a);
  const uint64_t out = OutputOfLine(a, plan.row, head, line);
  for (uint32_t d = 0; d < a.dim_v; ++d) StoreFloat(a.o, out * a.dim_v + d, total[d] * scale);
  if (a.lse != nullptr) a.lse[out] = LogSumExp(state);
}

}  // namespace

PieceRun::PieceRun(const Problem& a, const CpuBuild& build, uint64_t lines, uint32_t heads)
    : a_(a),
      build_(build),
      size_(ChunkSize(a)),
      q_(lines * heads * KeyDims(a)),
      acc_(lines * heads * a.dim_v),
      total_(lines * heads * a.dim_v),
      state_(lines * heads),
      joined_(lines * heads),
      spans_(lines),
      weights_(lines * kTile),
      keep_(lines),
      tile_(uint64_t{kTile} * std::max(KeyDims(a), a.dim_v)),
      fetch_(FetchLines(KeyDims(a) + a.dim_v, NumberBytes(a))),
      offsets_{Buffer<uint64_t>(size_), Buffer<uint64_t>(size_), Buffer<uint64_t>(size_)},
      k_scale_(size_),
      v_scale_(size_),
      readable_(size_) {}

// Rounded so far that a product with a number of the cache is exact (I-130).
void PieceRun::LoadPlane(const QueryPlane& plane, uint64_t out, uint32_t dims, float* to) {
  const uint32_t low_bits = RoundedBits(a_);
  const uint32_t half = 1u << (low_bits - 1);
  const uint32_t least = (127u - 80u) << 23;
  const uint64_t first = out * plane.stride;
  if (plane.array.type == FloatType::kF32) {
    std::memcpy(to, static_cast<const float*>(plane.array.data) + first, dims * sizeof *to);
  } else {
    const uint16_t* codes = static_cast<const uint16_t*>(plane.array.data) + first;
    for (uint32_t d = 0; d < dims; ++d) to[d] = Bf16ToFloat(codes[d]);
  }
  for (uint32_t d = 0; d < dims; ++d) {
    const uint32_t bits = BitsOfFloat(to[d]);
    const uint32_t rounded = (bits + half) & ~((1u << low_bits) - 1);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t number = magnitude < least ? 0u : rounded;
    to[d] = FloatOfBits(magnitude > 0x7F800000u ? 0x7FC00000u : number);
  }
}

void PieceRun::LoadQueries() {
  const uint32_t group = GroupOf(a_);
  for (uint64_t l = 0; l < plan_->lines; ++l) {
    spans_.get()[l] = SpanOfQuery(a_, plan_->row, static_cast<uint32_t>(l / group));
  }
  for (uint32_t h = piece_->head; h < piece_->end_head; ++h) {
    for (uint32_t l = 0; l < plan_->lines; ++l) {
      const uint64_t out = OutputOfLine(a_, plan_->row, h, l);
      float* to = q_.get() + LineAt(h, l) * KeyDims(a_);
      LoadPlane(a_.q0, out, a_.dim_k0, to);
      if (a_.dim_k1 != 0) LoadPlane(a_.q1, out, a_.dim_k1, to + a_.dim_k0);
    }
  }
}

// Nobody reads positions [begin, end).
void PieceRun::MaskTokens(uint64_t begin, uint64_t end) {
  for (uint64_t i = begin - base_; i < end - base_; ++i) {
    k_scale_.get()[i] = v_scale_.get()[i] = 1.0f;
    readable_.get()[i] = 0;
    for (const Buffer<uint64_t>& offsets : offsets_) offsets.get()[i] = kMasked;
  }
}

// Positions [begin, end) lie one behind the other in one page, the first one in `slot`.
void PieceRun::PlaceInPage(uint64_t begin, uint64_t end, int64_t slot) {
  const CachePlace place = PlaceOf(a_, slot);
  const uint64_t at = begin - base_, n = end - begin;
  const KvPlane* const planes[] = {&a_.k0, &a_.k1, &a_.v};
  for (int which = 0; which < 3; ++which) {
    if (which == 1 && a_.dim_k1 == 0) continue;
    const uint64_t first = OffsetIn(*planes[which], place);
    const uint64_t stride = planes[which]->token_stride;
    uint64_t* offsets = offsets_[which].get() + at;
    for (uint64_t i = 0; i < n; ++i) offsets[i] = first + i * stride;
  }
  std::fill_n(k_scale_.get() + at, n, ScaleAt(a_.k_page_scales, place.page));
  std::fill_n(v_scale_.get() + at, n, ScaleAt(a_.v_page_scales, place.page));
  std::fill_n(readable_.get() + at, n, -1);
}

// Fills the arrays by token for positions [begin, end), and up to both tiles' ends. Each entry of
// the table is looked up once.
void PieceRun::PlaceTokens(uint64_t begin, uint64_t end) {
  MaskTokens(begin / kTile * kTile, begin);
  MaskTokens(end, (end + kTile - 1) / kTile * kTile);
  const uint64_t per_entry = a_.page_size / a_.table.entries_per_page;
  for (uint64_t p = begin; p < end;) {
    const uint64_t entry_end = std::min(end, p - p % per_entry + per_entry);
    const int64_t slot = SlotOfToken(a_, plan_->row, p);
    if (slot == kMaskedSlot) {
      MaskTokens(p, entry_end);
    } else {
      PlaceInPage(p, entry_end, slot);
    }
    p = entry_end;
  }
}

void PieceRun::PointAt(const KvPlane& plane, uint32_t head, uint64_t position, int which,
                       const uint8_t** rows) const {
  const uint8_t* data = plane.data + head * plane.head_stride;
  const uint64_t* offsets = offsets_[which].get() + (position - base_);
  for (uint32_t t = 0; t < kTile; ++t) {
    rows[t] = offsets[t] == kMasked ? kZeroes : data + offsets[t];
  }
}

// The memory that one head of the tile at `position` would take, a pair of lines each, or a line
// where a token has an odd number of them; returns how many. Where a token's heads lie side by side
// they are listed in the order of memory instead, each head its share of all: then the machine runs
// ahead of what is asked for.
uint32_t PieceRun::FetchPlane(const KvPlane& plane, uint32_t head, uint64_t position, int which,
                              uint32_t dims, const uint8_t** list) const {
  const uint64_t* offsets = offsets_[which].get() + (position - base_);
  const uint32_t bytes = dims * NumberBytes(a_);
  const bool side_by_side = plane.head_stride == bytes;
  const uint32_t heads = side_by_side ? piece_->end_head - piece_->head : 1;
  const uint8_t* data = plane.data + (side_by_side ? piece_->head : head) * plane.head_stride;
  const uint32_t unit = bytes % kLinePair == 0 ? kLinePair : kLinePair / 2;
  const uint32_t of_token = heads * bytes / unit, count = kTile * bytes / unit;
  const uint32_t first = side_by_side ? (head - piece_->head) * count : 0;
  uint32_t at = first % of_token;
  uint32_t left = count;
  for (uint32_t token = first / of_token; left > 0; ++token, at = 0) {
    const bool masked = offsets[token] == kMasked;
    const uint8_t* line = masked ? kZeroes : data + offsets[token] + unit * at;
    const uint32_t step = masked ? 0 : unit;
    const uint32_t n = std::min(left, of_token - at);
    for (uint32_t i = 0; i < n; ++i, line += step) *list++ = line;
    left -= n;
  }
  return count;
}

// Lists what is asked for while a tile is computed: of the tile that comes next in the context,
// since pages lie anywhere and no machine guesses them.
void PieceRun::Fetch(uint64_t position, uint32_t head, CpuTile* tile) const {
  tile->fetch = fetch_.get();
  tile->fetches = 0;
  if (position >= end_ || (KeyDims(a_) * NumberBytes(a_)) % 64 != 0) return;
  const auto add = [&](const KvPlane& plane, int which, uint32_t dims) {
    tile->fetches += FetchPlane(plane, head, position, which, dims, fetch_.get() + tile->fetches);
  };
  add(a_.k0, 0, a_.dim_k0);
  if (a_.dim_k1 != 0) add(a_.k1, 1, a_.dim_k1);
  if (a_.v.data != a_.k0.data) add(a_.v, 2, a_.dim_v);
}

void PieceRun::RunTile(uint64_t position, uint32_t head) {
  const uint64_t at = position - base_;
  CpuTile tile;
  tile.first = position;
  Fetch(position + kTile, head, &tile);
  tile.scales = {k_scale_.get() + at, v_scale_.get() + at, readable_.get() + at};
  PointAt(a_.k0, head, position, 0, tile.k0);
  PointAt(a_.v, head, position, 2, tile.v);
  if (a_.dim_k1 != 0) PointAt(a_.k1, head, position, 1, tile.k1);
  const uint64_t line = LineAt(head, 0);
  CpuHead lines;
  lines.lines = static_cast<uint32_t>(plan_->lines);
  lines.score_scale = a_.score_scale * ScaleAt(a_.k_head_scales, head) * CodeScale(a_);
  lines.spans = spans_.get();
  lines.q = q_.get() + line * KeyDims(a_);
  lines.acc = acc_.get() + line * a_.dim_v;
  lines.state = state_.get() + line;
  lines.weights = weights_.get();
  lines.keep = keep_.get();
  lines.tile = tile_.get();
  build_.take_tile(a_, tile, &lines);
}

void PieceRun::RunChunk(uint64_t chunk) {
  base_ = chunk * size_;
  const uint64_t begin = std::max(base_, plan_->span.begin);
  end_ = std::min(base_ + size_, plan_->span.end);
  const uint64_t lines = plan_->lines * (piece_->end_head - piece_->head);
  for (uint64_t l = 0; l < lines; ++l) {
    state_.get()[l] = CpuLine{};
    state_.get()[l].max = MinusInfinity();
  }
  std::fill_n(acc_.get(), lines * a_.dim_v, 0.0f);
  PlaceTokens(begin, end_);
  // All heads of a tile before the next tile: their codes lie side by side.
  for (uint64_t p = begin / kTile * kTile; p < end_; p += kTile) {
    for (uint32_t h = piece_->head; h < piece_->end_head; ++h) RunTile(p, h);
  }
}

// Joins the chunk's sums to the total, or leaves them for JoinParts.
void PieceRun::KeepChunk(uint64_t chunk, float* partials) {
  const uint64_t lines = plan_->lines * (piece_->end_head - piece_->head);
  const uint64_t row_lines = plan_->lines * a_.num_kv_heads;
  for (uint64_t l = 0; l < lines; ++l) {
    const SoftmaxState state = StateOf(state_.get()[l]);
    const float* acc = acc_.get() + l * a_.dim_v;
    if (piece_->alone) {
      TakePart(state, acc, a_.dim_v, joined_.get() + l, total_.get() + l * a_.dim_v);
      continue;
    }
    const uint64_t at = (chunk - plan_->chunks.begin) * row_lines + plan_->lines * piece_->head + l;
    float* partial = partials + at * PartialFloats(a_.dim_v);
    std::copy_n(acc, a_.dim_v, partial);
    partial[a_.dim_v] = state.max;
    partial[a_.dim_v + 1] = state.sum;
  }
}

void PieceRun::Run(const Piece& piece, const RowPlan& plan, float* partials) {
  piece_ = &piece;
  plan_ = &plan;
  const uint64_t lines = plan.lines * (piece.end_head - piece.head);
  if (piece.chunks.begin != piece.chunks.end) LoadQueries();
  if (piece.alone) {
    for (uint64_t l = 0; l < lines; ++l) joined_.get()[l] = EmptySoftmax();
    std::fill_n(total_.get(), lines * a_.dim_v, 0.0f);
  }
  for (uint64_t c = piece.chunks.begin; c < piece.chunks.end; ++c) {
    RunChunk(c);
    KeepChunk(c, partials);
  }
  if (!piece.alone) return;
  for (uint32_t h = piece.head; h < piece.end_head; ++h) {
    for (uint32_t l = 0; l < plan.lines; ++l) {
      const uint64_t line = LineAt(h, l);
      WriteLine(a_, plan, h, l, joined_.get()[line], total_.get() + line * a_.dim_v);
    }
  }
}

void JoinParts(const Problem& a, const RowPlan& plan, const float* partials) {
  const uint64_t row_lines = plan.lines * a.num_kv_heads;
  std::vector<float> total(a.dim_v);
  for (uint32_t h = 0; h < a.num_kv_heads; ++h) {
    for (uint32_t l = 0; l < plan.lines; ++l) {
      SoftmaxState state = EmptySoftmax();
      std::fill(total.begin(), total.end(), 0.0f);
      for (uint64_t c = 0; c < plan.chunks.end - plan.chunks.begin; ++c) {
        const float* part =
            partials + (c * row_lines + plan.lines * h + l) * PartialFloats(a.dim_v);
        TakePart({part[a.dim_v], part[a.dim_v + 1]}, part, a.dim_v, &state, total.data());
      }
      WriteLine(a, plan, h, l, state, total.data());
    }
  }
}

}  // namespace kvfence::attention
