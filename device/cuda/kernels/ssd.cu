// SSD and its backward, the state space scan of Mamba-2 by chunks of 64 tokens: op.SSD says what
// they compute. With γ the sum of −e^ALog·dt from the chunk's first token on, S the state before
// the chunk, and decay_ij = e^(γi−γj) for j ≤ i of one sequence:
//
//	O = (C·Bᵀ·decay·dt_j)·X + from·C·Sᵀ + D·X;   S ← keep·S + (to·dt·X)ᵀ·B
//
// from is e^γ for tokens that read S, and to is e^(γlast−γ) for tokens that the state after the
// chunk includes. keep is e^γlast; all are 0 across the beginning of a sequence.
//
// Forward: ssd_states writes what each chunk adds to the state, ssd_pass adds these up from chunk
// to chunk, ssd_scan writes O. Backward: ssd_dstates and ssd_dpass do the same for the gradients of
// the states. ssd_heads writes the gradients of X and dt, and ssd_groups those of B and C, which
// are sums over the heads of a group.
//
// A block computes a chunk and a head (ssd_groups: a group), and 64 columns of its result. Matrix
// products use tiles of 64×64 in shared memory (chunk.cuh).
#include "chunk.cuh"

static constexpr int THREADS = 128;

struct shape {
  int seqs, tokens, groups, heads, head_dim, state_dim, dt_stride;
  float dt_min, dt_max;
  METHOD int chunks() const { return (tokens + L - 1) / L; }
  METHOD int inner() const { return heads * head_dim; }
  METHOD int width() const { return inner() + 2 * groups * state_dim; }
  METHOD int in_b(int group) const { return inner() + group * state_dim; }
  METHOD int in_c(int group) const { return inner() + (groups + group) * state_dim; }
  METHOD i64 state(int chunk, int h) const { return ((i64)chunk * heads + h) * head_dim * state_dim; }
  METHOD int head_tiles() const { return (head_dim + L - 1) / L; }
  METHOD int state_tiles() const { return (state_dim + L - 1) / L; }
};

// steps has numbers of a chunk's tokens for one head. γ is the sum of two floats, sum and low: only
// differences of γ are used, and in one float they would lose their bits. raw and dt are the time
// step before and after softplus. from, to and keep are the factors defined at the top of this
// file.
struct steps {
  float raw[L], dt[L], sum[L], low[L], from[L], to[L], keep, rate;
  int first[L], n, at, next; // first: first token of the token's sequence; next: the same for the token after the chunk
};

DEV int first_of(const int *cu, int seqs, int t) {
  int lo = 0, hi = seqs; // cu[lo] <= t < cu[hi]
#pragma clang loop unroll(disable)
  while (hi - lo > 1) {
    int mid = (lo + hi) >> 1;
    if (cu[mid] <= t) lo = mid;
    else hi = mid;
  }
  return cu[lo];
}

// load_steps fills s for head h of a chunk. goes_on says that a state precedes token 0. All threads
// of the block call it.
template <class T>
DEV void load_steps(steps &s, const T *dt, const float *a_log, const float *dt_bias, const int *cu, const shape &z, int chunk, int h, bool goes_on) {
  int i = threadIdx_x, at = chunk * L, n = min_i(L, z.tokens - at);
  sync_threads();
  if (i == L) {
    s.rate = exp_approx(a_log[h]), s.n = n, s.at = at;
    s.next = at + n < z.tokens ? first_of(cu, z.seqs, at + n) : -1;
  }
  if (i < L) {
    float raw = 0.0f, d = 0.0f;
    int first = -1;
    if (i < n) {
      first = first_of(cu, z.seqs, at + i);
      raw = to_float(dt[(i64)(at + i) * z.dt_stride + h]) + dt_bias[h];
      d = max_f(raw, 0.0f) + log_f(1.0f + exp_approx(-__builtin_fabsf(raw)));
      d = __builtin_fminf(max_f(d, z.dt_min), z.dt_max);
    }
    s.raw[i] = raw, s.dt[i] = d, s.first[i] = first, s.sum[i] = -exp_approx(a_log[h]) * d, s.low[i] = 0.0f;
  }
  sync_threads();
#pragma clang loop unroll(disable)
  for (int by = 1; by < L; by <<= 1) {
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
    sync_threads();
  }
  if (i < L) {
    bool alive = s.next < at + n, reads = (s.first[i] < at || (goes_on && at == 0)) && i < n;
    float all = s.sum[n - 1] + s.low[n - 1];
    s.from[i] = reads ? exp_approx(s.sum[i] + s.low[i]) : 0.0f;
    s.to[i] = alive && i < n && at + i >= s.first[n - 1] ? exp_approx((s.sum[n - 1] - s.sum[i]) + (s.low[n - 1] - s.low[i])) : 0.0f;
    if (i == n - 1) s.keep = alive && reads ? exp_approx(all) : 0.0f;
  }
  sync_threads();
}

