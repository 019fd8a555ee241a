// CopyHeads copies elements 0 … C−1 of each of H heads of T rows from src to dst, bit by bit, and
// clears the following zeros elements of each head in dst; act. Element (t, head, c) lies at
// t·stride + head·head_stride + c. It overwrites dst. No call can move fewer bytes than it does:
// one write of T·H·(C + zeros) elements, and one read of T·H·C, or of T·C if all heads share one
// (head_stride 0).
//
// SumHeads: dst (T, C) act = Σ_h src (T, H, C) act, added in fp32 in the order of the heads and
// rounded once. It overwrites dst. No call can move fewer bytes than one read of T·H·C elements.
#include "common.cuh"

static constexpr int COPY_THREADS = 128; // at most
static constexpr int UNITS = 4;          // units a thread copies
static constexpr int SUM_THREADS = 128;
static constexpr int AHEAD = 8; // heads that a thread loads at a time

DEV void zero_unit(u16 &x) { x = 0; }
DEV void zero_unit(u32 &x) { x = 0; }
DEV void zero_unit(u32x4 &x) { x = u32x4{0, 0, 0, 0}; }

// copy_heads copies one row, blockIdx.x; blockIdx.y is a block of its units (elements, or 16
// bytes). A head of dst has wide units, of which the first units are copied and the others cleared.
template <class Unit>
DEV void copy_heads(Unit *dst, const Unit *src, int heads, int units, int wide, int dst_stride, int dst_head, int src_stride, int src_head) {
  Unit *to = dst + (i64)blockIdx_x * dst_stride;
  const Unit *from = src + (i64)blockIdx_x * src_stride;
  u32 first = (u32)blockIdx_y * UNITS * (u32)blockDim_x + (u32)threadIdx_x, all = (u32)heads * (u32)wide;
  Unit x[UNITS];
#pragma unroll
  for (int i = 0; i < UNITS; i++) {
    u32 at = first + (u32)i * (u32)blockDim_x, head = at / (u32)wide, c = at % (u32)wide;
    zero_unit(x[i]);
    if (at < all && c < (u32)units) x[i] = from[(i64)head * src_head + c];
  }
#pragma unroll
  for (int i = 0; i < UNITS; i++) {
    u32 at = first + (u32)i * (u32)blockDim_x, head = at / (u32)wide, c = at % (u32)wide;
    if (at < all) to[(i64)head * dst_head + c] = x[i];
  }
}

// sum_heads adds up heads; a thread has N neighbouring elements of a row, and a row has chunks of
// these.
template <int N, class T>
DEV void sum_heads(T *dst, const T *src, int rows, int heads, int chunks, int dst_stride, int src_stride, int src_head) {
  i64 item = (i64)blockIdx_x * SUM_THREADS + threadIdx_x, t = item / chunks;
  int c = (int)(item % chunks) * N;
  if (t >= rows) return;
  const T *from = src + t * src_stride + c;
  float sum[N];
#pragma unroll
  for (int i = 0; i < N; i++) sum[i] = 0.0f;
  for (int h = 0; h < heads; h += AHEAD) {
    chunk<T, N> in[AHEAD];
#pragma unroll
    for (int r = 0; r < AHEAD; r++) {
      zero_chunk(in[r]);
      if (h + r < heads) in[r] = load_chunk<N>(from + (i64)(h + r) * src_head);
    }
#pragma unroll
    for (int r = 0; r < AHEAD; r++) {
      float v[N];
      unpack(v, in[r]);
#pragma unroll
      for (int i = 0; i < N; i++) sum[i] += v[i];
    }
  }
  store_floats<N>(dst + t * dst_stride + c, sum);
}

#define COPY(UNIT, SUFFIX)                                                                                              \
  __global__ __launch_bounds__(COPY_THREADS, 8) void copy_heads##SUFFIX(UNIT *dst, const UNIT *src, int heads, int units, \
                                                                       int wide, int dst_stride, int dst_head,          \
                                                                       int src_stride, int src_head) {                  \
    copy_heads(dst, src, heads, units, wide, dst_stride, dst_head, src_stride, src_head);                               \
  }
#define SUM(T, N, SUFFIX)                                                                                                 \
  __global__ __launch_bounds__(SUM_THREADS) void sum_heads##SUFFIX(T *dst, const T *src, int rows, int heads, int chunks, \
                                                                  int dst_stride, int src_stride, int src_head) {        \
    sum_heads<N>(dst, src, rows, heads, chunks, dst_stride, src_stride, src_head);                                       \
  }

extern "C" {
COPY(u32, _f32)
COPY(u16, _bf16)
COPY(u32x4, 16)
SUM(float, 1, _f32)
SUM(bf16, 1, _bf16)
SUM(float, 4, 16_f32)
SUM(bf16, 8, 16_bf16)
}
