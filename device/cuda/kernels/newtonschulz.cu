// The operations of Newton-Schulz iterations besides matrix products.
//
//	WeightedSum   d (n) act = a·x + b·y, x act, y f32, rounded once; d may be x
//	DivideByNorm  x (n) act /= max(‖x‖, eps), the norm rounded to act
//
// No call can move fewer bytes than these kernels do: WeightedSum reads both sides and writes one.
// DivideByNorm reads x twice and writes it once. Its first kernel sums the squares of slices, and
// every block of the second adds up these sums, always in the same order.
//
// blockIdx.x is the range of elements or, in square_sums, the slice.
#include "common.cuh"

static constexpr int THREADS = 256;
static constexpr int ELEMS = 16; // elements that a thread computes

template <int N, class T> DEV void weighted_sum(T *d, const T *x, const float *y, i64 n, float a, float b) {
  constexpr int CHUNKS = ELEMS / N;
  i64 first = ((i64)blockIdx_x * CHUNKS * THREADS + threadIdx_x) * N;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    i64 at = first + c * THREADS * N;
    if (at >= n) continue;
    float v[N], w[N];
    unpack(v, load_chunk<N>(x + at));
    load_f32<N>(w, y + at);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = a * v[i] + b * w[i];
    store_floats<N>(d + at, v);
  }
}

// square_sums writes, for each slice of each elements, the sum of the squares.
template <int N, class T> DEV void square_sums(float *sums, const T *x, i64 n, i64 each) {
  __shared__ float space[THREADS / 32];
  i64 from = (i64)blockIdx_x * each, to = min_i(from + each, n);
  float sum = 0.0f;
#pragma clang loop unroll_count(4)
  for (i64 at = from + threadIdx_x * N; at < to; at += THREADS * N) {
    float v[N], squares = 0.0f;
    unpack(v, load_chunk<N>(x + at));
#pragma unroll
    for (int i = 0; i < N; i++) squares += v[i] * v[i];
    sum += squares;
  }
  sum = block_sum<THREADS / 32>(sum, space);
  if (threadIdx_x == 0) sums[blockIdx_x] = sum;
}

DEV float rounded_to(float x, float *) { return x; }
DEV float rounded_to(float x, bf16 *) { return low_bf16(pack_bf16(x, 0.0f)); }

template <int N, class T> DEV void divide_by_norm(T *x, const float *sums, i64 n, int slices, float eps) {
  __shared__ float space[THREADS / 32];
  constexpr int CHUNKS = ELEMS / N;
  float sum = 0.0f;
#pragma clang loop unroll(disable)
  for (int i = threadIdx_x; i < slices; i += THREADS) sum += sums[i];
  sum = block_sum<THREADS / 32>(sum, space);
  float norm = max_f(rounded_to(__builtin_sqrtf(sum), x), eps);
  if (sum != sum) norm = sum; // the maximum would drop a NaN
  i64 first = ((i64)blockIdx_x * CHUNKS * THREADS + threadIdx_x) * N;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    i64 at = first + c * THREADS * N;
    if (at >= n) continue;
    float v[N];
    unpack(v, load_chunk<N>(x + at));
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = v[i] / norm;
    store_floats<N>(x + at, v);
  }
}

#define KERNELS(T, N, SUFFIX)                                                                                                \
  __global__ __launch_bounds__(THREADS) void weighted_sum##SUFFIX(T *d, const T *x, const float *y, i64 n, float a, float b) { \
    weighted_sum<N>(d, x, y, n, a, b);                                                                                       \
  }                                                                                                                          \
  __global__ __launch_bounds__(THREADS) void square_sums##SUFFIX(float *sums, const T *x, i64 n, i64 each) {                  \
    square_sums<N>(sums, x, n, each);                                                                                        \
  }                                                                                                                          \
  __global__ __launch_bounds__(THREADS) void divide_by_norm##SUFFIX(T *x, const float *sums, i64 n, int slices, float eps) {  \
    divide_by_norm<N>(x, sums, n, slices, eps);                                                                              \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)
}
