#include "numeric_model.h"

#include <algorithm>
#include <cstring>

#include "kvfence/attention.h"
#include "kvfence/bf16.h"
#include "kvfence/check.h"
#include "kvfence/fp8.h"
#include "kvfence/rng.h"
#include "solo_transformer.h"

namespace kvfence {
namespace {

std::vector<uint64_t> WindowsOf(const std::vector<KvGroup>& groups) {
  std::vector<uint64_t> windows;
  for (const KvGroup& group : groups) windows.push_back(group.window);
  return windows;
}

size_t LayersOf(const Transformer& transformer, size_t group) {
  const std::span<const LayerPlace> layers = transformer.layers();
  return static_cast<size_t>(
      std::ranges::count_if(layers, [&](const LayerPlace& l) { return l.group == group; }));
}

uint64_t KnownOf(const StepBuffers& b, uint64_t row) {
  const uint64_t n = b.NewTokens(row);
  return n - std::min<uint64_t>(b.inputs[row].guesses, n);
}
// Where attention believes the row's new tokens to begin.
int64_t BaseOf(const StepBuffers& b, uint64_t row) {
  return std::max<int64_t>(b.lengths[row] - static_cast<int64_t>(b.NewTokens(row)), 0);
}

// The arrays are the step's, and kernels only read them.
IntArray ArrayOf(const std::vector<int32_t>& values) {
  return {const_cast<int32_t*>(values.data()), 32};
}
IntArray TableOf(const StepBuffers& b) { return {const_cast<int32_t*>(b.TableRow(0).data()), 32}; }
FloatArray ArrayOf(std::vector<float>& values) { return {values.data(), FloatType::kF32}; }

}  // namespace

NumericModel::NumericModel(const TransformerShape& shape, const std::vector<KvGroup>& groups,
                           uint64_t ranks, uint32_t null_page, uint64_t seed, bool wide)
    : groups_(groups.size()),
      null_page_(null_page),
      wide_(wide && shape.kv == KvType::kE4m3),
      transformer_(shape, WindowsOf(groups), ranks, seed),
      o_(ranks),
      tables_(ranks * groups.size()) {
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    for (size_t g = 0; g < groups.size(); ++g) {
      memory_.emplace_back(
          NumericMemory::Shape{.layers = LayersOf(transformer_, g),
                               .pages = groups[g].pages,
                               .page_size = groups[g].page_size,
                               .kv_heads = transformer_.kv_heads(),
                               .key_dim = transformer_.key_dim(),
                               .value_dim = transformer_.mla() ? 0 : transformer_.value_dim(),
                               .type = wide_ ? KvType::kBf16 : shape.kv,
                               .scale = transformer_.kv_scale(),
                               .null_page = null_page});
    }
  }
  batch_.slots.resize(memory_.size());
  batch_.lengths.resize(memory_.size());
}

std::unique_ptr<SoloRun> NumericModel::Alone(uint64_t salt, bool keep_results) const {
  return std::make_unique<SoloTransformer>(&transformer_, salt, keep_results);
}

void NumericModel::Run(std::span<const StepBuffers> parts, PassResult* out) {
  out->results.assign(parts[0].rows, 0);
  out->verified.clear();
  out->verified_at.clear();
  out->wild_accesses = 0;
  for (size_t part = 0; part < parts.size(); ++part) {
    out->wild_accesses += CountWild(memory_[part], parts[part]);
  }
  ShareTables(parts);
  Pass(parts, out);
}

void NumericModel::Try(std::span<const StepBuffers> parts, PassResult* out) {
  trying_ = true;
  Run(parts, out);
  trying_ = false;
  Restore();
}

uint64_t NumericModel::CountWild(const NumericMemory& memory, const StepBuffers& b) {
  uint64_t wild = 0;
  for (uint64_t row = 0; row < b.rows; ++row) {
    const auto length = static_cast<uint64_t>(std::max<int64_t>(b.lengths[row], 0));
    const uint64_t covered = std::min(PagesFor(length, memory.page_size()), b.PlannedPages(row));
    if (covered > b.width) ++wild;
    const std::span<const int32_t> table = b.TableRow(row);
    for (uint64_t k = 0; k < std::min(covered, b.width); ++k) {
      wild += memory.Contains(table[k]) ? 0 : 1;
    }
  }
  for (const int64_t slot : b.slots) wild += slot >= 0 && !memory.ContainsSlot(slot) ? 1 : 0;
  return wild;
}

