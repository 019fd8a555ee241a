// RMSNormBackward: with k = rstd, n = dim and v = offset + w, dx = k·(dy·v − x·k²·Σ(dy·v·x)/n) and
// dw = Σ dy·x·k over all groups. dx is overwritten, or added to with one rounding; dw is added to.
// dx may be dy.
//
// No call can move fewer bytes than one read of x and dy and one write of dx, 6 bytes an element in
// bf16, and to add, one read of dx. It moves that up to dim 8192, and reads wider groups twice. The
// sums for dw are small: every block writes its own to part (slices, dim) f32, and add_slices
// (bias.cu) adds those to dw.
//
// x, dy, dx act: element (r, g, c) at r·stride + g·dim + c; w (dim) f32; rstd (rows, groups) f32.
#include "rmsnorm.cuh"

struct strides { i64 dx, dy, x; };

template <int N> DEV float dot(const float (&d)[N], const float (&w)[N], const float (&x)[N]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < N; i++) sum += d[i] * w[i] * x[i];
  return sum;
}

// write_gradient writes a chunk of dx. q is k²·Σ(dy·v·x)/n. old is the former content of dx if add
// is true, or zero.
template <int N, class T>
DEV void write_gradient(T *dx, const float (&d)[N], const float (&w)[N], const float (&x)[N], chunk<T, N> old, bool add, float k, float q) {
  float v[N], before[N];
  unpack(before, old);
#pragma unroll
  for (int i = 0; i < N; i++) {
    v[i] = k * (d[i] * w[i] - x[i] * q);
    if (add) v[i] += before[i];
  }
  store_floats<N>(dx, v);
}

// backward_team computes each group in a team of neighbouring lanes. It requires dim ≤ team ·
// TEAM_ELEMS. A block has each groups, a multiple of its number of teams.
template <int N, class T>
DEV void backward_team(T *dx, float *part, const T *dy, const T *x, const float *w, const float *rstd, strides s, int count, layout at,
                       int add, float offset, int each, int team) {
  constexpr int CHUNKS = TEAM_ELEMS / N;
  __shared__ __attribute__((aligned(16))) float sums[TEAM_THREADS * TEAM_ELEMS]; // (teams, team·TEAM_ELEMS)
  int lane = threadIdx_x & (team - 1), teams = TEAM_THREADS / team, mine = threadIdx_x / team;
  float dw[CHUNKS][N], weights[CHUNKS][N], inverse = 1.0f / (float)at.dim;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = (c * team + lane) * N;
#pragma unroll
    for (int i = 0; i < N; i++) dw[c][i] = 0.0f, weights[c][i] = 0.0f;
    if (col < at.dim) load_weights<N>(weights[c], w + col, offset);
  }
  int end = min_i(count, (blockIdx_x + 1) * each);
#pragma clang loop unroll(disable)
  for (int base = blockIdx_x * each; base < end; base += teams) {
    int i = base + mine;
    bool in = i < end;
    i = min_i(i, end - 1);
    const T *xs = x + at.at(i, s.x), *dys = dy + at.at(i, s.dy);
    T *to = dx + at.at(i, s.dx);
    chunk<T, N> xc[CHUNKS], dc[CHUNKS], old[CHUNKS];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      int col = (c * team + lane) * N;
      zero_chunk(xc[c]), zero_chunk(dc[c]), zero_chunk(old[c]);
      if (in && col < at.dim) {
        xc[c] = load_chunk<N>(xs + col), dc[c] = load_chunk<N>(dys + col);
        if (add) old[c] = load_chunk<N>(to + col);
      }
    }
    float k = rstd[i], sum = 0.0f, v[N], d[N];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) unpack(v, xc[c]), unpack(d, dc[c]), sum += dot(d, weights[c], v);
    float q = team_sum(sum, team) * k * k * inverse;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      int col = (c * team + lane) * N;
      unpack(v, xc[c]), unpack(d, dc[c]);
      if (in) {
#pragma unroll
        for (int j = 0; j < N; j++) dw[c][j] += d[j] * v[j] * k;
        if (col < at.dim) write_gradient<N>(to + col, d, weights[c], v, old[c], add, k, q);
      }
    }
  }
  int wide = team * TEAM_ELEMS;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) store_f32<N>(sums + mine * wide + (c * team + lane) * N, dw[c]);
  sync_threads();
  for (int col = threadIdx_x; col < at.dim; col += TEAM_THREADS) {
    float all = 0.0f;
    for (int t = 0; t < teams; t++) all += sums[t * wide + col];
    part[(i64)blockIdx_x * at.dim + col] = all;
  }
}

