// Decode attention on a device, where there is one, against the CPU backend.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kvfence/attention.h"
#include "kvfence/backend.h"
#include "tests/kernels/attention_backends.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/managed.h"

namespace kvfence {
namespace {

TEST(AttentionNoGpu, WithoutADeviceTheRefusalSaysWhy) {
  std::string why;
  if (CudaAvailable(&why)) GTEST_SKIP() << "there is a device";
  AttentionCase c(Shape{});
  const Status status = DecodeAttentionCuda(c.args, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(status.message().empty());
}

#if defined(KVFENCE_HAVE_CUDA)
class AttentionGpuDevice : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!CudaAvailable(&why)) GTEST_SKIP() << why;
  }
};

// --- a call with all its arrays in managed memory -----------------------------------------------

size_t QueryTokensOf(const PagedRows& a) {
  return a.qo_indptr.present() ? a.qo_tokens : size_t{a.rows} * a.seq_len_q;
}
size_t NumberBytes(const PagedRows& a) { return a.kv_type == KvType::kE4m3 ? 1 : 2; }

void MovePaged(PagedRows* a, size_t heads, Managed* managed) {
  a->qo_indptr = managed->Copy(a->qo_indptr, a->rows + 1);
  a->lse = managed->Lend(a->lse, QueryTokensOf(*a) * heads);
  a->table.entries = managed->Copy(a->table.entries, a->table.entries_size);
  a->table.indptr = managed->Copy(a->table.indptr, a->rows + 1);
  a->table.last_page_len = managed->Copy(a->table.last_page_len, a->rows);
  a->table.row_map = managed->Copy(a->table.row_map, a->rows);
  a->lengths.values = managed->Copy(a->lengths.values, a->rows);
}

DecodeAttention Moved(DecodeAttention a, Managed* managed) {
  const size_t numbers = QueryTokensOf(a) * a.num_qo_heads * a.head_dim;
  const size_t codes = a.num_pages * a.page_size * a.num_kv_heads * a.head_dim * NumberBytes(a);
  MovePaged(&a, a.num_qo_heads, managed);
  a.q = managed->Copy(a.q, numbers);
  a.o = managed->Lend(a.o, numbers);
  a.k_cache = managed->Copy(static_cast<const uint8_t*>(a.k_cache), codes);
  a.v_cache = managed->Copy(static_cast<const uint8_t*>(a.v_cache), codes);
  a.k_page_scales = managed->Copy(a.k_page_scales, a.num_pages);
  a.v_page_scales = managed->Copy(a.v_page_scales, a.num_pages);
  a.k_head_scales = managed->Copy(a.k_head_scales, a.num_kv_heads);
  a.v_head_scales = managed->Copy(a.v_head_scales, a.num_kv_heads);
  return a;
}

MlaDecodeAttention Moved(MlaDecodeAttention a, Managed* managed) {
  const size_t lines = QueryTokensOf(a) * a.num_heads;
  const size_t slots = a.num_pages * a.page_size;
  const bool packed = a.ckv_token_stride != 0;  // both parts in one piece, and the queries' too
  const size_t together = kMlaCkvDim + kMlaKpeDim;
  const size_t element = a.q_nope.type == FloatType::kF32 ? 4 : 2;
  MovePaged(&a, a.num_heads, managed);
  a.q_nope = managed->Copy(a.q_nope, lines * (packed ? together : kMlaCkvDim));
  a.ckv_cache = managed->Copy(static_cast<const uint8_t*>(a.ckv_cache),
                              slots * (packed ? together : kMlaCkvDim) * NumberBytes(a));
  if (packed) {
    a.q_pe.data = static_cast<uint8_t*>(a.q_nope.data) + kMlaCkvDim * element;
    a.kpe_cache = static_cast<const uint8_t*>(a.ckv_cache) + kMlaCkvDim * NumberBytes(a);
  } else {
    a.q_pe = managed->Copy(a.q_pe, lines * kMlaKpeDim);
    a.kpe_cache = managed->Copy(static_cast<const uint8_t*>(a.kpe_cache),
                                slots * kMlaKpeDim * NumberBytes(a));
  }
  a.o = managed->Lend(a.o, lines * kMlaCkvDim);
  a.kv_page_scales = managed->Copy(a.kv_page_scales, a.num_pages);
  return a;
}

// --- how it is run ------------------------------------------------------------------------------

enum class How { kWalked, kSpread, kGraph };

template <class Attention>
Status Captured(const Attention& a) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  KVF_CHECK(cudaStreamCreate(&stream) == cudaSuccess, "a stream");
  KVF_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess,
            "a capture");
  Status status = DecodeAttentionCuda(a, stream);
  KVF_CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "a capture's end");
  KVF_CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "a graph");
  KVF_CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess, "a graph's launch");
  KVF_CHECK(cudaStreamSynchronize(stream) == cudaSuccess, "a graph's run");
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return status;
}