// decay returns the factor by which a value that token e wrote to the state has shrunk when token i
// reads it. It is 0 unless e ≤ i and both are in one sequence.
DEV float decay(const steps &s, int i, int e) {
  if (e > i || i >= s.n || s.at + e < s.first[i]) return 0.0f;
  return exp_approx((s.sum[i] - s.sum[e]) + (s.low[i] - s.low[e]));
}

// multiply is s += A·Bᵀ, as that of chunk.cuh, by plain loads: ldmatrix makes the kernels with three sums spill more.
DEV void multiply(sums &s, const tile<bf16> &a, const tile<bf16> &b) {
  int r = sums::row(0), g = (threadIdx_x & 31) / 4, t = threadIdx_x & 3;
#pragma unroll
  for (int k = 0; k < L; k += 16) {
    u32 of_a[4] = {*(const u32 *)&a.x[r][k + 2 * t], *(const u32 *)&a.x[r + 8][k + 2 * t], *(const u32 *)&a.x[r][k + 8 + 2 * t],
                   *(const u32 *)&a.x[r + 8][k + 8 + 2 * t]};
#pragma unroll
    for (int j = 0; j < 8; j++) mma_bf16(s.c[j], of_a, *(const u32 *)&b.x[8 * j + g][k + 2 * t], *(const u32 *)&b.x[8 * j + g][k + 8 + 2 * t]);
  }
}
DEV void multiply(sums &s, const tile<float> &a, const tile<float> &b) {
  int r = sums::row(0), t = threadIdx_x & 3;
#pragma clang loop unroll(disable)
  for (int k = 0; k < L; k++) {
    float u = a.x[r][k], v = a.x[r + 8][k];
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float x = b.x[8 * j + 2 * t][k], y = b.x[8 * j + 2 * t + 1][k];
      s.c[j][0] = __builtin_fmaf(u, x, s.c[j][0]), s.c[j][1] = __builtin_fmaf(u, y, s.c[j][1]);
      s.c[j][2] = __builtin_fmaf(v, x, s.c[j][2]), s.c[j][3] = __builtin_fmaf(v, y, s.c[j][3]);
    }
  }
}

// fill sets element (r, k) of a tile to f(r, k). Neighbouring threads have neighbouring k or, with
// ROWS, neighbouring r. The loop is not unrolled, since the kernels with three sums have no
// registers for several loads at a time.
template <bool ROWS, class T, class F> DEV void fill(tile<T> &y, F f) {
#pragma clang loop unroll(disable)
  for (int at = threadIdx_x; at < L * L; at += THREADS) {
    int r = ROWS ? at % L : at / L, k = ROWS ? at / L : at % L;
    y.x[r][k] = convert(T{}, f(r, k));
  }
}

// view reads element (token of the chunk, column) of a table in global memory. Elements outside are
// 0.
template <class T> struct view {
  const T *x;
  i64 stride;
  int rows, columns;
  METHOD float operator()(int i, int j) const { return i < rows && j < columns ? to_float(x[i * stride + j]) : 0.0f; }
};

