// Router and RouterBackward choose which experts compute a token. A token's experts have scores p:
// the softmax over its E logits or, with SIGMOID, their sigmoids. They also have keys: the scores +
// bias or, for a softmax without bias, the logits. S are the experts with the K largest keys (ties:
// the lower index first), from open groups only. There are `groups` groups of E/groups experts
// each. A group is worth the sum of its `best` largest keys or, if keys are logits and best is 2, of
// their experts' scores. The `open` worthiest groups are open. With groups 0 all experts are.
//
//	ids, weights (T, K) i32, f32: S in falling order of keys, and p of it; with NORMALIZE
//	                    divided by its sum (of sigmoids, + 1e-20); times scale. Overwritten
//	part (blocks, E) f32: Σ p over a block's tokens, unless null
//
// With SHARED, rows of ids and weights have one more entry, for expert E with the weight 1. With
// GATED too, rows of logits have one more entry, whose sigmoid is that weight.
//
// Backward: g is the gradient of p, aux·counts[e]. For experts in S it has one more term:
// scale·dweights, or with NORMALIZE scale·(dweights − Σ dweights·p/Σ_S p) / Σ_S p. Then dlogits =
// p·(g − Σ p·g) for a softmax and p·(1 − p)·g for sigmoids. dlogits is overwritten; it may be
// logits.
//
// With near > 0 the k-th chosen expert, whose logit is top, has the weight scale / Σ exp(s − top).
// The sum is over the logits s of the experts that are near, (top − s) / max(|s|, top) ≤ 2·near,
// and were not chosen before it. Backward, each of these weights w, with the share q of the experts
// in its softmax, adds scale·dweight·w·(δ − q) to dlogits; δ is 1 for the expert itself, else 0.
//
// A NaN counts as the largest logit. So K different experts are chosen in any case, with weights
// that are NaN.
//
// No call can move fewer bytes than E reads of 4 bytes a token, and backward as many writes too.
//
// A warp computes one token after another; lane l holds the R logits l, l + 32 …. Kernels router_E
// are for softmaxes without bias, groups, scale or shared expert, router_any_E for everything.
#include "common.cuh"

static constexpr int WARPS = 8, THREADS = WARPS * 32;
static constexpr int NORMALIZE = 1, SIGMOID = 2, SHARED = 4, GATED = 8;

// rule_of says how experts are chosen and weighted. PLAIN kernels support NORMALIZE as the only
// option, and the compiler leaves out the rest.
template <bool PLAIN> struct rule_of {
  int K, experts, flags, groups, open, best;
  float scale, near;

  METHOD bool normalize() const { return flags & NORMALIZE; }
  METHOD bool sigmoid() const { return !PLAIN && (flags & SIGMOID); }
  METHOD bool shared() const { return !PLAIN && (flags & SHARED); }
  METHOD bool gated() const { return !PLAIN && (flags & GATED); }
  METHOD int logits() const { return gated() ? experts + 1 : experts; }
  METHOD int chosen() const { return shared() ? K + 1 : K; }
  METHOD bool nears() const { return !PLAIN && near > 0.0f; }
  METHOD float scaled(float x) const { return PLAIN ? x : x * scale; }
  // least is added to the sum of the chosen scores before weights are divided by it.
  METHOD float least() const { return sigmoid() ? 1e-20f : 0.0f; }
};

DEV float sigmoid_of(float x) {
  float up, down;
  sigmoids(x, up, down);
  return up;
}

DEV u32 redux_max(u32 x) { return __nvvm_redux_sync_umax(x, 0xffffffffu); }
DEV u32 redux_min(u32 x) { return __nvvm_redux_sync_umin(x, 0xffffffffu); }

// of_lane returns in every lane the x of lane `from`.
DEV int of_lane(int x, int from) { return __nvvm_shfl_sync_idx_i32(0xffffffffu, x, from, 31); }

// ordered maps floats to integers in the same order: numbers and infinities to 1 or more, NaN to
// 2^32 − 1; 0 stands for no key. Both zeros map to one integer.
DEV u32 ordered(float x) {
  u32 bits = bits_of(x + 0.0f), flipped = bits ^ ((u32)((int)bits >> 31) | 0x80000000u);
  return x == x ? flipped : 0xffffffffu;
}