// backward_rows computes each groups in a block, one after the other. It requires dim ≤ threads ·
// ROW_ELEMS<N>. A thread keeps the sums for dw of its columns in registers.
template <int N, class T>
DEV void backward_rows(T *dx, float *part, const T *dy, const T *x, const float *w, const float *rstd, strides s, int count, layout at,
                       int add, float offset, int each) {
  constexpr int CHUNKS = ROW_ELEMS<N> / N;
  constexpr bool EARLY = N == 8; // whether registers suffice to read the old dx along with the rest
  __shared__ __attribute__((aligned(16))) float space[2 * MAX_WARPS];
  zero_space(space, 2 * MAX_WARPS);
  float dw[CHUNKS][N];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
    for (int j = 0; j < N; j++) dw[c][j] = 0.0f;
  }
  int i = blockIdx_x * each, end = min_i(i + each, count);
#pragma clang loop unroll(disable)
  for (int parity = 0; i < end; i++, parity ^= 1) {
    T *to = dx + at.at(i, s.dx);
    chunk<T, N> xc[CHUNKS], dc[CHUNKS], old[CHUNKS];
    load_group<N>(xc, x + at.at(i, s.x), at.dim);
    load_group<N>(dc, dy + at.at(i, s.dy), at.dim);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) zero_chunk(old[c]);
    if (EARLY && add) load_group<N>(old, (const T *)to, at.dim);
    float k = rstd[i], sum = 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      int col = (c * blockDim_x + threadIdx_x) * N;
      if (col >= at.dim) continue;
      float v[N], d[N], weights[N];
      load_weights<N>(weights, w + col, offset);
      unpack(v, xc[c]), unpack(d, dc[c]);
      sum += dot(d, weights, v);
    }
    float q = block_sum_any(sum, space + parity * MAX_WARPS) * k * k / (float)at.dim;
    if (!EARLY && add) load_group<N>(old, (const T *)to, at.dim);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      int col = (c * blockDim_x + threadIdx_x) * N;
      if (col >= at.dim) continue;
      float v[N], d[N], weights[N];
      load_weights<N>(weights, w + col, offset);
      keep_packed(xc[c]), keep_packed(dc[c]);
      unpack(v, xc[c]), unpack(d, dc[c]);
#pragma unroll
      for (int j = 0; j < N; j++) dw[c][j] += d[j] * v[j] * k;
      write_gradient<N>(to + col, d, weights, v, old[c], add, k, q);
    }
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = (c * blockDim_x + threadIdx_x) * N;
    if (col < at.dim) store_f32<N>(part + (i64)blockIdx_x * at.dim + col, dw[c]);
  }
}

// backward_wide_dw sums dy·x·k for ROW_THREADS·N columns over the slice blockIdx.y, which has each
// groups. It runs before backward_wide, which may overwrite dy.
template <int N, class T>
DEV void backward_wide_dw(float *part, const T *dy, const T *x, const float *rstd, strides s, int count, layout at, int each) {
  int col = (blockIdx_x * ROW_THREADS + threadIdx_x) * N;
  if (col >= at.dim) return;
  float dw[N], v[N], d[N];
#pragma unroll
  for (int j = 0; j < N; j++) dw[j] = 0.0f;
  int end = min_i(count, (blockIdx_y + 1) * each);
#pragma clang loop unroll_count(4)
  for (int i = blockIdx_y * each; i < end; i++) {
    unpack(v, load_chunk<N>(x + at.at(i, s.x) + col)), unpack(d, load_chunk<N>(dy + at.at(i, s.dy) + col));
    float k = rstd[i];
#pragma unroll
    for (int j = 0; j < N; j++) dw[j] += d[j] * v[j] * k;
  }
  store_f32<N>(part + (i64)blockIdx_y * at.dim + col, dw);
}

