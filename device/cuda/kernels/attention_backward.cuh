// Attention, backward, bf16: overwrites DQ, DK and DV, from Q, K, V, O, LSE and DO.
//
// With P = 2^(scale·log₂e·QKᵀ − LSE), dP = DO·Vᵀ, Delta = rowsum(DO ∘ O) and dS = P ∘ (dP − Delta):
//
//	DV = Pᵀ·DO    DK = scale·dSᵀ·Q    DQ = scale·dS·K
//
// (arXiv:2205.14135, appendix B.4). Three kernels, without atomics and without memory other than
// Delta: the first computes Delta (attention_delta.cu). The second (dkdv) computes DK and DV by
// tiles of keys. Each tile goes over the query heads of its group and their queries in a fixed
// order. The third (dq) computes DQ by tiles of queries. That is seven matrix products; if the
// caller gives memory for sums, attention_gradients.cuh does with five.
//
// In dkdv and dq a warp owns 16 rows of the result. It computes P and dS with these as their rows.
// The result of one product, once rounded, is then the A operand of the next and never leaves
// registers. A warp skips the parts of a tile in which no query sees one of its keys.
#pragma once

#include "attention.cuh"

template <int F> DEV void clear(float (&c)[F][4]) {
#pragma unroll
  for (int n = 0; n < F; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) c[n][e] = 0.0f;
}

// product is s = A·Bᵀ of COLUMNS columns of 16 rows of A and N of B, in tiles that
// are D wide. A is held in registers, or read at this lane's address. B begins
// OFFSET bytes after this lane's address.
template <int D, int N, int OFFSET, bool KEEP, int COLUMNS = D, int F>
DEV void product(float (&s)[N / 8][4], const u32 (&kept)[F][4], u32 a_lane, u32 b_lane) {
  using Tile = SharedTile<D>;
  clear(s);
#pragma unroll
  for (int i = 0; i < COLUMNS / 16; i++) {
    u32 a[4];
    if (!KEEP) ldmatrix_x4(a, Tile::step(a_lane, 0, i * 16));
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
      u32 b[4];
      ldmatrix_x4(b, Tile::step(b_lane, n * 16, i * 16) + OFFSET);
      mma_bf16(s[2 * n], KEEP ? kept[i % F] : a, b[0], b[1]);
      mma_bf16(s[2 * n + 1], KEEP ? kept[i % F] : a, b[2], b[3]);
    }
  }
}

// limit replaces products of queries and keys by the tanh of their scores (softcap) and keeps the
// slopes. times multiplies gradients by those slopes.
template <int F> DEV void limit(float (&p)[F][4], float (&slope)[F][4], const Shape &a) {
#pragma unroll
  for (int n = 0; n < F; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) p[n][e] = capped(p[n][e], slope[n][e], a);
}
template <int F> DEV void times(float (&p)[F][4], const float (&slope)[F][4]) {
#pragma unroll
  for (int n = 0; n < F; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) p[n][e] *= slope[n][e];
}

// pack rounds 16 rows of N fp32 sums to bf16, in the layout of an A operand of mma.
template <int N> DEV void pack(u32 (&p)[N / 16][4], const float (&s)[N / 8][4]) {
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int half = 0; half < 2; half++) p[n / 2][n % 2 * 2 + half] = pack_bf16(s[n][2 * half], s[n][2 * half + 1]);
}

// add_product is c += P·B, with N rows of B and W of its columns, from the given column on. B is in
// a tile D wide that begins OFFSET bytes after lane, the lane's address.
template <int D, int N, int W, int OFFSET> DEV void add_product(float (&c)[W / 8][4], const u32 (&p)[N / 16][4], u32 lane, int column) {
  using Tile = SharedTile<D>;
#pragma unroll
  for (int k = 0; k < N / 16; k++)
#pragma unroll
    for (int n = 0; n < W / 16; n++) {
      u32 b[4];
      ldmatrix_x4_trans(b, Tile::step(lane, k * 16, n * 16) + OFFSET + column * 2);
      mma_bf16(c[2 * n], p[k], b[0], b[1]);
      mma_bf16(c[2 * n + 1], p[k], b[2], b[3]);
    }
}

DEV void store_shared(u32 to, u32x4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
DEV u32x4 load_shared_4(u32 from) {
  u32x4 d;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(from));
  return d;
}

