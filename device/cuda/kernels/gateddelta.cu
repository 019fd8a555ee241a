// GatedDelta and its backward, by chunks of 64 tokens: op.GatedDelta says what they compute. With γ
// the sum of the gates g from the chunk's first token on, K and Q the chunk's normalized rows of
// keys and queries, V its values, S the state before it, and N the values that the chunk writes to
// the state:
//
//	near = K·Kᵀ·e^(γi−γj) below the diagonal,  M = (I + β·near)⁻¹·β
//	X = V − e^γ·K·S,  N = M·X
//	O = e^γ·Q·S + (Q·Kᵀ·e^(γi−γj), the diagonal included)·N
//	S ← e^γlast·S + (e^(γlast−γ)·K)ᵀ·N
//
// Forward: delta_system writes M, delta_states goes from chunk to chunk and writes S and N, and
// delta_out writes O. Backward, with G the gradient of the state after a chunk: delta_system again,
// delta_values writes N, delta_dstates goes from chunk to chunk in reverse and writes G and the
// gradient of X, which is that of V. delta_gates writes the gradients of the gates, and delta_keys
// those of q and k, which are sums over the heads of a key head.
//
// Only delta_states and delta_dstates are sequential: a block has 32 columns of one head's state in
// registers. In the others a block has one chunk. A launch covers a segment: as many chunks as
// scratch memory holds. The state or its gradient goes from segment to segment in
// carry, which the next segment has as carried.
//
// Products have rows of q and k as they lie in memory. The reciprocal lengths rq and rk (rq with the
// scale of q) are factors of the products' rows and columns, so q and k are never rounded.
//
// With a decay for each channel γ is a vector, and channel_system takes the place of delta_system. It also writes
// the scores and rows of q and k with their decays and lengths, which the other kernels of the forward,
// delta_values and delta_dstates have in place of q and k. channel_keys takes the place of delta_gates and delta_keys.
#include "chunk.cuh"

static constexpr int THREADS = 128, PART = 32; // PART: columns of a state of a block that goes from chunk to chunk

struct delta_shape {
  int seqs, key_heads, heads, key_dim, value_dim, gate_stride, start; // start: the segment's first chunk
  METHOD int width() const { return 2 * key_heads * key_dim + heads * value_dim; }
  METHOD int group() const { return heads / key_heads; }
  METHOD int in_k(int key_head) const { return (key_heads + key_head) * key_dim; }
  METHOD int in_v(int h) const { return 2 * key_heads * key_dim + h * value_dim; }
  METHOD int state() const { return key_dim * value_dim; }
};

// chunk_place is a chunk: its number in the segment, its first token and length, and the bounds of its sequence.
// The chunk at token t of sequence s has the number t/64 + s, so numbers rise with t. A number that
// no chunk has gives n = 0.
struct chunk_place { int number, at, n, first, end; };

DEV chunk_place chunk_of_segment(const int *cu, const delta_shape &z, int number) {
  int lo = 0, hi = z.seqs, c = z.start + number; // the last sequence s with cu[s]/64 + s ≤ c
#pragma clang loop unroll(disable)
  while (hi - lo > 1) {
    int mid = (lo + hi) >> 1;
    if (cu[mid] / L + mid <= c) lo = mid;
    else hi = mid;
  }
  int first = cu[lo], end = cu[lo + 1], at = first + (c - lo - first / L) * L;
  return chunk_place{number, at, max_i(0, min_i(L, end - at)), first, end};
}

// gates has numbers of a chunk's tokens for one head: β, g, γ, from = e^γ, to = e^(γlast−γ), rq and rk.
// γ is the sum of two floats, sum and low: only differences of γ are used, and in one float they
// would lose their bits. β, from, to, rq and rk of tokens behind the chunk's end are 0.
struct gates {
  float beta[L], g[L], sum[L], low[L], from[L], to[L], rq[L], rk[L];
  METHOD float &keep(int channel) { return channel < L ? sum[channel] : low[channel - L]; } // with decays by channel
};
static constexpr int GATES = sizeof(gates) / 4;

// channel_rows are rows of q and k with the decay of each channel and with their lengths: from·Q, from·K and to·K.
// With decays by channel products have these rows in place of q and k, and from, to, rq and rk are 1. scores are
// products of queries and keys.
template <class T> struct channel_rows { const T *q, *k, *written, *scores; };

DEV i64 slot(const chunk_place &p, const delta_shape &z, int h) { return (i64)p.number * z.heads + h; }

template <int N = THREADS> DEV void load_gates(gates &s, const float *kept, const chunk_place &p, const delta_shape &z, int h) {
#pragma clang loop unroll(disable)
  for (int i = threadIdx_x; i < GATES; i += N) s.beta[i] = kept[slot(p, z, h) * GATES + i];
}

DEV void keep_gates(float *kept, const gates &s, const chunk_place &p, const delta_shape &z, int h) {
#pragma clang loop unroll(disable)
  for (int i = threadIdx_x; i < GATES; i += THREADS) kept[slot(p, z, h) * GATES + i] = s.beta[i];
}

// decay returns e^(γi−γe), the factor by which a value that token e wrote to the state has shrunk
// when token i reads it. It is 0 above the diagonal.
DEV float decay(const gates &s, int i, int e) { return e > i ? 0.0f : exp_approx((s.sum[i] - s.sum[e]) + (s.low[i] - s.low[e])); }

// source is a matrix in global memory: rows of columns elements, stride elements apart. vectors says that
// all its rows are whole vectors of 16 bytes.
template <class T> struct source {
  const T *x;
  i64 stride;
  int rows, columns;
  METHOD bool vectors() const { return (stride | columns) % VEC<T> == 0 && ((u64)x & 15) == 0; }
  METHOD source part(int row, int column, int most) const { return source{x + row * stride + column, stride, rows - row, min_i(columns - column, most)}; }
};

// put stores a vector of elements in a tile's row.
DEV void put(float *y, f32x4 x) { *(f32x4 *)y = x; }
DEV void put(bf16 *y, u32x4 x) { *(u32x4 *)y = x; }
DEV void put(bf16 *y, f32x4 x) { *(u32x2 *)y = u32x2{pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3])}; }

// load copies a matrix to a tile, and zeros where the tile is larger. Several loads of a thread are
// under way at a time.
template <int N = THREADS, class T, int C, class S> DEV void load(tile<T, C> &y, const source<S> &x) {
  constexpr int V = VEC<S>, TURNS = L * C / V / N, AHEAD = TURNS < 4 ? TURNS : 4;
  if (!x.vectors()) {
#pragma clang loop unroll(disable)
    for (int at = threadIdx_x; at < L * C; at += N) {
      int r = at / C, k = at % C;
      y.x[r][k] = convert(T{}, r < x.rows && k < x.columns ? to_float(x.x[r * x.stride + k]) : 0.0f);
    }
    return;
  }
#pragma clang loop unroll(disable)
  for (int turn = 0; turn < TURNS; turn += AHEAD) {
    chunk<S, V> v[AHEAD];
#pragma unroll
    for (int e = 0; e < AHEAD; e++) {
      int at = threadIdx_x + (turn + e) * N, r = at / (C / V), k = at % (C / V) * V;
      zero_chunk(v[e]);
      if (r < x.rows && k < x.columns) v[e] = load_chunk<V>(x.x + r * x.stride + k);
    }
#pragma unroll
    for (int e = 0; e < AHEAD; e++) {
      int at = threadIdx_x + (turn + e) * N;
      put(&y.x[at / (C / V)][at % (C / V) * V], v[e]);
    }
  }
}

// load_halves loads up to 128 columns to two tiles, one after the other, which takes fewer registers.
template <class T> DEV void load_halves(tile<T> *y, const source<T> &x) {
#pragma clang loop unroll(disable)
  for (int half = 0; half < 2; half++) load(y[half], x.part(0, half * L, L));
}

// rows_of returns the rows of a chunk's tokens in a table: columns elements from column on.
template <class T> DEV source<T> rows_of(const T *x, const chunk_place &p, i64 stride, int column, int columns) {
  return source<T>{x + p.at * stride + column, stride, p.n, columns};
}

// slot_rows returns rows of a slot: 64 rows of columns elements.
template <class T> DEV source<T> slot_rows(const T *x, const chunk_place &p, const delta_shape &z, int h, int columns) {
  return source<T>{x + slot(p, z, h) * L * columns, columns, L, columns};
}

// square returns a slot of 64×64 elements.
template <class T> DEV source<T> square(const T *x, const chunk_place &p, const delta_shape &z, int h) { return source<T>{x + slot(p, z, h) * L * L, L, L, L}; }

// states_of says where states are: the state before the first chunk of a sequence is in initial (none: it is 0),
// that before another chunk in all, at the place of its first token or, with by_slot, at its slot.
struct states_of {
  float *all, *initial;
  int by_slot;
  METHOD float *before(const chunk_place &p, const delta_shape &z, int h) const {
    if (p.at == p.first) return initial ? initial + (i64)h * z.state() : (float *)0;
    return all ? all + ((i64)(by_slot ? p.number : p.at / L) * z.heads + h) * z.state() : (float *)0;
  }
};
DEV source<float> state_source(const float *x, const delta_shape &z) { return source<float>{x, z.value_dim, x ? z.key_dim : 0, z.value_dim}; }

