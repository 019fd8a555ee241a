// What RMSNorm and RMSNormBackward share: how groups lie and who holds what.
//
// Group i of count = rows·groups is (row i / groups, group i % groups). Its dim
// elements belong to a team of lanes in a warp (dim ≤ 256), to a block that holds
// them in registers (dim ≤ 8192, or 4096 where chunks are single elements), or to a
// block that reads them twice.
#pragma once
#include "common.cuh"

struct layout {
  int groups, dim;
  // at is where group i begins.
  METHOD i64 at(int i, i64 stride) const {
    if (groups == 1) return i * stride;
    u32 row = (u32)i / (u32)groups;
    return row * stride + (i64)((u32)i - row * (u32)groups) * dim;
  }
};

static constexpr int TEAM_THREADS = 256; // threads a block of the team kernels
static constexpr int TEAM_ELEMS = 8;     // elements of a group a lane holds
static constexpr int ROW_THREADS = 512;  // threads a block of the row kernels, at most
// ROW_ELEMS<N> elements of a group are what a thread of them holds.
template <int N> static constexpr int ROW_ELEMS = N == 1 ? 8 : 16;

// load_group reads what the thread holds of a group: zero behind its end.
template <int N, int CHUNKS, class T> DEV void load_group(chunk<T, N> (&in)[CHUNKS], const T *x, int dim) {
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = (c * blockDim_x + threadIdx_x) * N;
    if (col < dim) in[c] = load_chunk<N>(x + col);
    else zero_chunk(in[c]);
  }
}

// load_weights reads N of offset + w.
template <int N> DEV void load_weights(float (&v)[N], const float *w, float offset) {
  load_f32<N>(v, w);
#pragma unroll
  for (int i = 0; i < N; i++) v[i] += offset;
}
