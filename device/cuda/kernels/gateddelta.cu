// GatedDelta and its backward, by chunks of 64 tokens: op.GatedDelta says what they compute. With γ
// the sum of the gates g from the chunk's first token on, K and Q the chunk's normalized rows of
// keys and queries, V its values, S the state before it, and N the values that the chunk writes to
// the state:
//
//	L = β·K·Kᵀ·e^(γi−γj) below the diagonal,  (I + L)·N = β·(V − e^γ·K·S)
//	O = e^γ·Q·S + (Q·Kᵀ·e^(γi−γj), the diagonal included)·N
//	S ← e^γlast·S + (e^(γlast−γ)·K)ᵀ·N
//
// The backward takes the chunks in reverse. The forward has kept S before each chunk; the backward
// computes N again, and goes back through these lines. It carries the gradient of the state from
// chunk to chunk.
//
// A block walks the chunks of every step-th sequence, of one head (of the backward: one key head, with the heads that share
// it, one after the other, so that the gradients of q and k are sums in one place). Matrices of a chunk lie in scratch
// memory, a piece for each block, which the caches hold; products bring tiles of them to shared memory. All in fp32.
#include "delta.cuh"

// gates has numbers of a chunk's tokens: β, g, γ, e^γ (from) and e^(γlast−γ) (to). γ is the sum of
// two floats, sum and low: only differences of γ are used, and in one float they would lose their
// bits. rq and rk are 1 over the lengths of q and k. dbeta and dsum are the gradients of β and γ in
// the backward.
struct gates { float beta[CHUNK], g[CHUNK], sum[CHUNK], low[CHUNK], from[CHUNK], to[CHUNK], rq[CHUNK], rk[CHUNK], dbeta[CHUNK], dsum[CHUNK]; };

// load_gates computes the gates of head h of the chunk.
template <class T> DEV void load_gates(gates &s, const T *x, const float *a_log, const float *dt_bias, const delta_shape &z, int h, int n) {
  if (threadIdx_x < n) {
    const T *row = x + (i64)threadIdx_x * z.gate_stride;
    float rest, a = to_float(row[z.heads + h]) + dt_bias[h];
    sigmoids(to_float(row[h]), s.beta[threadIdx_x], rest);
    s.g[threadIdx_x] = -exp_approx(a_log[h]) * (max_f(a, 0.0f) + log_f(1.0f + exp_approx(-__builtin_fabsf(a))));
    s.dbeta[threadIdx_x] = 0.0f, s.dsum[threadIdx_x] = 0.0f;
  }
  sync_threads();
  if (threadIdx_x == 0) {
    float sum = 0.0f, low = 0.0f;
#pragma clang loop unroll(disable)
    for (int i = 0; i < n; i++) {
      float g = s.g[i], next = sum + g, part = next - sum;
      low += (sum - (next - part)) + (g - part);
      s.sum[i] = sum = next, s.low[i] = low;
    }
  }
  sync_threads();
  if (threadIdx_x < n) {
    s.from[threadIdx_x] = exp_approx(s.sum[threadIdx_x] + s.low[threadIdx_x]);
    s.to[threadIdx_x] = exp_approx((s.sum[n - 1] - s.sum[threadIdx_x]) + (s.low[n - 1] - s.low[threadIdx_x]));
  }
  sync_threads();
}

// decay returns e^(γi−γe): the factor by which a value that token e wrote to the state has shrunk
// when token i reads it.
DEV float decay(const gates &s, int i, int e) { return exp_approx((s.sum[i] - s.sum[e]) + (s.low[i] - s.low[e])); }

