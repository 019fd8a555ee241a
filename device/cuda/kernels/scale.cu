// Rows and whole tensors are multiplied by a factor, in place; act elements are rounded once.
//
//	Scale              x (n) act *= factor, or the same columns of every row
//	ScaleRows          row t of x (T, C) act *= w[index[t]]
//	ScaleRowsBackward  dw[index[t]] = Σ_c dy·y of row t, overwritten; then row t of dy
//	                   and of y (T, C) act are each multiplied by w[index[t]]
//
// w, dw (P) f32, index (T) i32. An index outside 0 … P−1 makes its row NaN and writes no dw.
//
// No call can move fewer bytes than it does: one read and one write of each tensor, 4 bytes an
// element in bf16, 8 for the backward.
//
// blockIdx.x is the row; in scale_rows blockIdx.y is the block of columns.
#include "common.cuh"

static constexpr int THREADS = 256; // at most
static constexpr int ELEMS = 16;    // elements that a thread multiplies
static constexpr int AHEAD = 2;     // chunks of a row that a thread loads at a time

template <int N> DEV void times(float (&v)[N], float k) {
#pragma unroll
  for (int i = 0; i < N; i++) v[i] *= k;
}

// scaled multiplies the elements of this thread by k: chunks from first on, step elements apart,
// below n.
template <int N, class T> DEV void scaled(T *x, i64 first, int step, i64 n, float k) {
  constexpr int CHUNKS = ELEMS / N;
  chunk<T, N> in[CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    i64 at = first + c * step;
    if (at < n) in[c] = load_chunk<N>(x + at);
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    i64 at = first + c * step;
    if (at >= n) continue;
    float v[N];
    unpack(v, in[c]);
    times(v, k);
    store_floats<N>(x + at, v);
  }
}

DEV float weight_at(const float *w, int at, int count) { return (u32)at < (u32)count ? w[at] : NAN_F; }

template <int N, class T> DEV void scale_rows_backward(T *dy, T *y, const float *w, float *dw, const int *index, int columns, int count) {
  __shared__ float space[THREADS / 32];
  int at = index[blockIdx_x];
  float k = weight_at(w, at, count), sum = 0.0f;
  i64 row = (i64)blockIdx_x * columns;
  T *d = dy + row, *o = y + row;
#pragma clang loop unroll(disable)
  for (int first = threadIdx_x * N; first < columns; first += AHEAD * blockDim_x * N) {
    chunk<T, N> in[AHEAD][2];
#pragma unroll
    for (int c = 0; c < AHEAD; c++) {
      int col = first + c * blockDim_x * N;
      if (col < columns) in[c][0] = load_chunk<N>(d + col), in[c][1] = load_chunk<N>(o + col);
    }
#pragma unroll
    for (int c = 0; c < AHEAD; c++) {
      int col = first + c * blockDim_x * N;
      if (col >= columns) continue;
      float a[N], b[N];
      unpack(a, in[c][0]), unpack(b, in[c][1]);
#pragma unroll
      for (int i = 0; i < N; i++) sum += a[i] * b[i];
      times(a, k), times(b, k);
      store_floats<N>(d + col, a);
      store_floats<N>(o + col, b);
    }
  }
  sum = warp_sum(sum);
  int warps = blockDim_x >> 5;
  if (warps > 1) { // add the warps' sums in order
    if ((threadIdx_x & 31) == 0) space[threadIdx_x >> 5] = sum;
    sync_threads();
    sum = 0.0f;
#pragma clang loop unroll(disable)
    for (int i = 0; i < warps; i++) sum += space[i];
  }
  if (threadIdx_x == 0 && (u32)at < (u32)count) dw[at] = sum;
}

#define KERNELS(T, N, SUFFIX)                                                                                                     \
  __global__ __launch_bounds__(THREADS) void scale##SUFFIX(T *x, i64 n, float factor) {                                           \
    i64 first = ((i64)blockIdx_x * (ELEMS / N) * THREADS + threadIdx_x) * N;                                                      \
    scaled<N>(x, first, THREADS * N, n, factor);                                                                                  \
  }                                                                                                                               \
  __global__ __launch_bounds__(THREADS) void scale_block##SUFFIX(T *x, int columns, int stride, float factor) {                    \
    int first = (blockIdx_y * (ELEMS / N) * blockDim_x + threadIdx_x) * N;                                                        \
    scaled<N>(x + (i64)blockIdx_x * stride, first, blockDim_x * N, columns, factor);                                              \
  }                                                                                                                               \
  __global__ __launch_bounds__(THREADS) void scale_rows##SUFFIX(T *x, const float *w, const int *index, int columns, int count) { \
    int first = (blockIdx_y * (ELEMS / N) * blockDim_x + threadIdx_x) * N;                                                        \
    scaled<N>(x + (i64)blockIdx_x * columns, first, blockDim_x * N, columns, weight_at(w, index[blockIdx_x], count));             \
  }                                                                                                                               \
  __global__ __launch_bounds__(THREADS) void scale_rows_backward##SUFFIX(T *dy, T *y, const float *w, float *dw,                  \
                                                                         const int *index, int columns, int count) {              \
    scale_rows_backward<N>(dy, y, w, dw, index, columns, count);                                                                  \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)
}