// row_length returns 1/√(Σx² + 1e-6) of a row to the 8 lanes that share it, 0 if it does not exist.
template <class T> DEV float row_length(const T *x, bool exists, int dim) {
  float sum = 0.0f;
#pragma clang loop unroll_count(4)
  for (int c = threadIdx_x & 7; c < dim; c += 8) {
    float v = to_float(x[c]);
    sum = __builtin_fmaf(v, v, sum);
  }
  sum = team_sum(sum, 8);
  return exists ? rsqrt_newton(sum + 1e-6f) : 0.0f;
}

// measure_rows sets rq and rk.
template <class T> DEV void measure_rows(gates &s, const T *qkv, const chunk_place &p, const delta_shape &z, int kh) {
  float scale = rsqrt_newton((float)z.key_dim);
#pragma clang loop unroll(disable)
  for (int i = threadIdx_x / 8; i < L; i += THREADS / 8) {
    const T *row = qkv + (i64)(p.at + min_i(i, p.n - 1)) * z.width();
    float q = row_length(row + kh * z.key_dim, i < p.n, z.key_dim), k = row_length(row + z.in_k(kh), i < p.n, z.key_dim);
    if (threadIdx_x % 8 == 0) s.rq[i] = q * scale, s.rk[i] = k;
  }
}

// sum_gates sets the gates of head h.
template <class T> DEV void sum_gates(gates &s, const T *gate, const float *a_log, const float *dt_bias, const chunk_place &p, const delta_shape &z, int h) {
  int i = threadIdx_x;
  if (i < L) {
    float rest, beta = 0.0f, g = 0.0f;
    if (i < p.n) {
      const T *row = gate + (i64)(p.at + i) * z.gate_stride;
      float a = to_float(row[z.heads + h]) + dt_bias[h];
      sigmoids(to_float(row[h]), beta, rest);
      g = -exp_approx(a_log[h]) * (max_f(a, 0.0f) + log_f(1.0f + exp_approx(-__builtin_fabsf(a))));
    }
    s.beta[i] = beta, s.g[i] = g, s.sum[i] = g, s.low[i] = 0.0f;
  }
#pragma clang loop unroll(disable)
  for (int by = 1; by < L; by <<= 1) {
    sync_threads();
    float sum = 0.0f, low = 0.0f;
    if (i < L) {
      sum = s.sum[i], low = s.low[i];
      if (i >= by) {
        float a = s.sum[i - by], b = sum, part;
        sum = a + b, part = sum - a;
        low += s.low[i - by] + ((a - (sum - part)) + (b - part));
      }
    }
    sync_threads();
    if (i < L) s.sum[i] = sum, s.low[i] = low;
  }
  sync_threads();
  if (i < L) {
    s.from[i] = i < p.n ? exp_approx(s.sum[i] + s.low[i]) : 0.0f;
    s.to[i] = i < p.n ? exp_approx((s.sum[p.n - 1] - s.sum[i]) + (s.low[p.n - 1] - s.low[i])) : 0.0f;
  }
}

static constexpr int LPITCH = L + 1;

// invert_diagonal writes the inverses of the four 16×16 blocks of I + l on the diagonal. A thread has a
// column of one block.
DEV void invert_diagonal(float *inverse, const float *l) {
  if (threadIdx_x < L) {
    int b = threadIdx_x / 16 * 16, j = threadIdx_x % 16;
    float v[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
      v[i] = i == j ? 1.0f : 0.0f;
#pragma unroll
      for (int e = 0; e < i; e++) v[i] = __builtin_fmaf(-l[(b + i) * LPITCH + b + e], v[e], v[i]);
      inverse[(b + i) * LPITCH + b + j] = v[i];
    }
  }
  sync_threads();
}

// join_blocks makes inverses of blocks of 2·SIZE rows from those of SIZE rows: below them lies
// −M₂·l₂₁·M₁. It overwrites l₂₁.
template <int SIZE> DEV void join_blocks(float *inverse, float *l) {
  constexpr int EACH = L / 2 * SIZE / THREADS;
#pragma unroll
  for (int turn = 0; turn < 2; turn++) {
    float sum[EACH];
#pragma unroll
    for (int r = 0; r < EACH; r++) {
      int at = threadIdx_x + r * THREADS, b = at / (SIZE * SIZE) * 2 * SIZE, i = b + SIZE + at / SIZE % SIZE, j = b + at % SIZE;
      sum[r] = 0.0f;
#pragma clang loop unroll_count(4)
      for (int e = 0; e < SIZE; e++) {
        float x = turn ? -inverse[i * LPITCH + b + SIZE + e] : l[i * LPITCH + b + e];
        float y = turn ? l[(b + SIZE + e) * LPITCH + j] : inverse[(b + e) * LPITCH + j];
        sum[r] = __builtin_fmaf(x, y, sum[r]);
      }
    }
    if (!turn) sync_warp(); // one warp reads a row of l₂₁, and it writes the row
#pragma unroll
    for (int r = 0; r < EACH; r++) {
      int at = threadIdx_x + r * THREADS, b = at / (SIZE * SIZE) * 2 * SIZE, i = b + SIZE + at / SIZE % SIZE, j = b + at % SIZE;
      (turn ? inverse : l)[i * LPITCH + j] = sum[r];
    }
    sync_threads();
  }
}

// invert writes M = (I + l)⁻¹·β. inverse must be 0. It overwrites l.
template <class T> DEV void invert(T *to, float *inverse, float *l, const float *beta) {
  invert_diagonal(inverse, l);
  join_blocks<16>(inverse, l);
  join_blocks<32>(inverse, l);
#pragma clang loop unroll(disable)
  for (int at = threadIdx_x; at < L * L; at += THREADS) store(to + at, inverse[at / L * LPITCH + at % L] * beta[at % L]);
}

// delta_system writes M and the gates of a chunk and head.
template <class T>
DEV void delta_system(T *systems, float *kept, const T *qkv, const T *gate, const float *a_log, const float *dt_bias, const int *cu, delta_shape z) {
  __shared__ gates s;
  __shared__ float l[L * LPITCH];
  __shared__ union { tile<T> keys; float inverse[L * LPITCH]; } u;
  int h = blockIdx_y, kh = h / z.group();
  chunk_place p = chunk_of_segment(cu, z, blockIdx_x);
  if (!p.n) return;
  measure_rows(s, qkv, p, z, kh);
  sum_gates(s, gate, a_log, dt_bias, p, z, h);
  sums near;
  near.clear();
  source<T> k = rows_of(qkv, p, z.width(), z.in_k(kh), z.key_dim);
#pragma clang loop unroll(disable)
  for (int k0 = 0; k0 < z.key_dim; k0 += L) {
    sync_threads();
    load(u.keys, k.part(0, k0, L));
    sync_threads();
    multiply(near, u.keys, u.keys);
  }
  sync_threads();
  near.each([&](int i, int e, float x, int) {
    l[i * LPITCH + e] = e < i ? s.beta[i] * s.rk[i] * s.rk[e] * decay(s, i, e) * x : 0.0f;
    u.inverse[i * LPITCH + e] = 0.0f;
  });
  keep_gates(kept, s, p, z, h);
  sync_threads();
  invert(systems + slot(p, z, h) * L * L, u.inverse, l, s.beta);
}

// channel_memory: decays are e^g of the tokens for 64 channels, later each token's decay up to the end of its block
// of 16. near and reads are elements of blocks on the diagonal, over of blocks the decay of a whole block. The
// inverse takes the place of tiles.
template <class T> struct channel_memory {
  union {
    struct { tile<T> q, k, local, earlier; };
    struct { float l[L * LPITCH], inverse[L * LPITCH]; };
  };
  float decays[L][L], near[L][16], reads[L][16], over[4][L];
  gates s;
};

DEV float softplus(float a) { return max_f(a, 0.0f) + log_f(1.0f + exp_approx(-__builtin_fabsf(a))); }

// within_blocks adds the products of 64 channels to near and reads, pairs of tokens in a block. Two lanes have the
// column of a token and follow its decay to the block's end.
template <class T> DEV void within_blocks(channel_memory<T> &m) {
  int e = threadIdx_x / 2, side = threadIdx_x & 1;
  float w[L / 2];
#pragma unroll
  for (int c = 0; c < L / 2; c++) w[c] = to_float(m.k.x[e][2 * c + side]);
#pragma clang loop unroll(disable)
  for (int step = 0; step < 16; step++) {
    int i = (e & ~15) + step;
    float of_q = 0.0f, of_k = 0.0f;
    if (i >= e) {
#pragma unroll
      for (int c = 0; c < L / 2; c++) {
        if (i > e) w[c] *= m.decays[i][2 * c + side];
        of_q = __builtin_fmaf(to_float(m.q.x[i][2 * c + side]), w[c], of_q), of_k = __builtin_fmaf(to_float(m.k.x[i][2 * c + side]), w[c], of_k);
      }
    }
    of_q += shuffle_xor(of_q, 1), of_k += shuffle_xor(of_k, 1);
    if (side == 0) m.reads[i][e % 16] += of_q, m.near[i][e % 16] += i > e ? of_k : 0.0f;
  }
}

