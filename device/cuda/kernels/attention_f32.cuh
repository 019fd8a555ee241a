// Attention in fp32, forward and backward: the formulas of attention_forward.cuh and
// attention_backward.cuh with fp32 multiply-adds, without tensor cores.
//
// A block of 256 threads multiplies 64 rows by 64 columns at a time. Thread t, with y = t / 16 and
// x = t % 16, has the results at rows y + 16i and columns x + 16j, for i, j from 0 to 3. Operands
// pass through shared memory WIDE = 32 columns at a time; C of these are as wide as a head.
#pragma once

#include "attention.cuh"

static constexpr int THREADS = 256, TILE = 64, WIDE = 32;
static constexpr int PITCH = WIDE + 1, SQUARE = TILE + 1; // odd: columns of rows lie in different banks

// The layout of shared memory, in floats: the two operands of a product, then one or two squares of
// 64 by 64 results.
static constexpr int LEFT = 0, RIGHT = TILE * PITCH, FIRST = 2 * TILE * PITCH, SECOND = FIRST + TILE * SQUARE;

// Rows is an operand in global memory: rows rows that are stride elements apart. Further rows count
// as zeros.
template <class T> struct Rows {
  const T *at;
  i64 stride;
  int rows; // further rows count as zeros
};

template <class T> DEV void load(float *to, const Rows<T> &from, int column, int dim) {
  int thread = thread_now(), c = thread % WIDE;
  const T *at = from.at + (i64)(thread / WIDE) * from.stride + column + c;
  int rows = column + c < dim ? from.rows : 0;
#pragma unroll 4
  for (int row = thread / WIDE; row < TILE; row += THREADS / WIDE, at += THREADS / WIDE * from.stride)
    to[row * PITCH + c] = row < rows ? to_float(*at) : 0.0f;
}

DEV void zero(float (&s)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) s[i][j] = 0.0f;
}

// dots is s = A·Bᵀ.
template <class T> DEV void dots(float (&s)[4][4], const Rows<T> &a, const Rows<T> &b, int dim, float *space) {
  int thread = thread_now(), x = thread % 16, y = thread / 16;
  zero(s);
#pragma clang loop unroll(disable)
  for (int column = 0; column < dim; column += WIDE) {
    sync_threads();
    load(space + LEFT, a, column, dim);
    load(space + RIGHT, b, column, dim);
    sync_threads();
#pragma unroll 4
    for (int c = 0; c < WIDE; c++) {
      float left[4], right[4];
#pragma unroll
      for (int i = 0; i < 4; i++) left[i] = space[LEFT + (y + 16 * i) * PITCH + c], right[i] = space[RIGHT + (x + 16 * i) * PITCH + c];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) s[i][j] += left[i] * right[j];
    }
  }
}

// put writes this thread's 4 by 4 results to a square of 64 by 64 in shared memory. Other threads
// see them after a barrier.
DEV void put(float *square, const float (&s)[4][4]) {
  int thread = thread_now(), x = thread % 16, y = thread / 16;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) square[(y + 16 * i) * SQUARE + x + 16 * j] = s[i][j];
}

// Sums has this thread's part of 64 rows by C·32 columns of sums: rows y + 16i, columns 32c + x +
// 16j, with y = thread / 16 and x = thread % 16.
template <int C> struct Sums {
  float v[C][4][2];

  METHOD void clear() {
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
      for (int i = 0; i < 4; i++) v[c][i][0] = v[c][i][1] = 0.0f;
  }

  // add adds P·B to v, where P is a square of 64 by 64 in shared memory.
  METHOD void add(const float *square, const Rows<float> &b, int dim, float *space) {
    int thread = thread_now(), x = thread % 16, y = thread / 16;
#pragma unroll
    for (int c = 0; c < C; c++) {
      sync_threads();
      load(space + RIGHT, b, c * WIDE, dim);
      sync_threads();
#pragma unroll 4
      for (int k = 0; k < TILE; k++) {
        float left = space[RIGHT + k * PITCH + x], right = space[RIGHT + k * PITCH + x + 16];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float p = square[(y + 16 * i) * SQUARE + k];
          v[c][i][0] += p * left;
          v[c][i][1] += p * right;
        }
      }
    }
  }

  METHOD void write(float *to, i64 stride, int rows, int dim, const float (&factor)[4]) {
    int thread = thread_now(), x = thread % 16, y = thread / 16;
#pragma unroll
    for (int c = 0; c < C; c++)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
          int column = c * WIDE + x + 16 * j;
          if (y + 16 * i < rows && column < dim) to[(y + 16 * i) * stride + column] = v[c][i][j] * factor[i];
        }
  }
};

