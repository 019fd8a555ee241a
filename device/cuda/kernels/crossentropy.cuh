// Cross entropy over rows of logits (T, V) act, in place. This file is for all variants: with
// softcaps (crossentropy_cap.cu) and without (crossentropy.cu), and both with additional terms of
// the loss (crossentropy_terms.cu, crossentropy_terms_cap.cu).
//
// A whole vocabulary: losses (T) f32 = −log p(target), overwritten. The logits become (softmax −
// onehot)·scale unless the caller wants only the forward. A row whose target is ignored has loss 0,
// and its logits become 0. A target outside 0 … V−1 has loss NaN, and its row becomes
// softmax·scale.
//
// A shard has the columns from … from+V of the vocabulary. The sweep without gradient updates lse
// (T) f32, the log-sum-exp of all shards so far, and losses, which holds the target's logit once it
// is known (NaN before). The last shard turns these into losses. So a target outside the vocabulary
// has loss NaN here too. The sweep with gradient overwrites the logits.
//
// With terms, a loss is lse − target·x(target) − column·Σx + z·lse², of the logits x after the cap,
// and the gradient is that of this loss. A shard's losses then gather the terms that are subtracted
// from lse.
//
// If weights (T) f32 are given, scale is multiplied by the row's weight.
//
// With a cap, x counts as cap·tanh(x/cap), and the gradient is multiplied by the slope 1 − tanh².
//
// No call can move fewer bytes than one read of the logits and, for the gradient, one more read and
// a write. The second read starts from the end of the row, where the first one stopped, so that a
// short row comes from the cache. That is 6 bytes for each logit in bf16, and 2 for the forward
// alone.
//
// One block works on one row, blockIdx.x. A row may begin at any address: the elements before the
// first multiple of 16 bytes and those after the last are accessed one by one.
#pragma once
#include "common.cuh"

static constexpr int THREADS = 512; // at most
static constexpr int AHEAD = 4;     // chunks that a thread loads at a time
static constexpr int IGNORE = -100;
static constexpr float LOWEST = -3.402823466e38f; // exp(x − LOWEST) is no NaN for x = −∞

// Uncapped and Capped are the two ways to limit logits. seen returns the limited logit, and sets
// slope to its derivative.
struct Uncapped {
  METHOD float seen(float x, float &slope) const { return slope = 1.0f, x; }
};
struct Capped {
  float cap, inverse;
  METHOD float seen(float x, float &slope) const {
    float t = tanh_f(x * inverse);
    slope = __builtin_fmaf(-t, t, 1.0f);
    return __nvvm_mul_rn_f(cap, t); // never part of a multiply-add: the same bits everywhere
  }
};
template <class L> DEV float seen(L limit, float x) {
  float slope;
  return limit.seen(x, slope);
}

// Plain and Terms have the coefficients of a loss, lse − target·x(target) − column·Σx + z·lse², and
// the number of columns of the vocabulary. Plain is −log p.
struct Plain {
  static constexpr bool more = false;
  static constexpr float target = 1.0f, column = 0.0f, z = 0.0f;
  static constexpr int vocabulary = 0;
};
struct Terms {
  static constexpr bool more = true;
  float target, column, z;
  int vocabulary;
};

// A row consists of head elements, chunks of 16 bytes, and tail elements.
template <class T> struct row_of {
  T *p, *body, *end;
  int head, chunks, tail;
};

template <class T> DEV row_of<T> cut(T *logits, int columns) {
  row_of<T> r;
  r.p = logits + (i64)blockIdx_x * columns;
  r.head = min_i(columns, (int)((0 - (u64)r.p) & 15) / (int)sizeof(T));
  r.chunks = (columns - r.head) / VEC<T>;
  r.body = r.p + r.head;
  r.end = r.body + r.chunks * VEC<T>;
  r.tail = columns - r.head - r.chunks * VEC<T>;
  return r;
}

// running has a maximum (top) and the sum of exp(x − top) over the logits seen so far. If the terms
// need Σx, it has that too.
template <bool all> struct running { float top, sum; };
template <> struct running<true> { float top, sum, total; };

