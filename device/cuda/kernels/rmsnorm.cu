// RMSNorm: y = x·rstd·(offset + w) over groups of dim elements, with rstd = 1/√(mean(x²) + eps). If
// there is a residual, y = residual + that, rounded once. It overwrites y and rstd; y may be x, or
// the residual. No call can move fewer bytes than one read of x, one of the residual and one write
// of y: 4 or 6 bytes an element in bf16, twice that in fp32. It moves just that up to dim 8192.
// Wider groups are read twice, mostly from the cache.
//
// x, y act: element (r, g, c) at r·stride + g·dim + c; residual null, or act with the strides of y;
// w (dim) f32; rstd (rows, groups) f32 or null. Group i of count = rows·groups is (row i / groups,
// group i % groups). N is the number of elements of a chunk (common.cuh).
#include "rmsnorm.cuh"

static constexpr int TEAM_GROUPS = 2; // groups that a team loads at a time

template <int N> DEV float sum_squares(const float (&v)[N]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < N; i++) sum += v[i] * v[i];
  return sum;
}

// write_scaled writes a chunk of y = x·k·w. If add is true, it adds old, the chunk of the residual;
// otherwise old is unused.
template <int N, class T> DEV void write_scaled(T *y, chunk<T, N> x, const float (&w)[N], float k, chunk<T, N> old, bool add) {
  float v[N], before[N];
  unpack(v, x), unpack(before, old);
#pragma unroll
  for (int i = 0; i < N; i++) {
    v[i] = v[i] * k * w[i];
    if (add) v[i] += before[i];
  }
  store_floats<N>(y, v);
}

// residual_at returns a chunk of the residual, or zeros if there is no residual.
template <int N, class T> DEV chunk<T, N> residual_at(const T *residual, i64 at) {
  chunk<T, N> old;
  zero_chunk(old);
  if (residual) old = load_chunk<N>(residual + at);
  return old;
}

// norm_team normalizes each group in a team of neighbouring lanes of a warp. It requires dim ≤ team
// · TEAM_ELEMS. Each team of a block has TEAM_GROUPS groups.
template <int N, class T>
DEV void norm_team(T *y, float *rstd, const T *x, const float *w, const T *residual, i64 xs, i64 ys, int count, layout at, float eps,
                   float offset, int team) {
  constexpr int CHUNKS = TEAM_ELEMS / N;
  int lane = threadIdx_x & (team - 1), teams = TEAM_THREADS / team;
  int first = blockIdx_x * teams * TEAM_GROUPS + threadIdx_x / team;
  chunk<T, N> in[TEAM_GROUPS][CHUNKS];
#pragma unroll
  for (int g = 0; g < TEAM_GROUPS; g++) {
    int i = first + g * teams;
    const T *from = x + at.at(min_i(i, count - 1), xs); // the last group if group i does not exist
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      int col = (c * team + lane) * N;
      if (i < count && col < at.dim) in[g][c] = load_chunk<N>(from + col);
      else zero_chunk(in[g][c]);
    }
  }
  float k[TEAM_GROUPS], inverse = 1.0f / (float)at.dim;
#pragma unroll
  for (int g = 0; g < TEAM_GROUPS; g++) {
    float sum = 0.0f, v[N];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) unpack(v, in[g][c]), sum += sum_squares(v);
    k[g] = rsqrt_newton(team_sum(sum, team) * inverse + eps);
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = (c * team + lane) * N;
    if (col >= at.dim) continue;
    float weights[N];
    load_weights<N>(weights, w + col, offset);
#pragma unroll
    for (int g = 0; g < TEAM_GROUPS; g++) {
      int i = first + g * teams;
      if (i >= count) continue;
      i64 to = at.at(min_i(i, count - 1), ys) + col;
      write_scaled<N>(y + to, in[g][c], weights, k[g], residual_at<N>(residual, to), residual);
    }
  }
#pragma unroll
  for (int g = 0; g < TEAM_GROUPS; g++) {
    int i = first + g * teams;
    if (rstd && lane == 0 && i < count) rstd[i] = k[g];
  }
}