template <class T> DEV view<T> rows_of(const T *x, const shape &z, int chunk, i64 stride, int column, int columns) {
  return view<T>{x + (i64)chunk * L * stride + column, stride, min_i(L, z.tokens - chunk * L), columns};
}

// state_of is a view of the state of head h before a chunk. Its columns are those of B.
DEV view<float> state_of(const float *states, const shape &z, int chunk, int h) {
  return view<float>{states + z.state(chunk, h), z.state_dim, z.head_dim, z.state_dim};
}

// outer computes the sum of by·x·yᵀ over the chunk's tokens, for the 64 columns of x from p0 and of
// y from n0 on, and stores it in to.
template <class T, class F> DEV void outer(tile<T> &a, tile<T> &b, float *to, const shape &z, const view<T> &x, const view<T> &y, int p0, int n0, F by) {
  sums s;
  s.clear();
  fill<true>(a, [&](int p, int i) { return by(i) * x(i, p0 + p); });
  fill<true>(b, [&](int n, int i) { return y(i, n0 + n); });
  sync_threads();
  multiply(s, a, b);
  s.each([&](int p, int n, float v, int) {
    if (p0 + p < z.head_dim && n0 + n < z.state_dim) to[(i64)(p0 + p) * z.state_dim + n0 + n] = v;
  });
}

// ssd_states writes what one chunk adds to the state. The block's head is blockIdx.y/tiles, and the
// rest of blockIdx.y is its tile of a state. If behind, the sum after the last chunk, is not
// wanted, there is no block for the last chunk.
template <class T>
DEV void ssd_states(float *states, float *behind, float *keeps, const T *xbc, const T *dt, const float *a_log, const float *dt_bias, const int *cu,
                    int goes_on, shape z) {
  __shared__ tile<T> a, b;
  __shared__ steps s;
  int c = blockIdx_x, tiles = z.head_tiles() * z.state_tiles(), h = blockIdx_y / tiles, which = blockIdx_y % tiles, group = h / (z.heads / z.groups);
  int p0 = which / z.state_tiles() * L, n0 = which % z.state_tiles() * L;
  load_steps(s, dt, a_log, dt_bias, cu, z, c, h, goes_on != 0);
  if (which == 0 && threadIdx_x == 0) keeps[(i64)c * z.heads + h] = s.keep;
  float *to = c + 1 < z.chunks() ? states + z.state(c + 1, h) : behind + z.state(0, h);
  outer(a, b, to, z, rows_of(xbc, z, c, z.width(), h * z.head_dim, z.head_dim), rows_of(xbc, z, c, z.width(), z.in_b(group), z.state_dim), p0, n0,
        [&](int i) { return s.to[i] * s.dt[i]; });
}

// ssd_pass adds up the states from chunk to chunk. A thread has one element of a state.
DEV void ssd_pass(float *states, float *last, const float *behind, const float *keeps, shape z) {
  i64 all = z.state(1, 0), e = (i64)blockIdx_x * blockDim_x + threadIdx_x;
  if (e >= all) return;
  int h = e / (z.head_dim * z.state_dim), chunks = z.chunks();
  float s = last ? last[e] : 0.0f;
  states[e] = s;
#pragma clang loop unroll_count(4)
  for (int c = 1; c < chunks; c++) states[c * all + e] = s = __builtin_fmaf(keeps[(i64)(c - 1) * z.heads + h], s, states[c * all + e]);
  if (last) last[e] = __builtin_fmaf(keeps[(i64)(chunks - 1) * z.heads + h], s, behind[e]);
}

DEV void ssd_dpass(float *dstates, const float *keeps, shape z) {
  i64 all = z.state(1, 0), e = (i64)blockIdx_x * blockDim_x + threadIdx_x;
  if (e >= all) return;
  int h = e / (z.head_dim * z.state_dim), chunks = z.chunks();
  float s = 0.0f;
  dstates[(chunks - 1) * all + e] = s;
#pragma clang loop unroll_count(4)
  for (int c = chunks - 1; c > 0; c--) dstates[(c - 1) * all + e] = s = __builtin_fmaf(keeps[(i64)c * z.heads + h], s, dstates[(c - 1) * all + e]);
}