template <bool all, int N, class L> DEV void absorb(running<all> &r, float (&v)[N], L limit) {
  float top = r.top;
#pragma unroll
  for (int i = 0; i < N; i++) v[i] = seen(limit, v[i]);
  if constexpr (all)
#pragma unroll
    for (int i = 0; i < N; i++) r.total += v[i];
#pragma unroll
  for (int i = 0; i < N; i++) top = max_f(top, v[i]);
  float sum = r.sum * exp_approx(r.top - top);
#pragma unroll
  for (int i = 0; i < N; i++) sum += exp_approx(v[i] - top);
  r.top = top, r.sum = sum;
}

// scan returns the maximum and the sums of the whole row to every thread of the block. space holds
// 3·MAX_WARPS floats, of which the last third is for Σx.
template <bool all, class T, class L> DEV running<all> scan(const row_of<T> &row, L limit, float *space) {
  constexpr int N = VEC<T>;
  running<all> r = {LOWEST, 0.0f};
  float one[1];
  if (threadIdx_x < row.head) one[0] = to_float(row.p[threadIdx_x]), absorb(r, one, limit);
  int i = threadIdx_x, step = blockDim_x;
#pragma clang loop unroll(disable)
  for (; i + (AHEAD - 1) * step < row.chunks; i += AHEAD * step) {
    chunk<T, N> in[AHEAD];
#pragma unroll
    for (int c = 0; c < AHEAD; c++) in[c] = load_chunk<N>(row.body + (i + c * step) * N);
    float v[AHEAD * N];
#pragma unroll
    for (int c = 0; c < AHEAD; c++) {
      float part[N];
      unpack(part, in[c]);
#pragma unroll
      for (int j = 0; j < N; j++) v[c * N + j] = part[j];
    }
    absorb(r, v, limit);
  }
  chunk<T, N> in[AHEAD];
#pragma unroll
  for (int c = 0; c < AHEAD - 1; c++)
    if (i + c * step < row.chunks) in[c] = load_chunk<N>(row.body + (i + c * step) * N);
#pragma unroll
  for (int c = 0; c < AHEAD - 1; c++) {
    if (i + c * step >= row.chunks) continue;
    float v[N];
    unpack(v, in[c]);
    absorb(r, v, limit);
  }
  if (threadIdx_x < row.tail) one[0] = to_float(row.end[threadIdx_x]), absorb(r, one, limit);

  // Combine the lanes of the warp, then the warps in order.
  float top = warp_max(r.top), sum = warp_sum(r.sum * exp_approx(r.top - top));
  int warps = blockDim_x >> 5;
  running<all> out = {top, sum};
  if constexpr (all) out.total = warp_sum(r.total);
  if (warps == 1) return out;
  if ((threadIdx_x & 31) == 0) {
    space[threadIdx_x >> 5] = top, space[MAX_WARPS + (threadIdx_x >> 5)] = sum;
    if constexpr (all) space[2 * MAX_WARPS + (threadIdx_x >> 5)] = out.total;
  }
  sync_threads();
  out = {LOWEST, 0.0f};
#pragma clang loop unroll(disable)
  for (int w = 0; w < warps; w++) out.top = max_f(out.top, space[w]);
#pragma clang loop unroll(disable)
  for (int w = 0; w < warps; w++) {
    out.sum += space[MAX_WARPS + w] * exp_approx(space[w] - out.top);
    if constexpr (all) out.total += space[2 * MAX_WARPS + w];
  }
  return out;
}

// slopes has the numbers that turn a logit x into its gradient: exp(x − top)·k − column. The
// gradient of the target's logit is smaller by the field target. k scales the probability, and column
// is the coefficient of the sum of all logits in the loss.
template <class M> struct slopes { float top, k, column, target; };

template <class M, int N, class L> DEV void probabilities(float (&v)[N], L limit, slopes<M> g) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    float slope, x = limit.seen(v[i], slope);
    if constexpr (M::more)
      v[i] = (exp_approx(x - g.top) * g.k - g.column) * slope;
    else
      v[i] = exp_approx(x - g.top) * g.k * slope;
  }
}