// A shared-prefix table stands in for live rows' first entries, and behind the pages of a row's
// plan nobody reads.
void NumericModel::ShareTables(std::span<const StepBuffers> parts) {
  for (size_t part = 0; part < parts.size(); ++part) {
    const StepBuffers& b = parts[part];
    tables_[part].clear();
    if (b.prefix.empty() && b.planned.empty()) continue;
    const auto own = b.table.begin() + static_cast<std::ptrdiff_t>(b.lead * b.width);
    tables_[part].assign(own, own + static_cast<std::ptrdiff_t>(b.rows * b.width));
    for (uint64_t row = 0; row < b.rows; ++row) {
      const auto entries = std::span(tables_[part]).subspan(row * b.width, b.width);
      std::ranges::fill(entries.subspan(std::min(b.PlannedPages(row), b.width)),
                        static_cast<int32_t>(null_page_));
    }
    for (uint64_t row = 0; row < b.live; ++row) {
      for (size_t k = 0; k < std::min<size_t>(b.prefix.size(), b.width); ++k) {
        tables_[part][row * b.width + k] = static_cast<int32_t>(b.prefix[k]);
      }
    }
  }
}

template <class Count, class Token>
void NumericModel::Gather(std::span<const StepBuffers> parts, uint64_t first, Count count,
                          Token token) {
  const StepBuffers& b = parts[0];
  batch_.tokens.clear();
  batch_.starts.assign(1, 0);
  batch_.most = 0;
  for (size_t part = 0; part < parts.size(); ++part) {
    batch_.slots[part].clear();
    batch_.lengths[part].clear();
  }
  for (uint64_t row = 0; row < b.rows; ++row) {
    const uint64_t from = first == 0 ? 0 : KnownOf(b, row) + first - 1;
    const uint64_t n = count(row);
    for (uint64_t i = from; i < from + n; ++i) {
      batch_.tokens.push_back({.id = token(row, i),
                               .position = BaseOf(b, row) + static_cast<int64_t>(i),
                               .salt = b.inputs[row].salt});
    }
    for (size_t part = 0; part < parts.size(); ++part) {
      if (n == 0) {
        batch_.lengths[part].push_back(0);
        continue;
      }
      const StepBuffers& own = parts[part];
      const auto slot = own.slots.begin() + own.starts[row] + static_cast<std::ptrdiff_t>(from);
      batch_.slots[part].insert(batch_.slots[part].end(), slot,
                                slot + static_cast<std::ptrdiff_t>(n));
      const auto behind = static_cast<int64_t>(b.NewTokens(row) - from - n);
      batch_.lengths[part].push_back(static_cast<int32_t>(own.lengths[row] - behind));
    }
    batch_.most = std::max(batch_.most, static_cast<uint32_t>(n));
    batch_.starts.push_back(static_cast<int32_t>(batch_.tokens.size()));
  }
}

void NumericModel::Pass(std::span<const StepBuffers> parts, PassResult* out) {
  const StepBuffers& b = parts[0];
  const auto computed = [&](uint64_t row) -> uint64_t {
    if (row < b.live) return KnownOf(b, row);
    // A padded row matters only if it writes.
    for (const StepBuffers& part : parts) {
      if (part.slots[static_cast<size_t>(part.starts[row])] >= 0) return 1;
    }
    return 0;
  };
  Gather(parts, 0, computed, [&](uint64_t row, uint64_t i) -> uint32_t {
    return b.inputs[row].tokens != nullptr ? b.inputs[row].tokens[i] : 0;
  });
  Forward(parts);
  bool guesses = false;
  for (uint64_t row = 0; row < b.live; ++row) {
    out->results[row] = ResultOfRow(row);
    guesses = guesses || b.inputs[row].guesses > 0;
  }
  if (guesses) RunGuesses(parts, out);
  WriteAhead(parts, *out);
}

