// AddPositions: y (T, C) = x (T, C) + rows pos[t] of table (P, C), act; pos (T) i32. It overwrites
// y, which may be x. A position outside 0 … P−1 gives a row of NaN.
//
// AddPositionsBackward: row p of dtable (longest, C) f32 += the rows of dy at position p of every
// sequence, one after the other. dy (T, C) act has the tokens from `from` on; cu (seqs+1) i32 has
// the bounds of the sequences. Tokens outside of dy add nothing.
//
// No call can move fewer bytes than it does: forward 3 elements for each element of y, 6 bytes in
// bf16 (a small table stays in the cache); backward one read of dy and one read and write of
// dtable.
//
// blockIdx.x is the row that is written, blockIdx.y a block of its columns.
#include "common.cuh"

static constexpr int THREADS = 128; // at most
static constexpr int ELEMS = 16;    // columns that a thread computes in the forward

template <int N, class T> DEV void add_positions(T *y, const T *x, const T *table, const int *pos, int rows, int columns) {
  constexpr int CHUNKS = ELEMS / N;
  int p = pos[blockIdx_x];
  bool known = (u32)p < (u32)rows;
  const T *from = table + (known ? (i64)p * columns : 0);
  i64 row = (i64)blockIdx_x * columns;
  int first = (blockIdx_y * CHUNKS * blockDim_x + threadIdx_x) * N, step = blockDim_x * N;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col >= columns) continue;
    float v[N], w[N];
    unpack(v, load_chunk<N>(x + row + col)), unpack(w, load_chunk<N>(from + col));
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = known ? v[i] + w[i] : NAN_F;
    store_floats<N>(y + row + col, v);
  }
}

template <int N, class T>
DEV void add_positions_backward(float *dtable, const T *dy, const int *cu, int seqs, int from, int tokens, int columns) {
  int col = (blockIdx_y * THREADS + threadIdx_x) * N;
  if (col >= columns) return;
  float *to = dtable + (i64)blockIdx_x * columns + col, sum[N], v[N];
  load_f32<N>(sum, to);
#pragma clang loop unroll(disable)
  for (int s = 0; s < seqs; s++) {
    int t = cu[s] + blockIdx_x, at = t - from;
    if (t >= cu[s + 1] || at < 0 || at >= tokens) continue;
    unpack(v, load_chunk<N>(dy + (i64)at * columns + col));
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] += v[i];
  }
  store_f32<N>(to, sum);
}

#define KERNELS(T, N, SUFFIX)                                                                                          \
  __global__ __launch_bounds__(THREADS, 4) void add_positions##SUFFIX(T *y, const T *x, const T *table, const int *pos, \
                                                                      int rows, int columns) {                         \
    add_positions<N>(y, x, table, pos, rows, columns);                                                                 \
  }                                                                                                                    \
  __global__ __launch_bounds__(THREADS, 8) void add_positions_backward##SUFFIX(                                        \
      float *dtable, const T *dy, const int *cu, int seqs, int from, int tokens, int columns) {                        \
    add_positions_backward<N>(dtable, dy, cu, seqs, from, tokens, columns);                                            \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)
}
