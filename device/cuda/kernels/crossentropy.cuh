// What cross entropy does, with softcaps (crossentropy_cap.cu) and without
// (crossentropy.cu), over rows of logits (T, V) act, in place.
//
// A whole vocabulary: losses (T) f32 = −log p(target), overwritten; logits become
// (softmax − onehot)·scale unless only the forward is wanted. A row whose target is
// ignored has loss 0 and becomes 0. A target outside 0 … V−1 has loss NaN, and its
// row becomes softmax·scale.
//
// A shard, columns from … from+V: the sweep without gradient brings lse (T) f32, the
// log-sum-exp so far, and losses, the target's logit once known (NaN before), up to
// date; the last shard makes losses of them. So a target outside the vocabulary has
// loss NaN here too. The sweep with gradient overwrites logits.
//
// With a cap, x counts as cap·tanh(x/cap), and the gradient is that times the
// slope 1 − tanh².
//
// The least that a call moves is one read of the logits and, for the gradient, one more read and a
// write. The second read starts from the end of the row, where the first one stopped, so that a
// short row comes from the cache. That is 6 bytes for each logit in bf16, and 2 for the forward
// alone.
//
// One block works on one row, blockIdx.x. A row may begin anywhere: the elements
// before the first multiple of 16 bytes and those after the last are accessed one
// by one.
#pragma once
#include "common.cuh"

static constexpr int THREADS = 512; // at most
static constexpr int AHEAD = 4;     // chunks a thread has in flight
static constexpr int IGNORE = -100;
static constexpr float LOWEST = -3.402823466e38f; // exp(x − LOWEST) is no NaN for x = −∞

// A limit of logits: none, or cap. Both also return the slope at a logit.
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

// running has the sum of exp(x − top) over what has been seen.
struct running { float top, sum; };

template <int N, class L> DEV void absorb(running &r, float (&v)[N], L limit) {
  float top = r.top;
#pragma unroll
  for (int i = 0; i < N; i++) v[i] = seen(limit, v[i]);
#pragma unroll
  for (int i = 0; i < N; i++) top = max_f(top, v[i]);
  float sum = r.sum * exp_approx(r.top - top);
#pragma unroll
  for (int i = 0; i < N; i++) sum += exp_approx(v[i] - top);
  r.top = top, r.sum = sum;
}

// scan returns top and sum of the whole row to every thread of the block. space
// holds 2·MAX_WARPS floats.
template <class T, class L> DEV running scan(const row_of<T> &row, L limit, float *space) {
  constexpr int N = VEC<T>;
  running r = {LOWEST, 0.0f};
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

  // The warp, then the warps in order.
  float top = warp_max(r.top), sum = warp_sum(r.sum * exp_approx(r.top - top));
  int warps = blockDim_x >> 5;
  if (warps == 1) return running{top, sum};
  if ((threadIdx_x & 31) == 0) space[threadIdx_x >> 5] = top, space[MAX_WARPS + (threadIdx_x >> 5)] = sum;
  sync_threads();
  running all = {LOWEST, 0.0f};
#pragma clang loop unroll(disable)
  for (int w = 0; w < warps; w++) all.top = max_f(all.top, space[w]);
#pragma clang loop unroll(disable)
  for (int w = 0; w < warps; w++) all.sum += space[MAX_WARPS + w] * exp_approx(space[w] - all.top);
  return all;
}

template <int N, class L> DEV void probabilities(float (&v)[N], L limit, float top, float k) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    float slope, x = limit.seen(v[i], slope);
    v[i] = exp_approx(x - top) * k * slope;
  }
}

