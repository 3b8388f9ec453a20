// How a decode attention call on the CPU is cut into pieces of work, and spread over threads.
//
// Where rows and heads are enough for all threads, a piece walks its row's whole context; else the
// context's parts are spread too, and the thread that finishes a row's last piece joins them. What
// a row gives doesn't depend on the cut (I-62).
#include <atomic>
#include <vector>

#include "attention_piece.h"

namespace kvfence {
namespace attention {
namespace {

struct Plan {
  std::vector<RowPlan> rows;
  std::vector<Piece> pieces;
  std::vector<uint64_t> partial_begin;  // by row: its first float in the partial results
  std::vector<uint32_t> pieces_left;    // by row; 0: its pieces are alone
  uint64_t partial_floats = 0;
  uint32_t heads_at_once = 1;
};

void AddPieces(const Problem& a, uint32_t r, bool spread, Plan* plan) {
  const RowPlan& row = plan->rows[r];
  const uint64_t parts = row.chunks.end - row.chunks.begin;
  const bool alone = !spread || parts < 2;
  const uint64_t step = alone ? std::max<uint64_t>(parts, 1) : 1;
  uint64_t c = row.chunks.begin;
  do {
    const uint64_t end = std::min(c + step, row.chunks.end);
    for (uint32_t h = 0; h < a.num_kv_heads; h += plan->heads_at_once) {
      const uint32_t end_head = std::min(h + plan->heads_at_once, a.num_kv_heads);
      plan->pieces.push_back({r, h, end_head, {c, end}, alone});
      if (!alone) ++plan->pieces_left[r];
    }
    c = end;
  } while (c < row.chunks.end);
  plan->partial_begin[r] = plan->partial_floats;
  if (alone) return;
  plan->partial_floats += parts * row.lines * a.num_kv_heads * PartialFloats(a.dim_v);
}

// Pieces are as large as they can be while every thread has a few of them.
Plan PlanOf(const Problem& a, uint64_t threads) {
  constexpr uint64_t kPiecesPerThread = 4;
  Plan plan;
  uint64_t parts = 0;
  for (uint32_t r = 0; r < a.rows; ++r) {
    const AttentionRow row = AttentionRowOf(a, r);
    const Span span = SpanOfRow(a, row);
    plan.rows.push_back({row, span, ChunksOfRow(a, span), LinesOfRow(a, row)});
    parts += plan.rows[r].chunks.end - plan.rows[r].chunks.begin;
  }
  const uint64_t wanted = threads == 1 ? 1 : threads * kPiecesPerThread;
  const bool spread = uint64_t{a.rows} * a.num_kv_heads < wanted;
  const uint64_t units = spread ? parts : a.rows;
  const uint64_t cuts =
      units == 0 ? 1 : std::min<uint64_t>((wanted + units - 1) / units, a.num_kv_heads);
  plan.heads_at_once = static_cast<uint32_t>((a.num_kv_heads + cuts - 1) / cuts);
  plan.partial_begin.assign(a.rows, 0);
  plan.pieces_left.assign(a.rows, 0);
  for (uint32_t r = 0; r < a.rows; ++r) AddPieces(a, r, spread, &plan);
  return plan;
}

}  // namespace

void RunOnCpu(const Problem& a, const CpuBuild& build, CpuThreads* threads) {
  const Plan plan = PlanOf(a, threads != nullptr ? threads->size() : 1);
  const Buffer<float> partials(plan.partial_floats);
  std::vector<std::atomic<uint32_t>> left(a.rows);
  for (uint32_t r = 0; r < a.rows; ++r) left[r].store(plan.pieces_left[r]);
  std::vector<std::unique_ptr<PieceRun>> runs(threads != nullptr ? threads->size() : 1);
  const auto work = [&](uint64_t i, unsigned thread) {
    const Piece& piece = plan.pieces[i];
    std::unique_ptr<PieceRun>& run = runs[thread];
    const uint64_t lines = uint64_t{a.seq_len_q} * GroupOf(a);
    if (run == nullptr) run = std::make_unique<PieceRun>(a, build, lines, plan.heads_at_once);
    float* row_partials = partials.get() + plan.partial_begin[piece.row];
    run->Run(piece, plan.rows[piece.row], row_partials);
    if (piece.alone || left[piece.row].fetch_sub(1) != 1) return;
    JoinParts(a, plan.rows[piece.row], row_partials);
  };
  if (threads != nullptr) {
    threads->ForEach(plan.pieces.size(), work);
  } else {
    for (uint64_t i = 0; i < plan.pieces.size(); ++i) work(i, 0);
  }
}

}  // namespace attention

namespace {

template <class Attention>
Status Run(const Attention& args, CpuThreads* threads) {
  if (Status status = CheckDecodeAttention(args); !status.ok()) return status;
  static const attention::CpuBuild best = attention::CpuBuilds().back();
  attention::RunOnCpu(attention::ProblemOf(args), best, threads);
  return Status();
}

}  // namespace

Status DecodeAttentionCpu(const DecodeAttention& args, CpuThreads* threads) {
  return Run(args, threads);
}
Status DecodeAttentionCpu(const MlaDecodeAttention& args, CpuThreads* threads) {
  return Run(args, threads);
}

}  // namespace kvfence
