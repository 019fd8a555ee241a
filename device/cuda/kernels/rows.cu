// GatherRows: dst (T, C) = rows index[t] of src (U, C), act; index (T) i32. It overwrites dst. An
// index outside 0 … U−1 gives a row of NaN.
//
// ScatterAddRows: row u of drows (U, C) f32 += the rows pos[start[u]: start[u+1]] of dy (T, C) act,
// one after the other in that order. start (U+1) and pos (T) i32. A bound outside 0 … T counts as
// the nearest inside, and a row outside 0 … T−1 as NaN. Rows of drows with an empty list are not
// touched.
//
// AddRows: row index[t] of dst (U, C) f32 += row t of src (T, C) act. No index (T) i32 occurs
// twice, so no row has two writers. An index outside 0 … U−1 adds nothing. With weights it adds
// w[pairs[t]]·(the row + bias), where bias (C) f32 may be absent. A pair outside 0 … P−1 makes its
// row NaN.
//
// No call can move fewer bytes than it does: gathering reads and writes T rows, 4 bytes an element
// in bf16. Scattering reads T rows and reads and writes U rows in fp32. Adding reads T rows and
// reads and writes T rows in fp32, 10 bytes an element in bf16.
//
// blockIdx.x is the row that is written (in AddRows, the row that is read), blockIdx.y a block of
// its columns.
#include "common.cuh"

static constexpr int GATHER_THREADS = 128; // at most
static constexpr int GATHER_UNITS = 4;     // units a thread copies
static constexpr int SCATTER_THREADS = 128;
static constexpr int AHEAD = 8;         // rows that a thread loads at a time
static constexpr int ADD_THREADS = 128; // at most
static constexpr int ADD_ELEMS = 16;    // elements a thread adds

DEV void nan_unit(u16 &x) { x = 0x7fff; }
DEV void nan_unit(u32 &x) { x = 0x7fffffff; }
DEV void nan_unit(u32x4 &x) { x = u32x4{0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff}; }

// gather copies rows of units units (elements, or 16 bytes). For an invalid index it writes all
// ones, a NaN in either type.
template <class Unit> DEV void gather(Unit *dst, const Unit *src, const int *index, int rows, int units) {
  int from = index[blockIdx_x];
  Unit *to = dst + (i64)blockIdx_x * units;
  int first = blockIdx_y * GATHER_UNITS * blockDim_x + threadIdx_x;
  bool known = (u32)from < (u32)rows;
  const Unit *in = src + (known ? (i64)from * units : 0);
  Unit x[GATHER_UNITS];
#pragma unroll
  for (int i = 0; i < GATHER_UNITS; i++) {
    int at = first + i * blockDim_x;
    nan_unit(x[i]);
    if (known && at < units) x[i] = in[at];
  }
#pragma unroll
  for (int i = 0; i < GATHER_UNITS; i++) {
    int at = first + i * blockDim_x;
    if (at < units) to[at] = x[i];
  }
}

// position returns the row of dy at entry i of the list pos, or −1 if that row does not exist.
DEV int position(const int *pos, int i, int rows) {
  int t = pos[i];
  return (u32)t < (u32)rows ? t : -1;
}

template <int N, class T> DEV void add_row(float (&sum)[N], chunk<T, N> x, bool known) {
  float v[N];
  unpack(v, x);
#pragma unroll
  for (int i = 0; i < N; i++) sum[i] += known ? v[i] : NAN_F;
}

template <int N, class T>
DEV void scatter(float *drows, const T *dy, const int *start, const int *pos, int rows, int columns) {
  int col = (blockIdx_y * SCATTER_THREADS + threadIdx_x) * N;
  int i = max_i(0, min_i(rows, start[blockIdx_x])), end = min_i(rows, start[blockIdx_x + 1]);
  if (col >= columns || i >= end) return;
  float *to = drows + (i64)blockIdx_x * columns + col;
  const T *from = dy + col;
  float sum[N];
  load_f32<N>(sum, to);
  for (; i + AHEAD <= end; i += AHEAD) {
    chunk<T, N> in[AHEAD];
    int t[AHEAD];
#pragma unroll
    for (int r = 0; r < AHEAD; r++) {
      t[r] = position(pos, i + r, rows);
      in[r] = load_chunk<N>(from + (i64)max_i(t[r], 0) * columns);
    }
#pragma unroll
    for (int r = 0; r < AHEAD; r++) add_row<N, T>(sum, in[r], t[r] >= 0);
  }
  for (; i < end; i++) {
    int t = position(pos, i, rows);
    add_row<N, T>(sum, load_chunk<N>(from + (i64)max_i(t, 0) * columns), t >= 0);
  }
  store_f32<N>(to, sum);
}

