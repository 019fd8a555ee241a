// Small kernels on elements and rows, which test the PTX interpreter.
#include "common.cuh"

extern "C" {
// round_bf16: dst (n) = src (n) rounded to bf16.
__global__ __launch_bounds__(256) void round_bf16(bf16 *dst, const float *src, i64 n) {
  i64 at = ((i64)blockIdx_x * 256 + threadIdx_x) * 4;
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (at + i < n) store(dst + at + i, src[at + i]);
}

// swish: y (n, a multiple of 4) = x/(1 + 2^-x)·g; y overwrites g.
__global__ __launch_bounds__(256) void swish(float *g, const float *x, i64 n) {
  i64 at = ((i64)blockIdx_x * 256 + threadIdx_x) * 4;
  for (; at < n; at += (i64)gridDim_x * 1024) {
    f32x4 a = *(const f32x4 *)(x + at), b = *(f32x4 *)(g + at);
#pragma unroll
    for (int i = 0; i < 4; i++) b[i] *= a[i] * rcp_approx(1.0f + exp2_approx(-a[i]));
    *(f32x4 *)(g + at) = b;
  }
}

// row_sum: y (rows) = the sums of the rows of x (rows, n); each block sums one row.
__global__ __launch_bounds__(128) void row_sum(float *y, const float *x, int n) {
  __shared__ float space[4];
  float sum = 0.0f;
  for (int i = threadIdx_x; i < n; i += 128) sum += x[(i64)blockIdx_x * n + i];
  sum = block_sum<4>(sum, space);
  if (threadIdx_x == 0) y[blockIdx_x] = sum;
}

// collatz: y (n) = the number of steps of the Collatz sequence from x to 1, so that threads of a
// warp take different numbers of steps. 0 gives 0, and a sequence that rises above 10^6 gives -1.
__global__ __launch_bounds__(256) void collatz(int *y, const u32 *x, int n) {
  int i = blockIdx_x * 256 + threadIdx_x;
  if (i >= n) return;
  u32 v = x[i];
  int steps = 0;
  while (v > 1) {
    if (v > 1000000u) {
      steps = -1;
      break;
    }
    if (v & 1)
      v = 3 * v + 1;
    else
      v >>= 1;
    steps++;
  }
  y[i] = steps;
}

// pick: y[i] = one of several functions of x[i], chosen by a branch through a table (brx.idx).
__global__ __launch_bounds__(64) void pick(int *y, const int *x, int n) {
  int i = blockIdx_x * 64 + threadIdx_x;
  if (i >= n) return;
  int v = x[i];
  switch (v & 7) {
  case 0: v = v * 3; break;
  case 1: v = v / 5; break;
  case 2: v = v % 7; break;
  case 3: v = v ^ 0x55; break;
  case 4: v = v - y[i]; break;
  case 5: y[i + n] = v; break;
  default: v = -v;
  }
  y[i] = v;
}
}