// decay_rows writes the rows of 64 channels to q, k and written, scales the tiles q and local by decays from a
// block's start, and makes decays those up to a block's end. A thread has a channel in two blocks.
template <class T> DEV void decay_rows(channel_memory<T> &m, T *q, T *k, T *written, int c0, int K) {
  int c = threadIdx_x % L;
  bool exists = c0 + c < K;
#pragma clang loop unroll(disable)
  for (int b = threadIdx_x / L; b < 4; b += 2) {
    float before = 1.0f, behind = 1.0f, by = 1.0f;
#pragma clang loop unroll(disable)
    for (int e = 0; e < 4; e++) e < b ? before *= m.over[e][c] : e > b ? behind *= m.over[e][c] : 0.0f;
#pragma clang loop unroll(disable)
    for (int i = 16 * b; i < 16 * b + 16; i++) {
      float x = to_float(m.q.x[i][c]), y = to_float(m.k.x[i][c]);
      by *= m.decays[i][c];
      m.q.x[i][c] = convert(T{}, x * by), m.local.x[i][c] = convert(T{}, y * by);
      if (exists) store(q + i * K + c0 + c, m.s.rq[i] * before * by * x), store(k + i * K + c0 + c, m.s.rk[i] * before * by * y);
    }
    by = 1.0f;
#pragma clang loop unroll(disable)
    for (int i = 16 * b + 15; i >= 16 * b; i--) {
      float own = m.decays[i][c];
      m.decays[i][c] = by;
      if (exists) store(written + i * K + c0 + c, m.s.rk[i] * by * behind * to_float(m.k.x[i][c]));
      by *= own;
    }
    if (b == 0) m.s.keep(c0 + c) = by * behind;
  }
}

// channel_system writes M, the gates, the rows and the scores of a chunk and head with a decay for each channel.
// Between blocks of 16 tokens a decay is the product of two factors of at most 1, split at the start of the later
// block. A warp has the rows of a block.
template <class T>
DEV void channel_system(T *systems, float *kept, T *q, T *k, T *written, T *scores, const T *qkv, const T *gate, const T *a, const float *a_log,
                        const float *dt_bias, const int *cu, delta_shape z) {
  DYNAMIC_SHARED(memory);
  channel_memory<T> &m = *(channel_memory<T> *)memory;
  int h = blockIdx_y, K = z.key_dim, at = threadIdx_x;
  chunk_place p = chunk_of_segment(cu, z, blockIdx_x);
  if (!p.n) return;
  measure_rows(m.s, qkv, p, z, h);
  float rate = exp_approx(a_log[h]);
  i64 rows = slot(p, z, h) * L * K;
  if (at < L) {
    float rest, beta = 0.0f;
    if (at < p.n) sigmoids(to_float(gate[(i64)(p.at + at) * z.gate_stride + h]), beta, rest);
    m.s.beta[at] = beta, m.s.g[at] = 0.0f;
    m.s.from[at] = m.s.to[at] = at < p.n ? 1.0f : 0.0f;
  }
#pragma clang loop unroll(disable)
  for (int i = at; i < L * 16; i += THREADS) m.near[i / 16][i % 16] = m.reads[i / 16][i % 16] = 0.0f;
  sums of_q, of_k;
  of_q.clear(), of_k.clear();
#pragma clang loop unroll(disable)
  for (int c0 = 0; c0 < 2 * L; c0 += L) {
    sync_threads();
    if (c0 >= K) {
      if (at < L) m.s.keep(c0 + at) = 0.0f;
      continue;
    }
    load(m.q, rows_of(qkv, p, z.width(), h * K, K).part(0, c0, L));
    load(m.k, rows_of(qkv, p, z.width(), z.in_k(h), K).part(0, c0, L));
#pragma clang loop unroll_count(4)
    for (int i = at / L; i < L; i += 2) {
      int c = c0 + at % L;
      m.decays[i][at % L] = i < p.n && c < K ? exp_approx(-rate * softplus(to_float(a[((i64)(p.at + i) * z.heads + h) * K + c]) + dt_bias[h * K + c])) : 1.0f;
    }
    sync_threads();
    within_blocks(m);
#pragma clang loop unroll(disable)
    for (int b = at / L; b < 4; b += 2) {
      float by = 1.0f;
#pragma clang loop unroll(disable)
      for (int i = 16 * b; i < 16 * b + 16; i++) by *= m.decays[i][at % L];
      m.over[b][at % L] = by;
    }
    sync_threads();
    decay_rows(m, q + rows, k + rows, written + rows, c0, K);
#pragma clang loop unroll(disable)
    for (int b = 1; b < 4; b++) { // the tile earlier has keys before block b, decayed up to its start
      sync_threads();
#pragma clang loop unroll(disable)
      for (int i = at; i < L * L; i += THREADS) {
        int e = i / L, c = i % L;
        if (b > 1 && e < 16 * b - 16) m.decays[e][c] *= m.over[b - 1][c];
        m.earlier.x[e][c] = convert(T{}, e < 16 * b ? to_float(m.k.x[e][c]) * m.decays[e][c] : 0.0f);
      }
      sync_threads();
      if (at / 32 == b) multiply(of_q, m.q, m.earlier), multiply(of_k, m.local, m.earlier);
    }
  }
  sync_threads();
  of_q.each([&](int i, int e, float x, int) {
    if (i / 16 == e / 16) x = m.reads[i][e % 16];
    store(scores + slot(p, z, h) * L * L + i * L + e, e <= i ? m.s.rq[i] * m.s.rk[e] * x : 0.0f);
  });
  of_k.each([&](int i, int e, float x, int) {
    if (i / 16 == e / 16) x = m.near[i][e % 16];
    m.l[i * LPITCH + e] = e < i ? m.s.beta[i] * m.s.rk[i] * m.s.rk[e] * x : 0.0f;
    m.inverse[i * LPITCH + e] = 0.0f;
  });
  sync_threads();
  invert(systems + slot(p, z, h) * L * L, m.inverse, m.l, m.s.beta);
  if (at < L) m.s.rq[at] = m.s.rk[at] = m.s.from[at];
  sync_threads();
  keep_gates(kept, m.s, p, z, h);
}

// each_of calls f(k, v, element) for the elements of a state's PART columns that exist.
template <class F> DEV void each_of(sums_of<PART / 8> (&x)[2], const delta_shape &z, int v0, F f) {
#pragma unroll
  for (int half = 0; half < 2; half++)
    x[half].each([&](int k, int v, float &e, int) {
      if (half * L + k < z.key_dim && v0 + v < z.value_dim) f(half * L + k, v0 + v, e);
    });
}

// states_memory: with decays by channel the update of a state has keys of its own, which in fp32 take the place of
// the keys.
template <class T, bool C> struct states_memory {
  static constexpr bool BOTH = C && sizeof(T) == 2;
  tile<T> keys[BOTH ? 4 : 2], system;
  tile<T, PART> state[2], values;
  gates s;
};

template <bool C, class T>
DEV void delta_states(T *o, const T *systems, const float *kept, const float *carried, float *carry, const T *qkv, channel_rows<T> by, const int *cu,
                      states_of states, float *last, delta_shape z) {
  DYNAMIC_SHARED(memory);
  states_memory<T, C> &m = *(states_memory<T, C> *)memory;
  constexpr bool BOTH = states_memory<T, C>::BOTH;
  tile<T> *written = m.keys + (BOTH ? 2 : 0);
  int parts = (z.value_dim + PART - 1) / PART, h = blockIdx_y / parts, v0 = blockIdx_y % parts * PART, kh = h / z.group(), V = z.value_dim;
  chunk_place p = chunk_of_segment(cu, z, blockIdx_x);
  if (!p.n || (p.at > p.first && p.number > 0)) return; // a block begins with a sequence or with the segment
  const float *begin = p.at > p.first ? carried : last;
  float *finish = last;
  sums_of<PART / 8> state[2];
  state[0].clear(), state[1].clear();
  if (begin) each_of(state, z, v0, [&](int k, int v, float &e) { e = begin[(i64)h * z.state() + k * V + v]; });
#pragma clang loop unroll(disable)
  for (;;) {
    source<T> k = C ? slot_rows(by.k, p, z, h, z.key_dim) : rows_of(qkv, p, z.width(), z.in_k(kh), z.key_dim);
    source<T> w = slot_rows(by.written, p, z, h, z.key_dim);
    const T *values = qkv + (i64)p.at * z.width() + z.in_v(h) + v0;
    float *before = states.before(p, z, h);
    load_gates(m.s, kept, p, z, h);
    if (C) load_halves(m.keys, k);
    else load(m.keys[0], k.part(0, 0, L)), load(m.keys[1], k.part(0, L, L));
    load(m.system, square(systems, p, z, h));
    keep_sums(m.state[0], state[0]);
    keep_sums(m.state[1], state[1]);
    if (before) each_of(state, z, v0, [&](int k, int v, float &e) { before[k * V + v] = e; });
    sync_threads();
    sums_of<PART / 8> x, fresh;
    x.clear(), fresh.clear();
    multiply<false, true>(x, m.keys[0], m.state[0]);
    if (z.key_dim > L) multiply<false, true>(x, m.keys[1], m.state[1]);
    x.each([&](int i, int j, float &e, int) {
      float v = i < p.n && v0 + j < V ? to_float(values[(i64)i * z.width() + j]) : 0.0f;
      m.values.x[i][j] = convert(T{}, v - m.s.from[i] * m.s.rk[i] * e);
    });
    sync_threads();
    if (BOTH) load_halves(written, w);
    multiply<false, true>(fresh, m.system, m.values);
    sync_threads();
    if (C && !BOTH) load_halves(written, w);
    fresh.each([&](int i, int j, float &e, int) {
      if (i < p.n && v0 + j < V) store(o + ((i64)(p.at + i) * z.heads + h) * V + v0 + j, e);
      m.values.x[i][j] = convert(T{}, m.s.to[i] * m.s.rk[i] * e);
    });
    sync_threads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
      state[half].each([&](int k, int, float &e, int) { e *= C ? m.s.keep(half * L + k) : m.s.from[p.n - 1]; });
      if (half * L < z.key_dim) multiply<true, true>(state[half], written[half], m.values);
    }
    if (p.at + L >= p.end) break;
    if (p.number + 1 == gridDim_x) {
      finish = carry;
      break;
    }
    p = chunk_of_segment(cu, z, p.number + 1);
    sync_threads();
  }
  if (finish) each_of(state, z, v0, [&](int k, int v, float &e) { finish[(i64)h * z.state() + k * V + v] = e; });
}