// product adds to s the sum over columns of x(r, ·)·y(y0 + q, ·), for rows r and q of 64, tile by
// tile.
template <class T, class X, class Y> DEV void product(sums &s, tile<T> &a, tile<T> &b, const X &x, const Y &y, int columns, int y0) {
#pragma clang loop unroll(disable)
  for (int k0 = 0; k0 < columns; k0 += L) {
    sync_threads();
    fill<false>(a, [&](int i, int k) { return x(i, k0 + k); });
    fill<false>(b, [&](int j, int k) { return y(y0 + j, k0 + k); });
    sync_threads();
    multiply(s, a, b);
  }
}

template <class T>
DEV void ssd_scan(T *o, const T *xbc, const T *dt, const float *a_log, const float *dt_bias, const float *skip, const int *cu, const float *states,
                  int goes_on, shape z) {
  __shared__ tile<T> a, b;
  __shared__ steps s;
  int c = blockIdx_x, tiles = z.head_tiles(), h = blockIdx_y / tiles, p0 = blockIdx_y % tiles * L, group = h / (z.heads / z.groups);
  view<T> x = rows_of(xbc, z, c, z.width(), h * z.head_dim, z.head_dim), of_b = rows_of(xbc, z, c, z.width(), z.in_b(group), z.state_dim),
          of_c = rows_of(xbc, z, c, z.width(), z.in_c(group), z.state_dim);
  load_steps(s, dt, a_log, dt_bias, cu, z, c, h, goes_on != 0);
  sums scores, out, carried;
  scores.clear(), out.clear(), carried.clear();
  product(scores, a, b, of_c, of_b, z.state_dim, 0);
  product(carried, a, b, of_c, state_of(states, z, c, h), z.state_dim, p0);
  scores.each([&](int i, int j, float &v, int) { v *= decay(s, i, j) * s.dt[j]; });
  sync_threads();
  keep_sums(a, scores);
  fill<true>(b, [&](int p, int j) { return x(j, p0 + p); });
  sync_threads();
  multiply(out, a, b);
  carried.each([&](int i, int p, float &v, int) { v *= s.from[i]; });
#pragma unroll
  for (int j = 0; j < 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int i = sums::row(e >> 1), p = p0 + sums::column(j, e);
      if (i < s.n && p < z.head_dim) store(o + (i64)(s.at + i) * z.inner() + h * z.head_dim + p, out.c[j][e] + carried.c[j][e] + skip[h] * x(i, p));
    }
}

// ssd_dstates writes what one chunk adds to the gradient of the state before it. No state precedes
// chunk 0, so there is no block for it.
template <class T>
DEV void ssd_dstates(float *dstates, float *keeps, const T *dy, const T *xbc, const T *dt, const float *a_log, const float *dt_bias, const int *cu,
                     shape z) {
  __shared__ tile<T> a, b;
  __shared__ steps s;
  int c = blockIdx_x + 1, tiles = z.head_tiles() * z.state_tiles(), h = blockIdx_y / tiles, which = blockIdx_y % tiles, group = h / (z.heads / z.groups);
  int p0 = which / z.state_tiles() * L, n0 = which % z.state_tiles() * L;
  load_steps(s, dt, a_log, dt_bias, cu, z, c, h, false);
  if (which == 0 && threadIdx_x == 0) keeps[(i64)c * z.heads + h] = s.keep;
  outer(a, b, dstates + z.state(c - 1, h), z, rows_of(dy, z, c, z.inner(), h * z.head_dim, z.head_dim),
        rows_of(xbc, z, c, z.width(), z.in_c(group), z.state_dim), p0, n0, [&](int i) { return s.from[i]; });
}

