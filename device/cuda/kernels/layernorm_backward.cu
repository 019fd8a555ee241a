// LayerNormBackward: with k = rstd, n = dim, v = (x − mean)·k and g = dy·w, dx = k·(g − Σg/n −
// v·Σ(g·v)/n) and dw = Σ dy·v over all rows. dx is overwritten, or added to with one rounding; dw
// is added to. dx may be dy.
//
// No call can move fewer bytes than one read of x and dy and one write of dx, 6 bytes an element in
// bf16, and to add, one read of dx. It moves that up to dim 8192 (4096 if chunks are single
// elements), and reads wider rows twice. The sums for dw are small: every block writes its own to
// part (slices, dim) f32, and add_slices (bias.cu) adds those to dw.
//
// x, dy, dx (count, dim) act; w (dim) f32; stats (count, 2) f32: mean, then rstd.
#include "layernorm.cuh"

// normed replaces x by (x − mean)·k.
template <int N> DEV void normed(float (&x)[N], float mean, float k) {
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = (x[i] - mean) * k;
}

// sums adds a chunk's terms to g = Σ dy·w and to gv = Σ dy·w·v.
template <int N> DEV void sums(float &g, float &gv, const float (&d)[N], const float (&w)[N], const float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) g += d[i] * w[i], gv += d[i] * w[i] * v[i];
}

// write_gradient writes a chunk of dx. g and gv are the means of dy·w and of dy·w·v over the row.
// old is the former content of dx if add is true, or zero.
template <int N, class T>
DEV void write_gradient(T *dx, const float (&d)[N], const float (&w)[N], const float (&v)[N], chunk<T, N> old, bool add, float k, float g,
                        float gv) {
  float out[N], before[N];
  unpack(before, old);
#pragma unroll
  for (int i = 0; i < N; i++) {
    out[i] = k * (d[i] * w[i] - g - v[i] * gv);
    if (add) out[i] += before[i];
  }
  store_floats<N>(dx, out);
}

// backward_rows computes each rows in a block, one after the other. It requires dim ≤ threads ·
// ROW_ELEMS<N>. A thread keeps the sums for dw of its columns in registers.
template <int N, class T>
DEV void backward_rows(T *dx, float *part, const T *dy, const T *x, const float *w, const float *stats, int count, int dim, int add,
                       int each) {
  constexpr int CHUNKS = ROW_ELEMS<N> / N;
  __shared__ __attribute__((aligned(16))) float space[4 * MAX_WARPS];
  zero_space(space, 4 * MAX_WARPS);
  float dw[CHUNKS][N], inverse = 1.0f / (float)dim;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
    for (int j = 0; j < N; j++) dw[c][j] = 0.0f;
  }
  int row = blockIdx_x * each, end = min_i(row + each, count);
#pragma clang loop unroll(disable)
  for (int parity = 0; row < end; row++, parity ^= 1) {
    T *to = dx + (i64)row * dim;
    chunk<T, N> xc[CHUNKS], dc[CHUNKS];
    load_group<N>(xc, x + (i64)row * dim, dim);
    load_group<N>(dc, dy + (i64)row * dim, dim);
    float mean = stats[2 * (i64)row], k = stats[2 * (i64)row + 1], g = 0.0f, gv = 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      int col = (c * blockDim_x + threadIdx_x) * N;
      if (col >= dim) continue;
      float v[N], d[N], weights[N];
      load_f32<N>(weights, w + col);
      unpack(v, xc[c]), unpack(d, dc[c]);
      normed(v, mean, k);
      sums(g, gv, d, weights, v);
    }
    float *mine = space + parity * 2 * MAX_WARPS;
    g = block_sum_any(g, mine) * inverse, gv = block_sum_any(gv, mine + MAX_WARPS) * inverse;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      int col = (c * blockDim_x + threadIdx_x) * N;
      if (col >= dim) continue;
      float v[N], d[N], weights[N];
      load_f32<N>(weights, w + col);
      keep_packed(xc[c]), keep_packed(dc[c]);
      unpack(v, xc[c]), unpack(d, dc[c]);
      normed(v, mean, k);