// KeyGradients computes in each block DK and DV of KW·16 keys of one key head, with KW·HALVES
// warps. HALVES warps share 16 keys, and each of them computes its part of the columns. With KEEP,
// K stays in registers. There are STAGES buffers, each for a tile of BM queries: Q, DO, LSE, Delta.
template <int D, int KW, int HALVES, int BM, int STAGES, bool KEEP> struct KeyGradients {
  static constexpr int THREADS = KW * HALVES * 32, BN = KW * 16, W = D / HALVES;
  static constexpr int SUB = CAPPED && KEEP ? 16 : 32; // fewer queries at a time, since slopes take registers
  using Tile = SharedTile<D>;
  static constexpr int K_AT = BN * Tile::PITCH, STAGE_AT = KEEP ? K_AT : 2 * K_AT;
  static constexpr int DO_AT = BM * Tile::PITCH, LSE_AT = 2 * DO_AT, DELTA_AT = LSE_AT + BM * 4, STAGE = DELTA_AT + BM * 4;
  static constexpr int NOTES_AT = STAGE_AT + STAGES * STAGE; // 32 bytes
  static_assert(!KEEP || (STAGES == 2 && 2 * BM >= BN)); // K passes through the second buffer
  static constexpr int KEPT = KEEP ? D / 16 : 1;

  float dk[W / 8][4], dv[W / 8][4];
  u32 kept[KEPT][4];

  // fetch starts to copy a tile of queries to its buffer. Tiles are numbered over the queries of
  // one head, then of the next. The numbers that all threads need, called notes, are in shared
  // memory, because no registers are left:
  //
  //  - notes 0 to 3: the sequence's first query, its number of queries, the first query that sees a key of the block, and the number of tiles from there on
  //  - notes 4 to 7: the first head, the first tile's gap, the number of tiles of all heads, and the number of keys from the block's first on
  //
  // The gap is the distance from the block's first key to the place of the tile's first query.
  DEV void fetch(u32 shared, u32 tile, const bf16 *q, const bf16 *dout, const float *lse, const float *delta, const Shape &a) {
    u32x4 notes = load_shared_4(shared + NOTES_AT);
    i64 head = load_shared_4(shared + NOTES_AT + 16)[0] + tile / notes[3];
    int row = notes[2] + tile % notes[3] * BM, rows = (int)notes[1] - row;
    i64 at = (i64)notes[0] + row, stride = (i64)a.heads * a.dim;
    u32 stage = shared + STAGE_AT + tile % STAGES * STAGE;
    bool vector = a.vector & 1;
    load_tile<BM, D, THREADS>(stage, q + at * a.q_stride + head * a.dim, a.q_stride, rows, a.dim, vector);
    load_tile<BM, D, THREADS>(stage + DO_AT, dout + at * stride + head * a.dim, stride, rows, a.dim, vector);
    load_floats<BM>(stage + LSE_AT, lse + head * a.tq + at, rows);
    load_floats<BM>(stage + DELTA_AT, delta + head * a.tq + at, rows);
    copy_async_commit();
  }

  // gap returns the distance from the block's first key to the place of the query in row i of a
  // tile.
  DEV int gap(u32 shared, u32 tile, int i) {
    return (int)load_shared_4(shared + NOTES_AT + 16)[1] + (int)(tile % load_shared_4(shared + NOTES_AT)[3]) * BM + i;
  }

  // add adds to dk and dv the terms of SUB queries of a tile, from its row i on.
  METHOD void add(u32 shared, u32 tile, int i, const Shape &a) {
    int from = gap(shared, tile, i), key = (thread_now() >> 5) % KW * 16;
    int keys = (int)load_shared_4(shared + NOTES_AT + 16)[3]; // keys also equals the place after the last query's
    if (key >= keys || from >= keys || blind(from, from + SUB - 1, key, key + 15, a.window)) return; // the same for all of the warp
    u32 stage = shared + STAGE_AT + tile % STAGES * STAGE, q = stage + i * Tile::PITCH, floats = stage + LSE_AT + i * 4;
    int thread = thread_now(), lane = thread & 31, warp = thread >> 5, own = warp % KW * 16, half = warp / KW * W;
    float p[SUB / 8][4], ds[SUB / 8][4];
    u32 b_lane = Tile::lane_b(q, lane), v_lane = Tile::lane_a(shared + own * Tile::PITCH, lane);
    product<D, SUB, 0, KEEP>(p, kept, v_lane + K_AT, b_lane);
    floats += (lane & 3) * 8;
    float factor = a.factor(), slope[SUB / 8][4];
    if constexpr (CAPPED) limit(p, slope, a);
#pragma unroll
    for (int n = 0; n < SUB / 8; n++) {
      float lse[2];
      load_shared(lse, floats + n * 32);
#pragma unroll
      for (int e = 0; e < 4; e++) p[n][e] = exp2_approx(p[n][e] * factor - lse[e & 1]);
    }
    int away = gap(shared, tile, i);
    if (crosses(away, away + SUB - 1, 0, BN - 1, a.window)) {
      away += (lane & 3) * 2 - own - (lane >> 2); // now from this lane's key to its query's place
      Seen seen = seen_within(a.window);
#pragma unroll
      for (int n = 0; n < SUB / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) p[n][e] = seen.at(away + n * 8 + (e & 1) - (e >> 1) * 8) ? p[n][e] : 0.0f;
    }
    u32 a_lane = Tile::lane_a(q, lane);
    u32 packed_p[SUB / 16][4];
    pack<SUB>(packed_p, p);
    if constexpr (CAPPED) times(p, slope);
    add_product<D, SUB, W, DO_AT>(dv, packed_p, a_lane, half);
    product<D, SUB, DO_AT, false>(ds, kept, v_lane, b_lane);
#pragma unroll
    for (int n = 0; n < SUB / 8; n++) {
      float delta[2];
      load_shared(delta, floats + n * 32 + BM * 4);
#pragma unroll
      for (int e = 0; e < 4; e++) ds[n][e] = p[n][e] * (ds[n][e] - delta[e & 1]);
    }
    u32 packed_ds[SUB / 16][4];
    pack<SUB>(packed_ds, ds);
    add_product<D, SUB, W, 0>(dk, packed_ds, a_lane, half);
  }

  METHOD void run(bf16 *dk_out, bf16 *dv_out, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse,
                  const float *delta, i64 out_stride, const Shape &a, u32 shared) {
    Place w;
    if (!find_place<BN>(w, a, a.cu_k, false)) return;
    i64 kv = (w.k0 + w.first) * a.k_stride + (i64)w.head * a.dim;
    load_tile<BN, D, THREADS>(shared, v + kv, a.k_stride, w.nk - w.first, a.dim, a.vector & 1);
    load_tile<BN, D, THREADS>(KEEP ? shared + STAGE_AT + STAGE : shared + K_AT, k + kv, a.k_stride, w.nk - w.first, a.dim, a.vector & 1);
    copy_async_commit();
    clear(dk);
    clear(dv);
    Range see = queries_seeing(w, w.first, BN, a.window);
    int tiles = max_i(0, (see.high - see.low + BM - 1) / BM), group = a.heads / a.kv_heads;
    if (threadIdx_x == 0) {
      store_shared(shared + NOTES_AT, u32x4{(u32)w.q0, (u32)w.nq, (u32)see.low, (u32)tiles});
      store_shared(shared + NOTES_AT + 16, u32x4{(u32)(w.head * group), (u32)(see.low + w.shift() - w.first), (u32)(tiles * group), (u32)(w.nk - w.first)});
    }
    sync_threads(); // the notes are written
    if (STAGES == 2 && tiles > 0) fetch(shared, 0, q, dout, lse, delta, a);
    else copy_async_commit();
    if (KEEP) {
      copy_async_wait<1>();
      sync_threads();
      u32 lane = Tile::lane_a(shared + STAGE_AT + STAGE + (threadIdx_x >> 5) % KW * 16 * Tile::PITCH);
#pragma unroll
      for (int i = 0; i < KEPT; i++) ldmatrix_x4(kept[i], Tile::step(lane, 0, i * 16));
    }
    for (u32 tile = 0; tile < load_shared_4(shared + NOTES_AT + 16)[2]; tile++) {
      if (STAGES == 1) {
        sync_threads(); // everyone is done with the stage
        fetch(shared, tile, q, dout, lse, delta, a);
      }
      copy_async_wait<0>();
      sync_threads(); // the stage is there, everyone is done with the other
      if (STAGES == 2 && tile + 1 < load_shared_4(shared + NOTES_AT + 16)[2]) fetch(shared, tile + 1, q, dout, lse, delta, a);
#pragma clang loop unroll(disable)
      for (int i = 0; i < BM; i += SUB) add(shared, tile, i, a);
    }
    copy_async_wait<0>();
    sync_threads(); // V's tile is free: every warp stores its results through a part of it
    find_place<BN>(w, a, a.cu_k, false); // found again, because keeping it would cost registers
    int warp = threadIdx_x >> 5, first = w.first + warp % KW * 16, half = warp / KW * W;
    u32 part = shared + warp * 16 * W * 2;
    i64 to = (w.k0 + first) * out_stride + (i64)w.head * a.dim + half;
    store_tile<W>(dv_out + to, out_stride, dv, {1.0f, 1.0f}, part, min_i(16, w.nk - first), a.dim - half, a.vector & 2);
    store_tile<W>(dk_out + to, out_stride, dk, {a.scale, a.scale}, part, min_i(16, w.nk - first), a.dim - half, a.vector & 2);
  }
};