template <int C> DEV void forward(float *o, float *lse, const float *q, const float *k, const float *v, const Shape &a, float *space) {
  Place w;
  if (!find_place<TILE>(w, a, a.cu_q, true)) return;
  int thread = thread_now(), x = thread % 16, y = thread / 16;
  Sums<C> sums;
  sums.clear();
  float m[4], l[4], factor = a.factor();
#pragma unroll
  for (int i = 0; i < 4; i++) m[i] = -INFINITY_F, l[i] = 0.0f;
  Rows<float> queries = {q + (w.q0 + w.first) * a.q_stride + (i64)w.head * a.dim, a.q_stride, w.nq - w.first};
  Range keys = keys_seen(w, w.first, TILE, a.window);
  for (int key = keys.low; key < keys.high; key += TILE) {
    i64 at = (w.k0 + key) * a.k_stride + (i64)(w.head / (a.heads / a.kv_heads)) * a.dim;
    float s[4][4];
    dots(s, queries, Rows<float>{k + at, a.k_stride, w.nk - key}, a.dim, space);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float top = m[i], sum = 0.0f;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        if constexpr (CAPPED) {
          float slope;
          s[i][j] = capped(s[i][j], slope, a);
        }
        s[i][j] = sees(w.first + w.shift() + y + 16 * i, key + x + 16 * j, a.window) ? s[i][j] : -INFINITY_F;
        top = max_f(top, s[i][j]);
      }
#pragma unroll
      for (int lane = 1; lane < 16; lane *= 2) top = max_f(top, shuffle_xor(top, lane));
      float base = top == -INFINITY_F ? 0.0f : top, down = exp2_approx((m[i] - base) * factor);
      base *= factor;
#pragma unroll
      for (int j = 0; j < 4; j++) sum += s[i][j] = exp2_approx(s[i][j] * factor - base);
      l[i] = l[i] * down + sum;
      m[i] = top;
#pragma unroll
      for (int c = 0; c < C; c++) sums.v[c][i][0] *= down, sums.v[c][i][1] *= down;
    }
    put(space + FIRST, s);
    sums.add(space + FIRST, Rows<float>{v + at, a.k_stride, w.nk - key}, a.dim, space);
  }
  float inverse[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float sum = l[i];
#pragma unroll
    for (int lane = 1; lane < 16; lane *= 2) sum += shuffle_xor(sum, lane);
    inverse[i] = sum == 0.0f ? 0.0f : 1.0f / sum;
    int row = w.first + y + 16 * i;
    if (lse && x == 0 && row < w.nq) lse[w.head * a.tq + w.q0 + row] = log_sum_exp2(m[i], factor, sum);
  }
  i64 stride = (i64)a.heads * a.dim;
  sums.write(o + (w.q0 + w.first) * stride + (i64)w.head * a.dim, stride, w.nq - w.first, a.dim, inverse);
}

// gradient returns P, the probability of a score s. It turns ds from dP into dS, the gradient of
// the score.
DEV float gradient(float &ds, float s, bool seen, float lse, float delta, const Shape &a) {
  float slope;
  if constexpr (CAPPED) s = capped(s, slope, a);
  float p = seen ? exp2_approx(s * a.factor() - lse) : 0.0f;
  ds = p * (ds - delta);
  if constexpr (CAPPED) ds *= slope;
  return p;
}

// key_gradients has keys as rows, queries as columns. It computes DK, DV or both.
template <int C, bool DK, bool DV>
DEV void key_gradients(float *dk, float *dv, const float *q, const float *k, const float *v, const float *dout, const float *lse,
                       const float *delta, i64 out_stride, const Shape &a, float *space) {
  Place w;
  if (!find_place<TILE>(w, a, a.cu_k, false)) return;
  int thread = thread_now(), x = thread % 16, y = thread / 16;
  Sums<DK ? C : 1> sum_k;
  Sums<DV ? C : 1> sum_v;
  sum_k.clear();
  sum_v.clear();
  i64 kv = (w.k0 + w.first) * a.k_stride + (i64)w.head * a.dim, stride = (i64)a.heads * a.dim;
  Rows<float> keys = {k + kv, a.k_stride, w.nk - w.first}, values = {v + kv, a.k_stride, w.nk - w.first};
  Range see = queries_seeing(w, w.first, TILE, a.window);
  int group = a.heads / a.kv_heads;
  for (int head = w.head * group; head < (w.head + 1) * group; head++)
    for (int row = see.low; row < see.high; row += TILE) {
      Rows<float> queries = {q + (w.q0 + row) * a.q_stride + (i64)head * a.dim, a.q_stride, w.nq - row};
      Rows<float> douts = {dout + (w.q0 + row) * stride + (i64)head * a.dim, stride, w.nq - row};
      float p[4][4], ds[4][4];
      dots(p, keys, queries, a.dim, space);
      if constexpr (DK) dots(ds, values, douts, a.dim, space);
      else zero(ds);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        int query = row + x + 16 * j;
        i64 at = head * a.tq + w.q0 + query;
        float l = 0.0f, d = 0.0f;
        if (query < w.nq) l = lse[at], d = delta[at];
#pragma unroll
        for (int i = 0; i < 4; i++)
          p[i][j] = gradient(ds[i][j], p[i][j], query < w.nq && sees(query + w.shift(), w.first + y + 16 * i, a.window), l, d, a);
      }
      if constexpr (DV) put(space + FIRST, p);
      if constexpr (DK) put(space + SECOND, ds);
      if constexpr (DV) sum_v.add(space + FIRST, douts, a.dim, space);
      if constexpr (DK) sum_k.add(space + SECOND, queries, a.dim, space);
    }
  i64 to = (w.k0 + w.first) * out_stride + (i64)w.head * a.dim;
  if constexpr (DV) sum_v.write(dv + to, out_stride, w.nk - w.first, a.dim, {1.0f, 1.0f, 1.0f, 1.0f});
  if constexpr (DK) sum_k.write(dk + to, out_stride, w.nk - w.first, a.dim, {a.scale, a.scale, a.scale, a.scale});
}