// state_product is s = A·B for 64 columns, A the rows of q or k, and B a state.
template <class T, class S> DEV void state_product(sums &s, tile<T> &a, tile<T> &b, const source<T> &x, const source<S> &state, int v0) {
  s.clear();
#pragma clang loop unroll(disable)
  for (int k0 = 0; k0 < x.columns; k0 += L) {
    sync_threads();
    load(a, x.part(0, k0, L));
    load(b, state.part(k0, v0, L));
    sync_threads();
    multiply<false, true>(s, a, b);
  }
}

// add_product adds A·Bᵀ, of rows of two matrices, to s.
template <class T> DEV void add_product(sums &s, tile<T> &a, tile<T> &b, const source<T> &x, const source<T> &y) {
#pragma clang loop unroll(disable)
  for (int k0 = 0; k0 < x.columns; k0 += L) {
    sync_threads();
    load(a, x.part(0, k0, L));
    load(b, y.part(0, k0, L));
    sync_threads();
    multiply(s, a, b);
  }
}

// delta_out writes O, which holds N on entry, of a chunk and head, 64 columns.
template <bool C, class T>
DEV void delta_out(T *o, const float *kept, const T *qkv, channel_rows<T> by, const int *cu, states_of states, delta_shape z) {
  __shared__ tile<T> a, b;
  __shared__ gates s;
  int tiles = (z.value_dim + L - 1) / L, h = blockIdx_y / tiles, v0 = blockIdx_y % tiles * L, kh = h / z.group(), K = z.key_dim, V = z.value_dim;
  chunk_place p = chunk_of_segment(cu, z, blockIdx_x);
  if (!p.n) return;
  const float *state = states.before(p, z, h);
  load_gates(s, kept, p, z, h);
  sums scores, out;
  scores.clear(), out.clear();
  source<T> q = C ? slot_rows(by.q, p, z, h, K) : rows_of(qkv, p, z.width(), kh * K, K);
  if (state) state_product(out, a, b, q, state_source(state, z), v0);
  if (!C) add_product(scores, a, b, q, rows_of(qkv, p, z.width(), z.in_k(kh), K));
  sync_threads();
  scores.each([&](int i, int e, float &v, int) { v *= decay(s, i, e) * s.rq[i] * s.rk[e]; });
  out.each([&](int i, int, float &v, int) { v *= s.from[i] * s.rq[i]; });
  if (C) load(a, square(by.scores, p, z, h));
  else keep_sums(a, scores);
  load(b, rows_of(o, p, (i64)z.heads * V, h * V, V).part(0, v0, L));
  sync_threads();
  multiply<false, true>(out, a, b);
  out.each([&](int i, int j, float v, int) {
    if (i < p.n && v0 + j < V) store(o + ((i64)(p.at + i) * z.heads + h) * V + v0 + j, v);
  });
}

// delta_values writes N of a chunk and head, 64 columns, and the part of the gradient of N that comes
// from the outputs of the chunk to the place of V's gradient.
template <bool C, class T>
DEV void delta_values(T *dqkv, T *fresh, const T *systems, const float *kept, const T *d_o, const T *qkv, channel_rows<T> by, const int *cu,
                      states_of states, delta_shape z) {
  __shared__ tile<T> a, b;
  __shared__ gates s;
  int tiles = (z.value_dim + L - 1) / L, h = blockIdx_y / tiles, v0 = blockIdx_y % tiles * L, kh = h / z.group(), K = z.key_dim, V = z.value_dim;
  chunk_place p = chunk_of_segment(cu, z, blockIdx_x);
  if (!p.n) return;
  const float *state = states.before(p, z, h);
  source<T> values = rows_of(qkv, p, z.width(), z.in_v(h), V);
  source<T> k = C ? slot_rows(by.k, p, z, h, K) : rows_of(qkv, p, z.width(), z.in_k(kh), K);
  sums x;
  load_gates(s, kept, p, z, h);
  state_product(x, a, b, k, state_source(state, z), v0);
  sync_threads();
  load(a, square(systems, p, z, h));
  x.each([&](int i, int j, float &e, int) {
    float v = i < p.n && v0 + j < V ? to_float(values.x[i * values.stride + v0 + j]) : 0.0f;
    b.x[i][j] = convert(T{}, v - s.from[i] * s.rk[i] * e);
  });
  sync_threads();
  x.clear();
  multiply<false, true>(x, a, b);
  x.each([&](int i, int j, float e, int) {
    if (v0 + j < V) store(fresh + (slot(p, z, h) * L + i) * V + v0 + j, e);
  });
  x.clear();
  if (!C) add_product(x, a, b, k, rows_of(qkv, p, z.width(), kh * K, K));
  sync_threads();
  if (C) load(a, square(by.scores, p, z, h));
  else x.each([&](int e, int i, float v, int) { a.x[e][i] = convert(T{}, v * decay(s, i, e) * s.rq[i] * s.rk[e]); });
  load(b, rows_of(d_o, p, (i64)z.heads * V, h * V, V).part(0, v0, L));
  sync_threads();
  x.clear();
  multiply<C, true>(x, a, b);
  x.each([&](int i, int j, float e, int) {
    if (i < p.n && v0 + j < V) store(dqkv + (i64)(p.at + i) * z.width() + z.in_v(h) + v0 + j, e);
  });
}

// dstates_memory: in fp32 the queries take the place of the keys, because shared memory has no room
// for both. With decays by channel keys are those written to the state, and those that read it are apart.
template <class T, bool C> struct dstates_memory {
  static constexpr bool BOTH = sizeof(T) == 2;
  tile<T> keys[BOTH ? C ? 6 : 4 : 2], system; // tiles 2 and 3 have the queries, 4 and 5 keys that read
  tile<T, PART> grad[2], values, out;
  gates s;
};