// valued is the inverse of ordered: it returns the float of a key.
DEV float valued(u32 key) { return float_of(key & 0x80000000u ? key ^ 0x80000000u : ~key); }

// row_of holds a token's logits in the lanes of a warp, R in each lane. Those beyond the last
// expert are −∞.
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

  // score returns the score p of an expert with the logit x.
  template <bool PLAIN> METHOD float score(const rule_of<PLAIN> &rule, float x) const { return rule.sigmoid() ? sigmoid_of(x) : probability(x); }

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

// best_of finds the largest key of all lanes and removes it. It returns the expert's number, and
// the key in most.
template <int R> DEV int best_of(u32 (&key)[R], u32 &most) {
  int lane = threadIdx_x & 31;
  u32 best = 0, at = 0;
#pragma unroll
  for (int r = 0; r < R; r++)
    if (key[r] > best) best = key[r], at = r;
  most = redux_max(best);
  u32 number = redux_min(best == most ? at * 32 + lane : 0xffffffffu);
#pragma unroll
  for (int r = 0; r < R; r++)
    if (r * 32 + lane == number) key[r] = 0;
  return (int)number;
}

// close sets the keys of all experts in groups that are not open to 0, which stands for no key.
// With of_logits, keys are logits.
template <int R> DEV void close(u32 (&key)[R], const row_of<R> &row, bool of_logits, const rule_of<false> &rule) {
  int lane = threadIdx_x & 31, size = rule.experts / rule.groups;
  bool scored = of_logits && rule.best > 1;
  u32 worth[1] = {0};
#pragma clang loop unroll(disable)
  for (int g = 0; g < rule.groups; g++) {
    u32 mine[R], most;
#pragma unroll
    for (int r = 0; r < R; r++) mine[r] = (u32)(r * 32 + lane - g * size) < (u32)size ? key[r] : 0;
    float sum = 0.0f;
#pragma clang loop unroll(disable)
    for (int n = 0; n < rule.best; n++) {
      best_of(mine, most);
      float x = valued(most);
      sum += scored ? row.probability(x) : x;
    }
    if (lane == g) worth[0] = ordered(sum);
  }
  u32 open = 0, unused;
#pragma clang loop unroll(disable)
  for (int k = 0; k < rule.open; k++) open |= 1u << best_of(worth, unused);
#pragma unroll
  for (int r = 0; r < R; r++) {
    int e = r * 32 + lane;
    if (e >= rule.experts || !(open >> (e / size) & 1)) key[r] = 0;
  }
}

// choose returns, in lane k < K, the number of the expert with the k-th largest key.
template <int R, bool PLAIN> DEV int choose(const row_of<R> &row, const float *bias, const rule_of<PLAIN> &rule) {
  int lane = threadIdx_x & 31, mine = 0;
  u32 key[R], unused;
#pragma unroll
  for (int r = 0; r < R; r++) {
    int e = r * 32 + lane;
    float x = row.v[r];
    if (!PLAIN && (rule.sigmoid() || bias)) x = row.score(rule, x);
    if (!PLAIN && bias && e < rule.experts) x += bias[e];
    key[r] = ordered(x);
    if (!PLAIN && e >= rule.experts) key[r] = 0;
  }
  if constexpr (!PLAIN)
    if (rule.groups) close(key, row, !rule.sigmoid() && !bias, rule);
#pragma clang loop unroll(disable)
  for (int k = 0; k < rule.K; k++) {
    int expert = best_of(key, unused);
    if (lane == k) mine = expert;
  }
  return mine;
}

// nears_of is for rules with near > 0. For a chosen expert with the logit top, it sets share to
// exp(s − top) for each of this lane's experts that are near, and to 0 for the others. It returns
// the sum over all lanes. Experts whose bits are set in out were chosen before and do not count.
template <int R> DEV float nears_of(float (&share)[R], const row_of<R> &row, u32 out, float top, const rule_of<false> &rule) {
  int lane = threadIdx_x & 31;
  float sum = 0.0f;
#pragma unroll
  for (int r = 0; r < R; r++) {
    float s = row.v[r];
    bool far = (top - s) / max_f(__builtin_fabsf(s), top) > 2.0f * rule.near;
    share[r] = far || (out >> r & 1) || r * 32 + lane >= rule.experts ? 0.0f : exp_approx(s - top);
    sum += share[r];
  }
  return warp_sum(sum);
}