template <int C>
DEV void query_gradients(float *dq, const float *q, const float *k, const float *v, const float *dout, const float *lse,
                         const float *delta, i64 out_stride, const Shape &a, float *space) {
  Place w;
  if (!find_place<TILE>(w, a, a.cu_q, true)) return;
  int thread = thread_now(), x = thread % 16, y = thread / 16;
  Sums<C> sums;
  sums.clear();
  i64 stride = (i64)a.heads * a.dim;
  Rows<float> queries = {q + (w.q0 + w.first) * a.q_stride + (i64)w.head * a.dim, a.q_stride, w.nq - w.first};
  Rows<float> douts = {dout + (w.q0 + w.first) * stride + (i64)w.head * a.dim, stride, w.nq - w.first};
  float l[4], d[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int row = min_i(w.first + y + 16 * i, w.nq - 1);
    l[i] = lse[w.head * a.tq + w.q0 + row];
    d[i] = delta[w.head * a.tq + w.q0 + row];
  }
  Range keys = keys_seen(w, w.first, TILE, a.window);
  for (int key = keys.low; key < keys.high; key += TILE) {
    i64 at = (w.k0 + key) * a.k_stride + (i64)(w.head / (a.heads / a.kv_heads)) * a.dim;
    Rows<float> these = {k + at, a.k_stride, w.nk - key}, values = {v + at, a.k_stride, w.nk - key};
    float p[4][4], ds[4][4];
    dots(p, queries, these, a.dim, space);
    dots(ds, douts, values, a.dim, space);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        gradient(ds[i][j], p[i][j], sees(w.first + w.shift() + y + 16 * i, key + x + 16 * j, a.window), l[i], d[i], a);
    put(space + FIRST, ds);
    sums.add(space + FIRST, these, a.dim, space);
  }
  sums.write(dq + (w.q0 + w.first) * out_stride + (i64)w.head * a.dim, out_stride, w.nq - w.first, a.dim,
             {a.scale, a.scale, a.scale, a.scale});
}

// TOGETHER is the most columns of a head for which registers have room for the sums of DK and of DV.
static constexpr int TOGETHER = 256;

#define ATTENTION_F32(D)                                                                                                          \
  __global__ __launch_bounds__(THREADS, 1) void ATTENTION(forward_f32_d##D)(float *o, float *lse, const float *q, const float *k, \
                                                                       const float *v, SHAPE_PARAMS) {                            \
    forward<D / WIDE>(o, lse, q, k, v, SHAPE, (float *)shared);                                                                   \
  }                                                                                                                               \
  __global__ __launch_bounds__(THREADS, 1) void ATTENTION(dkdv_f32_d##D)(                                                         \
      float *dk, float *dv, const float *q, const float *k, const float *v, const float *dout, const float *lse,                  \
      const float *delta, i64 out_stride, SHAPE_PARAMS) {                                                                         \
    if constexpr (D > TOGETHER) {                                                                                                 \
      key_gradients<D / WIDE, false, true>(dk, dv, q, k, v, dout, lse, delta, out_stride, SHAPE, (float *)shared);                \
      key_gradients<D / WIDE, true, false>(dk, dv, q, k, v, dout, lse, delta, out_stride, SHAPE, (float *)shared);                \
    } else {                                                                                                                      \
      key_gradients<D / WIDE, true, true>(dk, dv, q, k, v, dout, lse, delta, out_stride, SHAPE, (float *)shared);                 \
    }                                                                                                                             \
  }                                                                                                                               \
  __global__ __launch_bounds__(THREADS, 1) void ATTENTION(dq_f32_d##D)(                                                           \
      float *dq, const float *q, const float *k, const float *v, const float *dout, const float *lse, const float *delta,         \
      i64 out_stride, SHAPE_PARAMS) {                                                                                             \
    query_gradients<D / WIDE>(dq, q, k, v, dout, lse, delta, out_stride, SHAPE, (float *)shared);                                 \
  }