uint64_t NumericModel::ResultOfRow(uint64_t row) const {
  const auto last = static_cast<uint64_t>(batch_.starts[row + 1] - 1);
  return transformer_.Result(h_.data() + last * transformer_.hidden());
}

void NumericModel::RunGuesses(std::span<const StepBuffers> parts, PassResult* out) {
  const StepBuffers& b = parts[0];
  std::vector<std::vector<uint64_t>> results(b.rows);
  std::vector<uint64_t> last = out->results;
  uint64_t most = 0;
  for (uint64_t row = 0; row < b.rows; ++row) {
    results[row].push_back(last[row]);
    most = std::max<uint64_t>(most, b.NewTokens(row) - KnownOf(b, row));
  }
  std::vector<bool> right(b.rows, true);
  for (uint64_t j = 0; j < most; ++j) {
    const auto guessed = [&](uint64_t row) -> uint64_t {
      return j < b.NewTokens(row) - KnownOf(b, row) ? 1 : 0;
    };
    Gather(parts, j + 1, guessed, [&](uint64_t row, uint64_t i) -> uint32_t {
      const RowInput& input = b.inputs[row];
      const uint64_t position = static_cast<uint64_t>(BaseOf(b, row)) + i;
      const bool hit = Mix64(input.guess_seed + position) % 100 < input.guess_per_cent;
      right[row] = right[row] && hit;
      return TokenOf(last[row], input.sample) ^ (hit ? 0 : 1);
    });
    Forward(parts);
    for (uint64_t row = 0; row < b.rows; ++row) {
      if (guessed(row) == 0) continue;
      last[row] = ResultOfRow(row);
      if (right[row]) results[row].push_back(last[row]);
    }
  }
  for (uint64_t row = 0; row < b.rows; ++row) {
    out->verified_at.push_back(static_cast<uint32_t>(out->verified.size()));
    out->verified.insert(out->verified.end(), results[row].begin(), results[row].end());
    out->results[row] = results[row].back();
  }
  out->verified_at.push_back(static_cast<uint32_t>(out->verified.size()));
}

// The next guesses' KV, which nobody reads but the draft model itself.
void NumericModel::WriteAhead(std::span<const StepBuffers> parts, const PassResult& out) {
  for (size_t part = 0; part < parts.size(); ++part) {
    const StepBuffers& b = parts[part];
    for (uint64_t row = 0; row < b.live; ++row) {
      for (uint64_t i = parts[0].NewTokens(row); i < b.NewTokens(row); ++i) {
        const int64_t slot = b.slots[static_cast<uint64_t>(b.starts[row]) + i];
        if (!memory_[part].ContainsSlot(slot)) continue;
        const size_t layers = LayersOf(transformer_, part % groups_);
        for (size_t layer = 0; layer < layers; ++layer) Save(part, layer, slot);
        memory_[part].Scribble(slot, Mix64(out.results[row] + i));
      }
    }
  }
}

void NumericModel::Forward(std::span<const StepBuffers> parts) {
  const Transformer& m = transformer_;
  const uint64_t n = batch_.tokens.size();
  h_.resize(n * m.hidden());
  x_.resize(n * m.hidden());
  q_.resize(n * m.heads() * m.key_dim());
  k_.resize(n * m.kv_heads() * m.key_dim());
  v_.resize(n * m.kv_heads() * m.value_dim());
  for (std::vector<float>& o : o_) o.assign(n * m.heads() * m.value_dim(), 0.0f);
  if (n == 0) return;
  m.Embed(batch_.tokens, h_.data());
  for (size_t layer = 0; layer < m.layers().size(); ++layer) {
    const LayerPlace& place = m.layers()[layer];
    m.Normed(layer, h_.data(), n, x_.data());
    for (size_t rank = 0; rank < m.ranks(); ++rank) {
      const size_t part = rank * groups_ + place.group;
      m.Queries(layer, rank, batch_.tokens, x_.data(), q_.data());
      m.KeysValues(layer, rank, batch_.tokens, x_.data(), k_.data(), v_.data());
      Append(place, part);
      Attend(parts, place, part, &o_[rank]);
    }
    m.Finish(layer, o_, n, h_.data());
  }
}