// new_values writes N to fresh, V − e^γ·K·S to rest, K·Kᵀ to pairs and L to l. A null state stands
// for S = 0.
template <class T>
DEV void new_values(tiles &t, gates &s, float *l, float *fresh, float *rest, float *pairs, const float *keys, const float *state, const T *v,
                    int width, int n, int key_dim, int value_dim) {
  if (state) product<false>(t, rest, value_dim, keys, key_dim, 1, state, value_dim, 1, n, value_dim, key_dim);
  every(n, value_dim, [&](int i, int j) {
    float x = to_float(v[(i64)i * width + j]);
    if (state) x -= s.from[i] * rest[i * value_dim + j];
    rest[i * value_dim + j] = x;
    fresh[i * value_dim + j] = s.beta[i] * x;
  });
  product<false>(t, pairs, CHUNK, keys, key_dim, 1, keys, 1, key_dim, n, n, key_dim);
  every(n, n, [&](int i, int e) { l[i * LPITCH + e] = e < i ? s.beta[i] * decay(s, i, e) * pairs[i * CHUNK + e] : 0.0f; });
  solve(l, fresh, n, value_dim);
}

// scores_of writes Q·Kᵀ·decay, and 0 above the diagonal.
DEV void scores_of(tiles &t, gates &s, float *scores, const float *queries, const float *keys, int n, int key_dim) {
  product<false>(t, scores, CHUNK, queries, key_dim, 1, keys, 1, key_dim, n, n, key_dim);
  every(n, n, [&](int i, int e) { scores[i * CHUNK + e] = e > i ? 0.0f : scores[i * CHUNK + e] * decay(s, i, e); });
}

template <class T>
DEV void forward(T *o, const T *qkv, const T *gate, const float *a_log, const float *dt_bias, const int *cu, float *states, float *last,
                 float *scratch, delta_shape z) {
  __shared__ __attribute__((aligned(16))) tiles t;
  __shared__ gates s;
  __shared__ float l[CHUNK * LPITCH];
  int h = blockIdx_x, kh = h / z.group(), K = z.key_dim, V = z.value_dim, width = z.width();
  float *queries = scratch + (i64)(blockIdx_y * z.heads + h) * (2 * CHUNK * K + K * V + 2 * CHUNK * V + 2 * CHUNK * CHUNK);
  float *keys = queries + CHUNK * K, *state = keys + CHUNK * K, *rest = state + K * V, *fresh = rest + CHUNK * V, *pairs = fresh + CHUNK * V,
        *scores = pairs + CHUNK * CHUNK;
#pragma clang loop unroll(disable)
  for (int seq = blockIdx_y; seq < z.seqs; seq += gridDim_y) {
    int first = cu[seq], end = cu[seq + 1];
    every(K, V, [=](int i, int j) { state[i * V + j] = last ? last[h * K * V + i * V + j] : 0.0f; });
#pragma clang loop unroll(disable)
    for (int at = first; at < end; at += CHUNK) {
      int n = min_i(CHUNK, end - at);
      const T *row = qkv + (i64)at * width;
      if (states && at > first) every(K, V, [=](int i, int j) { state_at(states, z, at, h)[i * V + j] = state[i * V + j]; });
      load_rows(queries, s.rq, row + kh * K, width, n, K, rsqrt_newton((float)K));
      load_rows(keys, s.rk, row + (z.key_heads + kh) * K, width, n, K, 1.0f);
      load_gates(s, gate + (i64)at * z.gate_stride, a_log, dt_bias, z, h, n);
      new_values(t, s, l, fresh, rest, pairs, keys, state, row + 2 * z.key_heads * K + h * V, width, n, K, V);
      scores_of(t, s, scores, queries, keys, n, K);
      product<false>(t, rest, V, queries, K, 1, state, V, 1, n, V, K);
      every(n, V, [&](int i, int j) { rest[i * V + j] *= s.from[i]; });
      product<true>(t, rest, V, scores, CHUNK, 1, fresh, V, 1, n, V, n);
      every(n, V, [&](int i, int j) { store(o + ((i64)(at + i) * z.heads + h) * V + j, rest[i * V + j]); });
      every(n, K, [&](int i, int j) { keys[i * K + j] *= s.to[i]; });
      every(K, V, [&](int i, int j) { state[i * V + j] *= s.from[n - 1]; });
      product<true>(t, state, V, keys, 1, K, fresh, V, 1, K, V, n);
    }
    if (last) every(K, V, [=](int i, int j) { last[h * K * V + i * V + j] = state[i * V + j]; });
  }
}

