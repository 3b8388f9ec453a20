// Prefill in a pool of BF16, decode from one of FP8: the numbers are the same, and so are the
// tokens, wherever a request was computed.
#include <gtest/gtest.h>

#include <vector>

#include "engine/numeric_model.h"
#include "engine/solo_transformer.h"

namespace kvfence {
namespace {

constexpr uint64_t kPageSize = 8, kPages = 24;

// One engine's model, and a request's row over pages of its own.
struct Side {
  Side(const TransformerShape& shape, bool wide, int32_t first_page)
      : model(shape, {{.name = "full", .pages = kPages, .page_size = kPageSize, .width = 8}}, 1, 0,
              5, wide),
        buffers(1, 8) {
    for (size_t k = 0; k < 8; ++k) {
      buffers.table[k] = (first_page + 5 * static_cast<int32_t>(k)) % 23 + 1;
    }
  }
  // A pass over the tokens from position `base` on.
  uint64_t Pass(const std::vector<uint32_t>& tokens, uint64_t base) {
    StepBuffers& b = buffers;
    b.rows = b.live = 1;
    b.lengths[0] = static_cast<int32_t>(tokens.size());
    b.slots.clear();
    for (uint64_t p = base; p < tokens.size(); ++p) {
      b.slots.push_back(b.table[p / kPageSize] * static_cast<int64_t>(kPageSize) +
                        static_cast<int64_t>(p % kPageSize));
    }
    b.starts[1] = static_cast<int32_t>(b.slots.size());
    b.inputs[0].tokens = tokens.data() + base;
    PassResult result;
    model.Run({&b, 1}, &result);
    return result.results[0];
  }

  NumericModel model;
  StepBuffers buffers;
};

// I-154, for prompts cut into chunks too.
TEST(NumericHandOver, GivesTheSameResultsAsTheUnpagedModel) {
  for (const AttentionForm form : {AttentionForm::kGqa, AttentionForm::kMla}) {
    for (const KvType kv : {KvType::kE4m3, KvType::kBf16}) {
      SCOPED_TRACE(std::string(AttentionFormName(form)) + " " + std::string(KvTypeName(kv)));
      const TransformerShape shape = SmallTransformer(form, kv, WeightType::kE4m3);
      Side prefill(shape, true, 0);
      Side decode(shape, false, 11);
      std::vector<uint32_t> tokens;
      for (uint32_t i = 0; i < 29; ++i) tokens.push_back(i * 91 % 512);
      const std::unique_ptr<SoloRun> alone = decode.model.Alone(0, false);
      alone->Prefill(tokens);
      std::vector<uint32_t> chunk(tokens.begin(), tokens.begin() + 13);
      prefill.Pass(chunk, 0);
      uint64_t result = prefill.Pass(tokens, 13);
      for (size_t k = 0; k < 4; ++k) {
        decode.model.FetchPage(&prefill.model, 0, static_cast<uint64_t>(prefill.buffers.table[k]),
                               static_cast<uint64_t>(decode.buffers.table[k]), k == 3 ? 5 : 8);
      }
      for (int i = 0; i < 12; ++i) {
        ASSERT_EQ(result, alone->Result()) << i;
        alone->Advance(0);
        tokens.push_back(decode.model.TokenOf(result, 0));
        result = decode.Pass(tokens, tokens.size() - 1);
      }
      ASSERT_EQ(result, alone->Result());
      // All of it computed again where it's decoded, or where it was prefilled.
      EXPECT_EQ(decode.Pass(tokens, 0), result);
      EXPECT_EQ(prefill.Pass(tokens, 0), result);
      // A page that didn't arrive shows.
      decode.model.Scribble(decode.buffers.table[1], 3, 1, 4);
      EXPECT_NE(decode.Pass(tokens, tokens.size() - 1), result);
    }
  }
}

}  // namespace
}  // namespace kvfence
