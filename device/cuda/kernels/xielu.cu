// XIELU: y (T, F) = f(x), element by element, all act. It overwrites y. With alpha (2) f32, a =
// softplus(alpha[0]) and b = ½ + softplus(alpha[1])
//
//	f(x)  = a·x² + ½x             f'(x) = 2a·x + ½                x > 0
//	f(x)  = b·w(x) + ½x           f'(x) = b·(e^x − 1) + ½         x < EPS, w(x) = e^x − 1 − x
//	f(x)  = b·(EPS − x) + ½x      f'(x) = ½ − b                   otherwise
//
// Backward, with d = dy: dx = d·f'(x), y once more, and dalpha (2) f32 += Σ d·x²·σ(alpha[0]), Σ
// d·w(x)·σ(alpha[1]), in two kernels: the first sums slices of rows, the second (add_slices) adds
// the sums, always in the same order. dx may be the memory of x, and y that of dy: each thread
// first reads all elements that it writes, and no other thread reads them.
//
// No call can move fewer bytes than it does: forward 2 elements for each element of y, 4 bytes in
// bf16; backward 4 (8 bytes).
//
// Forward, a block works on columns of one row: blockIdx.x is the row, blockIdx.y the columns.
// Backward it works on columns of a slice of rows: blockIdx.x is the slice.
#include "common.cuh"

static constexpr int THREADS = 256; // at most
static constexpr int ELEMS = 16;    // columns that a thread computes
static constexpr float BETA = 0.5f, EPS = -1e-6f;

DEV float softplus(float x) { return __builtin_fmaxf(x, 0.0f) + log_f(1.0f + exp_approx(-__builtin_fabsf(x))); }

// rest returns w(x) = e^x − 1 − x for x < 0, near 0 by its series. slope becomes e^x − 1.
DEV float rest(float x, float &slope) {
  float series = 1.0f / 362880.0f;
  constexpr float C[7] = {1.0f / 40320.0f, 1.0f / 5040.0f, 1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f};
#pragma unroll
  for (int i = 0; i < 7; i++) series = __builtin_fmaf(series, x, C[i]);
  float near = series * x * x, far = exp_approx(x) - 1.0f;
  bool small = x > -0.75f;
  slope = small ? near + x : far;
  return small ? near : far - x;
}

// The comparisons are chosen such that a NaN stays a NaN.
struct XIELU {
  float a, b;
  METHOD float value(float x) const {
    float slope, w = rest(x, slope);
    w = x < EPS ? w : EPS - x;
    return __builtin_fmaf(x > 0.0f ? a : b, x > 0.0f ? x * x : w, BETA * x);
  }
  // gradient multiplies d, the gradient of f(x), by f'(x), adds its terms to the two sums for
  // dalpha, and returns f(x).
  METHOD float gradient(float x, float &d, float &p, float &n) const {
    float slope, w = rest(x, slope);
    bool above = x > 0.0f, below = x < EPS;
    slope = above ? 2.0f * x : below ? slope : -1.0f;
    w = above ? x * x : below ? w : EPS - x;
    float by = above ? a : b, part = d * w;
    p += above ? part : 0.0f;
    n += above ? 0.0f : part;
    d *= __builtin_fmaf(by, slope, BETA);
    return __builtin_fmaf(by, w, BETA * x);
  }
};

DEV XIELU of(const float *alpha) { return XIELU{softplus(alpha[0]), BETA + softplus(alpha[1])}; }

template <int N, class T> DEV void xielu(T *y, const T *x, const float *alpha, int columns) {
  constexpr int CHUNKS = ELEMS / N;
  i64 row = (i64)blockIdx_x * columns;
  int first = (blockIdx_y * CHUNKS * blockDim_x + threadIdx_x) * N, step = blockDim_x * N;
  XIELU f = of(alpha);
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
    for (int i = 0; i < N; i++) v[i] = f.value(v[i]);
    store_floats<N>(y + row + col, v);
  }
}

template <int N, class T>
DEV void xielu_backward(float *part, T *dx, T *y, const T *dy, const T *x, const float *alpha, i64 rows, int columns, int each) {
  constexpr int CHUNKS = ELEMS / N, AHEAD = N == 1 ? 4 : CHUNKS; // in flight
  __shared__ float space[2][MAX_WARPS] __attribute__((aligned(16)));
  zero_space(space[0], 2 * MAX_WARPS);
  i64 from = (i64)blockIdx_x * each, end = min_i(rows, from + each);
  int first = (blockIdx_y * CHUNKS * blockDim_x + threadIdx_x) * N, step = blockDim_x * N;
  XIELU f = of(alpha);
  float p = 0.0f, n = 0.0f;
#pragma clang loop unroll(disable)
  for (i64 t = from; t < end; t++) {
    i64 row = t * columns;
    float sum_p = 0.0f, sum_n = 0.0f; // the row's sums, added up to the sums of rows
#pragma clang loop unroll(disable)
    for (int from_chunk = 0; from_chunk < CHUNKS; from_chunk += AHEAD) {
      chunk<T, N> in[2][AHEAD];
#pragma unroll
      for (int c = 0; c < AHEAD; c++) {
        int col = first + (from_chunk + c) * step;
        if (col < columns) in[0][c] = load_chunk<N>(x + row + col), in[1][c] = load_chunk<N>(dy + row + col);
      }
#pragma unroll
      for (int c = 0; c < AHEAD; c++) {
        int col = first + (from_chunk + c) * step;
        if (col >= columns) continue;
        float v[N], d[N], out[N];
        unpack(v, in[0][c]), unpack(d, in[1][c]);
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = f.gradient(v[i], d[i], sum_p, sum_n);
        store_floats<N>(y + row + col, out);
        store_floats<N>(dx + row + col, d);
      }
    }
    p += sum_p, n += sum_n;
  }
  p = block_sum_any(p, space[0]), n = block_sum_any(n, space[1]);
  if (threadIdx_x != 0) return;
  float share, other;
  i64 at = 2 * ((i64)blockIdx_x * gridDim_y + blockIdx_y);
  sigmoids(alpha[0], share, other);
  part[at] = p * share;
  sigmoids(alpha[1], share, other);
  part[at + 1] = n * share;
}

#define KERNELS(T, N, SUFFIX)                                                                                                       \
  __global__ __launch_bounds__(THREADS, 4) void xielu##SUFFIX(T *y, const T *x, const float *alpha, int columns) {                   \
    xielu<N>(y, x, alpha, columns);                                                                                                 \
  }                                                                                                                                 \
  __global__ __launch_bounds__(THREADS, 2) void xielu_backward##SUFFIX(float *part, T *dx, T *y, const T *dy, const T *x,            \
                                                                       const float *alpha, i64 rows, int columns, int each) {       \
    xielu_backward<N>(part, dx, y, dy, x, alpha, rows, columns, each);                                                              \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)
}