// through_square adds to dsum what ds·m, of which what is below the diagonal counts, passes on to γ: an element has the factor
// e^(γi−γj). On the diagonal the same would be added and subtracted, and leave its rounding, which is more than all else where a state is
// forgotten at once.
DEV void through_square(gates &s, const float *ds, const float *m, int n) {
  if (threadIdx_x < n) {
    int i = threadIdx_x;
    float sum = 0.0f;
#pragma clang loop unroll(disable)
    for (int e = 0; e < n; e++) {
      if (e < i) sum += ds[i * CHUNK + e] * m[i * CHUNK + e];
      if (e > i) sum -= ds[e * CHUNK + i] * m[e * CHUNK + i];
    }
    s.dsum[i] += sum;
  }
  sync_threads();
}

template <class T>
DEV void backward(T *dqkv, T *dgate, const T *d_o, const T *qkv, const T *gate, const float *a_log, const float *dt_bias, const int *cu,
                  float *states, float *part_a, float *part_dt, float *scratch, delta_shape z) {
  __shared__ __attribute__((aligned(16))) tiles t;
  __shared__ gates s;
  __shared__ float l[CHUNK * LPITCH], along[CHUNK];
  int kh = blockIdx_x, group = z.group(), K = z.key_dim, V = z.value_dim, width = z.width();
  float *queries = scratch + (i64)(blockIdx_y * z.key_heads + kh) * (5 * CHUNK * K + 4 * CHUNK * V + 3 * CHUNK * CHUNK);
  float *keys = queries + CHUNK * K, *dq = keys + CHUNK * K, *dk = dq + CHUNK * K, *term = dk + CHUNK * K, *rest = term + CHUNK * K,
        *fresh = rest + CHUNK * V, *out = fresh + CHUNK * V, *dnew = out + CHUNK * V, *pairs = dnew + CHUNK * V, *scores = pairs + CHUNK * CHUNK,
        *ds = scores + CHUNK * CHUNK;
  part_a += blockIdx_y * z.heads + kh * group, part_dt += blockIdx_y * z.heads + kh * group;
  if (threadIdx_x < group) part_a[threadIdx_x] = 0.0f, part_dt[threadIdx_x] = 0.0f;
  sync_threads();
#pragma clang loop unroll(disable)
  for (int seq = blockIdx_y; seq < z.seqs; seq += gridDim_y) {
    int first = cu[seq], end = cu[seq + 1];
#pragma clang loop unroll(disable)
    for (int at = first + (end - first + CHUNK - 1) / CHUNK * CHUNK - CHUNK; at >= first; at -= CHUNK) {
      int n = min_i(CHUNK, end - at);
      const T *row = qkv + (i64)at * width;
      T *drow = dqkv + (i64)at * width;
      load_rows(queries, s.rq, row + kh * K, width, n, K, rsqrt_newton((float)K));
      load_rows(keys, s.rk, row + (z.key_heads + kh) * K, width, n, K, 1.0f);
      every(n, K, [=](int i, int j) { dq[i * K + j] = 0.0f, dk[i * K + j] = 0.0f; });
#pragma clang loop unroll(disable)
      for (int member = 0; member < group; member++) {
        int h = kh * group + member, values = 2 * z.key_heads * K + h * V;
        float *state = at > first ? state_at(states, z, at, h) : (float *)0;              // the state before the chunk
        float *behind = at + CHUNK < end ? state_at(states, z, at + CHUNK, h) : (float *)0; // the gradient of the state after the chunk
        load_gates(s, gate + (i64)at * z.gate_stride, a_log, dt_bias, z, h, n);
        new_values(t, s, l, fresh, rest, pairs, keys, state, row + values, width, n, K, V);
        scores_of(t, s, scores, queries, keys, n, K);
        every(n, V, [&](int i, int j) { out[i * V + j] = to_float(d_o[((i64)(at + i) * z.heads + h) * V + j]); });
        // The gradient of N comes from the state after the chunk and from the outputs.
        if (behind) {
          product<false>(t, dnew, V, keys, K, 1, behind, V, 1, n, V, K);
          every(n, V, [&](int i, int j) { dnew[i * V + j] *= s.to[i]; });
          rows_dot(n, V, [=](int i, int j) { return dnew[i * V + j] * fresh[i * V + j]; }, [&](int i, float sum) { along[i] = sum; });
          if (threadIdx_x < n) s.dsum[threadIdx_x] -= along[threadIdx_x];
          sync_threads();
          if (threadIdx_x == 0) {
            float sum = 0.0f;
#pragma clang loop unroll(disable)
            for (int i = 0; i < n; i++) sum += along[i];
            s.dsum[n - 1] += sum;
          }
          sync_threads();
          product<true>(t, dnew, V, scores, 1, CHUNK, out, V, 1, n, V, n);
          product<false>(t, term, K, fresh, V, 1, behind, 1, V, n, K, V);
          every(n, K, [&](int i, int j) { dk[i * K + j] += s.to[i] * term[i * K + j]; });
        } else {
          product<false>(t, dnew, V, scores, 1, CHUNK, out, V, 1, n, V, n);
        }
        // Go back through the scores (Q·Kᵀ·decay) to q and k.
        product<false>(t, ds, CHUNK, out, V, 1, fresh, 1, V, n, n, V);
        through_square(s, ds, scores, n);
        every(n, n, [&](int i, int e) { ds[i * CHUNK + e] = e > i ? 0.0f : ds[i * CHUNK + e] * decay(s, i, e); });
        product<true>(t, dq, K, ds, CHUNK, 1, keys, K, 1, n, K, n);
        product<true>(t, dk, K, ds, 1, CHUNK, queries, K, 1, n, K, n);
        if (state) {
          product<false>(t, term, K, out, V, 1, state, 1, V, n, K, V);
          rows_dot(n, K, [&](int i, int j) { return s.from[i] * term[i * K + j] * queries[i * K + j]; }, [&](int i, float sum) { s.dsum[i] += sum; });
          every(n, K, [&](int i, int j) { dq[i * K + j] += s.from[i] * term[i * K + j]; });
        }
        // Through the system to β·(V − e^γ·K·S), and to its matrix.
        solve_transposed(l, dnew, n, V);
        product<false>(t, ds, CHUNK, dnew, V, 1, fresh, 1, V, n, n, V);
        every(n, n, [&](int i, int e) { ds[i * CHUNK + e] = e >= i ? 0.0f : -ds[i * CHUNK + e] * decay(s, i, e); });
        rows_dot(n, n, [=](int i, int e) { return ds[i * CHUNK + e] * pairs[i * CHUNK + e]; }, [&](int i, float sum) { s.dbeta[i] += sum; });
        every(n, n, [&](int i, int e) { ds[i * CHUNK + e] *= s.beta[i]; });
        through_square(s, ds, pairs, n);
        product<true>(t, dk, K, ds, CHUNK, 1, keys, K, 1, n, K, n);
        product<true>(t, dk, K, ds, 1, CHUNK, keys, K, 1, n, K, n);
        // Go back from the right side β·(V − e^γ·K·S) to v, β and the state before the chunk.
        rows_dot(n, V, [=](int i, int j) { return dnew[i * V + j] * rest[i * V + j]; }, [&](int i, float sum) { s.dbeta[i] += sum; });
        every(n, V, [&](int i, int j) {
          dnew[i * V + j] *= s.beta[i];
          store(drow + (i64)i * width + values + j, dnew[i * V + j]);
        });
        if (state) {
          product<false>(t, term, K, dnew, V, 1, state, 1, V, n, K, V);
          rows_dot(n, K, [&](int i, int j) { return s.from[i] * term[i * K + j] * keys[i * K + j]; }, [&](int i, float sum) { s.dsum[i] -= sum; });
          every(n, K, [&](int i, int j) { dk[i * K + j] -= s.from[i] * term[i * K + j]; });
          if (behind) {
            rows_dot(K, V, [=](int i, int j) { return state[i * V + j] * behind[i * V + j]; }, [=](int i, float sum) { term[i] = sum; });
            if (threadIdx_x == 0) {
              float sum = 0.0f;
#pragma clang loop unroll(disable)
              for (int i = 0; i < K; i++) sum += term[i];
              s.dsum[n - 1] += s.from[n - 1] * sum;
            }
            sync_threads();
          }
          every(K, V, [&](int i, int j) { state[i * V + j] = behind ? s.from[n - 1] * behind[i * V + j] : 0.0f; });
          every(n, K, [&](int i, int j) { term[i * K + j] = s.from[i] * queries[i * K + j]; });
          product<true>(t, state, V, term, 1, K, out, V, 1, K, V, n);
          every(n, K, [&](int i, int j) { term[i * K + j] = -s.from[i] * keys[i * K + j]; });
          product<true>(t, state, V, term, 1, K, dnew, V, 1, K, V, n);
        }
        // The g of a token is a term of γ of that token and all later ones, so its gradient is the
        // sum of theirs.
        if (threadIdx_x == 0) {
          float dg = 0.0f, rate = exp_approx(a_log[h]), sum_a = 0.0f, sum_dt = 0.0f;
#pragma clang loop unroll(disable)
          for (int i = n - 1; i >= 0; i--) {
            float up, down;
            T *gates_row = dgate + (i64)(at + i) * z.gate_stride;
            dg += s.dsum[i];
            sigmoids(to_float(gate[(i64)(at + i) * z.gate_stride + z.heads + h]) + dt_bias[h], up, down);
            float da = -dg * rate * up;
            store(gates_row + h, s.dbeta[i] * s.beta[i] * (1.0f - s.beta[i]));
            store(gates_row + z.heads + h, da);
            sum_a += dg * s.g[i], sum_dt += da;
          }
          part_a[member] += sum_a, part_dt[member] += sum_dt;
        }
        sync_threads();
      }
      through_norm(drow + kh * K, dq, queries, s.rq, width, n, K, rsqrt_newton((float)K), along);
      through_norm(drow + (z.key_heads + kh) * K, dk, keys, s.rk, width, n, K, 1.0f, along);
    }
  }
}