// ssd_heads writes the gradients of X and dt for a chunk and head. In its products, rows are tokens
// j that write to the state, and columns are tokens i that read from it.
template <class T>
DEV void ssd_heads(T *dxbc, T *ddt, float *part, const T *dy, const T *xbc, const T *dt, const float *a_log, const float *dt_bias, const float *skip,
                   const int *cu, const float *states, const float *dstates, shape z) {
  __shared__ tile<T> a, b;
  __shared__ steps s;
  __shared__ float gamma[L], written[L], of_dt[L], columns[THREADS / 32][L], space[THREADS / 32];
  int c = blockIdx_x, h = blockIdx_y, group = h / (z.heads / z.groups), warp = threadIdx_x / 32, lane = threadIdx_x & 31;
  view<T> x = rows_of(xbc, z, c, z.width(), h * z.head_dim, z.head_dim), of_b = rows_of(xbc, z, c, z.width(), z.in_b(group), z.state_dim),
          of_c = rows_of(xbc, z, c, z.width(), z.in_c(group), z.state_dim), out = rows_of(dy, z, c, z.inner(), h * z.head_dim, z.head_dim);
  view<float> state = state_of(states, z, c, h), dstate = state_of(dstates, z, c, h);
  load_steps(s, dt, a_log, dt_bias, cu, z, c, h, false);
  sums scores, term;
  float row[2] = {0.0f, 0.0f}, own[2] = {0.0f, 0.0f}, read[2] = {0.0f, 0.0f}, put[2] = {0.0f, 0.0f}, skips = 0.0f, kept = 0.0f;
  scores.clear(), term.clear();
  product(scores, a, b, of_b, of_c, z.state_dim, 0);
  product(term, a, b, x, out, z.head_dim, 0);
  scores.each([&](int j, int i, float &v, int) { v *= decay(s, i, j); });
  // The gradient through the factor e^(γi−γj) to γ. The diagonal is left out: there the same number
  // would be added and subtracted.
#pragma unroll
  for (int j = 0; j < 8; j++) {
    float column[2] = {0.0f, 0.0f};
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int of = sums::row(e >> 1), i = sums::column(j, e);
      float q = of == i ? 0.0f : scores.c[j][e] * term.c[j][e] * s.dt[of];
      row[e >> 1] += q, column[e & 1] += q;
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
#pragma unroll
      for (int by = 4; by < 32; by <<= 1) column[e] += shuffle_xor(column[e], by);
      if (lane < 4) columns[warp][sums::column(j, e)] = column[e];
    }
  }
#pragma clang loop unroll(disable)
  for (int p0 = 0; p0 < z.head_dim; p0 += L) {
    sums dx, keys;
    dx.clear(), keys.clear(), term.clear();
    sync_threads();
    keep_sums(a, scores);
    fill<true>(b, [&](int p, int i) { return out(i, p0 + p); });
    sync_threads();
    multiply(dx, a, b);
    product(keys, a, b, of_b, dstate, z.state_dim, p0);
    product(term, a, b, of_c, state, z.state_dim, p0);
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int half = e >> 1, t = sums::row(half), p = p0 + sums::column(j, e);
        float v = x(t, p), d = out(t, p), all = __builtin_fmaf(s.to[t], keys.c[j][e], dx.c[j][e]);
        own[half] += v * all, put[half] += v * keys.c[j][e], read[half] += d * term.c[j][e], skips += v * d;
        if (t < s.n && p < z.head_dim)
          store(dxbc + (i64)(s.at + t) * z.width() + h * z.head_dim + p, __builtin_fmaf(s.dt[t], all, skip[h] * d));
      }
  }
