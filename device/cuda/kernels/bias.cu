// AddBiasGrad: db (N) f32 += Σ_t dy (T, N) act. Accumulates, in two kernels: the
// first sums slices of rows, the second adds the slices' sums, always by the same
// tree. RMSNormBackward uses the second one too.
//
// The least a call moves is one read of dy: 2 bytes an element in bf16.
#include "common.cuh"

static constexpr int WARPS = 8;  // of a block of the first kernel; warp w takes rows w, w + WARPS …
static constexpr int AHEAD = 8;  // rows a warp has in flight
static constexpr int LANES = 32; // columns of a block of the second kernel
static constexpr int PARTS = 32; // threads that share the slices of a column there

// bias_slice: blockIdx.x is the block of 32·N columns, blockIdx.y the slice of each
// rows; part (slices, columns) f32 is overwritten.
template <int N, class T> DEV void bias_slice(float *part, const T *dy, int rows, int columns, int each) {
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
        float v[N];
        unpack(v, in[r]);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += v[i];
      }
    }
    for (; t < end; t += WARPS) {
      float v[N];
      unpack(v, load_chunk<N>(from + (i64)t * columns));
#pragma unroll
      for (int i = 0; i < N; i++) sum[i] += v[i];
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

extern "C" {
__global__ __launch_bounds__(WARPS * 32, 4) void bias_slice_f32(float *part, const float *dy, int rows, int columns, int each) {
  bias_slice<1>(part, dy, rows, columns, each);
}
__global__ __launch_bounds__(WARPS * 32, 4) void bias_slice_bf16(float *part, const bf16 *dy, int rows, int columns, int each) {
  bias_slice<1>(part, dy, rows, columns, each);
}
__global__ __launch_bounds__(WARPS * 32, 4) void bias_slice16_f32(float *part, const float *dy, int rows, int columns, int each) {
  bias_slice<4>(part, dy, rows, columns, each);
}
__global__ __launch_bounds__(WARPS * 32, 4) void bias_slice16_bf16(float *part, const bf16 *dy, int rows, int columns, int each) {
  bias_slice<8>(part, dy, rows, columns, each);
}

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
