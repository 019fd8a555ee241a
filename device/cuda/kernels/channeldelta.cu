// GatedDelta's backward with a decay for each channel, by chunks of 64 tokens: op.GatedDelta says what they
// compute. With D(i, j) the product of e^g of the tokens after j up to i, a vector over channels, and from_i, to_j
// the same from the chunk's start to i and from j to its end:
//
//	near_ij = Σ k_i·D(i, j)·k_j below the diagonal, scores_ij = Σ q_i·D(i, j)·k_j including it
//	(I + β·near)·N = β·(V − (from·K)·S),  O = (from·Q)·S + scores·N
//	S ← D(last, start)·S + (to·K)ᵀ·N
//
// D is followed from token to token, so no exponential can overflow. A warp has a row or a column of near and
// scores, and a lane every 32nd channel.
//
// A block walks the chunks of every step-th sequence of one head. Matrices of a chunk lie in scratch memory, a
// piece for each block, which the caches hold; products bring tiles of them to shared memory. All in fp32.
#include "delta.cuh"

static constexpr int MOST = 128, LANE = MOST / 32; // channels, and channels of a lane

// tokens has numbers of a chunk's tokens: β and its gradient, 1 over the lengths of q and k. keep is the decay over
// the chunk.
struct tokens { float beta[CHUNK], dbeta[CHUNK], rq[CHUNK], rk[CHUNK], along[MOST], keep[MOST]; };

DEV float softplus(float a) { return max_f(a, 0.0f) + log_f(1.0f + exp_approx(-__builtin_fabsf(a))); }

// load_decays computes β, e^g of all channels (decay), from, to and keep. gate and a begin at the chunk's first token.
template <class T>
DEV void load_decays(tokens &s, float *decay, float *from, float *to, const T *gate, const T *a, const float *a_log, const float *dt_bias,
                     const delta_shape &z, int h, int n) {
  int K = z.key_dim;
  float rate = exp_approx(a_log[h]);
  if (threadIdx_x < n) {
    float rest;
    sigmoids(to_float(gate[(i64)threadIdx_x * z.gate_stride + h]), s.beta[threadIdx_x], rest);
    s.dbeta[threadIdx_x] = 0.0f;
  }
  every(n, K, [=](int i, int c) { decay[i * K + c] = exp_approx(-rate * softplus(to_float(a[((i64)i * z.heads + h) * K + c]) + dt_bias[h * K + c])); });
  int c = threadIdx_x % MOST;
  float by = 1.0f;
  if (c < K && threadIdx_x < MOST) {
#pragma clang loop unroll(disable)
    for (int i = 0; i < n; i++) from[i * K + c] = by *= decay[i * K + c];
    s.keep[c] = by;
  } else if (c < K) {
#pragma clang loop unroll(disable)
    for (int i = n - 1; i >= 0; i--) to[i * K + c] = by, by *= decay[i * K + c];
  }
  sync_threads();
}

// scores_by_channel writes near and scores, both 0 elsewhere, and L = β·near. A warp has a column e.
DEV void scores_by_channel(const tokens &s, float *l, float *near, float *scores, const float *queries, const float *keys, const float *decay, int n, int K) {
  int lane = threadIdx_x % 32;
#pragma clang loop unroll(disable)
  for (int e = threadIdx_x / 32; e < n; e += THREADS / 32) {
    float w[LANE];
#pragma unroll
    for (int m = 0; m < LANE; m++) w[m] = lane + 32 * m < K ? keys[e * K + lane + 32 * m] : 0.0f;
#pragma clang loop unroll(disable)
    for (int i = 0; i < n; i++) {
      float of_q = 0.0f, of_k = 0.0f;
      if (i >= e) {
#pragma unroll
        for (int m = 0; m < LANE; m++) {
          int c = lane + 32 * m;
          if (c >= K) continue;
          if (i > e) w[m] *= decay[i * K + c], of_k = __builtin_fmaf(keys[i * K + c], w[m], of_k);
          of_q = __builtin_fmaf(queries[i * K + c], w[m], of_q);
        }
        of_q = warp_sum(of_q), of_k = warp_sum(of_k);
      }
      if (lane == 0) scores[i * CHUNK + e] = of_q, near[i * CHUNK + e] = of_k, l[i * LPITCH + e] = s.beta[i] * of_k;
    }
  }
  sync_threads();
}