// write_gradient overwrites the row's logits by gradients, beginning at its end, as if the row had
// no target.
template <class M, class T, class L> DEV void write_gradient(const row_of<T> &row, L limit, slopes<M> g) {
  constexpr int N = VEC<T>;
  float one[1];
  if (threadIdx_x < row.tail) {
    one[0] = to_float(row.end[threadIdx_x]);
    probabilities(one, limit, g);
    store(row.end + threadIdx_x, one[0]);
  }
  int step = blockDim_x, whole = row.chunks / (AHEAD * step);
#pragma clang loop unroll(disable)
  for (int w = whole; w >= 0; w--) {
    int first = w * AHEAD * step + threadIdx_x;
    chunk<T, N> in[AHEAD];
#pragma unroll
    for (int c = 0; c < AHEAD; c++)
      if (first + c * step < row.chunks) in[c] = load_chunk<N>(row.body + (first + c * step) * N);
#pragma unroll
    for (int c = 0; c < AHEAD; c++) {
      if (first + c * step >= row.chunks) continue;
      float v[N];
      unpack(v, in[c]);
      probabilities(v, limit, g);
      store_floats<N>(row.body + (first + c * step) * N, v);
    }
  }
  if (threadIdx_x < row.head) {
    one[0] = to_float(row.p[threadIdx_x]);
    probabilities(one, limit, g);
    store(row.p + threadIdx_x, one[0]);
  }
}

template <class T> DEV void clear(const row_of<T> &row) {
  constexpr int N = VEC<T>;
  if (threadIdx_x < row.head) store(row.p + threadIdx_x, 0.0f);
  chunk<T, N> zero;
  zero_chunk(zero);
  for (int i = threadIdx_x; i < row.chunks; i += blockDim_x) store_chunk<N>(row.body + i * N, zero);
  if (threadIdx_x < row.tail) store(row.end + threadIdx_x, 0.0f);
}

// finish_gradient overwrites the row by gradients and then corrects the target's element. at is the
// target's column and chosen its logit. inside says whether the target is one of the row's columns;
// otherwise there is nothing to correct.
template <class M, class T, class L>
DEV void finish_gradient(const row_of<T> &row, L limit, int at, bool inside, float chosen, slopes<M> g) {
  write_gradient(row, limit, g);
  sync_threads();
  float slope, x = limit.seen(chosen, slope);
  if (!inside || threadIdx_x != 0) return;
  float p = exp_approx(x - g.top) * g.k;
  if constexpr (M::more) p -= g.column;
  store(row.p + at, (p - g.target) * slope);
}

// slopes_of returns the slopes of a row; exp(x − top)·k is scale times the probability of x.
template <class M> DEV slopes<M> slopes_of(M terms, float top, float k, float lse, float scale) {
  if constexpr (M::more)
    return {top, k * __builtin_fmaf(2.0f * terms.z, lse, 1.0f), terms.column * scale, terms.target * scale};
  else
    return {top, k, 0.0f, scale};
}

template <class T, class L, class M>
DEV void cross_entropy(T *logits, const int *targets, float *losses, const float *weights, int columns, float scale, int forward_only,
                       L limit, M terms) {
  __shared__ float space[(M::more ? 3 : 2) * MAX_WARPS];
  row_of<T> row = cut(logits, columns);
  int target = targets[blockIdx_x];
  if (target == IGNORE) {
    if (threadIdx_x == 0) losses[blockIdx_x] = 0.0f;
    if (!forward_only) clear(row);
    return;
  }
  bool inside = (u32)target < (u32)columns;
  float chosen = NAN_F;
  if (inside) chosen = to_float(row.p[target]);
  auto all = scan<M::more>(row, limit, space);
  float lse = 0.0f;
  if constexpr (M::more) {
    lse = log_f(all.sum) + all.top;
    if (threadIdx_x == 0)
      losses[blockIdx_x] = lse - terms.target * seen(limit, chosen) - terms.column * all.total + terms.z * lse * lse;
  } else {
    if (threadIdx_x == 0) losses[blockIdx_x] = log_f(all.sum) + (all.top - seen(limit, chosen));
  }
  if (forward_only) return;
  if (weights) scale *= weights[blockIdx_x];
  sync_threads(); // every thread has read the target's logit
  finish_gradient(row, limit, target, inside, chosen, slopes_of(terms, all.top, scale / all.sum, lse, scale));
}