template <bool C, class T>
DEV void delta_dstates(T *dqkv, T *dstates, const T *systems, const float *kept, const float *carried, float *carry, const T *d_o, const T *qkv,
                       channel_rows<T> by, const int *cu, delta_shape z) {
  DYNAMIC_SHARED(memory);
  dstates_memory<T, C> &m = *(dstates_memory<T, C> *)memory;
  constexpr bool BOTH = dstates_memory<T, C>::BOTH;
  tile<T> *queries = m.keys + (BOTH ? 2 : 0), *reading = m.keys + (BOTH && C ? 4 : 0);
  int parts = (z.value_dim + PART - 1) / PART, h = blockIdx_y / parts, v0 = blockIdx_y % parts * PART, kh = h / z.group(), V = z.value_dim;
  chunk_place p = chunk_of_segment(cu, z, blockIdx_x);
  bool last = p.at + L >= p.end;
  if (!p.n || (!last && p.number + 1 < gridDim_x)) return; // a block begins where a sequence or the segment ends
  sums_of<PART / 8> grad[2];
  grad[0].clear(), grad[1].clear();
  if (!last) each_of(grad, z, v0, [&](int k, int v, float &e) { e = carried[(i64)h * z.state() + k * V + v]; });
#pragma clang loop unroll(disable)
  for (;;) {
    source<T> k = C ? slot_rows(by.written, p, z, h, z.key_dim) : rows_of(qkv, p, z.width(), z.in_k(kh), z.key_dim);
    source<T> q = C ? slot_rows(by.q, p, z, h, z.key_dim) : rows_of(qkv, p, z.width(), kh * z.key_dim, z.key_dim);
    source<T> read = slot_rows(by.k, p, z, h, z.key_dim);
    T *values = dqkv + (i64)p.at * z.width() + z.in_v(h) + v0, *behind = dstates + slot(p, z, h) * z.state();
    bool more = p.at > p.first; // there is a state before the chunk
    load_gates(m.s, kept, p, z, h);
    load(m.keys[0], k.part(0, 0, L));
    load(m.keys[1], k.part(0, L, L));
    load(m.system, square(systems, p, z, h));
    load(m.out, rows_of(d_o, p, (i64)z.heads * V, h * V, V).part(0, v0, PART));
    if (BOTH && more) load(queries[0], q.part(0, 0, L)), load(queries[1], q.part(0, L, L));
    if (BOTH && C && more) load_halves(reading, read);
    keep_sums(m.grad[0], grad[0]);
    keep_sums(m.grad[1], grad[1]);
    each_of(grad, z, v0, [&](int k, int v, float &e) { store(behind + k * V + v, e); });
    sync_threads();
    sums_of<PART / 8> y, x;
    y.clear(), x.clear();
    multiply<false, true>(y, m.keys[0], m.grad[0]);
    if (z.key_dim > L) multiply<false, true>(y, m.keys[1], m.grad[1]);
    y.each([&](int i, int j, float &e, int) {
      float v = i < p.n && v0 + j < V ? to_float(values[(i64)i * z.width() + j]) : 0.0f;
      m.values.x[i][j] = convert(T{}, v + m.s.to[i] * m.s.rk[i] * e);
    });
    sync_threads();
    multiply<true, true>(x, m.system, m.values);
    sync_threads();
    x.each([&](int i, int j, float &e, int) {
      if (i < p.n && v0 + j < V) store(values + (i64)i * z.width() + j, e);
      m.values.x[i][j] = convert(T{}, -m.s.from[i] * m.s.rk[i] * e);
      m.out.x[i][j] = convert(T{}, m.s.from[i] * m.s.rq[i] * to_float(m.out.x[i][j]));
    });
    if (!more) return;
    if (C && !BOTH) load_halves(reading, read);
    sync_threads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
      grad[half].each([&](int k, int, float &e, int) { e *= C ? m.s.keep(half * L + k) : m.s.from[p.n - 1]; });
      if (half * L < z.key_dim) multiply<true, true>(grad[half], reading[half], m.values);
    }
    if constexpr (!BOTH) {
      sync_threads();
      load(queries[0], q.part(0, 0, L)), load(queries[1], q.part(0, L, L));
      sync_threads();
    }
#pragma unroll
    for (int half = 0; half < 2; half++)
      if (half * L < z.key_dim) multiply<true, true>(grad[half], queries[half], m.out);
    if (p.number == 0) break;
    p = chunk_of_segment(cu, z, p.number - 1);
    sync_threads();
  }
  each_of(grad, z, v0, [&](int k, int v, float &e) { carry[(i64)h * z.state() + k * V + v] = e; });
}

// through_decay adds up what pairs·raw, with pairs the gradient of the pairs of tokens and raw their
// products, passes on to γ: row sums minus column sums. The diagonal has no decay.
DEV void through_decay(float (&row)[2], float (*columns)[L], sums &pairs, sums &raw) {
  int warp = threadIdx_x / 32, lane = threadIdx_x & 31;
#pragma unroll
  for (int j = 0; j < 8; j++) {
    float column[2] = {0.0f, 0.0f};
#pragma unroll
    for (int e = 0; e < 4; e++) {
      float x = sums::row(e >> 1) == sums::column(j, e) ? 0.0f : pairs.c[j][e] * raw.c[j][e];
      row[e >> 1] += x, column[e & 1] += x;
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
#pragma unroll
      for (int by = 4; by < 32; by <<= 1) column[e] += shuffle_xor(column[e], by);
      if (lane < 4) columns[warp][sums::column(j, e)] += column[e];
    }
  }
}

// scale_pairs turns the products d of gradients and values of two tokens into the gradient of raw
// products of their rows: it multiplies by the decay and by reciprocal lengths.
template <class T> DEV void scale_pairs(T *to, sums &d, const gates &s, const float *left, bool diagonal, const chunk_place &p) {
  d.each([&](int i, int e, float &v, int) {
    v = i < p.n && (e < i || (diagonal && e == i)) ? v * decay(s, i, e) * left[i] * s.rk[e] : 0.0f;
    store(to + i * L + e, v);
  });
}

// delta_gates writes the gradients of the gates of a chunk and head, and those of raw products of
// tokens: of Q·Kᵀ to reads, and of K·Kᵀ to nears.
template <class T>
DEV void delta_gates(T *dgate, float *part, T *reads, T *nears, const T *dqkv, const T *dstates, const T *fresh, const float *kept, const T *d_o,
                     const T *qkv, const T *gate, const float *a_log, const float *dt_bias, const int *cu, states_of states, delta_shape z) {
  __shared__ tile<T> a, b;
  __shared__ gates s;
  __shared__ float gamma[L], of_beta[L], columns[THREADS / 32][L], space[32]; // the sum of sizes is a multiple of 128, as ptxas makes it
  int h = blockIdx_y, kh = h / z.group(), K = z.key_dim, V = z.value_dim, i = threadIdx_x;
  chunk_place p = chunk_of_segment(cu, z, blockIdx_x);
  float *to = part + slot(p, z, h);
  i64 all = (i64)gridDim_x * z.heads;
  if (!p.n) {
    if (i == 0) to[0] = 0.0f, to[all] = 0.0f;
    return;
  }
  const float *state = states.before(p, z, h);
  source<T> q = rows_of(qkv, p, z.width(), kh * K, K), k = rows_of(qkv, p, z.width(), z.in_k(kh), K), v = rows_of(qkv, p, z.width(), z.in_v(h), V),
            dx = rows_of(dqkv, p, z.width(), z.in_v(h), V), out = rows_of(d_o, p, (i64)z.heads * V, h * V, V),
            n = source<T>{fresh + slot(p, z, h) * L * V, V, p.n, V}, dstate = source<T>{dstates + slot(p, z, h) * z.state(), V, K, V};
  sums pairs, term;
  float row[2] = {0.0f, 0.0f}, written[2] = {0.0f, 0.0f}, beta[2] = {0.0f, 0.0f}, keep = 0.0f;
  load_gates(s, kept, p, z, h);
#pragma unroll
  for (int w = 0; w < THREADS / 32; w++)
    if (i < L) columns[w][i] = 0.0f;
#pragma clang loop unroll(disable)
  for (int v0 = 0; v0 < V; v0 += L) {
    auto dots = [&](auto f) {
      term.each([&](int t, int j, float e, int half) {
        if (t < p.n && v0 + j < V) f(t, v0 + j, e, half);
      });
    };
    auto at = [](const source<T> &x, int t, int j) { return to_float(x.x[t * x.stride + j]); };
    if (state) {
      state_product(term, a, b, q, state_source(state, z), v0);
      dots([&](int t, int j, float e, int half) { row[half] += s.from[t] * s.rq[t] * e * at(out, t, j); });
    }
    state_product(term, a, b, k, state_source(state, z), v0);
    dots([&](int t, int j, float e, int half) {
      float d = at(dx, t, j), read = s.from[t] * s.rk[t] * e;
      row[half] -= d * read, beta[half] += d * (at(v, t, j) - read);
    });
    if (p.at + L < p.end) {
      state_product(term, a, b, k, dstate, v0);
      dots([&](int t, int j, float e, int half) { written[half] += t + 1 < p.n ? s.to[t] * s.rk[t] * e * at(n, t, j) : 0.0f; });
    }
  }
  if (state && p.at + L < p.end)
#pragma clang loop unroll_count(8)
    for (int e = i; e < K * V; e += THREADS) keep += state[e] * to_float(dstate.x[e]);
  pairs.clear(), term.clear();
  add_product(pairs, a, b, out, n);
  scale_pairs(reads + slot(p, z, h) * L * L, pairs, s, s.rq, true, p);
  add_product(term, a, b, q, k);
  through_decay(row, columns, pairs, term);
  pairs.clear(), term.clear();
  add_product(pairs, a, b, dx, n);
  pairs.each([&](int, int, float &e, int) { e = -e; });
  scale_pairs(nears + slot(p, z, h) * L * L, pairs, s, s.rk, false, p);
  add_product(term, a, b, k, k);
  float near[2] = {0.0f, 0.0f};
  through_decay(near, columns, pairs, term);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int t = sums::row(half);
    float w = quad_sum(written[half]), r = quad_sum(row[half] + near[half]), o = quad_sum(beta[half] + near[half]);
    if (i % 4 == 0) gamma[t] = r - w, of_beta[t] = o;
    written[half] = i % 4 == 0 ? w : 0.0f;
  }
  keep = block_sum<THREADS / 32, true>(written[0] + written[1] + s.from[p.n - 1] * keep, space);
  if (i < L) {
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) gamma[i] -= columns[w][i];
    if (i == p.n - 1) gamma[i] += keep;
  }
  // A token's g is a term of γ of that token and of all later ones, so its gradient is the sum of theirs.
