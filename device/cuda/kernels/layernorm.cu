// LayerNorm: y = (x − mean)·rstd·w + b over rows of dim elements, with mean = mean(x) and rstd =
// 1/√(mean((x − mean)²) + eps). It overwrites y and stats; y may be x. No call can move fewer bytes
// than one read of x and one write of y: 4 bytes an element in bf16, 8 in fp32. It moves just that
// up to dim 8192 (4096 if chunks are single elements). Wider rows are read three times, mostly from
// the cache.
//
// x, y (count, dim) act; w (dim) f32; b (dim) f32 or null; stats (count, 2) f32 or null: mean, then
// rstd. N is the number of elements of a chunk (common.cuh).
#include "layernorm.cuh"

// write_normed writes a chunk of y = (x − mean)·k·w + b.
template <int N, class T> DEV void write_normed(T *y, const float (&x)[N], const float (&w)[N], const float (&b)[N], float mean, float k) {
  float v[N];
#pragma unroll
  for (int i = 0; i < N; i++) v[i] = (x[i] - mean) * k * w[i] + b[i];
  store_floats<N>(y, v);
}

// load_bias reads N elements of b from column col on, or sets them to 0 if there is no b.
template <int N> DEV void load_bias(float (&v)[N], const float *b, int col) {
#pragma unroll
  for (int i = 0; i < N; i++) v[i] = 0.0f;
  if (b) load_f32<N>(v, b + col);
}

DEV void write_stats(float *stats, int row, float mean, float k) {
  if (stats && threadIdx_x == 0) stats[2 * (i64)row] = mean, stats[2 * (i64)row + 1] = k;
}

// norm_rows normalizes each rows in a block, one after the other, and reads the next row meanwhile.
// It requires dim ≤ threads · ROW_ELEMS<N>.
template <int N, class T>
DEV void norm_rows(T *y, float *stats, const T *x, const float *w, const float *b, int count, int dim, float eps, int each) {
  constexpr int CHUNKS = ROW_ELEMS<N> / N;
  __shared__ __attribute__((aligned(16))) float space[2 * MAX_WARPS];
  zero_space(space, 2 * MAX_WARPS);
  float inverse = 1.0f / (float)dim;
  int row = blockIdx_x * each, end = min_i(row + each, count);
  chunk<T, N> in[CHUNKS], next[CHUNKS];
  load_group<N>(in, x + (i64)row * dim, dim);
#pragma clang loop unroll(disable)
  for (; row < end; row++) {
    if (row + 1 < end) load_group<N>(next, x + (i64)(row + 1) * dim, dim);
    float sum = 0.0f, v[N];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) unpack(v, in[c]), sum += sum_of(v);
    float mean = block_sum_any(sum, space) * inverse, squares = 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      unpack(v, in[c]);
      if ((c * blockDim_x + threadIdx_x) * N < dim) squares += sum_of_squares(v, mean);
    }
    float k = rsqrt_newton(block_sum_any(squares, space + MAX_WARPS) * inverse + eps);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      int col = (c * blockDim_x + threadIdx_x) * N;
      if (col < dim) {
        float weights[N], bias[N];
        load_f32<N>(weights, w + col), load_bias(bias, b, col);
        unpack(v, in[c]);
        write_normed<N>(y + (i64)row * dim + col, v, weights, bias, mean, k);
      }
      in[c] = next[c];
    }
    write_stats(stats, row, mean, k);
  }
}

// norm_wide normalizes one row of any length in a block, which reads it three times.
template <int N, class T> DEV void norm_wide(T *y, float *stats, const T *x, const float *w, const float *b, int dim, float eps) {
  __shared__ float space[ROW_THREADS / 32];
  const T *from = x + (i64)blockIdx_x * dim;
  float sum = 0.0f, squares = 0.0f, v[N], weights[N], bias[N];
#pragma clang loop unroll_count(4)
  for (int col = threadIdx_x * N; col < dim; col += ROW_THREADS * N) unpack(v, load_chunk<N>(from + col)), sum += sum_of(v);
  float mean = block_sum<ROW_THREADS / 32>(sum, space) / (float)dim;
#pragma clang loop unroll_count(4)
  for (int col = threadIdx_x * N; col < dim; col += ROW_THREADS * N) unpack(v, load_chunk<N>(from + col)), squares += sum_of_squares(v, mean);
  float k = rsqrt_newton(block_sum<ROW_THREADS / 32>(squares, space) / (float)dim + eps);
  for (int col = threadIdx_x * N; col < dim; col += ROW_THREADS * N) {
    load_f32<N>(weights, w + col), load_bias(bias, b, col);
    unpack(v, load_chunk<N>(from + col));
    write_normed<N>(y + (i64)blockIdx_x * dim + col, v, weights, bias, mean, k);
  }
  write_stats(stats, blockIdx_x, mean, k);
}

#define KERNELS(T, N, SUFFIX)                                                                                       \
  __global__ __launch_bounds__(ROW_THREADS, N == 8 ? 2 : 1) void layernorm_rows##SUFFIX(                            \
      T *y, float *stats, const T *x, const float *w, const float *b, int count, int dim, float eps, int each) {    \
    norm_rows<N>(y, stats, x, w, b, count, dim, eps, each);                                                         \
  }                                                                                                                 \
  __global__ __launch_bounds__(ROW_THREADS) void layernorm_wide##SUFFIX(T *y, float *stats, const T *x,             \
                                                                        const float *w, const float *b, int dim, float eps) { \
    norm_wide<N>(y, stats, x, w, b, dim, eps);                                                                      \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)
}