template <int R, bool PLAIN>
DEV void router(const float *logits, const float *bias, int *ids, float *weights, float *part, int tokens, int each, const rule_of<PLAIN> &rule) {
  __shared__ float sums[WARPS][R * 32];
  int lane = threadIdx_x & 31, warp = threadIdx_x >> 5, K = rule.K, experts = rule.experts;
  float sum[R];
#pragma unroll
  for (int r = 0; r < R; r++) sum[r] = 0.0f;
  int end = min_i(tokens, (blockIdx_x + 1) * each);
#pragma clang loop unroll(disable)
  for (int t = blockIdx_x * each + warp; t < end; t += WARPS) {
    const float *from = logits + (i64)t * rule.logits();
    row_of<R> row;
    row.load(from, experts);
    if (!rule.sigmoid()) row.softmax();
    int expert = choose(row, bias, rule);
    float weight = lane < K ? row.score(rule, from[expert]) : 0.0f;
    if (rule.normalize()) weight /= warp_sum(weight) + rule.least();
    if constexpr (!PLAIN)
      if (rule.nears()) {
        u32 out = 0;
#pragma clang loop unroll(disable)
        for (int k = 0; k < K; k++) {
          float share[R];
          int e = of_lane(expert, k);
          float all = nears_of(share, row, out, from[e], rule);
          if (lane == k) weight = 1.0f / all;
          if ((e & 31) == lane) out |= 1u << (e >> 5);
        }
      }
    weight = rule.scaled(weight);
    if (rule.shared() && lane == K) expert = experts, weight = rule.gated() ? sigmoid_of(from[experts]) : 1.0f;
    i64 at = (i64)t * rule.chosen() + lane;
    if (lane < rule.chosen()) ids[at] = expert, weights[at] = weight;
    if (!part) continue;
#pragma unroll
    for (int r = 0; r < R; r++) sum[r] += row.score(rule, row.v[r]);
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

template <int R, bool PLAIN>
DEV void router_backward(float *dlogits, const float *logits, const int *ids, const float *dweights, const int *counts, int tokens,
                         float aux, const rule_of<PLAIN> &rule) {
  int lane = threadIdx_x & 31, t = blockIdx_x * WARPS + (threadIdx_x >> 5), K = rule.K, experts = rule.experts;
  if (t >= tokens) return;
  const float *from = logits + (i64)t * rule.logits(), *dw = dweights + (i64)t * rule.chosen();
  float *to = dlogits + (i64)t * rule.logits();
  row_of<R> row;
  row.load(from, experts);
  if (!rule.sigmoid()) row.softmax();
  // slope returns p for a softmax, whose Σ p·g is subtracted separately, or dp/dlogit for a
  // sigmoid.
  auto slope = [&](float x) {
    float up, down;
    if (!rule.sigmoid()) return row.probability(x);
    sigmoids(x, up, down);
    return up * down;
  };

  // Lane k < K has the k-th chosen expert, its score p, and the gradient g of that.
  int expert = lane < K ? ids[(i64)t * rule.chosen() + lane] : -1;
  bool chosen = (u32)expert < (u32)experts;
  float own = chosen ? from[expert] : 0.0f, p = chosen ? row.score(rule, own) : 0.0f, g = chosen && !rule.nears() ? rule.scaled(dw[lane]) : 0.0f;
  float mean = 0.0f; // Σ p·g
  if (rule.normalize()) {
    float all = warp_sum(p) + rule.least();
    g = (g - warp_sum(p * g) / all) / all; // Σ p·g is then 0
  } else if (!rule.sigmoid()) {
    mean = warp_sum(p * g);
  }
  float extra[R], sum = 0.0f;
#pragma unroll
  for (int r = 0; r < R; r++) {
    int e = r * 32 + lane;
    extra[r] = 0.0f;
    if (counts && e < experts) extra[r] = aux * (float)counts[e];
    if (!rule.sigmoid()) sum += extra[r] * row.probability(row.v[r]);
  }
  if (counts && !rule.sigmoid()) mean += warp_sum(sum);
  float back[R];
  if constexpr (!PLAIN)
    if (rule.nears()) {
      u32 out = 0;
#pragma unroll
      for (int r = 0; r < R; r++) back[r] = 0.0f;
#pragma clang loop unroll(disable)
      for (int k = 0; k < K; k++) {
        float share[R];
        int e = of_lane(expert, k);
        if ((u32)e >= (u32)experts) continue;
        float weight = 1.0f / nears_of(share, row, out, from[e], rule), by = rule.scaled(dw[k]) * weight;
        bool mine = (e & 31) == lane;
        if (mine) out |= 1u << (e >> 5);
#pragma unroll
        for (int r = 0; r < R; r++) back[r] += by * ((mine && r == e >> 5 ? 1.0f : 0.0f) - share[r] * weight);
      }
    }
  float gate = 0.0f;
  if (rule.gated()) gate = dw[K] * sigmoid_of(from[experts]) * sigmoid_of(-from[experts]);
  sync_warp(); // every lane has read its logits
#pragma unroll
  for (int r = 0; r < R; r++) {
    int e = r * 32 + lane;
    float x = slope(row.v[r]) * (extra[r] - mean);
    if (e < experts) to[e] = rule.nears() ? x + back[r] : x;
  }
  if (rule.gated() && lane == 0) to[experts] = gate;
  sync_warp(); // the chosen experts' gradients are written again
  if (!chosen || rule.nears()) return;
  if (counts) g += aux * (float)counts[expert];
  to[expert] = slope(own) * (g - mean);
}

#define PLAIN_KERNELS(R, E)                                                                                                     \
  __global__ __launch_bounds__(THREADS) void router_##E(const float *logits, int *ids, float *weights, float *part, int tokens, \
                                                       int experts, int K, int normalize, int each) {                           \
    rule_of<true> rule{K, experts, normalize};                                                                                  \
    router<R, true>(logits, nullptr, ids, weights, part, tokens, each, rule);                                                   \
  }                                                                                                                             \
  __global__ __launch_bounds__(THREADS) void router_backward_##E(float *dlogits, const float *logits, const int *ids,           \
                                                                const float *dweights, const int *counts, int tokens,           \
                                                                int experts, int K, int normalize, float aux) {                 \
    rule_of<true> rule{K, experts, normalize};                                                                                  \
    router_backward<R, true>(dlogits, logits, ids, dweights, counts, tokens, aux, rule);                                        \
  }