template <class Attention>
Status RunMoved(const Attention& host, How how) {
  Managed managed;
  Attention a = Moved(host, &managed);
  if (how == How::kSpread) {
    a.max_kv_len =
        uint64_t{kSpreadParts} * (a.kv_chunk_size != 0 ? a.kv_chunk_size : kDefaultKvChunkSize);
    a.workspace_bytes = DecodeWorkspaceBytes(a);
    a.workspace = managed.Make<float>(a.workspace_bytes / sizeof(float));
  }
  Status status = how == How::kGraph ? Captured(a) : DecodeAttentionCuda(a, nullptr);
  return status.ok() ? managed.Back() : std::move(status);
}

AttentionBackend RunDevice(How how) {
  return [how](const AttentionCall& call) {
    return call.mla != nullptr ? RunMoved(*call.mla, how) : RunMoved(*call.gqa, how);
  };
}

TEST_F(AttentionGpuDevice, AgreesWithTheOracle) {
  for (uint32_t dim : {32u, 64u, 128u, 256u}) {
    for (bool csr : {false, true}) {
      Shape shape;
      shape.head_dim = dim;
      shape.csr = csr;
      shape.page_scales = csr;
      shape.lengths = {0, 1, 33, 700};
      AttentionCase c(shape, dim);
      const std::vector<float> found = c.Run(RunDevice(How::kWalked));
      ASSERT_EQ(Wrong(found, c, DeviceRounding(c)), "") << dim << csr;
    }
  }
}

// All forms and formats, walked by a block, spread over blocks and replayed from a graph.
TEST_F(AttentionGpuDevice, AgreesWithTheOracleInEachFormAndFormat) {
  for (const bool mla : {false, true}) {
    for (const bool bf16_kv : {false, true}) {
      for (const bool other : {false, true}) {  // packed MLA, or K and V by heads; pages of 1
        Shape shape;
        shape.mla = mla;
        shape.qo_heads = mla ? 16 : 8;
        shape.bf16_kv = bf16_kv;
        shape.bf16 = other;
        shape.packed_mla = mla && other;
        shape.hnd = !mla && other;
        shape.page_size = other ? 1 : 64;
        shape.lengths = {0, 1, 65, 2500};
        AttentionCase c(shape, 3);
        const std::vector<float> walked = c.Run(RunDevice(How::kWalked));
        ASSERT_EQ(Wrong(walked, c, DeviceRounding(c)), "") << mla << bf16_kv << other;
        ASSERT_EQ(Wrong(c.Run(RunDevice(How::kSpread)), c, DeviceRounding(c)), "")
            << mla << bf16_kv << other;
        ASSERT_TRUE(SameBits(c.Run(RunDevice(How::kGraph)), walked)) << mla << bf16_kv << other;
      }
    }
  }
}

TEST_F(AttentionGpuDevice, SeveralQueryTokensAgreeWithTheOracle) {
  for (const bool mla : {false, true}) {
    Shape shape;
    shape.mla = mla;
    shape.seq_len_q = 3;
    shape.query_tokens = {3, 1, 2, 3};
    shape.lengths = {3, 1, 40, 700};
    AttentionCase c(shape, 4);
    ASSERT_EQ(Wrong(c.Run(RunDevice(How::kWalked)), c, DeviceRounding(c)), "") << mla;
  }
}

TEST_F(AttentionGpuDevice, BitsDoNotDependOnWherePagesLie) {  // I-62
  Shape shape;
  shape.lengths = {3000, 64};
  AttentionCase first(shape);
  const std::vector<float> expected = first.Run(RunDevice(How::kWalked));
  shape.layout_seed = 2;
  AttentionCase second(shape);
  const std::vector<float> found = second.Run(RunDevice(How::kWalked));
  EXPECT_TRUE(SameBits(found, expected));
}

// Several parts, and joins by both kernels: what the shim can't show is how a device fuses them.
TEST_F(AttentionGpuDevice, SpreadingContextsOverBlocksChangesNoBit) {  // I-62
  for (const uint32_t dim : {64u, 128u, 256u, 576u}) {
    for (const uint32_t group : {1u, 5u}) {
      Shape shape;
      shape.mla = dim == 576;
      shape.head_dim = dim;
      shape.kv_heads = 2;
      shape.qo_heads = shape.mla ? group : 2 * group;
      shape.kv_chunk_size = 32;
      shape.lengths = {128, 5, 0, 65};
      AttentionCase c(shape, dim + group);
      const std::vector<float> walked = c.Run(RunDevice(How::kWalked));
      EXPECT_TRUE(SameBits(c.Run(RunDevice(How::kSpread)), walked)) << dim << " " << group;
    }
  }
}
#endif

}  // namespace
}  // namespace kvfence
