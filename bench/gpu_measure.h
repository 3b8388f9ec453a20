// What gpu_bench measures: each part returns rows of figures, its baseline and prediction beside.
#pragma once

#include <cstdint>

#include "gpu_device.h"
#include "gpu_prediction_json.h"

namespace kvfence {

// The prediction's formulas with what this device showed of itself: bandwidth of a device copy,
// time of an empty launch. Tensor cores aren't measured: 0.
GpuModel ModelOf(const Gpu& gpu);

// Each of the fence's launches by itself and all together, beside a device copy of as many bytes.
Json MeasureValidator(const BatchShape& shape, Gpu* gpu);
// KV bytes read per second, beside a device copy's bytes (read and written) and a straight read's.
Json MeasureAttention(const AttentionShape& shape, Gpu* gpu);
// A decode step of FP8 MLA with the fence's launches and without, taking turns, launched and as
// a graph; and the host's time for the launches.
Json MeasureStep(uint32_t page_size, uint32_t layers, Gpu* gpu);

}  // namespace kvfence