#pragma clang loop unroll(disable)
  for (int by = 1; by < L; by <<= 1) {
    sync_threads();
    float x = i < L ? gamma[i] + (i + by < p.n ? gamma[i + by] : 0.0f) : 0.0f;
    sync_threads();
    if (i < L) gamma[i] = x;
  }
  float of_a = 0.0f, d = 0.0f;
  if (i < p.n) {
    float up, down;
    i64 token = (i64)(p.at + i) * z.gate_stride;
    sigmoids(to_float(gate[token + z.heads + h]) + dt_bias[h], up, down);
    of_a = gamma[i] * s.g[i], d = -gamma[i] * exp_approx(a_log[h]) * up;
    store(dgate + token + h, of_beta[i] * (1.0f - s.beta[i]));
    store(dgate + token + z.heads + h, d);
  }
  of_a = block_sum<THREADS / 32, true>(of_a, space + THREADS / 32);
  d = block_sum<THREADS / 32, true>(d, space + THREADS / 16);
  if (i == 0) to[0] = of_a, to[all] = d;
}

static constexpr int WIDE = 2 * THREADS; // threads of delta_keys: those after the first THREADS have the columns from L on

template <class T> struct keys_memory {
  tile<T> a, b[2];
  gates s;
  float along[2][L];
};

// delta_keys writes the gradient of q (blockIdx.y even) or k of a chunk and key head. It adds up the
// gradients of rows as they lie in memory, u, with reciprocal lengths r taken as constants; the
// gradient through r is −r²·x·(u·x).
template <class T>
DEV void delta_keys(T *dqkv, const T *reads, const T *nears, const T *dstates, const T *fresh, const float *kept, const T *d_o, const T *qkv,
                    const int *cu, states_of states, delta_shape z) {
  DYNAMIC_SHARED(memory);
  keys_memory<T> &m = *(keys_memory<T> *)memory;
  int kh = blockIdx_y / 2, of_k = blockIdx_y & 1, side = threadIdx_x / THREADS, K = z.key_dim, V = z.value_dim;
  chunk_place p = chunk_of_segment(cu, z, blockIdx_x);
  if (!p.n) return;
  source<T> q = rows_of(qkv, p, z.width(), kh * K, K), k = rows_of(qkv, p, z.width(), z.in_k(kh), K);
  sums total, term;
  total.clear();
#pragma clang loop unroll(disable)
  for (int h = kh * z.group(); h < (kh + 1) * z.group(); h++) {
    const float *state = states.before(p, z, h);
    const T *dstate = dstates + slot(p, z, h) * z.state();
    load_gates<WIDE>(m.s, kept, p, z, h);
#pragma clang loop unroll(disable)
    for (int turn = 0; turn < 2; turn++) { // rows of dO or of the gradient of X, by S; then N, by G
      if (turn ? !of_k || p.at + L >= p.end : !state) continue;
      source<T> x = turn ? source<T>{fresh + slot(p, z, h) * L * V, V, p.n, V}
                         : of_k ? rows_of((const T *)dqkv, p, z.width(), z.in_v(h), V) : rows_of(d_o, p, (i64)z.heads * V, h * V, V);
      term.clear();
#pragma clang loop unroll(disable)
      for (int v0 = 0; v0 < V; v0 += L) {
        sync_threads();
        load<WIDE>(m.a, x.part(0, v0, L));
#pragma clang loop unroll(disable)
        for (int half = 0; half < 2 && half * L < K; half++) {
          if (turn) load<WIDE>(m.b[half], source<T>{dstate, V, K, V}.part(half * L, v0, L));
          else load<WIDE>(m.b[half], state_source(state, z).part(half * L, v0, L));
        }
        sync_threads();
        if (side * L < K) multiply(term, m.a, m.b[side]);
      }
      const float *by = turn ? m.s.to : m.s.from, *length = of_k ? m.s.rk : m.s.rq;
      float sign = of_k && !turn ? -1.0f : 1.0f;
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          int t = sums::row(e >> 1);
          total.c[j][e] = __builtin_fmaf(sign * by[t] * length[t], term.c[j][e], total.c[j][e]);
        }
    }
    // The pairs of tokens: by rows for q, by columns for k, and both ways for pairs of keys.
    sync_threads();
    load<WIDE>(m.a, square(reads, p, z, h));
    load<WIDE>(m.b[0], (of_k ? q : k).part(0, 0, L));
    load<WIDE>(m.b[1], (of_k ? q : k).part(0, L, L));
    sync_threads();
    if (side * L < K) {
      if (of_k) multiply<true, true>(total, m.a, m.b[side]);
      else multiply<false, true>(total, m.a, m.b[side]);
    }
    if (!of_k) continue;
    sync_threads();
    load<WIDE>(m.a, square(nears, p, z, h));
    load<WIDE>(m.b[0], k.part(0, 0, L));
    load<WIDE>(m.b[1], k.part(0, L, L));
    sync_threads();
    if (side * L < K) {
      multiply<false, true>(total, m.a, m.b[side]);
      multiply<true, true>(total, m.a, m.b[side]);
    }
  }
  int column = of_k ? z.in_k(kh) : kh * K;
  const T *x = qkv + (i64)p.at * z.width() + column;
  float along[2] = {0.0f, 0.0f};
  auto own = [&](int t, int c) { return t < p.n && side * L + c < K ? to_float(x[(i64)t * z.width() + side * L + c]) : 0.0f; };
  total.each([&](int t, int c, float u, int half) { along[half] += u * own(t, c); });
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = quad_sum(along[half]);
    if (threadIdx_x % 4 == 0) m.along[side][sums::row(half)] = sum;
  }
  sync_threads();
  total.each([&](int t, int c, float u, int) {
    if (t >= p.n || side * L + c >= K) return;
    float r2 = of_k ? m.s.rk[t] * m.s.rk[t] : m.s.rq[t] * m.s.rq[t] * (float)K;
    store(dqkv + (i64)(p.at + t) * z.width() + column + side * L + c, u - r2 * own(t, c) * (m.along[0][t] + m.along[1][t]));
  });
}

// channel_gradients: reads and nears are the gradients of raw products of tokens, without decays. a and b are tiles of
// products with states. For PART channels q has rows of q, k those of k, decays e^g of a token; then q and local have
// rows of q and k decayed since their block's start, k those of k up to their block's end, and decays and until have
// these decays. over has the decay of a block, gamma the gradient of γ, and columns sums over a block's tokens.
template <class T> struct channel_gradients {
  tile<T> reads, nears;
  union {
    struct { tile<T> a, b; };
    struct { tile<T, PART> q, k, local; float decays[L][PART], until[L][PART]; };
  };
  float gamma[L][PART], over[4][PART], columns[4][PART], last[PART], space[THREADS / 32];
  gates s;
};
typedef sums_of<PART / 8> part_sums;

// channel_pairs sets reads and nears and stores the gradient of the input of β. N is β times the rest of the system's
// right-hand side, so the gradient of β is that of X times N over β².
template <class T>
DEV void channel_pairs(channel_gradients<T> &m, T *dgate, const source<T> &out, const source<T> &dx, const source<T> &n, const chunk_place &p,
                       const delta_shape &z) {
#pragma clang loop unroll(disable)
  for (int turn = 0; turn < 2; turn++) {
    tile<T> &to = turn ? m.nears : m.reads;
    const float *left = turn ? m.s.rk : m.s.rq;
    sums d;
    d.clear();
    add_product(d, m.a, m.b, turn ? dx : out, n);
    d.each([&](int i, int e, float x, int) {
      float by = left[i] * m.s.rk[e];
      to.x[i][e] = convert(T{}, e + turn <= i ? (turn ? -x : x) * by : 0.0f);
      if (!turn || i != e || i >= p.n) return;
      float beta = m.s.beta[i];
      store(dgate + (i64)i * z.gate_stride, beta > 0.0f ? x / beta * (1.0f - beta) : 0.0f);
    });
  }
}

// by_states sets the gradients of rows of q and k that read the state (of_q, of_k) and of rows that write it (of_w),
// for PART channels. m.last receives the sums of products of the state and its gradient.
template <class T>
DEV void by_states(channel_gradients<T> &m, part_sums &of_q, part_sums &of_k, part_sums &of_w, const source<T> &out, const source<T> &dx, const source<T> &n,
                   const source<float> &state, const source<T> &dstate) {
  of_q.clear(), of_k.clear(), of_w.clear();
#pragma clang loop unroll(disable)
  for (int v0 = 0; v0 < out.columns; v0 += L) {
#pragma clang loop unroll(disable)
    for (int turn = 0; turn < 3; turn++) {
      if (turn < 2 ? !state.x : !dstate.x) continue;
      sync_threads();
      load(m.a, (turn == 0 ? out : turn == 1 ? dx : n).part(0, v0, L));
      if (turn == 0) load(m.b, state.part(0, v0, L));
      if (turn == 2) load(m.b, dstate.part(0, v0, L));
      sync_threads();
      if (turn == 0) multiply(of_q, m.a, m.b);
      else if (turn == 1) multiply(of_k, m.a, m.b);
      else multiply(of_w, m.a, m.b);
    }
  }
#pragma clang loop unroll(disable)
  for (int c = threadIdx_x / 32; c < PART; c += THREADS / 32) {
    float sum = 0.0f;
    if (state.x && dstate.x && c < state.rows)
#pragma clang loop unroll(disable)
      for (int v = threadIdx_x & 31; v < out.columns; v += 32) sum += state.x[c * state.stride + v] * to_float(dstate.x[c * dstate.stride + v]);
    sum = warp_sum(sum);
    if (threadIdx_x % 32 == 0) m.last[c] = sum;
  }
  of_q.each([&](int i, int, float &x, int) { x *= m.s.rq[i]; });
  of_k.each([&](int i, int, float &x, int) { x *= -m.s.rk[i]; });
  of_w.each([&](int i, int, float &x, int) { x *= m.s.rk[i]; });
}