// write_gradient overwrites the row with exp(x − top)·k, from its end.
template <class T, class L> DEV void write_gradient(const row_of<T> &row, L limit, float top, float k) {
  constexpr int N = VEC<T>;
  float one[1];
  if (threadIdx_x < row.tail) {
    one[0] = to_float(row.end[threadIdx_x]);
    probabilities(one, limit, top, k);
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
      probabilities(v, limit, top, k);
      store_floats<N>(row.body + (first + c * step) * N, v);
    }
  }
  if (threadIdx_x < row.head) {
    one[0] = to_float(row.p[threadIdx_x]);
    probabilities(one, limit, top, k);
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

// finish_gradient overwrites the row and then the element of the target. chosen is
// the target's logit, at its column; at is outside 0 … columns−1 where the row has
// no target.
template <class T, class L>
DEV void finish_gradient(const row_of<T> &row, L limit, int at, bool inside, float chosen, float top, float k, float scale) {
  write_gradient(row, limit, top, k);
  sync_threads();
  float slope, x = limit.seen(chosen, slope);
  if (inside && threadIdx_x == 0) store(row.p + at, (exp_approx(x - top) * k - scale) * slope);
}

template <class T, class L>
DEV void cross_entropy(T *logits, const int *targets, float *losses, int columns, float scale, int forward_only, L limit) {
  __shared__ float space[2 * MAX_WARPS];
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
  running all = scan(row, limit, space);
  if (threadIdx_x == 0) losses[blockIdx_x] = log_f(all.sum) + (all.top - seen(limit, chosen));
  if (forward_only) return;
  sync_threads(); // every thread has read the target's logit
  finish_gradient(row, limit, target, inside, chosen, all.top, scale / all.sum, scale);
}

// merge is log(exp a + exp b). It is NaN where a or b is.
DEV float merge(float a, float b) { return max_f(a, b) + log_f(1.0f + exp_approx(-__builtin_fabsf(a - b))); }

template <class T, class L>
DEV void shard_forward(T *logits, const int *targets, float *lse, float *losses, int columns, int from, int first, int last, L limit) {
  __shared__ float space[2 * MAX_WARPS];
  running all = scan(cut(logits, columns), limit, space);
  if (threadIdx_x > 0) return;
  int t = blockIdx_x, target = targets[t], at = target - from;
  float sum = all.top + log_f(all.sum), chosen = NAN_F;
  if (!first) sum = merge(lse[t], sum), chosen = losses[t];
  if (target >= from && at < columns) chosen = seen(limit, to_float(logits[(i64)t * columns + at]));
  if (last) chosen = target == IGNORE ? 0.0f : sum - chosen;
  lse[t] = sum, losses[t] = chosen;
}

template <class T, class L>
DEV void shard_gradient(T *logits, const int *targets, const float *lse, int columns, int from, float scale, L limit) {
  row_of<T> row = cut(logits, columns);
  int target = targets[blockIdx_x], at = target - from;
  if (target == IGNORE) return clear(row);
  bool inside = target >= from && at < columns;
  float chosen = 0.0f, top = lse[blockIdx_x];
  if (inside) chosen = to_float(row.p[at]);
  sync_threads(); // every thread has read the target's logit
  finish_gradient(row, limit, at, inside, chosen, top, scale, scale);
}

// The kernels for one type. The parameters after LIMIT come last in each kernel,
// and LIMIT is made of them.
#define CROSS_ENTROPY(T, NAME, SUFFIX, LIMIT, ...)                                                                          \
  __global__ __launch_bounds__(THREADS, 2) void NAME##SUFFIX(T *logits, const int *targets, float *losses, int columns,     \
                                                            float scale, int forward_only __VA_OPT__(, ) __VA_ARGS__) {     \
    cross_entropy(logits, targets, losses, columns, scale, forward_only, LIMIT);                                            \
  }                                                                                                                         \
  __global__ __launch_bounds__(THREADS, 2) void NAME##_shard##SUFFIX(                                                       \
      T *logits, const int *targets, float *lse, float *losses, int columns, int from, int first,                           \
      int last __VA_OPT__(, ) __VA_ARGS__) {                                                                                \
    shard_forward(logits, targets, lse, losses, columns, from, first, last, LIMIT);                                         \
  }                                                                                                                         \
  __global__ __launch_bounds__(THREADS, 2) void NAME##_shard_gradient##SUFFIX(                                              \
      T *logits, const int *targets, const float *lse, int columns, int from, float scale __VA_OPT__(, ) __VA_ARGS__) {     \
    shard_gradient(logits, targets, lse, columns, from, scale, LIMIT);                                                      \
  }