// norm_rows normalizes each groups in a block, one after the other, with the weights in registers.
// It reads the next group meanwhile. It requires dim ≤ threads · ROW_ELEMS<N>.
template <int N, class T>
DEV void norm_rows(T *y, float *rstd, const T *x, const float *w, const T *residual, i64 xs, i64 ys, int count, layout at, float eps,
                   float offset, int each) {
  constexpr int CHUNKS = ROW_ELEMS<N> / N;
  __shared__ __attribute__((aligned(16))) float space[2 * MAX_WARPS];
  zero_space(space, 2 * MAX_WARPS);
  float weights[CHUNKS][N], inverse = 1.0f / (float)at.dim;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = (c * blockDim_x + threadIdx_x) * N;
    if (col < at.dim) load_weights<N>(weights[c], w + col, offset);
  }
  int i = blockIdx_x * each, end = min_i(i + each, count);
  chunk<T, N> in[CHUNKS], next[CHUNKS], old[CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) zero_chunk(old[c]);
  load_group<N>(in, x + at.at(i, xs), at.dim);
#pragma clang loop unroll(disable)
  for (int parity = 0; i < end; i++, parity ^= 1) {
    i64 to = at.at(i, ys);
    if (i + 1 < end) load_group<N>(next, x + at.at(i + 1, xs), at.dim);
    if (residual) load_group<N>(old, residual + to, at.dim);
    float sum = 0.0f, v[N];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) unpack(v, in[c]), sum += sum_squares(v);
    float k = rsqrt_newton(block_sum_any(sum, space + parity * MAX_WARPS) * inverse + eps);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      int col = (c * blockDim_x + threadIdx_x) * N;
      if (col < at.dim) write_scaled<N>(y + to + col, in[c], weights[c], k, old[c], residual);
      in[c] = next[c];
    }
    if (rstd && threadIdx_x == 0) rstd[i] = k;
  }
}

// norm_wide normalizes one group of any length in a block, which reads it twice.
template <int N, class T>
DEV void norm_wide(T *y, float *rstd, const T *x, const float *w, const T *residual, i64 xs, i64 ys, layout at, float eps, float offset) {
  __shared__ float space[ROW_THREADS / 32];
  const T *from = x + at.at(blockIdx_x, xs);
  i64 to = at.at(blockIdx_x, ys);
  float sum = 0.0f, v[N], weights[N];
#pragma clang loop unroll_count(4)
  for (int col = threadIdx_x * N; col < at.dim; col += ROW_THREADS * N) unpack(v, load_chunk<N>(from + col)), sum += sum_squares(v);
  float k = rsqrt_newton(block_sum<ROW_THREADS / 32>(sum, space) / (float)at.dim + eps);
  for (int col = threadIdx_x * N; col < at.dim; col += ROW_THREADS * N) {
    load_weights<N>(weights, w + col, offset);
    write_scaled<N>(y + to + col, load_chunk<N>(from + col), weights, k, residual_at<N>(residual, to + col), residual);
  }
  if (rstd && threadIdx_x == 0) rstd[blockIdx_x] = k;
}

#define KERNELS(T, N, SUFFIX)                                                                                               \
  __global__ __launch_bounds__(TEAM_THREADS) void rmsnorm_team##SUFFIX(                                                     \
      T *y, float *rstd, const T *x, const float *w, const T *residual, i64 xs, i64 ys, int count, int groups, int dim,     \
      float eps, float offset, int team) {                                                                                  \
    norm_team<N>(y, rstd, x, w, residual, xs, ys, count, layout{groups, dim}, eps, offset, team);                           \
  }                                                                                                                         \
  __global__ __launch_bounds__(ROW_THREADS, N == 8 ? 2 : 1) void rmsnorm_rows##SUFFIX(                                      \
      T *y, float *rstd, const T *x, const float *w, const T *residual, i64 xs, i64 ys, int count, int groups, int dim,     \
      float eps, float offset, int each) {                                                                                  \
    norm_rows<N>(y, rstd, x, w, residual, xs, ys, count, layout{groups, dim}, eps, offset, each);                           \
  }                                                                                                                         \
  __global__ __launch_bounds__(ROW_THREADS) void rmsnorm_wide##SUFFIX(                                                      \
      T *y, float *rstd, const T *x, const float *w, const T *residual, i64 xs, i64 ys, int groups, int dim, float eps,     \
      float offset) {                                                                                                       \
    norm_wide<N>(y, rstd, x, w, residual, xs, ys, layout{groups, dim}, eps, offset);                                        \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)
}
