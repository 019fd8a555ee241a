// The parts that RMSNorm and RMSNormBackward share: where groups lie, and which threads hold them.
//
// Group i of count = rows·groups is (row i / groups, group i % groups). Its dim elements are
// computed by a team of neighbouring lanes in a warp (dim ≤ 256), by a block that holds them in
// registers (dim ≤ 8192, or 4096 if chunks are single elements), or by a block that reads them
// twice.
#pragma once
#include "common.cuh"

struct layout {
  int groups, dim;
  // at returns the offset of group i in a tensor whose rows are stride elements apart.
  METHOD i64 at(int i, i64 stride) const {
    if (groups == 1) return i * stride;
    u32 row = (u32)i / (u32)groups;
    return row * stride + (i64)((u32)i - row * (u32)groups) * dim;
  }
};

static constexpr int TEAM_THREADS = 256; // threads of a block of the team kernels
static constexpr int TEAM_ELEMS = 8;     // elements of a group that a lane of a team holds
static constexpr int ROW_THREADS = 512;  // most threads of a block of the row kernels
// ROW_ELEMS<N> is the number of elements of a group that a thread holds if a block shares the
// group.
template <int N> static constexpr int ROW_ELEMS = N == 1 ? 8 : 16;

// load_group reads this thread's chunks of a group. Chunks beyond dim become zero.
template <int N, int CHUNKS, class T> DEV void load_group(chunk<T, N> (&in)[CHUNKS], const T *x, int dim) {
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = (c * blockDim_x + threadIdx_x) * N;
    if (col < dim) in[c] = load_chunk<N>(x + col);
    else zero_chunk(in[c]);
  }
}

// load_weights reads N weights and adds offset to them.
template <int N> DEV void load_weights(float (&v)[N], const float *w, float offset) {
  load_f32<N>(v, w);
#pragma unroll
  for (int i = 0; i < N; i++) v[i] += offset;
}
