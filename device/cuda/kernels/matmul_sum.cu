// D (M, N) = Σ parts (parts, M, N) f32, in order, + C + Bias. It is the last step of a matrix
// product whose K was split. With no parts it computes a product with K = 0.
#include "matmul_out.cuh"

static constexpr int THREADS = 256;

extern "C" __global__ __launch_bounds__(THREADS) void matmul_sum(void *d, const float *part, const void *c, const float *bias, int M,
                                                                 int N, int ldd, int parts, int flags) {
  Out o = {(u8 *)d, (const u8 *)c, bias, M, N, ldd, flags};
  i64 at = (i64)blockIdx_x * THREADS + threadIdx_x, size = (i64)M * N;
  if (at >= size) return;
  float sum = 0.0f;
#pragma clang loop unroll_count(4)
  for (int p = 0; p < parts; p++) sum += part[p * size + at];
  put(o, (int)(at / N), (int)(at % N), sum);
}