// QueryGradients computes in each block DQ of WARPS·16 queries of one head. It goes over the keys
// in STAGES buffers of BN keys each: K, V. With KEEP, Q and DO stay in registers.
template <int D, int WARPS, int BN, int STAGES, bool KEEP> struct QueryGradients {
  static constexpr int THREADS = WARPS * 32, BM = WARPS * 16, SUB = 32;
  using Tile = SharedTile<D>;
  static constexpr int DO_AT = BM * Tile::PITCH, STAGE_AT = KEEP ? 0 : 2 * DO_AT, V_AT = BN * Tile::PITCH, STAGE = 2 * V_AT;
  static_assert(!KEEP || STAGES * STAGE >= 2 * DO_AT); // Q and DO pass through the buffers
  static constexpr int KEPT = KEEP ? D / 16 : 1;

  float dq[D / 8][4];
  u32 kept_q[KEPT][4], kept_do[KEPT][4];

  // add adds to dq the terms of SUB keys, which lie at k in shared memory. gap is the distance from
  // the first of them to the place of the block's first query.
  METHOD void add(u32 shared, u32 k, const float (&lse)[2], const float (&delta)[2], int gap, const Shape &a) {
    int thread = thread_now(), lane = thread & 31, own = (thread >> 5) * 16;
    if (blind(gap + own, gap + own + 15, 0, SUB - 1, a.window)) return; // the same for all of the warp
    float p[SUB / 8][4], ds[SUB / 8][4];
    u32 b_lane = Tile::lane_b(k, lane), q_lane = Tile::lane_a(shared + own * Tile::PITCH, lane);
    product<D, SUB, 0, KEEP>(p, kept_q, q_lane, b_lane);
    product<D, SUB, V_AT, KEEP>(ds, kept_do, q_lane + DO_AT, b_lane);
    float factor = a.factor(), slope[SUB / 8][4];
    if constexpr (CAPPED) limit(p, slope, a);
#pragma unroll
    for (int n = 0; n < SUB / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) p[n][e] = exp2_approx(p[n][e] * factor - lse[e >> 1]);
    if constexpr (CAPPED) times(p, slope);
    if (crosses(gap, gap + BM - 1, 0, SUB - 1, a.window)) {
      gap += own + (lane >> 2) - (lane & 3) * 2; // now from this lane's key to its query's place
      Seen seen = seen_within(a.window);
#pragma unroll
      for (int n = 0; n < SUB / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) p[n][e] = seen.at(gap + (e >> 1) * 8 - n * 8 - (e & 1)) ? p[n][e] : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < SUB / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) ds[n][e] = p[n][e] * (ds[n][e] - delta[e >> 1]);
    u32 packed[SUB / 16][4];
    pack<SUB>(packed, ds);
    add_product<D, SUB, D, 0>(dq, packed, Tile::lane_a(k, lane), 0);
  }

  DEV void fetch(u32 stage, const bf16 *k, const bf16 *v, const Shape &a, i64 at, int rows) {
    load_tile<BN, D, THREADS>(stage, k + at, a.k_stride, rows, a.dim, a.vector & 1);
    load_tile<BN, D, THREADS>(stage + V_AT, v + at, a.k_stride, rows, a.dim, a.vector & 1);
    copy_async_commit();
  }

  METHOD void run(bf16 *dq_out, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse_in,
                  const float *delta_in, i64 out_stride, const Shape &a, u32 shared) {
    Place w;
    if (!find_place<BM>(w, a, a.cu_q, true)) return;
    i64 stride = (i64)a.heads * a.dim;
    load_tile<BM, D, THREADS>(shared, q + (w.q0 + w.first) * a.q_stride + (i64)w.head * a.dim, a.q_stride, w.nq - w.first, a.dim,
                              a.vector & 1);
    load_tile<BM, D, THREADS>(shared + DO_AT, dout + (w.q0 + w.first) * stride + (i64)w.head * a.dim, stride, w.nq - w.first, a.dim,
                              a.vector & 1);
    copy_async_commit();
    clear(dq);
    int first = w.first + (threadIdx_x >> 5) * 16;
    float lse[2], delta[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int row = first + ((threadIdx_x & 31) >> 2) + 8 * half;
      bool real = row < w.nq;
      i64 at = w.head * a.tq + w.q0 + (real ? row : 0);
      lse[half] = lse_in[at];
      delta[half] = delta_in[at];
    }
    if (KEEP) {
      copy_async_wait<0>();
      sync_threads();
      u32 lane = Tile::lane_a(shared + (threadIdx_x >> 5) * 16 * Tile::PITCH);
#pragma unroll
      for (int i = 0; i < KEPT; i++) {
        ldmatrix_x4(kept_q[i], Tile::step(lane, 0, i * 16));
        ldmatrix_x4(kept_do[i], Tile::step(lane + DO_AT, 0, i * 16));
      }
      sync_threads();
    }
    Range keys = keys_seen(w, w.first, BM, a.window);
    int key = keys.low / BN * BN, left = keys.high > keys.low ? (keys.high - 1) / BN - keys.low / BN + 1 : 0;
    int gap = w.first + w.shift() - key, rows = w.nk - key;
    i64 at = (w.k0 + key) * a.k_stride + (i64)(w.head / (a.heads / a.kv_heads)) * a.dim;
    u32 stage = shared + STAGE_AT;
    if (left > 0 && STAGES == 2) fetch(stage, k, v, a, at, rows);
    for (; left > 0; left--) {
      keep_here(at);
      if (STAGES == 1) {
        sync_threads(); // everyone is done with the stage
        fetch(stage, k, v, a, at, rows);
      }
      copy_async_wait<0>();
      sync_threads(); // the stage is there, everyone is done with the other
      rows -= BN, at += BN * a.k_stride;
      if (STAGES == 2 && left > 1) fetch(2 * shared + 2 * STAGE_AT + STAGE - stage, k, v, a, at, rows);
#pragma clang loop unroll(disable)
      for (int i = 0; i < (first < w.nq ? BN : 0); i += SUB) // a warp without queries adds nothing
        add(shared, stage + i * Tile::PITCH, lse, delta, gap - i, a);
      gap -= BN;
      if (STAGES == 2) stage = 2 * shared + 2 * STAGE_AT + STAGE - stage;
    }
    copy_async_wait<0>();
    sync_threads(); // the tiles are free: every warp stores its results through a part of them
    store_tile<D>(dq_out + (w.q0 + first) * out_stride + (i64)w.head * a.dim, out_stride, dq, {a.scale, a.scale},
                  shared + (threadIdx_x >> 5) * 16 * Tile::PITCH, min_i(16, w.nq - first), a.dim, a.vector & 2);
  }
};

#define ATTENTION_KEY_GRADIENTS(D, KW, HALVES, BM, STAGES, KEEP)                                           \
  __global__ __launch_bounds__(KW *HALVES * 32, 1) void ATTENTION(dkdv_d##D)(                              \
      bf16 *dk, bf16 *dv, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse, \
      const float *delta, i64 out_stride, SHAPE_PARAMS) {                                                  \
    KeyGradients<D, KW, HALVES, BM, STAGES, KEEP> g;                                                       \
    g.run(dk, dv, q, k, v, dout, lse, delta, out_stride, SHAPE, shared_address(shared));                   \
  }
#define ATTENTION_QUERY_GRADIENTS(D, WARPS, BN, STAGES, KEEP)                                                        \
  __global__ __launch_bounds__(WARPS * 32, 1) void ATTENTION(dq_d##D)(                                               \
      bf16 *dq, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse, const float *delta, \
      i64 out_stride, SHAPE_PARAMS) {                                                                                \
    QueryGradients<D, WARPS, BN, STAGES, KEEP> g;                                                                    \
    g.run(dq, q, k, v, dout, lse, delta, out_stride, SHAPE, shared_address(shared));                                 \
  }