// weigh replaces a row's values v, in columns from col on, by k·(v + bias).
template <int N> DEV void weigh(float (&v)[N], const float *bias, int col, float k) {
  float b[N];
#pragma unroll
  for (int i = 0; i < N; i++) b[i] = 0.0f;
  if (bias) load_f32<N>(b, bias + col);
#pragma unroll
  for (int i = 0; i < N; i++) v[i] = k * (v[i] + b[i]);
}

template <bool WEIGHTED, int N, class T>
DEV void add_rows(float *dst, const T *src, const int *index, int rows, int columns, const float *bias, float k) {
  constexpr int CHUNKS = ADD_ELEMS / N;
  int row = index[blockIdx_x], first = (blockIdx_y * CHUNKS * blockDim_x + threadIdx_x) * N, step = blockDim_x * N;
  if ((u32)row >= (u32)rows) return;
  const T *from = src + (i64)blockIdx_x * columns;
  float *to = dst + (i64)row * columns, sum[CHUNKS][N], v[N];
  chunk<T, N> in[CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col < columns) in[c] = load_chunk<N>(from + col), load_f32<N>(sum[c], to + col);
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col >= columns) continue;
    unpack(v, in[c]);
    if constexpr (WEIGHTED) weigh(v, bias, col, k);
#pragma unroll
    for (int i = 0; i < N; i++) sum[c][i] += v[i];
    store_f32<N>(to + col, sum[c]);
  }
}

#define GATHER(UNIT, SUFFIX)                                                                                             \
  __global__ __launch_bounds__(GATHER_THREADS, 8) void gather_rows##SUFFIX(UNIT *dst, const UNIT *src, const int *index, \
                                                                        int rows, int units) {                           \
    gather(dst, src, index, rows, units);                                                                                \
  }
#define SCATTER(T, N, SUFFIX)                                                                                   \
  __global__ __launch_bounds__(SCATTER_THREADS, 8) void scatter_add_rows##SUFFIX(float *drows, const T *dy,     \
                                                                              const int *start, const int *pos, \
                                                                              int rows, int columns) {          \
    scatter<N>(drows, dy, start, pos, rows, columns);                                                           \
  }
#define ADD(T, N, SUFFIX)                                                                                                     \
  __global__ __launch_bounds__(ADD_THREADS, N == 1 ? 4 : 8) void add_rows##SUFFIX(float *dst, const T *src, const int *index, \
                                                                    int rows, int columns) {                                  \
    add_rows<false, N>(dst, src, index, rows, columns, nullptr, 0.0f);                                                        \
  }                                                                                                                           \
  __global__ __launch_bounds__(ADD_THREADS, 4) void add_weighted_rows##SUFFIX(float *dst, const T *src, const int *index,       \
                                                                           int rows, int columns, const float *bias,          \
                                                                           const float *w, const int *pairs, int count) {     \
    int pair = pairs[blockIdx_x];                                                                                             \
    add_rows<true, N>(dst, src, index, rows, columns, bias, (u32)pair < (u32)count ? w[pair] : NAN_F);                        \
  }

extern "C" {
GATHER(u32, _f32)
GATHER(u16, _bf16)
GATHER(u32x4, 16)
SCATTER(float, 1, _f32)
SCATTER(bf16, 1, _bf16)
SCATTER(float, 4, 16_f32)
SCATTER(bf16, 8, 16_bf16)
ADD(float, 1, _f32)
ADD(bf16, 1, _bf16)
ADD(float, 4, 16_f32)
ADD(bf16, 8, 16_bf16)
}
