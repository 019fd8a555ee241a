// SwiGLU: y (T, F) = silu(gate)·up, where gu (T, 2F) holds a row's gate, then its
// up; silu(g) = g·σ(g). All act; everything written is overwritten.
//
// Backward, with d = dy: dgate = d·up·σ(g)·(1 + g·(1 − σ(g))), dup = d·silu(g), and
// y again where it is wanted. dgu may be gu and y may be dy: a thread reads all
// that it will write, and nobody else reads it.
//
// The least a call moves is what it moves: forward 3 elements read or written for
// each of y, 6 bytes in bf16; backward 5 (10 bytes), with y 6 (12 bytes).
//
// A block takes columns of one row: blockIdx.x is the row, blockIdx.y the columns.
#include "common.cuh"

static constexpr int THREADS = 256; // at most
static constexpr int ELEMS = 16;    // columns a thread takes

// sigmoids gives σ(x) and σ(−x), both to a few ulps, by the exponential that is
// at most 1.
DEV void sigmoids(float x, float &up, float &down) {
  float e = exp_approx(-__builtin_fabsf(x)), large = rcp_approx(1.0f + e), small = e * large;
  up = x >= 0.0f ? large : small;
  down = x >= 0.0f ? small : large;
}

template <int N, class T> DEV void swiglu(T *y, const T *gu, int F) {
  constexpr int CHUNKS = ELEMS / N;
  const T *gate = gu + 2 * (i64)blockIdx_x * F, *up = gate + F;
  T *to = y + (i64)blockIdx_x * F;
  int first = (blockIdx_y * CHUNKS * blockDim_x + threadIdx_x) * N, step = blockDim_x * N;
  chunk<T, N> in[2][CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col < F) in[0][c] = load_chunk<N>(gate + col), in[1][c] = load_chunk<N>(up + col);
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col >= F) continue;
    float g[N], u[N];
    unpack(g, in[0][c]), unpack(u, in[1][c]);
#pragma unroll
    for (int i = 0; i < N; i++) {
      float s, rest;
      sigmoids(g[i], s, rest);
      u[i] *= g[i] * s;
    }
    store_floats<N>(to + col, u);
  }
}

template <int N, class T> DEV void swiglu_backward(T *dgu, T *y, const T *dy, const T *gu, int F) {
  constexpr int CHUNKS = ELEMS / N;
  i64 row = (i64)blockIdx_x * F;
  int first = (blockIdx_y * CHUNKS * blockDim_x + threadIdx_x) * N, step = blockDim_x * N;
  chunk<T, N> in[3][CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col >= F) continue;
    in[0][c] = load_chunk<N>(gu + 2 * row + col);
    in[1][c] = load_chunk<N>(gu + 2 * row + F + col);
    in[2][c] = load_chunk<N>(dy + row + col);
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col >= F) continue;
    float g[N], u[N], d[N], out[N];
    unpack(g, in[0][c]), unpack(u, in[1][c]), unpack(d, in[2][c]);
#pragma unroll
    for (int i = 0; i < N; i++) {
      float s, rest;
      sigmoids(g[i], s, rest);
      float silu = g[i] * s, slope = s * __builtin_fmaf(g[i], rest, 1.0f);
      out[i] = u[i] * silu;
      u[i] *= d[i] * slope;
      d[i] *= silu;
    }
    if (y) store_floats<N>(y + row + col, out);
    store_floats<N>(dgu + 2 * row + col, u);
    store_floats<N>(dgu + 2 * row + F + col, d);
  }
}

#define KERNELS(T, N, SUFFIX)                                                                                        \
  __global__ __launch_bounds__(THREADS, 4) void swiglu##SUFFIX(T *y, const T *gu, int F) { swiglu<N>(y, gu, F); }       \
  __global__ __launch_bounds__(THREADS, N == 8 ? 4 : 2) void swiglu_backward##SUFFIX(T *dgu, T *y, const T *dy, const T *gu, int F) { \
    swiglu_backward<N>(dgu, y, dy, gu, F);                                                                           \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)
}
