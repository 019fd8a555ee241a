// Router and RouterBackward: which experts take a token. With p = softmax over the E
// logits of a token and S the K largest (ties: the lower index first):
//
//	ids, weights (T, K) i32, f32: S in falling order and p of it; with normalize
//	                    divided by its sum. Overwritten
//	part (blocks, E) f32: Σ p over a block's tokens, unless null
//
// Backward: dlogits = p·(g − Σ p·g), where g is what comes back for p: aux·counts[e],
// and for those in S also dweights, or with normalize (dweights − Σ dweights·weights)
// / Σ_S p. dlogits is overwritten; it may be logits.
//
// A NaN counts as the largest logit, so K different experts come out in any case,
// with weights that are NaN.
//
// The least a call moves is E reads of 4 bytes a token, backward as many writes too.
//
// A warp takes token after token; lane l holds logits l, l + 32 …, R of them.
#include "common.cuh"

static constexpr int WARPS = 8, THREADS = WARPS * 32;

DEV u32 redux_max(u32 x) { return __nvvm_redux_sync_umax(x, 0xffffffffu); }
DEV u32 redux_min(u32 x) { return __nvvm_redux_sync_umin(x, 0xffffffffu); }

// ordered maps floats to integers in the same order: 1 … for numbers and infinities,
// 2^32 − 1 for NaN, 0 for none. Both zeros are one.
DEV u32 ordered(float x) {
  u32 bits = bits_of(x + 0.0f), flipped = bits ^ ((u32)((int)bits >> 31) | 0x80000000u);
  return x == x ? flipped : 0xffffffffu;
}

// row_of is a token's logits in the lanes of a warp: R·32 of them, −∞ behind the end.
template <int R> struct row_of {
  float v[R];
  float top, inverse; // the largest, and 1/Σ exp(v − top)

  METHOD void load(const float *logits, int experts) {
    int lane = threadIdx_x & 31;
#pragma unroll
    for (int r = 0; r < R; r++) {
      int e = r * 32 + lane;
      v[r] = -INFINITY_F;
      if (e < experts) v[r] = logits[e];
    }
  }

  METHOD float probability(float x) const { return exp_approx(x - top) * inverse; }

  METHOD void softmax() {
    float most = v[0], sum = 0.0f;
#pragma unroll
    for (int r = 1; r < R; r++) most = max_f(most, v[r]);
    top = warp_max(most);
#pragma unroll
    for (int r = 0; r < R; r++) sum += exp_approx(v[r] - top);
    inverse = 1.0f / warp_sum(sum);
  }
};

// choose gives lane k the k-th largest logit, k < K: its expert.
template <int R> DEV int choose(const row_of<R> &row, int K) {
  int lane = threadIdx_x & 31, mine = 0;
  u32 key[R];
#pragma unroll
  for (int r = 0; r < R; r++) key[r] = ordered(row.v[r]);
#pragma clang loop unroll(disable)
  for (int k = 0; k < K; k++) {
    u32 best = 0, at = 0;
#pragma unroll
    for (int r = 0; r < R; r++)
      if (key[r] > best) best = key[r], at = r;
    u32 most = redux_max(best);
    u32 expert = redux_min(best == most ? at * 32 + lane : 0xffffffffu);
#pragma unroll
    for (int r = 0; r < R; r++)
      if (r * 32 + lane == expert) key[r] = 0;
    if (lane == k) mine = (int)expert;
  }
  return mine;
}

template <int R>
DEV void router(const float *logits, int *ids, float *weights, float *part, int tokens, int experts, int K, int normalize, int each) {
  __shared__ float sums[WARPS][R * 32];
  int lane = threadIdx_x & 31, warp = threadIdx_x >> 5;
  float sum[R];
#pragma unroll
  for (int r = 0; r < R; r++) sum[r] = 0.0f;
  int end = min_i(tokens, (blockIdx_x + 1) * each);
#pragma clang loop unroll(disable)
  for (int t = blockIdx_x * each + warp; t < end; t += WARPS) {
    const float *from = logits + (i64)t * experts;
    row_of<R> row;
    row.load(from, experts);
    row.softmax();
    int expert = choose(row, K);
    float weight = lane < K ? row.probability(from[expert]) : 0.0f;
    if (normalize) weight /= warp_sum(weight);
    if (lane < K) ids[(i64)t * K + lane] = expert, weights[(i64)t * K + lane] = weight;
#pragma unroll
    for (int r = 0; r < R; r++) sum[r] += row.probability(row.v[r]);
  }
  if (!part) return;
#pragma unroll
  for (int r = 0; r < R; r++) sums[warp][r * 32 + lane] = sum[r];
  sync_threads();
  for (int e = threadIdx_x; e < experts; e += THREADS) {
    float all = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) all += sums[w][e];
    part[(i64)blockIdx_x * experts + e] = all;
  }
}

template <int R>
DEV void router_backward(float *dlogits, const float *logits, const int *ids, const float *dweights, const int *counts, int tokens,
                         int experts, int K, int normalize, float aux) {
  int lane = threadIdx_x & 31, t = blockIdx_x * WARPS + (threadIdx_x >> 5);
  if (t >= tokens) return;
  const float *from = logits + (i64)t * experts;
  float *to = dlogits + (i64)t * experts;
  row_of<R> row;
  row.load(from, experts);
  row.softmax();

  // Of lane k < K: the k-th expert, its p, and what comes back for that.
  int expert = lane < K ? ids[(i64)t * K + lane] : -1;
  bool chosen = (u32)expert < (u32)experts;
  float p = chosen ? row.probability(from[expert]) : 0.0f, g = chosen ? dweights[(i64)t * K + lane] : 0.0f;
  float mean = 0.0f; // Σ p·g
  if (normalize) {
    float all = warp_sum(p);
    g = (g - warp_sum(p * g) / all) / all; // Σ p·g is then 0
  } else {
    mean = warp_sum(p * g);
  }
  float extra[R], sum = 0.0f;
#pragma unroll
  for (int r = 0; r < R; r++) {
    int e = r * 32 + lane;
    extra[r] = 0.0f;
    if (counts && e < experts) extra[r] = aux * (float)counts[e];
    sum += extra[r] * row.probability(row.v[r]);
  }
  if (counts) mean += warp_sum(sum);
  sync_warp(); // every lane has read its logits
#pragma unroll
  for (int r = 0; r < R; r++) {
    int e = r * 32 + lane;
    if (e < experts) to[e] = row.probability(row.v[r]) * (extra[r] - mean);
  }
  sync_warp(); // the chosen are written once more
  if (!chosen) return;
  if (counts) g += aux * (float)counts[expert];
  to[expert] = p * (g - mean);
}

#define KERNELS(R, E)                                                                                                           \
  __global__ __launch_bounds__(THREADS) void router_##E(const float *logits, int *ids, float *weights, float *part, int tokens, \
                                                       int experts, int K, int normalize, int each) {                           \
    router<R>(logits, ids, weights, part, tokens, experts, K, normalize, each);                                                 \
  }                                                                                                                             \
  __global__ __launch_bounds__(THREADS) void router_backward_##E(float *dlogits, const float *logits, const int *ids,           \
                                                                const float *dweights, const int *counts, int tokens,           \
                                                                int experts, int K, int normalize, float aux) {                 \
    router_backward<R>(dlogits, logits, ids, dweights, counts, tokens, experts, K, normalize, aux);                             \
  }

extern "C" {
KERNELS(1, 32)
KERNELS(2, 64)
KERNELS(4, 128)
KERNELS(8, 256)
KERNELS(32, 1024)
}