void NumericModel::Append(const LayerPlace& place, size_t part) {
  std::vector<int64_t>& slots = batch_.slots[part];
  for (const int64_t slot : slots) {
    if (memory_[part].ContainsSlot(slot)) Save(part, place.index, slot);
  }
  if (wide_) {
    ToStoredNumbers(&k_);
    ToStoredNumbers(&v_);
  }
  KvAppend append;
  append.pages = memory_[part].PagesOf(place.index);
  append.tokens = slots.size();
  append.k = ArrayOf(k_);
  append.v = ArrayOf(v_);
  append.slots = {slots.data(), 64};
  const Status status = AppendPagedKvCacheCpu(append);
  KVF_CHECK(status.ok(), "I-153 the kernels take what the model gives them");
}

// To the numbers that an e4m3 cache would give back; each of them is a BF16 number too, when the
// scale is divided out.
void NumericModel::ToStoredNumbers(std::vector<float>* values) const {
  const float scale = transformer_.kv_scale();
  for (float& value : *values) value = DecodeE4m3(EncodeE4m3(value / scale)) * scale;
}

void NumericModel::Attend(std::span<const StepBuffers> parts, const LayerPlace& place, size_t part,
                          std::vector<float>* o) {
  const StepBuffers& b = parts[part];
  const KvPages pages = memory_[part].PagesOf(place.index);
  const auto common = [&](PagedRows* rows) {
    rows->rows = static_cast<uint32_t>(b.rows);
    rows->seq_len_q = std::max(batch_.most, 1u);
    rows->qo_indptr = ArrayOf(batch_.starts);
    rows->qo_tokens = batch_.tokens.size();
    rows->window_left = place.window > 0 ? static_cast<int64_t>(place.window) - 1 : -1;
    rows->page_size = pages.page_size;
    rows->null_page = null_page_;
    rows->num_pages = pages.num_pages;
    rows->kv_type = pages.type;
    rows->e4m3_numbers = wide_;
    rows->table.entries = tables_[part].empty() ? TableOf(b) : ArrayOf(tables_[part]);
    rows->table.entries_size = b.rows * b.width;
    rows->table.stride = rows->table.width = b.width;
    rows->table.rows = rows->rows;
    rows->lengths = {.values = ArrayOf(batch_.lengths[part]), .rows = rows->rows};
  };
  Status status;
  if (transformer_.mla()) {
    const uint32_t number = pages.type == KvType::kE4m3 ? 1 : 2;
    MlaDecodeAttention attention;
    common(&attention);
    attention.num_heads = transformer_.heads();
    attention.q_nope = ArrayOf(q_);
    attention.q_pe = {q_.data() + kMlaCkvDim, FloatType::kF32};
    attention.q_nope_stride = attention.q_pe_stride = kMlaCkvDim + kMlaKpeDim;
    attention.o = ArrayOf(*o);
    attention.ckv_cache = pages.k_cache;
    attention.kpe_cache = static_cast<const uint8_t*>(pages.k_cache) + kMlaCkvDim * number;
    attention.ckv_token_stride = attention.kpe_token_stride = (kMlaCkvDim + kMlaKpeDim) * number;
    attention.kv_scale = pages.k_scale;
    attention.sm_scale = transformer_.sm_scale();
    status = DecodeAttentionCpu(attention);
  } else {
    DecodeAttention attention;
    common(&attention);
    attention.num_qo_heads = transformer_.heads();
    attention.num_kv_heads = transformer_.kv_heads();
    attention.head_dim = transformer_.key_dim();
    attention.q = ArrayOf(q_);
    attention.o = ArrayOf(*o);
    attention.k_cache = pages.k_cache;
    attention.v_cache = pages.v_cache;
    attention.k_scale = attention.v_scale = pages.k_scale;
    attention.sm_scale = transformer_.sm_scale();
    status = DecodeAttentionCpu(attention);
  }
  KVF_CHECK(status.ok(), "I-153 the kernels take what the model gives them");
  for (float& value : *o) value = Bf16ToFloat(FloatToBf16(value));
}