// backward_wide computes dx of one group of any length in a block.
template <int N, class T>
DEV void backward_wide(T *dx, const T *dy, const T *x, const float *w, const float *rstd, strides s, layout at, int add,
                       float offset) {
  __shared__ float space[ROW_THREADS / 32];
  const T *xs = x + at.at(blockIdx_x, s.x), *dys = dy + at.at(blockIdx_x, s.dy);
  T *to = dx + at.at(blockIdx_x, s.dx);
  float sum = 0.0f, v[N], d[N], weights[N], k = rstd[blockIdx_x];
#pragma clang loop unroll_count(2)
  for (int col = threadIdx_x * N; col < at.dim; col += ROW_THREADS * N) {
    load_weights<N>(weights, w + col, offset);
    unpack(v, load_chunk<N>(xs + col)), unpack(d, load_chunk<N>(dys + col));
    sum += dot(d, weights, v);
  }
  float q = block_sum<ROW_THREADS / 32>(sum, space) * k * k / (float)at.dim;
  for (int col = threadIdx_x * N; col < at.dim; col += ROW_THREADS * N) {
    load_weights<N>(weights, w + col, offset);
    unpack(v, load_chunk<N>(xs + col)), unpack(d, load_chunk<N>(dys + col));
    chunk<T, N> old;
    zero_chunk(old);
    if (add) old = load_chunk<N>((const T *)to + col);
    write_gradient<N>(to + col, d, weights, v, old, add, k, q);
  }
}

#define KERNELS(T, N, SUFFIX)                                                                                               \
  __global__ __launch_bounds__(TEAM_THREADS, N == 8 ? 4 : 2) void rmsnorm_backward_team##SUFFIX(                            \
      T *dx, float *part, const T *dy, const T *x, const float *w, const float *rstd, i64 dxs, i64 dys, i64 xs, int count,  \
      int groups, int dim, int add, float offset, int each, int team) {                                                     \
    backward_team<N>(dx, part, dy, x, w, rstd, strides{dxs, dys, xs}, count, layout{groups, dim}, add, offset, each, team); \
  }                                                                                                                         \
  __global__ __launch_bounds__(ROW_THREADS, N == 8 ? 2 : 1) void rmsnorm_backward_rows##SUFFIX(                             \
      T *dx, float *part, const T *dy, const T *x, const float *w, const float *rstd, i64 dxs, i64 dys, i64 xs, int count,  \
      int groups, int dim, int add, float offset, int each) {                                                               \
    backward_rows<N>(dx, part, dy, x, w, rstd, strides{dxs, dys, xs}, count, layout{groups, dim}, add, offset, each);       \
  }                                                                                                                         \
  __global__ __launch_bounds__(ROW_THREADS) void rmsnorm_backward_wide_dw##SUFFIX(                                          \
      float *part, const T *dy, const T *x, const float *rstd, i64 dys, i64 xs, int count, int groups, int dim, int each) { \
    backward_wide_dw<N>(part, dy, x, rstd, strides{0, dys, xs}, count, layout{groups, dim}, each);                          \
  }                                                                                                                         \
  __global__ __launch_bounds__(ROW_THREADS) void rmsnorm_backward_wide##SUFFIX(                                             \
      T *dx, const T *dy, const T *x, const float *w, const float *rstd, i64 dxs, i64 dys, i64 xs, int groups, int dim,     \
      int add, float offset) {                                                                                              \
    backward_wide<N>(dx, dy, x, w, rstd, strides{dxs, dys, xs}, layout{groups, dim}, add, offset);                          \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)
}