// merge returns log(exp a + exp b), the log-sum-exp of two shards. It is NaN if a or b is.
DEV float merge(float a, float b) { return max_f(a, b) + log_f(1.0f + exp_approx(-__builtin_fabsf(a - b))); }

template <class T, class L, class M>
DEV void shard_forward(T *logits, const int *targets, float *lse, float *losses, int columns, int from, int first, int last, L limit,
                       M terms) {
  __shared__ float space[(M::more ? 3 : 2) * MAX_WARPS];
  auto all = scan<M::more>(cut(logits, columns), limit, space);
  if (threadIdx_x > 0) return;
  int t = blockIdx_x, target = targets[t], at = target - from;
  float sum = all.top + log_f(all.sum), taken = NAN_F;
  if (!first) sum = merge(lse[t], sum), taken = losses[t];
  bool inside = target >= from && at < columns;
  float chosen = 0.0f;
  if (inside) chosen = seen(limit, to_float(logits[(i64)t * columns + at]));
  if constexpr (M::more) {
    if (first) taken = (u32)target < (u32)terms.vocabulary ? 0.0f : NAN_F;
    taken += terms.target * chosen + terms.column * all.total;
    if (last) taken = target == IGNORE ? 0.0f : sum - taken + terms.z * sum * sum;
  } else {
    if (inside) taken = chosen;
    if (last) taken = target == IGNORE ? 0.0f : sum - taken;
  }
  lse[t] = sum, losses[t] = taken;
}

template <class T, class L, class M>
DEV void shard_gradient(T *logits, const int *targets, const float *lse, const float *weights, int columns, int from, float scale,
                        L limit, M terms) {
  row_of<T> row = cut(logits, columns);
  int target = targets[blockIdx_x], at = target - from;
  if (target == IGNORE) return clear(row);
  bool inside = target >= from && at < columns;
  float chosen = 0.0f, top = lse[blockIdx_x];
  if (weights) scale *= weights[blockIdx_x];
  if (inside) chosen = to_float(row.p[at]);
  sync_threads(); // every thread has read the target's logit
  finish_gradient(row, limit, at, inside, chosen, slopes_of(terms, top, scale, top, scale));
}

// CROSS_ENTROPY defines the kernels for one type: a whole vocabulary, a shard, and a shard's
// gradient. The parameters after TERMS come last in each kernel; LIMIT and TERMS are expressions
// that use them.
#define CROSS_ENTROPY(T, NAME, SUFFIX, LIMIT, TERMS, ...)                                                                   \
  __global__ __launch_bounds__(THREADS, 2) void NAME##SUFFIX(T *logits, const int *targets, float *losses,                  \
                                                            const float *weights, int columns, float scale,                 \
                                                            int forward_only __VA_OPT__(, ) __VA_ARGS__) {                  \
    cross_entropy(logits, targets, losses, weights, columns, scale, forward_only, LIMIT, TERMS);                            \
  }                                                                                                                         \
  __global__ __launch_bounds__(THREADS, 2) void NAME##_shard##SUFFIX(                                                       \
      T *logits, const int *targets, float *lse, float *losses, int columns, int from, int first,                           \
      int last __VA_OPT__(, ) __VA_ARGS__) {                                                                                \
    shard_forward(logits, targets, lse, losses, columns, from, first, last, LIMIT, TERMS);                                  \
  }                                                                                                                         \
  __global__ __launch_bounds__(THREADS, 2) void NAME##_shard_gradient##SUFFIX(                                              \
      T *logits, const int *targets, const float *lse, const float *weights, int columns, int from,                         \
      float scale __VA_OPT__(, ) __VA_ARGS__) {                                                                             \
    shard_gradient(logits, targets, lse, weights, columns, from, scale, LIMIT, TERMS);                                      \
  }
