// Attention to chosen keys in fp32. A block has 16 heads of one query, or, for the gradient of keys,
// 8 keys of a segment (attention_sparse.cuh) and 16 heads of one query after another. Tiles of rows
// lie in shared memory. For products over columns a thread has a head and a key; for products with
// D columns it has the columns thread, thread+256, …
#include "attention_sparse.cuh"

static constexpr int THREADS = 256, HEADS = 16, KEYS = 8, PAIRS = HEADS * KEYS;
static constexpr int D = 576, V = 512, PITCH = D + 4, WIDE = (D + THREADS - 1) / THREADS, VALUES_WIDE = V / THREADS;

// Shared memory in floats: heads of Q and of DO, keys, P and dP, factors, a word a warp, and the list of keys.
static constexpr int DO_AT = HEADS * PITCH, K_AT = DO_AT + HEADS * (V + 4), P_AT = K_AT + KEYS * PITCH, DP_AT = P_AT + PAIRS;
static constexpr int FACTORS_AT = DP_AT + PAIRS, SPACE_AT = FACTORS_AT + HEADS, LIST_AT = SPACE_AT + 8;

DYNAMIC_SHARED(bytes);
#define memory ((float *)bytes)

// load_rows copies rows of some columns to shared memory and fills them with zeros to a multiple of four columns. row(i)
// returns row i; nullptr: it is all zeros.
template <class Row> DEV void load_rows(float *dst, int pitch, int rows, int columns, Row row) {
#pragma clang loop unroll(disable)
  for (int i = threadIdx_x / 32; i < rows; i += THREADS / 32) {
    const float *from = row(i);
#pragma clang loop unroll(disable)
    for (int c = threadIdx_x % 32; c < (columns + 3) / 4 * 4; c += 32) dst[i * pitch + c] = from && c < columns ? from[c] : 0.0f;
  }
}
DEV void load_heads(const float *q, const float *dout, int first, const Sparse &a) {
  load_rows(memory, PITCH, HEADS, a.dim, [&](int i) { return first + i < a.heads ? q + (first + i) * a.dim : nullptr; });
  if (dout) load_rows(memory + DO_AT, V + 4, HEADS, a.values, [&](int i) { return first + i < a.heads ? dout + (first + i) * a.values : nullptr; });
}

DEV float dot(const float *x, const float *y, int n) {
  f32x4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma clang loop unroll_count(2)
  for (int i = 0; i < n; i += 4, x += 4, y += 4) sum += *(const f32x4 *)x * *(const f32x4 *)y;
  return (sum.x + sum.y) + (sum.z + sum.w);
}

// gradients writes P and dP − DELTA of 16 heads and 8 keys, of which the first n exist.
DEV void gradients(const float *lse, const float *delta, int first, int query, int n, const Sparse &a) {
  int pair = threadIdx_x % PAIRS, h = pair / KEYS, key = pair % KEYS;
  i64 at = (first + h) * a.tq + query;
  bool real = first + h < a.heads && key < n;
  const float *row = memory + K_AT + key * PITCH;
  if (threadIdx_x < PAIRS) {
    float x = dot(memory + h * PITCH, row, a.dim);
    memory[P_AT + pair] = real ? exp2_approx(x * (a.scale * LOG2E) - lse[at]) : 0.0f;
  } else {
    float x = dot(memory + DO_AT + h * (V + 4), row, a.values);
    memory[DP_AT + pair] = real ? x - delta[at] : 0.0f;
  }
}

extern "C" __global__ __launch_bounds__(THREADS, 2) void attention_sparse_forward_f32(float *o, float *lse, const float *q, const float *k, int first_query,
                                                                                   SPARSE_PARAMS) {
  Sparse a = SPARSE;
  Block b;
  if (!find_block<HEADS, THREADS>(b, first_query, a, memory + SPACE_AT)) return;
  load_heads(q + b.query * a.q_stride, nullptr, b.first, a);
  float out[VALUES_WIDE][HEADS] = {}, high = -INFINITY_F, sum = 0.0f, factor = a.scale * LOG2E;
  int h = threadIdx_x / KEYS, key = threadIdx_x % KEYS;
#pragma clang loop unroll(disable)
  for (int from = 0; from < b.n; from += KEYS) {
    load_rows(memory + K_AT, PITCH, KEYS, a.dim, [&](int i) { return from + i < b.n ? k + ((i64)b.k0 + b.keys[from + i]) * a.k_stride : nullptr; });
    sync_threads();
    if (threadIdx_x < PAIRS) {
      float x = dot(memory + h * PITCH, memory + K_AT + key * PITCH, a.dim), most;
      if (from + key >= b.n) x = -INFINITY_F;
      most = max_f(x, high);
#pragma unroll
      for (int m = 1; m < KEYS; m *= 2) most = max_f(most, shuffle_xor(most, m));
      float less = exp2_approx((high - most) * factor), base = most * factor, p = exp2_approx(x * factor - base);
      high = most;
      memory[P_AT + threadIdx_x] = p;
      if (key == 0) memory[FACTORS_AT + h] = less;
      sum = sum * less + team_sum(p, KEYS);
    }
    sync_threads();
    float v[KEYS][VALUES_WIDE];
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
#pragma unroll
      for (int i = 0; i < VALUES_WIDE; i++) v[j][i] = threadIdx_x + i * THREADS < a.values ? memory[K_AT + j * PITCH + threadIdx_x + i * THREADS] : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < HEADS; r++) {
#pragma unroll
      for (int i = 0; i < VALUES_WIDE; i++) out[i][r] *= memory[FACTORS_AT + r];
#pragma unroll
      for (int j = 0; j < KEYS; j++) {
#pragma unroll
        for (int i = 0; i < VALUES_WIDE; i++) out[i][r] += memory[P_AT + r * KEYS + j] * v[j][i];
      }
    }
    sync_threads();
  }
  if (threadIdx_x < PAIRS && key == 0) {
    memory[FACTORS_AT + h] = rcp_approx(sum);
    if (lse && b.first + h < a.heads) lse[(b.first + h) * a.tq + b.query] = log_sum_exp2(high, factor, sum);
  }
  sync_threads();
