// Activate: y (T, F) act = f(x), element by element. It overwrites y. activation.cuh has the
// functions f.
//
// Backward, given dy: dx = dy·f'(x), and y = f(x) once more if the caller wants it. dx may be the
// memory of x, and y that of dy: each thread first reads all elements that it writes, and no other
// thread reads them.
//
// No call can move fewer bytes than these kernels do: forward 2 elements for each element of y, 4
// bytes in bf16; backward 3 elements (6 bytes), with y 4 (8 bytes).
//
// A block works on columns of one row: blockIdx.x is the row, blockIdx.y the columns.
#include "activation.cuh"

static constexpr int THREADS = 256; // at most
static constexpr int ELEMS = 16;    // columns that a thread computes

// Smooth is f(x) = x·σ(z), where Of computes z (argument) and its derivative (slope).
template <class Of> struct Smooth {
  DEV float value(float x) {
    float s, rest;
    sigmoids(Of::argument(x), s, rest);
    return x * s;
  }
  // gradient multiplies d, the gradient of f(x), by f'(x), and returns f(x).
  DEV float gradient(float x, float &d) {
    float s, rest;
    sigmoids(Of::argument(x), s, rest);
    float out = x * s;
    d *= __builtin_fmaf(out * rest, Of::slope(x), s);
    return out;
  }
};

struct Rectifier {
  DEV float value(float x) { return ReLU::value(x); }
  DEV float gradient(float x, float &d) {
    d = ReLU::gradient(x, d);
    return ReLU::value(x);
  }
};

struct Squared {
  DEV float value(float x) {
    float r = ReLU::value(x);
    return r * r;
  }
  DEV float gradient(float x, float &d) {
    float r = ReLU::value(x);
    d *= 2.0f * r;
    return r * r;
  }
};

template <class F, int N, class T> DEV void activate(T *y, const T *x, int columns) {
  constexpr int CHUNKS = ELEMS / N;
  i64 row = (i64)blockIdx_x * columns;
  int first = (blockIdx_y * CHUNKS * blockDim_x + threadIdx_x) * N, step = blockDim_x * N;
  chunk<T, N> in[CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col < columns) in[c] = load_chunk<N>(x + row + col);
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col >= columns) continue;
    float v[N];
    unpack(v, in[c]);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = F::value(v[i]);
    store_floats<N>(y + row + col, v);
  }
}

template <class F, int N, class T> DEV void activate_backward(T *dx, T *y, const T *dy, const T *x, int columns) {
  constexpr int CHUNKS = ELEMS / N;
  i64 row = (i64)blockIdx_x * columns;
  int first = (blockIdx_y * CHUNKS * blockDim_x + threadIdx_x) * N, step = blockDim_x * N;
  chunk<T, N> in[2][CHUNKS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col < columns) in[0][c] = load_chunk<N>(x + row + col), in[1][c] = load_chunk<N>(dy + row + col);
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int col = first + c * step;
    if (col >= columns) continue;
    float v[N], d[N], out[N];
    unpack(v, in[0][c]), unpack(d, in[1][c]);
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = F::gradient(v[i], d[i]);
    if (y) store_floats<N>(y + row + col, out);
    store_floats<N>(dx + row + col, d);
  }
}

#define KERNELS(NAME, F, T, N, SUFFIX)                                                                                        \
  __global__ __launch_bounds__(THREADS, 4) void NAME##SUFFIX(T *y, const T *x, int columns) { activate<F, N>(y, x, columns); } \
  __global__ __launch_bounds__(THREADS, N == 8 ? 4 : 2) void NAME##_backward##SUFFIX(T *dx, T *y, const T *dy, const T *x,    \
                                                                                     int columns) {                           \
    activate_backward<F, N>(dx, y, dy, x, columns);                                                                           \
  }
#define FUNCTIONS(T, N, SUFFIX)                 \
  KERNELS(activate_silu, Smooth<SiLU>, T, N, SUFFIX)    \
  KERNELS(activate_gelu, Smooth<GELU>, T, N, SUFFIX)    \
  KERNELS(activate_erf, Smooth<ErfGELU>, T, N, SUFFIX)  \
  KERNELS(activate_relu, Rectifier, T, N, SUFFIX)       \
  KERNELS(activate_relu2, Squared, T, N, SUFFIX)

extern "C" {
FUNCTIONS(float, 1, _f32)
FUNCTIONS(bf16, 1, _bf16)
FUNCTIONS(float, 4, 16_f32)
FUNCTIONS(bf16, 8, 16_bf16)
}