void NumericModel::Save(size_t part, size_t layer, int64_t slot) {
  if (!trying_) return;
  saved_.push_back({part, layer, slot, saved_bytes_.size()});
  memory_[part].SaveSlot(layer, slot, &saved_bytes_);
}
void NumericModel::Restore() {
  for (auto it = saved_.rbegin(); it != saved_.rend(); ++it) {
    memory_[it->part].RestoreSlot(it->layer, it->slot, saved_bytes_.data() + it->at);
  }
  saved_.clear();
  saved_bytes_.clear();
}

void NumericModel::CopyPage(size_t group, uint64_t from, uint64_t to) {
  for (size_t part = group; part < memory_.size(); part += groups_)
    memory_[part].CopyPage(from, to);
}

HostPage NumericModel::ReadPage(size_t group, uint64_t page) const {
  std::vector<uint8_t> bytes;
  for (size_t part = group; part < memory_.size(); part += groups_) {
    memory_[part].ReadPage(page, &bytes);
  }
  std::vector<uint64_t> words((bytes.size() + 7) / 8);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return std::make_shared<const std::vector<uint64_t>>(std::move(words));
}

void NumericModel::WritePage(size_t group, uint64_t page, uint64_t tokens,
                             const HostPage& content) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(content->data());
  for (size_t part = group; part < memory_.size(); part += groups_) {
    bytes = memory_[part].WritePage(page, tokens, bytes);
  }
}

void NumericModel::FetchPage(ServedModel* from, size_t group, uint64_t from_page, uint64_t to_page,
                             uint64_t tokens) {
  auto* source = dynamic_cast<NumericModel*>(from);
  KVF_CHECK(source != nullptr && source->memory_.size() == memory_.size(),
            "I-154 pages travel between engines of one model");
  int64_t pages[2] = {static_cast<int64_t>(from_page), static_cast<int64_t>(to_page)};
  auto count = static_cast<int32_t>(tokens);
  for (size_t part = group; part < memory_.size(); part += groups_) {
    for (size_t layer = 0; layer < LayersOf(transformer_, group); ++layer) {
      KvHandOff hand_off;
      hand_off.from = source->memory_[part].PagesOf(layer);
      hand_off.to = memory_[part].PagesOf(layer);
      hand_off.count = 1;
      hand_off.from_pages = {&pages[0], 64};
      hand_off.to_pages = {&pages[1], 64};
      hand_off.tokens = {&count, 32};
      const Status status = HandOffPagesCpu(hand_off);
      KVF_CHECK(status.ok(), "I-153 the kernels take what the model gives them");
    }
  }
}

uint64_t NumericModel::SumOf(size_t group, uint64_t page, uint64_t tokens) const {
  uint64_t sum = tokens;
  for (size_t part = group; part < memory_.size(); part += groups_) {
    sum = memory_[part].Sum(page, tokens, sum);
  }
  return sum;
}

void NumericModel::SwapSlots(uint64_t page, uint64_t a, uint64_t b) {
  for (size_t part = 0; part < memory_.size(); part += groups_) {
    NumericMemory& memory = memory_[part];
    const auto first = static_cast<int64_t>(page * memory.page_size());
    const int64_t slots[] = {first + static_cast<int64_t>(a), first + static_cast<int64_t>(b)};
    for (size_t layer = 0; layer < LayersOf(transformer_, 0); ++layer) {
      std::vector<uint8_t> bytes;
      for (const int64_t slot : slots) memory.SaveSlot(layer, slot, &bytes);
      memory.RestoreSlot(layer, slots[1], bytes.data());
      memory.RestoreSlot(layer, slots[0], bytes.data() + memory.SlotBytes());
    }
  }
}

void NumericModel::Scribble(int64_t page, uint64_t first, uint64_t n, uint64_t seed) {
  NumericMemory& memory = memory_.front();
  if (!memory.Contains(page)) return;
  for (uint64_t o = first; o < std::min(first + n, memory.page_size()); ++o) {
    memory.Scribble(page * static_cast<int64_t>(memory.page_size()) + static_cast<int64_t>(o),
                    seed + o);
  }
}

}  // namespace kvfence
