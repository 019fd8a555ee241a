// AddBiasGrad: db (N) f32 += Σ_t dy (T, N) act, in two kernels. The first sums slices of rows, the
// second adds the slices' sums, always in the same order. RMSNormBackward uses the second one too.
//
// No call can move fewer bytes than one read of dy: 2 bytes an element in bf16.
//
// WeightedBiasGrad multiplies the rows by weights. Row t has the weight w[index[t]], with w (P) f32
// and index (T) i32:
//
//	db (C) f32 += Σ_t w[index[t]]·dy, by the same kernels as AddBiasGrad
//	dw[index[t]] += Σ_c dy·b of row t, with b (C) f32; no index comes twice
//
// An index outside 0 … P−1 makes db NaN and writes no dw. blockIdx.x is the row of dw.
#include "common.cuh"

static constexpr int WARPS = 8;  // warps of a block of the first kernel; warp w sums rows w, w + WARPS …
static constexpr int AHEAD = 8;  // rows that a warp loads at a time
static constexpr int LANES = 32; // columns of a block of the second kernel
static constexpr int PARTS = 32; // threads that share the slices of a column in the second kernel

DEV float weight_at(const float *w, int at, int count) { return (u32)at < (u32)count ? w[at] : NAN_F; }

// Weights has the weights of rows. NoWeights has the same methods for rows without weights.
struct Weights {
  const float *w;
  const int *index;
  int count;
  METHOD float of(int t) const { return weight_at(w, index[t], count); }
  METHOD float times(float k, float v) const { return k * v; }
};
struct NoWeights {
  METHOD float of(int) const { return 1.0f; }
  METHOD float times(float, float v) const { return v; }
};

// bias_slice sums one slice of each rows: blockIdx.x is the block of 32·N columns, blockIdx.y the
// slice. It overwrites part (slices, columns) f32.
template <int N, class T, class By> DEV void bias_slice(float *part, const T *dy, int rows, int columns, int each, By by) {
  __shared__ __attribute__((aligned(16))) float sums[WARPS][32 * N];
  int lane = threadIdx_x & 31, warp = threadIdx_x >> 5, col = (blockIdx_x * 32 + lane) * N;
  int end = min_i(rows, (blockIdx_y + 1) * each);
  float sum[N];
#pragma unroll
  for (int i = 0; i < N; i++) sum[i] = 0.0f;
  if (col < columns) {
    int t = blockIdx_y * each + warp;
    const T *from = dy + col;
    for (; t + (AHEAD - 1) * WARPS < end; t += AHEAD * WARPS) {
      chunk<T, N> in[AHEAD];
#pragma unroll
      for (int r = 0; r < AHEAD; r++) in[r] = load_chunk<N>(from + (i64)(t + r * WARPS) * columns);
#pragma unroll
      for (int r = 0; r < AHEAD; r++) {
        float v[N], k = by.of(t + r * WARPS);
        unpack(v, in[r]);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += by.times(k, v[i]);
      }
    }
    for (; t < end; t += WARPS) {
      float v[N], k = by.of(t);
      unpack(v, load_chunk<N>(from + (i64)t * columns));
#pragma unroll
      for (int i = 0; i < N; i++) sum[i] += by.times(k, v[i]);
    }
  }
  store_f32<N>(&sums[warp][lane * N], sum);
  sync_threads();
  for (int i = threadIdx_x; i < 32 * N; i += WARPS * 32) {
    int c = blockIdx_x * 32 * N + i;
    float all = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) all += sums[w][i];
    if (c < columns) part[(i64)blockIdx_y * columns + c] = all;
  }
}

static constexpr int ROW_THREADS = 256; // most threads of a block that has one row
template <int N, class T> DEV void weight_grad(float *dw, const T *dy, const float *b, const int *index, int columns, int count) {
  __shared__ __attribute__((aligned(16))) float space[MAX_WARPS];
  zero_space(space, MAX_WARPS);
  int at = index[blockIdx_x];
  const T *row = dy + (i64)blockIdx_x * columns;
  float sum = 0.0f;
  for (int col = threadIdx_x * N; col < columns; col += blockDim_x * N) {
    float v[N], bias[N];
    unpack(v, load_chunk<N>(row + col));
    load_f32<N>(bias, b + col);
#pragma unroll
    for (int i = 0; i < N; i++) sum += v[i] * bias[i];
  }
  sum = block_sum_any(sum, space);
  if (threadIdx_x == 0 && (u32)at < (u32)count) dw[at] += sum;
}

#define KERNELS(T, N, SUFFIX)                                                                                                     \
  __global__ __launch_bounds__(WARPS * 32, 4) void bias_slice##SUFFIX(float *part, const T *dy, int rows, int columns, int each) {  \
    bias_slice<N>(part, dy, rows, columns, each, NoWeights());                                                                    \
  }                                                                                                                               \
  __global__ __launch_bounds__(WARPS * 32, 4) void weighted_slice##SUFFIX(float *part, const T *dy, int rows, int columns, int each, \
                                                                          const float *w, const int *index, int count) {          \
    bias_slice<N>(part, dy, rows, columns, each, Weights{w, index, count});                                                       \
  }                                                                                                                               \
  __global__ __launch_bounds__(ROW_THREADS) void weight_grad##SUFFIX(float *dw, const T *dy, const float *b, const int *index,     \
                                                                     int columns, int count) {                                    \
    weight_grad<N>(dw, dy, b, index, columns, count);                                                                             \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)

// add_slices: dst (columns) f32 += Σ_s part (slices, columns) f32. Thread (column, p)
// of a block sums slices p, p + PARTS …; the PARTS sums are added in order.
__global__ __launch_bounds__(LANES *PARTS) void add_slices(float *dst, const float *part, int slices, int columns) {
  __shared__ float sums[PARTS][LANES];
  int lane = threadIdx_x & 31, p = threadIdx_x >> 5, col = blockIdx_x * LANES + lane;
  float sum = 0.0f;
  if (col < columns) {
#pragma clang loop unroll_count(8)
    for (int s = p; s < slices; s += PARTS) sum += part[(i64)s * columns + col];
  }
  sums[p][lane] = sum;
  sync_threads();
  if (p > 0 || col >= columns) return;
  float all = 0.0f;
#pragma unroll
  for (int i = 0; i < PARTS; i++) all += sums[i][lane];
  dst[col] += all;
}
}