#pragma clang loop unroll(disable)
  for (int e = threadIdx_x; e < z.head_dim * z.state_dim; e += THREADS) kept += state.x[e] * dstate.x[e];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int t = sums::row(half);
    float r = quad_sum(row[half]), o = quad_sum(own[half]), w = quad_sum(put[half]) * s.to[t] * s.dt[t], f = quad_sum(read[half]) * s.from[t];
    if (lane % 4 == 0) gamma[t] = f - r - w, written[t] = w, of_dt[t] = o;
  }
  skips = block_sum<THREADS / 32>(skips, space);
  kept = block_sum<THREADS / 32>(kept, space);
  float more = block_sum<THREADS / 32>(threadIdx_x < L ? written[threadIdx_x] : 0.0f, space) + s.keep * kept;
  int i = threadIdx_x;
  if (i < L) {
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) gamma[i] += columns[w][i];
    if (i == s.n - 1) gamma[i] += more;
  }
  sync_threads();
  // A token's time step is a term of γ of that token and all later ones of its sequence, so its
  // gradient is the sum of theirs.
#pragma clang loop unroll(disable)
  for (int by = 1; by < L; by <<= 1) {
    float v = 0.0f;
    if (i < L) v = gamma[i] + (i + by < s.n && s.first[i + by] == s.first[i] ? gamma[i + by] : 0.0f);
    sync_threads();
    if (i < L) gamma[i] = v;
    sync_threads();
  }
  float of_a = 0.0f, d = 0.0f;
  if (i < s.n) {
    float up, down, raw = s.raw[i], whole = max_f(raw, 0.0f) + log_f(1.0f + exp_approx(-__builtin_fabsf(raw)));
    sigmoids(raw, up, down);
    of_a = -gamma[i] * s.rate * s.dt[i];
    d = whole < z.dt_min || whole > z.dt_max ? 0.0f : (of_dt[i] - s.rate * gamma[i]) * up;
    store(ddt + (i64)(s.at + i) * z.dt_stride + h, d);
  }
  of_a = block_sum<THREADS / 32>(of_a, space);
  d = block_sum<THREADS / 32>(d, space);
  if (threadIdx_x == 0) {
    i64 each = (i64)z.chunks() * z.heads, to = (i64)c * z.heads + h;
    part[to] = of_a, part[each + to] = d, part[2 * each + to] = skips;
  }
}

// ssd_groups writes the gradients of B and C for a chunk. blockIdx.y encodes a group, 64 columns,
// and whether they are those of C or of B. Rows of sums are tokens i for C, or j for B.
template <class T>
DEV void ssd_groups(T *dxbc, const T *dy, const T *xbc, const T *dt, const float *a_log, const float *dt_bias, const int *cu, const float *states,
                    const float *dstates, shape z) {
  __shared__ tile<T> a, b;
  __shared__ steps s;
  bool of_c = blockIdx_y & 1;
  int c = blockIdx_x, n0 = blockIdx_y / 2 % z.state_tiles() * L, group = blockIdx_y / 2 / z.state_tiles(), heads = z.heads / z.groups;
  sums pairs, total, term;
  pairs.clear(), total.clear();
#pragma clang loop unroll(disable)
  for (int h = group * heads; h < (group + 1) * heads; h++) {
    view<T> x = rows_of(xbc, z, c, z.width(), h * z.head_dim, z.head_dim), out = rows_of(dy, z, c, z.inner(), h * z.head_dim, z.head_dim);
    view<T> mine = of_c ? out : x, other = of_c ? x : out;
    view<float> state = state_of(of_c ? states : dstates, z, c, h);
    load_steps(s, dt, a_log, dt_bias, cu, z, c, h, false);
    term.clear();
    product(term, a, b, mine, other, z.head_dim, 0);
    term.each([&](int r, int k, float &v, int) { v *= of_c ? decay(s, r, k) * s.dt[k] : decay(s, k, r) * s.dt[r]; });
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) pairs.c[j][e] += term.c[j][e];
    term.clear();
#pragma clang loop unroll(disable)
    for (int p0 = 0; p0 < z.head_dim; p0 += L) {
      sync_threads();
      fill<false>(a, [&](int r, int p) { return mine(r, p0 + p); });
      fill<true>(b, [&](int n, int p) { return n0 + n < z.state_dim ? state(p0 + p, n0 + n) : 0.0f; });
      sync_threads();
      multiply(term, a, b);
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int r = sums::row(e >> 1);
        total.c[j][e] = __builtin_fmaf(of_c ? s.from[r] : s.to[r] * s.dt[r], term.c[j][e], total.c[j][e]);
      }
  }
  view<T> rows = rows_of(xbc, z, c, z.width(), of_c ? z.in_b(group) : z.in_c(group), z.state_dim);
  sync_threads();
  keep_sums(a, pairs);
  fill<true>(b, [&](int n, int k) { return rows(k, n0 + n); });
  sync_threads();
  multiply(total, a, b);
  total.each([&](int r, int n, float v, int) {
    if (r < s.n && n0 + n < z.state_dim) store(dxbc + (i64)(s.at + r) * z.width() + (of_c ? z.in_c(group) : z.in_b(group)) + n0 + n, v);
  });
}