// blocks_of is how many blocks of a kernel must fit on a multiprocessor. For 128 experts (R = 4)
// ptxas would aim at four by itself, and would spill a register to local memory for that.
static constexpr int blocks_of(int R) { return R == 4 ? 3 : 1; }

#define ANY_KERNELS(R, E)                                                                                                       \
  __global__ __launch_bounds__(THREADS, blocks_of(R)) void router_any_##E(const float *logits, const float *bias, int *ids, float *weights,   \
                                                           float *part, int tokens, int each, int experts, int K, int flags,    \
                                                           int groups, int open, int best, float scale, float near) {           \
    rule_of<false> rule{K, experts, flags, groups, open, best, scale, near};                                                          \
    router<R, false>(logits, bias, ids, weights, part, tokens, each, rule);                                                     \
  }                                                                                                                             \
  __global__ __launch_bounds__(THREADS) void router_backward_any_##E(float *dlogits, const float *logits, const int *ids,       \
                                                                    const float *dweights, const int *counts, int tokens,       \
                                                                    float aux, int experts, int K, int flags, float scale,      \
                                                                    float near) {                                               \
    rule_of<false> rule{K, experts, flags, 0, 0, 0, scale, near};                                                                     \
    router_backward<R, false>(dlogits, logits, ids, dweights, counts, tokens, aux, rule);                                       \
  }

#define KERNELS(R, E) PLAIN_KERNELS(R, E) ANY_KERNELS(R, E)

extern "C" {
KERNELS(1, 32)
KERNELS(2, 64)
KERNELS(4, 128)
KERNELS(8, 256)
KERNELS(32, 1024)
}
