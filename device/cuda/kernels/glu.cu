// GLU: y (T, F) = f(gate)·up, where gu (T, 2F) holds a row's gate, then its up. All
// act; everything written is overwritten. activation.cuh has f.
//
// Backward, with d = dy: dgate = d·up·f'(gate), dup = d·f(gate), and y again where
// it is wanted. dgu may be gu and y may be dy: a thread reads all that it will
// write, and nobody else reads it.
//
// The least a call moves is what it moves: forward 3 elements read or written for
// each of y, 6 bytes in bf16; backward 5 (10 bytes), with y 6 (12 bytes).
//
// A block takes columns of one row: blockIdx.x is the row, blockIdx.y the columns.
#include "activation.cuh"

static constexpr int THREADS = 256; // at most
static constexpr int ELEMS = 16;    // columns a thread takes

template <class F, int N, class T> DEV void glu(T *y, const T *gu, int columns) {
  constexpr int CHUNKS = ELEMS / N;
  const T *gate = gu + 2 * (i64)blockIdx_x * columns, *up = gate + columns;
  T *to = y + (i64)blockIdx_x * columns;
  int first = (blockIdx_y * CHUNKS * blockDim_x + threadIdx_x) * N, step = blockDim_x * N;
  chunk<T, N> in[2][CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col < columns) in[0][c] = load_chunk<N>(gate + col), in[1][c] = load_chunk<N>(up + col);
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col >= columns) continue;
    float g[N], u[N];
    unpack(g, in[0][c]), unpack(u, in[1][c]);
#pragma unroll
    for (int i = 0; i < N; i++) {
      float s, rest;
      sigmoids(F::argument(g[i]), s, rest);
      u[i] *= g[i] * s;
    }
    store_floats<N>(to + col, u);
  }
}

template <class F, int N, class T> DEV void glu_backward(T *dgu, T *y, const T *dy, const T *gu, int columns) {
  constexpr int CHUNKS = ELEMS / N;
  i64 row = (i64)blockIdx_x * columns;
  int first = (blockIdx_y * CHUNKS * blockDim_x + threadIdx_x) * N, step = blockDim_x * N;
  chunk<T, N> in[3][CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col >= columns) continue;
    in[0][c] = load_chunk<N>(gu + 2 * row + col);
    in[1][c] = load_chunk<N>(gu + 2 * row + columns + col);
    in[2][c] = load_chunk<N>(dy + row + col);
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col >= columns) continue;
    float g[N], u[N], d[N], out[N];
    unpack(g, in[0][c]), unpack(u, in[1][c]), unpack(d, in[2][c]);
#pragma unroll
    for (int i = 0; i < N; i++) {
      float s, rest;
      sigmoids(F::argument(g[i]), s, rest);
      float active = g[i] * s, slope = __builtin_fmaf(active * rest, F::slope(g[i]), s);
      out[i] = u[i] * active;
      u[i] *= d[i] * slope;
      d[i] *= active;
    }
    if (y) store_floats<N>(y + row + col, out);
    store_floats<N>(dgu + 2 * row + col, u);
    store_floats<N>(dgu + 2 * row + columns + col, d);
  }
}

#define KERNELS(NAME, F, T, N, SUFFIX)                                                                                       \
  __global__ __launch_bounds__(THREADS, 4) void NAME##SUFFIX(T *y, const T *gu, int columns) { glu<F, N>(y, gu, columns); }  \
  __global__ __launch_bounds__(THREADS, N == 8 ? 4 : 2) void NAME##_backward##SUFFIX(T *dgu, T *y, const T *dy, const T *gu, \
                                                                                     int columns) {                          \
    glu_backward<F, N>(dgu, y, dy, gu, columns);                                                                             \
  }
#define FUNCTIONS(T, N, SUFFIX) KERNELS(silu, SiLU, T, N, SUFFIX) KERNELS(gelu, GELU, T, N, SUFFIX)

extern "C" {
FUNCTIONS(float, 1, _f32)
FUNCTIONS(bf16, 1, _bf16)
FUNCTIONS(float, 4, 16_f32)
FUNCTIONS(bf16, 8, 16_bf16)
}
