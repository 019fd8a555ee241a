// The first step of attention's backward: delta (Heads, TQ) f32 = the sum of O·DO over the columns
// of a head. O and DO are (TQ, Heads, Dim) act. It overwrites delta.
#include "common.cuh"

static constexpr int THREADS = 256, LANES = 16; // lanes that share a row of one head

DEV float dot_8(const bf16 *x, const bf16 *y) {
  u32x4 a = *(const u32x4 *)x, b = *(const u32x4 *)y;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) sum += low_bf16(a[i]) * low_bf16(b[i]) + high_bf16(a[i]) * high_bf16(b[i]);
  return sum;
}
DEV float dot_8(const float *x, const float *y) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    f32x4 a = *(const f32x4 *)(x + i), b = *(const f32x4 *)(y + i);
    sum += a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3];
  }
  return sum;
}

template <class Act> DEV void delta(float *out, const Act *o, const Act *dout, i64 tq, int heads, int dim, int vector) {
  i64 row = (i64)blockIdx_x * (THREADS / LANES) + threadIdx_x / LANES; // the row's number: token · heads + head
  int lane = threadIdx_x % LANES;
  bool real = row < tq * heads;
  float sum = 0.0f;
  if (real) {
    o += row * dim;
    dout += row * dim;
    if (vector) {
      for (int c = lane * 8; c < dim; c += LANES * 8) sum += dot_8(o + c, dout + c);
    } else {
      for (int c = lane; c < dim; c += LANES) sum += to_float(o[c]) * to_float(dout[c]);
    }
  }
#pragma clang loop unroll(disable)
  for (int m = LANES / 2; m > 0; m >>= 1) sum += shuffle_xor(sum, m);
  if (real && lane == 0) out[row % heads * tq + row / heads] = sum;
}

extern "C" {
__global__ __launch_bounds__(THREADS) void attention_delta_f32(float *out, const float *o, const float *dout, i64 tq, int heads,
                                                              int dim, int vector) {
  delta(out, o, dout, tq, heads, dim, vector);
}
__global__ __launch_bounds__(THREADS) void attention_delta_bf16(float *out, const bf16 *o, const bf16 *dout, i64 tq, int heads,
                                                               int dim, int vector) {
  delta(out, o, dout, tq, heads, dim, vector);
}
}
