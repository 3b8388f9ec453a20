#include "journal_wire.h"

#include <xxhash.h>

#include <cstring>
#include <string>
#include <type_traits>

namespace kvfence {
namespace {

struct FrameHead {
  uint64_t checksum;  // over the rest of the head and the plan
  uint64_t boot;
  uint64_t sequence;
  uint64_t step;
  uint64_t batch_checksum;
  uint64_t snapshot;
  uint64_t has_plan;
  uint64_t deltas;
  uint64_t rows;
  uint64_t pool_tasks;
  uint64_t write_stamps;
  uint64_t late_pages;
  uint64_t group_count;
  uint64_t work;
};
constexpr uint64_t kHeadWords = sizeof(FrameHead) / 8;

template <class T>
constexpr uint64_t WordsOf(uint64_t count) {
  return (count * sizeof(T) + 7) / 8;
}

template <class T>
void Put(const std::vector<T>& from, uint64_t** to) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (from.empty()) return;
  std::memcpy(*to, from.data(), from.size() * sizeof(T));
  *to += WordsOf<T>(from.size());
}

template <class T>
void Get(const uint64_t** from, uint64_t count, std::vector<T>* to) {
  to->resize(count);
  if (count == 0) return;
  std::memcpy(to->data(), *from, count * sizeof(T));
  *from += WordsOf<T>(count);
}

uint64_t ChecksumOf(std::span<const uint64_t> words, uint64_t plan_begin) {
  const uint64_t seed = XXH3_64bits(words.data() + 1, (kHeadWords - 1) * 8);
  return XXH3_64bits_withSeed(words.data() + plan_begin, (words.size() - plan_begin) * 8, seed);
}

uint64_t PlanWords(const FrameHead& head) {
  return WordsOf<RowTask>(head.rows) + WordsOf<PoolTask>(head.pool_tasks) +
         WordsOf<Stamp>(head.write_stamps) + WordsOf<uint32_t>(head.late_pages);
}

}  // namespace

void EncodeFrame(uint64_t boot, const JournalBatch& batch, const StepPlan* plan,
                 std::vector<uint64_t>* words) {
  FrameHead head{};
  head.boot = boot;
  head.sequence = batch.sequence;
  head.step = batch.step;
  head.batch_checksum = batch.checksum;
  head.snapshot = batch.snapshot ? 1 : 0;
  head.deltas = batch.deltas.size();
  if (plan != nullptr) {
    head.has_plan = 1;
    head.rows = plan->rows.size();
    head.pool_tasks = plan->pool_tasks.size();
    head.write_stamps = plan->write_stamps.size();
    head.late_pages = plan->late_pages.size();
    head.group_count = plan->group_count;
    head.work = plan->work;
  }
  const uint64_t plan_begin = kHeadWords + WordsOf<JournalDelta>(head.deltas);
  words->assign(plan_begin + PlanWords(head), 0);
  uint64_t* at = words->data() + kHeadWords;
  Put(batch.deltas, &at);
  if (plan != nullptr) {
    Put(plan->rows, &at);
    Put(plan->pool_tasks, &at);
    Put(plan->write_stamps, &at);
    Put(plan->late_pages, &at);
  }
  std::memcpy(words->data(), &head, sizeof(head));
  (*words)[0] = ChecksumOf(*words, plan_begin);
}

bool DecodeFrame(std::span<const uint64_t> words, JournalFrame* frame) {
  if (words.size() < kHeadWords) return false;
  FrameHead head;
  std::memcpy(&head, words.data(), sizeof(head));
  // Counts are bounded first, so that their sum can't wrap.
  for (const uint64_t count :
       {head.deltas, head.rows, head.pool_tasks, head.write_stamps, head.late_pages / 2}) {
    if (count > words.size()) return false;
  }
  const uint64_t plan_begin = kHeadWords + WordsOf<JournalDelta>(head.deltas);
  if (words.size() != plan_begin + PlanWords(head)) return false;
  if (head.checksum != ChecksumOf(words, plan_begin)) return false;
  frame->boot = head.boot;
  frame->has_plan = head.has_plan != 0;
  frame->batch.sequence = head.sequence;
  frame->batch.step = head.step;
  frame->batch.checksum = head.batch_checksum;
  frame->batch.snapshot = head.snapshot != 0;
  frame->plan.group_count = static_cast<uint32_t>(head.group_count);
  frame->plan.work = head.work;
  const uint64_t* at = words.data() + kHeadWords;
  Get(&at, head.deltas, &frame->batch.deltas);
  Get(&at, head.rows, &frame->plan.rows);
  Get(&at, head.pool_tasks, &frame->plan.pool_tasks);
  Get(&at, head.write_stamps, &frame->plan.write_stamps);
  Get(&at, head.late_pages, &frame->plan.late_pages);
  return true;
}

uint64_t WireFingerprint(const FenceConfig& config) {
  std::vector<uint64_t> words = {1,  // version of this layout
                                 sizeof(FrameHead),
                                 sizeof(JournalDelta),
                                 sizeof(RowTask),
                                 sizeof(PoolTask),
                                 config.rows,
                                 config.width,
                                 config.ranks,
                                 static_cast<uint64_t>(config.frees),
                                 static_cast<uint64_t>(config.reuse),
                                 config.same_step_reads,
                                 config.checks().mask(),
                                 static_cast<uint64_t>(config.policy),
                                 config.pools.size()};
  for (const PoolConfig& pool : config.pools) {
    const uint64_t skip = static_cast<uint64_t>(pool.skip_slot.value_or(-1));
    for (const std::string* text : {&pool.name, &pool.space}) {
      words.push_back(text->size());
      words.push_back(XXH3_64bits(text->data(), text->size()));
    }
    words.insert(words.end(),
                 {pool.pages, pool.page_size, pool.window, pool.width, pool.null_page, pool.scales,
                  pool.skip_slot.has_value(), skip, pool.slot_entries,
                  static_cast<uint64_t>(pool.kind), pool.interleave_ranks, pool.interleave_stride});
  }
  return XXH3_64bits(words.data(), words.size() * 8);
}

}  // namespace kvfence