#define KERNELS(T, SUFFIX)                                                                                                                      \
  __global__ __launch_bounds__(THREADS, 1) void delta_##SUFFIX(T *o, const T *qkv, const T *gate, const float *a_log, const float *dt_bias,        \
                                                           const int *cu, float *states, float *last, float *scratch, int seqs, int key_heads, \
                                                           int heads, int key_dim, int value_dim, int gate_stride) {                           \
    forward(o, qkv, gate, a_log, dt_bias, cu, states, last, scratch, delta_shape{seqs, key_heads, heads, key_dim, value_dim, gate_stride});           \
  }                                                                                                                                             \
  __global__ __launch_bounds__(THREADS, 1) void delta_backward_##SUFFIX(                                                                           \
      T *dqkv, T *dgate, const T *d_o, const T *qkv, const T *gate, const float *a_log, const float *dt_bias, const int *cu, float *states,     \
      float *part_a, float *part_dt, float *scratch, int seqs, int key_heads, int heads, int key_dim, int value_dim, int gate_stride) {         \
    backward(dqkv, dgate, d_o, qkv, gate, a_log, dt_bias, cu, states, part_a, part_dt, scratch,                                                 \
             delta_shape{seqs, key_heads, heads, key_dim, value_dim, gate_stride});                                                                   \
  }

extern "C" {
KERNELS(float, f32)
KERNELS(bf16, bf16)
}