// times writes x·by, element by element, of n rows.
DEV void times(float *y, const float *x, const float *by, int n, int K) {
  every(n, K, [=](int i, int c) { y[i * K + c] = x[i * K + c] * by[i * K + c]; });
}

// new_by_channel writes N (fresh) and rest = V − (from·K)·S. term receives from·K. state may be null, which is 0.
template <class T>
DEV void new_by_channel(tiles &t, tokens &s, const float *l, float *fresh, float *rest, float *term, const float *keys, const float *from,
                        const float *state, const T *v, int width, int n, int K, int V) {
  if (state) {
    times(term, keys, from, n, K);
    product<false>(t, rest, V, term, K, 1, state, V, 1, n, V, K);
  }
  every(n, V, [&](int i, int j) {
    float x = to_float(v[(i64)i * width + j]);
    if (state) x -= rest[i * V + j];
    rest[i * V + j] = x;
    fresh[i * V + j] = s.beta[i] * x;
  });
  solve(l, fresh, n, V);
}

// through_scores writes the gradients of q, k and γ by those of scores and near, ds and dl. A warp has a token: as
// the row of earlier tokens, and as the column of later ones. The diagonal adds nothing to γ.
DEV void through_scores(float *dq, float *dk, float *dof, const float *ds, const float *dl, const float *queries, const float *keys, const float *decay,
                        int n, int K) {
  int lane = threadIdx_x % 32;
#pragma clang loop unroll(disable)
  for (int i = threadIdx_x / 32; i < n; i += THREADS / 32) {
#pragma clang loop unroll(disable)
    for (int c = lane; c < K; c += 32) {
      float q = queries[i * K + c], k = keys[i * K + c], by = 1.0f, of_q = 0.0f, of_k = 0.0f, up = 0.0f;
#pragma clang loop unroll(disable)
      for (int e = i - 1; e >= 0; e--) {
        by *= decay[(e + 1) * K + c];
        float x = by * keys[e * K + c];
        of_q = __builtin_fmaf(ds[i * CHUNK + e], x, of_q), of_k = __builtin_fmaf(dl[i * CHUNK + e], x, of_k);
      }
#pragma clang loop unroll(disable)
      for (int e = n - 1; e > i; e--)
        up = (up + ds[e * CHUNK + i] * queries[e * K + c] + dl[e * CHUNK + i] * keys[e * K + c]) * decay[e * K + c];
      float own = ds[i * CHUNK + i];
      dq[i * K + c] = of_q + own * k;
      dk[i * K + c] = of_k + up + own * q;
      dof[i * K + c] = q * of_q + k * of_k - k * up;
    }
  }
  sync_threads();
}

// through_rates stores the gradients of b and a, and adds to the sums for ALog and DtBias. g of a token is in γ of
// all tokens from it on.
template <class T>
DEV void through_rates(tokens &s, T *dgate, T *da, float *part_a, float *part_dt, const float *dof, const T *a, const float *a_log, const float *dt_bias,
                       const delta_shape &z, int h, int n) {
  int K = z.key_dim, c = threadIdx_x;
  if (c < n) store(dgate + (i64)c * z.gate_stride + h, s.dbeta[c] * s.beta[c] * (1.0f - s.beta[c]));
  if (c < K) {
    float dg = 0.0f, rate = exp_approx(a_log[h]), bias = dt_bias[h * K + c], sum_a = 0.0f, sum_dt = 0.0f;
#pragma clang loop unroll(disable)
    for (int i = n - 1; i >= 0; i--) {
      i64 at = ((i64)i * z.heads + h) * K + c;
      float x = to_float(a[at]) + bias, up, down;
      dg += dof[i * K + c];
      sigmoids(x, up, down);
      float d = -dg * rate * up;
      store(da + at, d);
      sum_a -= dg * rate * softplus(x), sum_dt += d;
    }
    part_dt[c] += sum_dt, s.along[c] = sum_a;
  }
  sync_threads();
  if (c == 0) {
    float sum = 0.0f;
#pragma clang loop unroll(disable)
    for (int i = 0; i < K; i++) sum += s.along[i];
    *part_a += sum;
  }
  sync_threads();
}

