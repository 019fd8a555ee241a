// Sinks of attention: a head's row of o (T, heads, dim) act *= σ(lse·ln2 − sink), and lse (heads,
// T) f32 = log₂(2^lse + e^sink), both in place. One block for each row, blockIdx.x.
//
// SinksGrad: dsinks (heads) f32 −= Σ_t e^sink·2^−lse·delta, with lse as Sinks left it and delta
// (heads, T) f32. Two kernels: the first sums slices of rows, the second (add_slices) adds the
// slices' sums, always in the same order.
//
// No call can move fewer bytes than it does: Sinks one read and one write of o, 4 bytes an element
// in bf16; the gradient one read of lse and delta.
#include "common.cuh"

static constexpr int THREADS = 256; // at most
static constexpr int AHEAD = 4;     // chunks of a row that a thread loads at a time
static constexpr int SUMMING = 256; // threads of a block that sums a head's slice

template <int N, class T> DEV void sinks(T *o, float *lse, const float *sink, i64 rows, int heads, int dim) {
  int columns = heads * dim;
  i64 t = blockIdx_x;
  T *row = o + t * columns;
#pragma clang loop unroll(disable)
  for (int first = threadIdx_x * N; first < columns; first += AHEAD * blockDim_x * N) {
    chunk<T, N> in[AHEAD];
#pragma unroll
    for (int c = 0; c < AHEAD; c++) {
      int col = first + c * blockDim_x * N;
      if (col < columns) in[c] = load_chunk<N>(row + col);
    }
#pragma unroll
    for (int c = 0; c < AHEAD; c++) {
      int col = first + c * blockDim_x * N;
      if (col >= columns) continue;
      int h = col / dim;
      float v[N], share = rcp_approx(1.0f + exp2_approx(sink[h] * LOG2E - lse[h * rows + t]));
      unpack(v, in[c]);
#pragma unroll
      for (int i = 0; i < N; i++) v[i] *= share;
      store_floats<N>(row + col, v);
    }
  }
  sync_threads(); // all threads have read lse
  for (int h = threadIdx_x; h < heads; h += blockDim_x) {
    float was = lse[h * rows + t], x = sink[h] * LOG2E, top = x > was ? x : was;
    lse[h * rows + t] = top + log_f(1.0f + exp2_approx(-__builtin_fabsf(x - was))) * LOG2E;
  }
}

#define KERNELS(T, N, SUFFIX)                                                                                                   \
  __global__ __launch_bounds__(THREADS) void sinks##SUFFIX(T *o, float *lse, const float *sink, i64 rows, int heads, int dim) { \
    sinks<N>(o, lse, sink, rows, heads, dim);                                                                                   \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)

// sinks_slice sums the terms of dsinks of one head, blockIdx.x, over one slice of each rows,
// blockIdx.y. It overwrites part (slices, heads) f32.
__global__ __launch_bounds__(SUMMING) void sinks_slice(float *part, const float *lse, const float *delta, const float *sink, i64 rows,
                                                       int heads, int each) {
  __shared__ float space[SUMMING / 32];
  i64 from = (i64)blockIdx_y * each, end = min_i(rows, from + each);
  float x = sink[blockIdx_x] * LOG2E, sum = 0.0f;
  const float *l = lse + blockIdx_x * rows, *d = delta + blockIdx_x * rows;
  for (i64 t = from + threadIdx_x; t < end; t += SUMMING) sum -= exp2_approx(x - l[t]) * d[t];
  sum = block_sum<SUMMING / 32>(sum, space);
  if (threadIdx_x == 0) part[blockIdx_y * heads + blockIdx_x] = sum;
}
}