#define SHAPE int seqs, int tokens, int groups, int heads, int head_dim, int state_dim, int dt_stride, float dt_min, float dt_max
#define SHAPED shape{seqs, tokens, groups, heads, head_dim, state_dim, dt_stride, dt_min, dt_max}
#define KERNELS(T, SUFFIX)                                                                                                                       \
  __global__ __launch_bounds__(THREADS) void ssd_states_##SUFFIX(float *states, float *behind, float *keeps, const T *xbc, const T *dt,           \
                                                                const float *a_log, const float *dt_bias, const int *cu, int goes_on, SHAPE) {   \
    ssd_states(states, behind, keeps, xbc, dt, a_log, dt_bias, cu, goes_on, SHAPED);                                                             \
  }                                                                                                                                              \
  __global__ __launch_bounds__(THREADS) void ssd_scan_##SUFFIX(T *o, const T *xbc, const T *dt, const float *a_log, const float *dt_bias,        \
                                                              const float *skip, const int *cu, const float *states, int goes_on, SHAPE) {       \
    ssd_scan(o, xbc, dt, a_log, dt_bias, skip, cu, states, goes_on, SHAPED);                                                                     \
  }                                                                                                                                              \
  __global__ __launch_bounds__(THREADS) void ssd_dstates_##SUFFIX(float *dstates, float *keeps, const T *dy, const T *xbc, const T *dt,          \
                                                                 const float *a_log, const float *dt_bias, const int *cu, SHAPE) {               \
    ssd_dstates(dstates, keeps, dy, xbc, dt, a_log, dt_bias, cu, SHAPED);                                                                        \
  }                                                                                                                                              \
  __global__ __launch_bounds__(THREADS) void ssd_heads_##SUFFIX(T *dxbc, T *ddt, float *part, const T *dy, const T *xbc, const T *dt,            \
                                                               const float *a_log, const float *dt_bias, const float *skip, const int *cu,       \
                                                               const float *states, const float *dstates, SHAPE) {                               \
    ssd_heads(dxbc, ddt, part, dy, xbc, dt, a_log, dt_bias, skip, cu, states, dstates, SHAPED);                                                  \
  }                                                                                                                                              \
  __global__ __launch_bounds__(THREADS) void ssd_groups_##SUFFIX(T *dxbc, const T *dy, const T *xbc, const T *dt, const float *a_log,            \
                                                                const float *dt_bias, const int *cu, const float *states,                        \
                                                                const float *dstates, SHAPE) {                                                   \
    ssd_groups(dxbc, dy, xbc, dt, a_log, dt_bias, cu, states, dstates, SHAPED);                                                                  \
  }

extern "C" {
KERNELS(float, f32)
KERNELS(bf16, bf16)
__global__ __launch_bounds__(256) void ssd_pass(float *states, float *last, const float *behind, const float *keeps, SHAPE) {
  ssd_pass(states, last, behind, keeps, SHAPED);
}
__global__ __launch_bounds__(256) void ssd_dpass(float *dstates, const float *keeps, SHAPE) { ssd_dpass(dstates, keeps, SHAPED); }
}
