// RoPE rotates heads in place. Element i of a head pairs with i + half or, in kernels called
// ropepairs, element 2i with 2i + 1, for i below half = Rotary/2. A pair (a, b) becomes (a·cos −
// b·sin, b·cos + a·sin), with the cosine and sine in row pos[t] of the tables. Sign −1 rotates
// back. It overwrites x.
//
//	x act: element (t, head, c) at t·stride + head·dim + c
//	cos, sin (places, half) f32; pos (T) i32: one outside 0 … places−1 makes NaN
//
// No call can move fewer bytes than one read and one write of the rotated elements: 4 bytes an
// element in bf16, and the rows of the tables, which several heads share.
#include "common.cuh"

static constexpr int THREADS = 256; // at most
static constexpr int HEADS = 4;     // heads of which a thread rotates the same chunk

struct rope_args {
  i64 stride;
  int T, heads, dim, half, places;
  int chunks, items; // chunks in half; threads for a token: chunks · ⌈heads / heads of a thread⌉
  int tokens;        // tokens of a block
  float sign;
};

template <int N, bool PAIRS, class T> DEV void rope(T *x, const float *cos, const float *sin, const int *pos, rope_args a) {
  u32 local = (u32)threadIdx_x + (u32)blockIdx_y * (u32)THREADS;
  u32 token = local / (u32)a.items, item = local % (u32)a.items;
  i64 t = (i64)blockIdx_x * a.tokens + token;
  if ((int)token >= a.tokens || t >= a.T) return;
  int i = (int)(item % (u32)a.chunks) * N, first = (int)(item / (u32)a.chunks) * HEADS;
  T *at = x + t * a.stride + (i64)first * a.dim + (PAIRS ? 2 * i : i);
  const int far = PAIRS ? N : a.half; // distance between the two chunks that the thread rotates
  int heads = min_i(HEADS, a.heads - first);
  chunk<T, N> low[HEADS], high[HEADS];
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    if (h < heads) low[h] = load_chunk<N>(at + (i64)h * a.dim), high[h] = load_chunk<N>(at + (i64)h * a.dim + far);
  }
  float c[N], s[N];
  int place = pos[t];
  bool known = (u32)place < (u32)a.places;
  i64 row = known ? (i64)place * a.half + i : 0;
  if (known) {
    load_f32<N>(c, cos + row);
    load_f32<N>(s, sin + row);
  }
#pragma unroll
  for (int j = 0; j < N; j++) {
    c[j] = known ? c[j] : NAN_F;
    s[j] = known ? s[j] * a.sign : NAN_F;
  }
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    if (h >= heads) continue;
    float p[N], q[N];
    unpack(p, low[h]), unpack(q, high[h]);
#pragma unroll
    for (int j = 0; j < N; j++) {
      // p and q are the thread's two chunks of elements. With PAIRS, both elements of a pair are
      // neighbours in one of them.
      float &u = PAIRS ? (2 * j < N ? p[2 * j % N] : q[2 * j % N]) : p[j];
      float &v = PAIRS ? (2 * j + 1 < N ? p[(2 * j + 1) % N] : q[(2 * j + 1) % N]) : q[j];
      float b = v * c[j] + u * s[j];
      u = u * c[j] - v * s[j];
      v = b;
    }
    store_floats<N>(at + (i64)h * a.dim, p);
    store_floats<N>(at + (i64)h * a.dim + far, q);
  }
}

#define KERNEL(T, N, PAIRS, SUFFIX)                                                                                        \
  __global__ __launch_bounds__(THREADS) void rope##SUFFIX(T *x, const float *cos, const float *sin, const int *pos,        \
                                                          i64 stride, int tokens_all, int heads, int dim, int half,       \
                                                          int places, int chunks, int items, int tokens, float sign) {    \
    rope<N, PAIRS>(x, cos, sin, pos, rope_args{stride, tokens_all, heads, dim, half, places, chunks, items, tokens, sign});        \
  }

extern "C" {
KERNEL(float, 1, false, _f32)
KERNEL(bf16, 1, false, _bf16)
KERNEL(float, 4, false, 16_f32)
KERNEL(bf16, 8, false, 16_bf16)
KERNEL(float, 1, true, pairs_f32)
KERNEL(bf16, 1, true, pairs_bf16)
KERNEL(float, 4, true, pairs16_f32)
KERNEL(bf16, 8, true, pairs16_bf16)
}