#pragma unroll
  for (int r = 0; r < HEADS; r++) {
#pragma unroll
    for (int i = 0; i < VALUES_WIDE; i++) {
      int c = threadIdx_x + i * THREADS;
      if (c < a.values && b.first + r < a.heads) o[((i64)b.query * a.heads + b.first + r) * a.values + c] = out[i][r] * memory[FACTORS_AT + r];
    }
  }
}

extern "C" __global__ __launch_bounds__(THREADS, 2) void attention_sparse_dq_f32(float *dq, const float *dout, const float *lse, const float *delta, i64 dq_stride,
                                                                              const float *q, const float *k, int first_query, SPARSE_PARAMS) {
  Sparse a = SPARSE;
  Block b;
  if (!find_block<HEADS, THREADS>(b, first_query, a, memory + SPACE_AT)) return;
  load_heads(q + b.query * a.q_stride, dout + (i64)b.query * a.heads * a.values, b.first, a);
  float out[WIDE][HEADS] = {};
#pragma clang loop unroll(disable)
  for (int from = 0; from < b.n; from += KEYS) {
    load_rows(memory + K_AT, PITCH, KEYS, a.dim, [&](int i) { return from + i < b.n ? k + ((i64)b.k0 + b.keys[from + i]) * a.k_stride : nullptr; });
    sync_threads();
    gradients(lse, delta, b.first, b.query, b.n - from, a);
    sync_threads();
#pragma clang loop unroll(disable)
    for (int j = 0; j < KEYS; j++) {
      float row[WIDE];
#pragma unroll
      for (int i = 0; i < WIDE; i++) row[i] = threadIdx_x + i * THREADS < a.dim ? memory[K_AT + j * PITCH + threadIdx_x + i * THREADS] : 0.0f;
#pragma unroll
      for (int r = 0; r < HEADS; r++) {
        float ds = a.scale * memory[P_AT + r * KEYS + j] * memory[DP_AT + r * KEYS + j];
#pragma unroll
        for (int i = 0; i < WIDE; i++) out[i][r] += ds * row[i];
      }
    }
    sync_threads();
  }
#pragma unroll
  for (int r = 0; r < HEADS; r++) {
#pragma unroll
    for (int i = 0; i < WIDE; i++) {
      int c = threadIdx_x + i * THREADS;
      if (c < a.dim && b.first + r < a.heads) dq[b.query * dq_stride + (i64)(b.first + r) * a.dim + c] = out[i][r];
    }
  }
}

extern "C" __global__ __launch_bounds__(THREADS, 2) void attention_sparse_dk_f32(float *sums, const float *dout, const float *lse, const float *delta, i64 tk,
                                                                              int segments, const float *q, const float *k, int ranges, SPARSE_PARAMS) {
  Sparse a = SPARSE;
  int segment = blockIdx_x % segments, range = blockIdx_x / segments, *list = (int *)(memory + LIST_AT);
  sums += range * tk * dim;
  keys_of_segment<THREADS>(sums, range, ranges, tk, segment, segments, a, list, memory + SPACE_AT, [&](int query, int count) {
#pragma clang loop unroll(disable)
    for (int from = 0; from < count; from += KEYS) {
      int n = min_i(KEYS, count - from);
      float out[WIDE][KEYS] = {};
      load_rows(memory + K_AT, PITCH, KEYS, a.dim, [&](int i) { return i < n ? k + (i64)list[from + i] * a.k_stride : nullptr; });
#pragma clang loop unroll(disable)
      for (int first = 0; first < a.heads; first += HEADS) {
        load_heads(q + query * a.q_stride, dout + (i64)query * a.heads * a.values, first, a);
        sync_threads();
        gradients(lse, delta, first, query, n, a);
        sync_threads();
#pragma clang loop unroll(disable)
        for (int r = 0; r < HEADS; r++) {
          float x[WIDE], y[WIDE];
#pragma unroll
          for (int i = 0; i < WIDE; i++) {
            int c = threadIdx_x + i * THREADS;
            x[i] = c < a.dim ? memory[r * PITCH + c] : 0.0f;
            y[i] = c < a.values ? memory[DO_AT + r * (V + 4) + c] : 0.0f;
          }
#pragma unroll
          for (int j = 0; j < KEYS; j++) {
            float p = memory[P_AT + r * KEYS + j], ds = a.scale * p * memory[DP_AT + r * KEYS + j];
#pragma unroll
            for (int i = 0; i < WIDE; i++) out[i][j] += ds * x[i] + p * y[i];
          }
        }
        sync_threads();
      }
#pragma unroll
      for (int j = 0; j < KEYS; j++) {
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
          int c = threadIdx_x + i * THREADS;
          if (j < n && c < a.dim) sums[(i64)list[from + j] * a.dim + c] += out[i][j];
        }
      }
    }
  });
}

extern "C" __global__ __launch_bounds__(THREADS) void attention_sparse_sum_f32(float *dk, const float *sums, i64 dk_stride, int ranges, i64 tk, int dim,
                                                                               const int *cu_k, int seqs) {
  sum_ranges(dk, sums, dk_stride, ranges, tk, dim, cu_k, seqs);
}
