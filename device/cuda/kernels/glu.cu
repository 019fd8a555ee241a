// GLU: y (T, F) = f(gate)·up, all act. A row of gu (T, 2F) holds the gate, then up. It overwrites
// y. activation.cuh has f. Two more forms:
//
//	Cut      g·σ(alpha·g)·(u+1) with g = min(gate, limit), u = max(−limit, min(up, limit))
//	Sigmoid  σ(gate)·up
//
// In Cut, a value beyond the limit has no gradient; a value exactly at the limit has one.
//
// Backward, given dy: dgate = dy·up·f'(gate), dup = dy·f(gate), and y once more if the caller wants
// it. dgu may be the memory of gu, and y that of dy: each thread first reads all elements that it
// writes, and no other thread reads them.
//
// No call can move fewer bytes than these kernels do: forward 3 elements read or written for each
// element of y, 6 bytes in bf16; backward 5 (10 bytes), with y 6 (12 bytes).
//
// A block works on columns of one row: blockIdx.x is the row, blockIdx.y the columns.
#include "activation.cuh"

static constexpr int THREADS = 256; // at most
static constexpr int ELEMS = 16;    // columns that a thread computes

// Gated is f(gate)·up with f(x) = x·σ(z), where Of computes z (argument) and its derivative
// (slope).
template <class Of> struct Gated {
  METHOD float value(float g, float u) const {
    float s, rest;
    sigmoids(Of::argument(g), s, rest);
    return u * (g * s);
  }
  // gradient replaces gate g and up u by their gradients, given d, the gradient of the value. It
  // returns the value.
  METHOD float gradient(float &g, float &u, float d) const {
    float s, rest;
    sigmoids(Of::argument(g), s, rest);
    float active = g * s, slope = __builtin_fmaf(active * rest, Of::slope(g), s), out = u * active;
    g = u * (d * slope);
    u = d * active;
    return out;
  }
};

// The comparisons are chosen such that a NaN stays a NaN.
struct Cut {
  float alpha, limit;
  METHOD float gate(float g) const { return g > limit ? limit : g; }
  METHOD float up(float u) const { return u > limit ? limit : u < -limit ? -limit : u; }
  METHOD float value(float g, float u) const {
    float s, rest;
    g = gate(g);
    sigmoids(alpha * g, s, rest);
    return (up(u) + 1.0f) * (g * s);
  }
  METHOD float gradient(float &g, float &u, float d) const {
    float s, rest, within = gate(g), by = up(u) + 1.0f;
    sigmoids(alpha * within, s, rest);
    float active = within * s, slope = __builtin_fmaf(active * rest, alpha, s), out = by * active;
    g = g > limit ? 0.0f : by * (d * slope);
    u = u > limit || u < -limit ? 0.0f : d * active;
    return out;
  }
};

struct Sigmoid {
  METHOD float value(float g, float u) const {
    float s, rest;
    sigmoids(g, s, rest);
    return u * s;
  }
  METHOD float gradient(float &g, float &u, float d) const {
    float s, rest;
    sigmoids(g, s, rest);
    float out = u * s;
    g = d * (out * rest);
    u = d * s;
    return out;
  }
};

struct Rectified {
  METHOD float value(float g, float u) const { return u * ReLU::value(g); }
  METHOD float gradient(float &g, float &u, float d) const {
    float active = ReLU::value(g), out = u * active;
    g = ReLU::gradient(g, d * u);
    u = d * active;
    return out;
  }
};

template <class F, int N, class T> DEV void glu(F f, T *y, const T *gu, int columns) {
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
    for (int i = 0; i < N; i++) u[i] = f.value(g[i], u[i]);
    store_floats<N>(to + col, u);
  }
}

template <class F, int N, class T> DEV void glu_backward(F f, T *dgu, T *y, const T *dy, const T *gu, int columns) {
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
    for (int i = 0; i < N; i++) out[i] = f.gradient(g[i], u[i], d[i]);
    if (y) store_floats<N>(y + row + col, out);
    store_floats<N>(dgu + 2 * row + col, g);
    store_floats<N>(dgu + 2 * row + columns + col, u);
  }
}

#define KERNELS(NAME, F, T, N, SUFFIX, PARAMETERS, VALUE, BLOCKS, SINGLE)                                                            \
  __global__ __launch_bounds__(THREADS, N == 1 ? SINGLE : 4) void NAME##SUFFIX(T *y, const T *gu, int columns PARAMETERS) {           \
    glu<F, N>(VALUE, y, gu, columns);                                                                                                 \
  }                                                                                                                                   \
  __global__ __launch_bounds__(THREADS, N == 8 ? BLOCKS : 2) void NAME##_backward##SUFFIX(T *dgu, T *y, const T *dy, const T *gu,          \
                                                                                     int columns PARAMETERS) {                        \
    glu_backward<F, N>(VALUE, dgu, y, dy, gu, columns);                                                                               \
  }
#define NONE
#define LIMITS , float alpha, float limit
#define CUT_OF (Cut{alpha, limit})
#define FUNCTIONS(T, N, SUFFIX)                                  \
  KERNELS(silu, Gated<SiLU>, T, N, SUFFIX, NONE, Gated<SiLU>(), 4, 4)  \
  KERNELS(gelu, Gated<GELU>, T, N, SUFFIX, NONE, Gated<GELU>(), 4, 4)  \
  KERNELS(cut, Cut, T, N, SUFFIX, LIMITS, CUT_OF, 2, 4)             \
  KERNELS(sigmoid, Sigmoid, T, N, SUFFIX, NONE, Sigmoid(), 4, 4)    \
  KERNELS(erf, Gated<ErfGELU>, T, N, SUFFIX, NONE, Gated<ErfGELU>(), 2, 4) \
  KERNELS(relu, Rectified, T, N, SUFFIX, NONE, Rectified(), 4, 3)

extern "C" {
FUNCTIONS(float, 1, _f32)
FUNCTIONS(bf16, 1, _bf16)
FUNCTIONS(float, 4, 16_f32)
FUNCTIONS(bf16, 8, 16_bf16)
}
