// Decode attention on a device, where there is one, against the CPU backend.
#include <gtest/gtest.h>

#include "kvfence/attention.h"
#include "kvfence/backend.h"
#include "tests/kernels/attention_backends.h"
#include "tests/kernels/attention_case.h"

#if defined(KVFENCE_HAVE_CUDA)
#include <cuda_runtime_api.h>
#endif

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
// Managed copies of an array, so that one pointer serves both sides.
class Managed {
 public:
  ~Managed() {
    for (void* p : all_) cudaFree(p);
  }
  template <class T>
  T* Copy(const T* data, size_t count) {
    if (data == nullptr) return nullptr;
    void* copy = nullptr;
    KVF_CHECK(cudaMallocManaged(&copy, count * sizeof(T)) == cudaSuccess, "managed memory");
    all_.push_back(copy);
    std::memcpy(copy, data, count * sizeof(T));
    return static_cast<T*>(copy);
  }
  IntArray Copy(IntArray array, size_t count) {
    array.data = Copy(static_cast<uint8_t*>(array.data), count * array.bits / 8);
    return array;
  }

 private:
  std::vector<void*> all_;
};

class AttentionGpuDevice : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!CudaAvailable(&why)) GTEST_SKIP() << why;
  }
};

Status RunDevice(const AttentionCall& call) {
  const DecodeAttention& host = *call.gqa;
  Managed managed;
  DecodeAttention a = host;
  const size_t numbers = size_t{a.rows} * a.num_qo_heads * a.head_dim;
  const size_t codes = a.num_pages * a.page_size * a.num_kv_heads * a.head_dim;
  a.q.data = managed.Copy(static_cast<float*>(a.q.data), numbers);
  a.o.data = managed.Copy(static_cast<float*>(a.o.data), numbers);
  a.lse = managed.Copy(a.lse, size_t{a.rows} * a.num_qo_heads);
  a.k_cache = managed.Copy(static_cast<const uint8_t*>(a.k_cache), codes);
  a.v_cache = managed.Copy(static_cast<const uint8_t*>(a.v_cache), codes);
  a.k_page_scales = managed.Copy(a.k_page_scales, a.num_pages);
  a.v_page_scales = managed.Copy(a.v_page_scales, a.num_pages);
  a.table.entries = managed.Copy(a.table.entries, a.table.entries_size);
  a.table.indptr = managed.Copy(a.table.indptr, a.rows + 1);
  a.table.last_page_len = managed.Copy(a.table.last_page_len, a.rows);
  a.lengths.values = managed.Copy(a.lengths.values, a.rows);
  if (Status status = DecodeAttentionCuda(a, nullptr); !status.ok()) return status;
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) {
    return Status(StatusCode::kUnavailable, cudaGetErrorString(error));
  }
  std::memcpy(host.o.data, a.o.data, numbers * sizeof(float));
  std::memcpy(host.lse, a.lse, size_t{a.rows} * a.num_qo_heads * sizeof(float));
  return Status();
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
      const std::vector<float> found = c.Run(RunDevice);
      ASSERT_EQ(Wrong(found, c, DeviceRounding(c)), "") << dim << csr;
    }
  }
}

TEST_F(AttentionGpuDevice, BitsDoNotDependOnWherePagesLie) {  // I-62
  Shape shape;
  shape.lengths = {3000, 64};
  AttentionCase first(shape);
  const std::vector<float> expected = first.Run(RunDevice);
  shape.layout_seed = 2;
  AttentionCase second(shape);
  const std::vector<float> found = second.Run(RunDevice);
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0);
}
#endif

}  // namespace
}  // namespace kvfence
