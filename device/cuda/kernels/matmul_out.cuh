// The parts that matrix products in bf16 and fp32 share: where D, C and Bias lie, how a warp writes
// its part of D, and the order of the tiles.
#pragma once
#include "common.cuh"

#define INLINE __attribute__((always_inline))                // for lambdas
#define METHOD __attribute__((device, always_inline)) inline // for member functions

// Bits of the kernels' parameter flags; matmul.go defines the same bits.
static constexpr int D_BF16 = 1;   // D and C are bf16, else float
static constexpr int D_FOUR = 2;   // rows of D, C may be accessed by four elements
static constexpr int A_CHUNKS = 4; // rows of A may be read by 16 bytes
static constexpr int B_CHUNKS = 8; // rows of B may be read by 16 bytes

// Out is the result D (M, N) of a product, with C and the bias that are added to it. Rows of D and C
// are ld elements apart.
struct Out {
  u8 *d;
  const u8 *c;       // (M, N) of D's type, or null; may be d
  const float *bias; // (N) or null
  int M, N, ld, flags;
};

// out_of returns where block row y writes: to D or, if K is split, to matrix y of the partial sums
// (gridDim.y, M, N) f32.
DEV Out out_of(void *d, const void *c, const float *bias, int M, int N, int ld, int flags) {
  i64 at = (i64)blockIdx_y * M * N * 4;
  return {(u8 *)d + at, (const u8 *)c, bias, M, N, ld, flags};
}

// floats and set read and write four elements of the result D. These are fp32 (f32x4) or bf16 (u32x2).
DEV f32x4 floats(f32x4 v) { return v; }
DEV f32x4 floats(u32x2 v) { return {low_bf16(v.x), high_bf16(v.x), low_bf16(v.y), high_bf16(v.y)}; }
DEV void set(f32x4 *p, f32x4 v) { *p = v; }
DEV void set(u32x2 *p, f32x4 v) { *p = u32x2{pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)}; }

// put writes element (row, col) of D, plus those of C and the bias.
DEV void put(const Out &o, int row, int col, float v) {
  i64 at = (i64)row * o.ld + col;
  if (o.bias) v += o.bias[col];
  if (o.flags & D_BF16) {
    if (o.c) v += to_float(((const bf16 *)o.c)[at]);
    store((bf16 *)o.d + at, v);
  } else {
    if (o.c) v += ((const float *)o.c)[at];
    ((float *)o.d)[at] = v;
  }
}

// A warp passes its sums through shared memory. Rows there are W + 8 floats apart, so that the
// pairs of a fragment are written without bank conflicts.
template <int W> constexpr int STAGE_FLOATS = 16 * (W + 8);

// put_batch writes v to D, plus C, in BATCH rows that are STEP apart; step is the distance of two
// such rows in fours of elements. Only rows below left exist. All of C is loaded before the first
// element is needed.
template <int BATCH, int STEP, class Four> DEV void put_batch(Four *d, const Four *c, i64 step, int left, f32x4 (&v)[BATCH]) {
  if (c) {
    Four add[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      if (i * STEP < left) add[i] = c[i * step];
#pragma unroll
    for (int i = 0; i < BATCH; i++) v[i] += floats(add[i]);
  }
#pragma unroll
  for (int i = 0; i < BATCH; i++)
    if (i * STEP < left) set(d + i * step, v[i]);
}

// put_rows writes 16 rows of W columns from the warp's own shared memory to D, from row row0 and
// column col0 on. Each lane writes four columns, of BATCH rows at once.
template <int W, int BATCH> DEV void put_rows(const Out &o, const float *stage, int row0, int col0) {
  constexpr int LANES = W / 4, STEP = 32 / LANES, PASSES = 16 / STEP;
  int lane = threadIdx_x & 31;
  if (!(o.flags & D_FOUR)) {
#pragma clang loop unroll(disable)
    for (int i = lane; i < 16 * W; i += 32) {
      int r = i / W, c = i % W;
      if (row0 + r < o.M && col0 + c < o.N) put(o, row0 + r, col0 + c, stage[r * (W + 8) + c]);
    }
    return;
  }
  int row = row0 + lane / LANES, col = col0 + lane % LANES * 4;
  if (col >= o.N) return;
  const float *from = stage + lane / LANES * (W + 8) + lane % LANES * 4;
  f32x4 bias = {0, 0, 0, 0};
  if (o.bias) bias = f32x4{o.bias[col], o.bias[col + 1], o.bias[col + 2], o.bias[col + 3]};
  i64 at = (i64)row * o.ld + col, step = (i64)STEP * o.ld;
#pragma unroll
  for (int p = 0; p < PASSES; p += BATCH) {
    f32x4 v[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) v[i] = *(const f32x4 *)(from + (p + i) * STEP * (W + 8)) + bias;
    if (o.flags & D_BF16)
      put_batch<BATCH, STEP>((u32x2 *)(o.d + at * 2), o.c ? (const u32x2 *)(o.c + at * 2) : nullptr, step / 4, o.M - row - p * STEP, v);
    else
      put_batch<BATCH, STEP>((f32x4 *)(o.d + at * 4), o.c ? (const f32x4 *)(o.c + at * 4) : nullptr, step / 4, o.M - row - p * STEP, v);
    at += BATCH * step;
  }
}

struct Tile { int row, col; };

// tile_of returns the tile of BM × BN that block x computes. Blocks that run together cover a patch
// of D about as wide as high, so that they share operands in the L2 cache: 16 tiles of rows, then
// the next tile of columns.
template <int BM, int BN> DEV Tile tile_of(int M, int N) {
  constexpr int GROUP = 16;
  int high = (M + BM - 1) / BM, wide = (N + BN - 1) / BN;
  int patch = GROUP * wide;
  int first = blockIdx_x / patch * GROUP, in = blockIdx_x % patch;
  int rows = min_i(high - first, GROUP);
  return {(first + in % rows) * BM, in / rows * BN};
}