#pragma unroll
      for (int j = 0; j < N; j++) dw[c][j] += d[j] * v[j];
      chunk<T, N> old;
      zero_chunk(old);
      if (add) old = load_chunk<N>((const T *)to + col);
      write_gradient<N>(to + col, d, weights, v, old, add, k, g, gv);
    }
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = (c * blockDim_x + threadIdx_x) * N;
    if (col < dim) store_f32<N>(part + (i64)blockIdx_x * dim + col, dw[c]);
  }
}

// backward_wide_dw sums dy·v for ROW_THREADS·N columns over the slice blockIdx.y, which has each
// rows. It runs before backward_wide, which may overwrite dy.
template <int N, class T> DEV void backward_wide_dw(float *part, const T *dy, const T *x, const float *stats, int count, int dim, int each) {
  int col = (blockIdx_x * ROW_THREADS + threadIdx_x) * N;
  if (col >= dim) return;
  float dw[N], v[N], d[N];
#pragma unroll
  for (int j = 0; j < N; j++) dw[j] = 0.0f;
  int end = min_i(count, (blockIdx_y + 1) * each);
#pragma clang loop unroll_count(4)
  for (int row = blockIdx_y * each; row < end; row++) {
    unpack(v, load_chunk<N>(x + (i64)row * dim + col)), unpack(d, load_chunk<N>(dy + (i64)row * dim + col));
    normed(v, stats[2 * (i64)row], stats[2 * (i64)row + 1]);
#pragma unroll
    for (int j = 0; j < N; j++) dw[j] += d[j] * v[j];
  }
  store_f32<N>(part + (i64)blockIdx_y * dim + col, dw);
}

// backward_wide computes dx of one row of any length in a block.
template <int N, class T>
DEV void backward_wide(T *dx, const T *dy, const T *x, const float *w, const float *stats, int dim, int add) {
  __shared__ float space[2 * ROW_THREADS / 32];
  i64 row = blockIdx_x;
  const T *xs = x + row * dim, *dys = dy + row * dim;
  T *to = dx + row * dim;
  float mean = stats[2 * row], k = stats[2 * row + 1], g = 0.0f, gv = 0.0f, v[N], d[N], weights[N];
#pragma clang loop unroll_count(2)
  for (int col = threadIdx_x * N; col < dim; col += ROW_THREADS * N) {
    load_f32<N>(weights, w + col);
    unpack(v, load_chunk<N>(xs + col)), unpack(d, load_chunk<N>(dys + col));
    normed(v, mean, k);
    sums(g, gv, d, weights, v);
  }
  g = block_sum<ROW_THREADS / 32>(g, space) / (float)dim, gv = block_sum<ROW_THREADS / 32>(gv, space + ROW_THREADS / 32) / (float)dim;
  for (int col = threadIdx_x * N; col < dim; col += ROW_THREADS * N) {
    load_f32<N>(weights, w + col);
    unpack(v, load_chunk<N>(xs + col)), unpack(d, load_chunk<N>(dys + col));
    normed(v, mean, k);
    chunk<T, N> old;
    zero_chunk(old);
    if (add) old = load_chunk<N>((const T *)to + col);
    write_gradient<N>(to + col, d, weights, v, old, add, k, g, gv);
  }
}

#define KERNELS(T, N, SUFFIX)                                                                                                  \
  __global__ __launch_bounds__(ROW_THREADS, N == 8 ? 2 : 1) void layernorm_backward_rows##SUFFIX(                                           \
      T *dx, float *part, const T *dy, const T *x, const float *w, const float *stats, int count, int dim, int add, int each) { \
    backward_rows<N>(dx, part, dy, x, w, stats, count, dim, add, each);                                                        \
  }                                                                                                                            \
  __global__ __launch_bounds__(ROW_THREADS) void layernorm_backward_wide_dw##SUFFIX(                                           \
      float *part, const T *dy, const T *x, const float *stats, int count, int dim, int each) {                                \
    backward_wide_dw<N>(part, dy, x, stats, count, dim, each);                                                                 \
  }                                                                                                                            \
  __global__ __launch_bounds__(ROW_THREADS) void layernorm_backward_wide##SUFFIX(                                              \
      T *dx, const T *dy, const T *x, const float *w, const float *stats, int dim, int add) {                                  \
    backward_wide<N>(dx, dy, x, w, stats, dim, add);                                                                           \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)
}