// within_blocks_backward sets the gradients of rows of q and k, and gamma, by pairs of tokens in a block of 16. A lane
// has a channel. A pair adds the same to γ of one token as it takes from γ of the other.
template <class T> DEV void within_blocks_backward(channel_gradients<T> &m, float *dq, float *dk, const chunk_place &p, int channels, int K) {
  int c = threadIdx_x & 31;
#pragma clang loop unroll(disable)
  for (int i = threadIdx_x / 32; i < L; i += THREADS / 32) {
    float q = to_float(m.q.x[i][c]), k = to_float(m.k.x[i][c]), own = to_float(m.reads.x[i][i]), of_q = 0.0f, of_k = 0.0f, up = 0.0f, by = 1.0f;
#pragma clang loop unroll(disable)
    for (int e = i - 1; e >= (i & ~15); e--) {
      by *= m.decays[e + 1][c];
      float x = by * to_float(m.k.x[e][c]);
      of_q = __builtin_fmaf(to_float(m.reads.x[i][e]), x, of_q), of_k = __builtin_fmaf(to_float(m.nears.x[i][e]), x, of_k);
    }
#pragma clang loop unroll(disable)
    for (int e = i | 15; e > i; e--) {
      up = __builtin_fmaf(to_float(m.reads.x[e][i]), to_float(m.q.x[e][c]), up);
      up = __builtin_fmaf(to_float(m.nears.x[e][i]), to_float(m.k.x[e][c]), up) * m.decays[e][c];
    }
    m.gamma[i][c] = q * of_q + k * (of_k - up);
    if (i < p.n && c < channels) dq[i * K + c] = of_q + own * k, dk[i * K + c] = of_k + up + own * q;
  }
}

// split_decays makes decays and rows those since a block's start, or up to its end. A warp has a block, a lane a
// channel.
template <class T> DEV void split_decays(channel_gradients<T> &m) {
  int c = threadIdx_x & 31, b = threadIdx_x / 32 * 16;
  float by = 1.0f;
#pragma clang loop unroll(disable)
  for (int i = b + 15; i >= b; i--) m.until[i][c] = by, by *= m.decays[i][c];
  m.over[b / 16][c] = by, by = 1.0f;
#pragma clang loop unroll(disable)
  for (int i = b; i < b + 16; i++) {
    float k = to_float(m.k.x[i][c]);
    m.decays[i][c] = by *= m.decays[i][c];
    m.q.x[i][c] = convert(T{}, to_float(m.q.x[i][c]) * by), m.local.x[i][c] = convert(T{}, k * by);
    m.k.x[i][c] = convert(T{}, k * m.until[i][c]);
  }
}

// between_blocks adds to the gradients by states those by pairs of tokens in different blocks of 16, and then all to
// the gradients of rows and to gamma. A warp has the rows of a block. From block to block sums shrink by the decay of
// a block. gamma has the rounded factors of the products, so that a pair's parts cancel in sums over both tokens.
template <class T>
DEV void between_blocks(channel_gradients<T> &m, part_sums &of_q, part_sums &of_k, part_sums &of_w, float *dq, float *dk, const chunk_place &p, int channels,
                        int K) {
  int warp = threadIdx_x / 32, lane = threadIdx_x & 31;
#pragma unroll
  for (int j = 0; j < PART / 8; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      int c = part_sums::column(j, e), i = part_sums::row(0);
      float sum = to_float(m.k.x[i][c]) * of_w.c[j][e] + (i + 8 < p.n - 1 ? to_float(m.k.x[i + 8][c]) * of_w.c[j][e + 2] : 0.0f);
      if (i >= p.n - 1) sum = 0.0f;
#pragma clang loop unroll(disable)
      for (int b = 3; b > warp; b--) sum *= m.over[b][c];
#pragma unroll
      for (int by = 4; by < 32; by <<= 1) sum += shuffle_xor(sum, by);
      if (lane < 4) m.columns[warp][c] = sum;
    }
#pragma clang loop unroll(disable)
  for (int b = 0; b < warp; b++) {
    of_q.each([&](int, int c, float &x, int) { x *= m.over[b][c]; });
    of_k.each([&](int, int c, float &x, int) { x *= m.over[b][c]; });
    multiply<false, true>(of_q, m.reads, m.k, 16 * b, 16 * b + 16);
    multiply<false, true>(of_k, m.nears, m.k, 16 * b, 16 * b + 16);
  }
#pragma clang loop unroll(disable)
  for (int b = 3; b > warp; b--) {
    of_w.each([&](int, int c, float &x, int) { x *= m.over[b][c]; });
    multiply<true, true>(of_w, m.reads, m.q, 16 * b, 16 * b + 16);
    multiply<true, true>(of_w, m.nears, m.local, 16 * b, 16 * b + 16);
  }
#pragma unroll
  for (int j = 0; j < PART / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int i = part_sums::row(e >> 1), c = part_sums::column(j, e);
      float q = of_q.c[j][e], k = of_k.c[j][e], w = of_w.c[j][e];
      m.gamma[i][c] += to_float(m.q.x[i][c]) * q + to_float(m.local.x[i][c]) * k - (i < p.n - 1 ? to_float(m.k.x[i][c]) * w : 0.0f);
      if (i < p.n && c < channels) dq[i * K + c] += m.decays[i][c] * q, dk[i * K + c] += m.decays[i][c] * k + m.until[i][c] * w;
    }
}

// channel_rates stores the gradients of a of a chunk's tokens, and their sums, those of DtBias, and returns the
// thread's part of that of ALog. A token's g is a term of γ of that token and of all later ones. c0 is the first channel.
template <class T>
DEV float channel_rates(channel_gradients<T> &m, T *da, float *of_bias, const T *a, const float *dt_bias, float rate, const chunk_place &p, int c0, int channels,
                        i64 stride) {
  int c = threadIdx_x & 31, warp = threadIdx_x / 32;
  float sum = 0.0f, dg = m.s.keep(c0 + c) * m.last[c], of_a = 0.0f, total = 0.0f;
#pragma unroll
  for (int b = 0; b < 4; b++) dg += m.columns[b][c];
#pragma clang loop unroll(disable)
  for (int i = 16 * warp; i < 16 * warp + 16; i++) sum += m.gamma[i][c];
  sync_threads();
  m.columns[warp][c] = sum;
  sync_threads();
#pragma clang loop unroll(disable)
  for (int b = 3; b > warp; b--) dg += m.columns[b][c];
#pragma clang loop unroll(disable)
  for (int i = 16 * warp + 15; i >= 16 * warp; i--) {
    if (i >= p.n || c >= channels) continue;
    float x = to_float(a[i * stride + c]) + dt_bias[c], up, down;
    dg += m.gamma[i][c];
    sigmoids(x, up, down);
    float d = -dg * rate * up;
    store(da + i * stride + c, d);
    of_a -= dg * rate * softplus(x), total += d;
  }
  sync_threads();
  m.columns[warp][c] = total;
  sync_threads();
  if (warp == 0 && c < channels) of_bias[c] = m.columns[0][c] + m.columns[1][c] + m.columns[2][c] + m.columns[3][c];
  return of_a;
}

// store_row stores the gradient of a row x of q or k by u, that of the row with its reciprocal length taken as a
// constant; r2 is the square of the latter. A warp calls it.
template <class T> DEV void store_row(T *dx, const float *u, const T *x, float r2, int K) {
  float along = 0.0f;
#pragma clang loop unroll(disable)
  for (int c = threadIdx_x & 31; c < K; c += 32) along += u[c] * to_float(x[c]);
  along = warp_sum(along);
#pragma clang loop unroll(disable)
  for (int c = threadIdx_x & 31; c < K; c += 32) store(dx + c, u[c] - r2 * to_float(x[c]) * along);
}

