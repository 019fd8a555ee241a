// Convert: dst (n) = src (n) in dst's type; bf16 is rounded to nearest even.
// Overwrites dst.
#include "common.cuh"

static constexpr int THREADS = 256;

// Every thread takes PER consecutive elements; the last block's may be fewer.
static constexpr int PER = 8;

template <class Dst, class Src> DEV void convert(Dst *dst, const Src *src, i64 n) {
  i64 at = ((i64)blockIdx_x * THREADS + threadIdx_x) * PER;
  if (at >= n) return;
  int count = (int)min_i(n - at, (i64)PER);
  float v[PER];
#pragma unroll
  for (int i = 0; i < PER; i++)
    if (i < count) v[i] = to_float(src[at + i]);
#pragma unroll
  for (int i = 0; i < PER; i++)
    if (i < count) store(dst + at + i, v[i]);
}

extern "C" {
__global__ __launch_bounds__(THREADS) void convert_f32_bf16(float *dst, const bf16 *src, i64 n) { convert(dst, src, n); }
__global__ __launch_bounds__(THREADS) void convert_bf16_f32(bf16 *dst, const float *src, i64 n) { convert(dst, src, n); }
}