template <class T>
DEV void backward(T *dqkv, T *dgate, T *da, const T *d_o, const T *qkv, const T *gate, const T *a, const float *a_log, const float *dt_bias, const int *cu,
                  float *states, float *part_a, float *part_dt, float *scratch, delta_shape z) {
  __shared__ __attribute__((aligned(16))) tiles t;
  __shared__ tokens s;
  __shared__ float l[CHUNK * LPITCH];
  int h = blockIdx_x, K = z.key_dim, V = z.value_dim, width = z.width(), values = 2 * z.heads * K + h * V;
  float *queries = scratch + (i64)(blockIdx_y * z.heads + h) * (9 * CHUNK * K + 4 * CHUNK * V + 4 * CHUNK * CHUNK);
  float *keys = queries + CHUNK * K, *decay = keys + CHUNK * K, *from = decay + CHUNK * K, *to = from + CHUNK * K, *term = to + CHUNK * K,
        *dq = term + CHUNK * K, *dk = dq + CHUNK * K, *dof = dk + CHUNK * K, *rest = dof + CHUNK * K, *fresh = rest + CHUNK * V,
        *out = fresh + CHUNK * V, *dnew = out + CHUNK * V, *near = dnew + CHUNK * V, *scores = near + CHUNK * CHUNK, *ds = scores + CHUNK * CHUNK,
        *dl = ds + CHUNK * CHUNK;
  part_a += blockIdx_y * z.heads + h, part_dt += (blockIdx_y * z.heads + h) * K;
  if (threadIdx_x < K) part_dt[threadIdx_x] = 0.0f;
  if (threadIdx_x == 0) *part_a = 0.0f;
#pragma clang loop unroll(disable)
  for (int seq = blockIdx_y; seq < z.seqs; seq += gridDim_y) {
    int first = cu[seq], end = cu[seq + 1];
#pragma clang loop unroll(disable)
    for (int at = first + (end - first + CHUNK - 1) / CHUNK * CHUNK - CHUNK; at >= first; at -= CHUNK) {
      int n = min_i(CHUNK, end - at);
      const T *row = qkv + (i64)at * width, *rates = a + (i64)at * z.heads * K;
      T *drow = dqkv + (i64)at * width;
      float *state = at > first ? state_at(states, z, at, h) : (float *)0;                // before the chunk
      float *behind = at + CHUNK < end ? state_at(states, z, at + CHUNK, h) : (float *)0; // the gradient of the state behind it
      load_rows(queries, s.rq, row + h * K, width, n, K, rsqrt_newton((float)K));
      load_rows(keys, s.rk, row + (z.heads + h) * K, width, n, K, 1.0f);
      load_decays(s, decay, from, to, gate + (i64)at * z.gate_stride, rates, a_log, dt_bias, z, h, n);
      scores_by_channel(s, l, near, scores, queries, keys, decay, n, K);
      new_by_channel(t, s, l, fresh, rest, term, keys, from, state, row + values, width, n, K, V);
      every(n, V, [&](int i, int j) { out[i * V + j] = to_float(d_o[((i64)(at + i) * z.heads + h) * V + j]); });
      // The gradient of N, by the state behind the chunk and by the outputs.
      times(term, keys, to, n, K);
      if (behind) product<false>(t, dnew, V, term, K, 1, behind, V, 1, n, V, K);
      else every(n, V, [=](int i, int j) { dnew[i * V + j] = 0.0f; });
      product<true>(t, dnew, V, scores, 1, CHUNK, out, V, 1, n, V, n);
      // The gradients of scores and near, through the system.
      product<false>(t, ds, CHUNK, out, V, 1, fresh, 1, V, n, n, V);
      solve_transposed(l, dnew, n, V);
      product<false>(t, dl, CHUNK, dnew, V, 1, fresh, 1, V, n, n, V);
      rows_dot(n, n, [=](int i, int e) { return dl[i * CHUNK + e] * near[i * CHUNK + e]; }, [&](int i, float sum) { s.dbeta[i] -= sum; });
      every(n, n, [&](int i, int e) { dl[i * CHUNK + e] *= -s.beta[i]; });
      through_scores(dq, dk, dof, ds, dl, queries, keys, decay, n, K);
      // To v and β; then dnew has its sign changed.
      rows_dot(n, V, [=](int i, int j) { return dnew[i * V + j] * rest[i * V + j]; }, [&](int i, float sum) { s.dbeta[i] += sum; });
      every(n, V, [&](int i, int j) {
        float x = dnew[i * V + j] * s.beta[i];
        store(drow + (i64)i * width + values + j, x);
        dnew[i * V + j] = -x;
      });
      // Through to·K, from·Q and from·K to q, k, γ and the states.
      if (behind) {
        product<false>(t, term, K, fresh, V, 1, behind, 1, V, n, K, V);
        every(n, K, [=](int i, int c) { // what a state keeps has as many factors as that of the last token
          float x = to[i * K + c] * term[i * K + c];
          dk[i * K + c] += x, term[i * K + c] = x *= keys[i * K + c];
          if (i < n - 1) dof[i * K + c] -= x;
        });
        rows_dot(K, n - 1, [=](int c, int i) { return term[i * K + c]; }, [=](int c, float sum) { dof[(n - 1) * K + c] += sum; });
      }
      if (state) {
        product<false>(t, term, K, out, V, 1, state, 1, V, n, K, V);
        every(n, K, [=](int i, int c) {
          float x = from[i * K + c] * term[i * K + c];
          dq[i * K + c] += x, dof[i * K + c] += queries[i * K + c] * x;
        });
        product<false>(t, term, K, dnew, V, 1, state, 1, V, n, K, V);
        every(n, K, [=](int i, int c) {
          float x = from[i * K + c] * term[i * K + c];
          dk[i * K + c] += x, dof[i * K + c] += keys[i * K + c] * x;
        });
        if (behind)
          rows_dot(K, V, [=](int c, int j) { return state[c * V + j] * behind[c * V + j]; },
                   [&](int c, float sum) { dof[(n - 1) * K + c] += s.keep[c] * sum; });
        every(K, V, [&](int c, int j) { state[c * V + j] = behind ? s.keep[c] * behind[c * V + j] : 0.0f; });
        times(term, queries, from, n, K);
        product<true>(t, state, V, term, 1, K, out, V, 1, K, V, n);
        times(term, keys, from, n, K);
        product<true>(t, state, V, term, 1, K, dnew, V, 1, K, V, n);
      }
      through_rates(s, dgate + (i64)at * z.gate_stride, da + (i64)at * z.heads * K, part_a, part_dt, dof, rates, a_log, dt_bias, z, h, n);
      through_norm(drow + h * K, dq, queries, s.rq, width, n, K, rsqrt_newton((float)K), s.along);
      through_norm(drow + (z.heads + h) * K, dk, keys, s.rk, width, n, K, 1.0f, s.along);
    }
  }
}

#define KERNELS(T, SUFFIX)                                                                                                                      \
  __global__ __launch_bounds__(THREADS, 1) void channel_delta_backward_##SUFFIX(                                                                \
      T *dqkv, T *dgate, T *da, const T *d_o, const T *qkv, const T *gate, const T *a, const float *a_log, const float *dt_bias, const int *cu, \
      float *states, float *part_a, float *part_dt, float *scratch, int seqs, int key_heads, int heads, int key_dim, int value_dim,             \
      int gate_stride) {                                                                                                                        \
    backward(dqkv, dgate, da, d_o, qkv, gate, a, a_log, dt_bias, cu, states, part_a, part_dt, scratch,                                          \
             delta_shape{seqs, key_heads, heads, key_dim, value_dim, gate_stride});                                                             \
  }

extern "C" {
KERNELS(float, f32)
KERNELS(bf16, bf16)
}