// channel_keys writes the gradients of q, k, b and a of a chunk and head with a decay for each channel. rows has room
// for those of q and k in fp32. In part are the gradients of ALog of all heads, and then those of DtBias.
template <class T>
DEV void channel_keys(T *dqkv, T *dgate, T *da, float *part, float *rows, const T *dstates, const T *fresh, const float *kept, const T *d_o, const T *qkv,
                      const T *a, const float *a_log, const float *dt_bias, const int *cu, states_of states, delta_shape z) {
  DYNAMIC_SHARED(memory);
  channel_gradients<T> &m = *(channel_gradients<T> *)memory;
  int h = blockIdx_y, K = z.key_dim, V = z.value_dim, warp = threadIdx_x / 32;
  chunk_place p = chunk_of_segment(cu, z, blockIdx_x);
  float *of_bias = part + (i64)gridDim_x * z.heads;
  if (!p.n) {
    if (threadIdx_x < K) of_bias[slot(p, z, h) * K + threadIdx_x] = 0.0f;
    if (threadIdx_x == 0) part[slot(p, z, h)] = 0.0f;
    return;
  }
  auto dx = [&] { return rows_of((const T *)dqkv, p, z.width(), z.in_v(h), V); };
  auto out = [&] { return rows_of(d_o, p, (i64)z.heads * V, h * V, V); };
  auto n = [&] { return source<T>{fresh + slot(p, z, h) * L * V, V, p.n, V}; };
  float rate = exp_approx(a_log[h]), of_a = 0.0f;
  load_gates(m.s, kept, p, z, h);
  sync_threads();
  measure_rows(m.s, qkv, p, z, h);
  channel_pairs(m, dgate + (i64)p.at * z.gate_stride + h, out(), dx(), n(), p, z);
#pragma clang loop unroll(disable)
  for (int c0 = 0; c0 < K; c0 += PART) {
    part_sums of_q, of_k, of_w;
    int channels = min_i(K - c0, PART);
    // Opaque, because the compiler would keep all addresses of the loop in registers.
    asm volatile("" : "+r"(h), "+r"(V), "+r"(p.at), "+r"(z.heads), "+r"(z.value_dim));
    const float *before = states.before(p, z, h);
    const T *behind = p.at + L < p.end ? dstates + slot(p, z, h) * z.state() : (const T *)0;
    sync_threads();
    by_states(m, of_q, of_k, of_w, out(), dx(), n(), source<float>{before ? before + c0 * V : before, V, channels, V},
              source<T>{behind ? behind + c0 * V : behind, V, channels, V});
    sync_threads();
    asm volatile("" : "+r"(h), "+r"(z.heads));
#pragma clang loop unroll(disable)
    for (int turn = 0; turn < 2; turn++) load(turn ? m.k : m.q, rows_of(qkv, p, z.width(), turn ? z.in_k(h) : h * K, K).part(0, c0, PART));
    i64 stride = (i64)z.heads * K, first = (i64)p.at * stride + h * K + c0;
    const float *bias = dt_bias + h * K + c0;
    float *dq = rows + slot(p, z, h) * 2 * L * K + c0, *dk = dq + L * K;
#pragma clang loop unroll(disable)
    for (int i = warp; i < L; i += THREADS / 32) {
      int c = threadIdx_x & 31;
      m.decays[i][c] = i < p.n && c < channels ? exp_approx(-rate * softplus(to_float(a[first + i * stride + c]) + bias[c])) : 1.0f;
    }
    sync_threads();
    within_blocks_backward(m, dq, dk, p, channels, K);
    sync_threads();
    split_decays(m);
    sync_threads();
    between_blocks(m, of_q, of_k, of_w, dq, dk, p, channels, K);
    sync_threads();
    of_a += channel_rates(m, da + first, of_bias + slot(p, z, h) * K + c0, a + first, bias, rate, p, c0, channels, stride);
  }
  of_a = block_sum<THREADS / 32, true>(of_a, m.space);
  if (threadIdx_x == 0) part[slot(p, z, h)] = of_a;
#pragma clang loop unroll(disable)
  for (int i = warp; i < p.n; i += THREADS / 32) {
    i64 at = (i64)(p.at + i) * z.width();
    const float *dq = rows + (slot(p, z, h) * 2 * L + i) * K, *dk = dq + L * K;
    store_row(dqkv + at + h * K, dq, qkv + at + h * K, m.s.rq[i] * m.s.rq[i] * (float)K, K);
    store_row(dqkv + at + z.in_k(h), dk, qkv + at + z.in_k(h), m.s.rk[i] * m.s.rk[i], K);
  }
}

#define SHAPE int seqs, int key_heads, int heads, int key_dim, int value_dim, int gate_stride, int start
#define SHAPED delta_shape{seqs, key_heads, heads, key_dim, value_dim, gate_stride, start}
#define FORMS(T, SUFFIX, NAME, C)                                                                                                            \
  __global__ __launch_bounds__(THREADS, 1) void NAME##_states_##SUFFIX(T *o, const T *systems, const float *kept, const float *carried, float *carry, \
                                                                    const T *qkv, const T *q, const T *k, const T *written, const T *scores,   \
                                                                    const int *cu, float *states, float *initial, int by_slot, float *last,    \
                                                                    SHAPE) {                                                                   \
    delta_states<C>(o, systems, kept, carried, carry, qkv, channel_rows<T>{q, k, written, scores}, cu, states_of{states, initial, by_slot}, last, SHAPED); \
  }                                                                                                                                            \
  __global__ __launch_bounds__(THREADS, 1) void NAME##_out_##SUFFIX(T *o, const float *kept, const T *qkv, const T *q, const T *k, const T *written, \
                                                                 const T *scores, const int *cu, float *states, float *initial, int by_slot,   \
                                                                 SHAPE) {                                                                      \
    delta_out<C>(o, kept, qkv, channel_rows<T>{q, k, written, scores}, cu, states_of{states, initial, by_slot}, SHAPED);                       \
  }                                                                                                                                            \
  __global__ __launch_bounds__(THREADS, 1) void NAME##_values_##SUFFIX(T *dqkv, T *fresh, const T *systems, const float *kept, const T *d_o,   \
                                                                    const T *qkv, const T *q, const T *k, const T *written, const T *scores,   \
                                                                    const int *cu, float *states, SHAPE) {                                     \
    delta_values<C>(dqkv, fresh, systems, kept, d_o, qkv, channel_rows<T>{q, k, written, scores}, cu, states_of{states, 0, 0}, SHAPED);        \
  }                                                                                                                                            \
  __global__ __launch_bounds__(THREADS, 1) void NAME##_dstates_##SUFFIX(T *dqkv, T *dstates, const T *systems, const float *kept,              \
                                                                     const float *carried, float *carry, const T *d_o, const T *qkv,           \
                                                                     const T *q, const T *k, const T *written, const T *scores, const int *cu, \
                                                                     SHAPE) {                                                                  \
    delta_dstates<C>(dqkv, dstates, systems, kept, carried, carry, d_o, qkv, channel_rows<T>{q, k, written, scores}, cu, SHAPED);              \
  }
#define KERNELS(T, SUFFIX)                                                                                                                     \
  __global__ __launch_bounds__(THREADS, 1) void delta_system_##SUFFIX(T *systems, float *kept, const T *qkv, const T *gate, const float *a_log,   \
                                                                   const float *dt_bias, const int *cu, SHAPE) {                               \
    delta_system(systems, kept, qkv, gate, a_log, dt_bias, cu, SHAPED);                                                                        \
  }                                                                                                                                            \
  FORMS(T, SUFFIX, delta, false)                                                                                                             \
  FORMS(T, SUFFIX, channel, true)                                                                                                            \
  __global__ __launch_bounds__(THREADS, 1) void channel_system_##SUFFIX(T *systems, float *kept, T *q, T *k, T *written, T *scores, const T *qkv, \
                                                                     const T *gate, const T *a, const float *a_log, const float *dt_bias,      \
                                                                     const int *cu, SHAPE) {                                                   \
    channel_system(systems, kept, q, k, written, scores, qkv, gate, a, a_log, dt_bias, cu, SHAPED);                                            \
  }                                                                                                                                            \
  __global__ __launch_bounds__(THREADS, 1) void channel_keys_##SUFFIX(                                                                         \
      T *dqkv, T *dgate, T *da, float *part, float *rows, const T *dstates, const T *fresh, const float *kept, const T *d_o, const T *qkv,     \
      const T *a, const float *a_log, const float *dt_bias, const int *cu, float *states, SHAPE) {                                             \
    channel_keys(dqkv, dgate, da, part, rows, dstates, fresh, kept, d_o, qkv, a, a_log, dt_bias, cu, states_of{states, 0, 0}, SHAPED);         \
  }                                                                                                                                            \
  __global__ __launch_bounds__(THREADS, 1) void delta_gates_##SUFFIX(                                                                          \
      T *dgate, float *part, T *reads, T *nears, const T *dqkv, const T *dstates, const T *fresh, const float *kept, const T *d_o,             \
      const T *qkv, const T *gate, const float *a_log, const float *dt_bias, const int *cu, float *states, SHAPE) {                            \
    delta_gates(dgate, part, reads, nears, dqkv, dstates, fresh, kept, d_o, qkv, gate, a_log, dt_bias, cu, states_of{states, 0, 0}, SHAPED);   \
  }                                                                                                                                            \
  __global__ __launch_bounds__(WIDE, 1) void delta_keys_##SUFFIX(T *dqkv, const T *reads, const T *nears, const T *dstates, const T *fresh,    \
                                                                 const float *kept, const T *d_o, const T *qkv, const int *cu, float *states,  \
                                                                 SHAPE) {                                                                      \
    delta_keys(dqkv, reads, nears, dstates, fresh, kept, d_o, qkv, cu, states_of{states, 0, 0}, SHAPED);                                       \
  }

extern "C" {
KERNELS(float, f32)
KERNELS(bf16, bf16)
}
