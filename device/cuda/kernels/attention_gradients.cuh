// Attention, backward, bf16, with DQ, DK and DV by one kernel: five matrix products instead of the
// seven of attention_backward.cuh, which has the formulas.
//
// A block has a tile of keys of one key head, with DK and DV in registers. It goes over the query
// heads of the group and their queries, from the last query to the first. It adds the terms of its
// keys to DQ in fp32 sums in device memory. Blocks add to the sums of a tile of queries in the
// order of their keys, so bits do not depend on when blocks run: a counter in device memory, the
// tile's mark, says how many warps have added, and a block waits until all blocks before it have.
//
// A block takes its tile of keys by a ticket from an atomic counter, in the order of keys. So no
// block waits for one that has not begun. Blocks that begin together are soon a tile of queries
// apart and then wait no more.
//
// Sums are kept in units of 16 queries of a sequence and head, which a last kernel rounds to DQ:
// D/8 × 4 × 32 floats, in the order of mma fragments, so that a warp adds to 128 bytes at a time.
#pragma once

#include "attention_backward.cuh"
#include "attention_sums.cuh"

// Gradients has blocks of WARPS·16 keys and tiles of BM queries, of which it computes SUB at a
// time. V stays in registers, K in shared memory. There are STAGES buffers for tiles: Q, DO, LSE,
// Delta. There are two more for dS: a tile's terms of DQ are computed along with the next tile,
// when a barrier has passed anyway. Of these terms a warp computes ROWS queries by COLUMNS columns.
template <int D, int WARPS, int BM, int STAGES, int ROWS> struct Gradients {
  static constexpr int THREADS = WARPS * 32, BN = WARPS * 16, SUB = 32;
  using Tile = SharedTile<D>;
  using Square = SharedTile<BM>; // dSᵀ: a row for each key
  static constexpr int STAGE_AT = BN * Tile::PITCH, DO_AT = BM * Tile::PITCH, LSE_AT = 2 * DO_AT, DELTA_AT = LSE_AT + BM * 4, STAGE = DELTA_AT + BM * 4;
  static constexpr int DS_AT = STAGE_AT + STAGES * STAGE, DS = BN * Square::PITCH, NOTES_AT = DS_AT + 2 * DS; // 64 bytes
  static constexpr int DOWN = BM / ROWS, COLUMNS = D * DOWN / WARPS;
  static_assert(STAGES * STAGE >= BN * Tile::PITCH); // V passes through the buffers
  static_assert(COLUMNS % 16 == 0 && STAGE % 128 == 0);

  float dk[D / 8][4], dv[D / 8][4];
  u32 kept[D / 16][4];

  // The notes are numbers that all threads need. They are kept in shared memory, because no
  // registers are left:
  //
  //  - TICKET: the block's ticket
  //  - FIRST, QUERIES: the sequence's first query, and its number of queries
  //  - LOW, HIGH: the first query of the lowest tile and of the highest
  //  - HEADS: the number after the last head
  //  - GAP: the distance from the block's first key to the place of query 0
  //  - KEYS: the number of keys from the block's first on
  //  - BLOCK: the block's number in the sequence
  //  - FIRST_UNIT: the unit of query 0 of the launch's first head
  enum Note { TICKET, FIRST, QUERIES, LOW, HIGH, HEADS, GAP, KEYS, BLOCK, FIRST_UNIT };
  DEV void note(u32 shared, Note which, int v) { store_shared(shared + NOTES_AT + which * 4, (u32)v); }
  DEV int noted(u32 shared, Note which) {
    int v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(shared + NOTES_AT + which * 4));
    return v;
  }

  // Step names a tile of queries by its head and its first query. after and before return the next
  // and the previous tile in the block's order.
  struct Step { int head, row; };
  DEV Step after(u32 shared, Step s) {
    if (s.row == noted(shared, LOW)) return Step{s.head + 1, noted(shared, HIGH)};
    return Step{s.head, s.row - BM};
  }
  DEV Step before(u32 shared, Step s) {
    if (s.row == noted(shared, HIGH)) return Step{s.head - 1, noted(shared, LOW)};
    return Step{s.head, s.row + BM};
  }

  DEV void fetch(u32 shared, u32 tile, Step s, const bf16 *q, const bf16 *dout, const float *lse, const float *delta, const Shape &a) {
    int rows = noted(shared, QUERIES) - s.row;
    i64 at = (i64)noted(shared, FIRST) + s.row, stride = (i64)a.heads * a.dim, head = s.head;
    u32 stage = shared + STAGE_AT + tile % STAGES * STAGE;
    bool vector = a.vector & 1;
    load_tile<BM, D, THREADS>(stage, q + at * a.q_stride + head * a.dim, a.q_stride, rows, a.dim, vector);
    load_tile<BM, D, THREADS>(stage + DO_AT, dout + at * stride + head * a.dim, stride, rows, a.dim, vector);
    load_floats<BM>(stage + LSE_AT, lse + head * a.tq + at, rows);
    load_floats<BM>(stage + DELTA_AT, delta + head * a.tq + at, rows);
    copy_async_commit();
  }

  // put writes SUB columns of this warp's 16 rows of dSᵀ to shared memory. The first row begins at
  // square, and the columns begin chunks bytes into a row.
  DEV void put(u32 square, u32 chunks, const u32 (&ds)[SUB / 16][4], int lane) {
#pragma unroll
    for (int n = 0; n < SUB / 8; n++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        store_shared((square + Square::at((lane >> 2) + 8 * half, n) + (lane & 3) * 4) ^ chunks, ds[n / 2][n % 2 * 2 + half]);
  }

  // add adds to DK and DV the terms of SUB queries of a tile, from its row i on, and writes their
  // part of dS to shared memory.
  METHOD void add(u32 shared, u32 tile, int row, int i, const Shape &a) {
    int thread = thread_now(), lane = thread & 31, own = (thread >> 5) * 16;
    int away = noted(shared, GAP) + row + i; // from the block's first key to the first query's place
    u32 square = shared + DS_AT + (tile & 1) * DS + own * Square::PITCH, packed_ds[SUB / 16][4] = {};
    if (own >= noted(shared, KEYS) || row + i >= noted(shared, QUERIES) || blind(away, away + SUB - 1, own, own + 15, a.window)) { // the same for all of the warp
      put(square, i * 2, packed_ds, lane);
      return;
    }
    u32 stage = shared + STAGE_AT + tile % STAGES * STAGE, q = stage + i * Tile::PITCH, floats = stage + LSE_AT + i * 4 + (lane & 3) * 8;
    float p[SUB / 8][4], ds[SUB / 8][4];
    u32 b_lane = Tile::lane_b(q, lane), a_lane = Tile::lane_a(q, lane);
    product<D, SUB, 0, false>(p, kept, Tile::lane_a(shared + own * Tile::PITCH, lane), b_lane);
    float factor = a.factor();
#pragma unroll
    for (int n = 0; n < SUB / 8; n++) {
      float lse[2];
      load_shared(lse, floats + n * 32);
#pragma unroll
      for (int e = 0; e < 4; e++) p[n][e] = exp2_approx(p[n][e] * factor - lse[e & 1]);
    }
    if (crosses(away, away + SUB - 1, 0, BN - 1, a.window)) {
      away += (lane & 3) * 2 - own - (lane >> 2); // now from this lane's key to its query's place
      Seen seen = seen_within(a.window);
#pragma unroll
      for (int n = 0; n < SUB / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) p[n][e] = seen.at(away + n * 8 + (e & 1) - (e >> 1) * 8) ? p[n][e] : 0.0f;
    }
    u32 packed_p[SUB / 16][4];
    pack<SUB>(packed_p, p);
    add_product<D, SUB, D, DO_AT>(dv, packed_p, a_lane, 0);
    product<D, SUB, DO_AT, true>(ds, kept, 0, b_lane);
#pragma unroll
    for (int n = 0; n < SUB / 8; n++) {
      float delta[2];
      load_shared(delta, floats + n * 32 + BM * 4);
#pragma unroll
      for (int e = 0; e < 4; e++) ds[n][e] = p[n][e] * (ds[n][e] - delta[e & 1]);
    }
    pack<SUB>(packed_ds, ds);
    put(square, i * 2, packed_ds, lane);
    add_product<D, SUB, D, 0>(dk, packed_ds, a_lane, 0);
  }

  // share computes dq, this warp's part of dS·K for a tile: rows from down on, columns from across
  // on.
  DEV void share(float (&dq)[ROWS / 16][COLUMNS / 8][4], u32 shared, u32 tile, int down, int across, int lane) {
    u32 a_lane = Square::lane_b(shared + DS_AT + (tile & 1) * DS, lane) ^ (down * 2), b_lane[COLUMNS / 16];
#pragma unroll
    for (int c = 0; c < COLUMNS / 16; c++) b_lane[c] = Tile::step(Tile::lane_a(shared, lane), 0, across + c * 16);
#pragma unroll
    for (int r = 0; r < ROWS / 16; r++) clear(dq[r]);
#pragma unroll
    for (int k = 0; k < BN; k += 16) {
      u32 ds[ROWS / 16][4];
#pragma unroll
      for (int r = 0; r < ROWS / 16; r++) ldmatrix_x4_trans(ds[r], Square::step(a_lane, k, r * 16));
#pragma unroll
      for (int c = 0; c < COLUMNS / 16; c++) {
        u32 b[4];
        ldmatrix_x4_trans(b, b_lane[c] + k * Tile::PITCH);
#pragma unroll
        for (int r = 0; r < ROWS / 16; r++) {
          mma_bf16(dq[r][2 * c], ds[r], b[0], b[1]);
          mma_bf16(dq[r][2 * c + 1], ds[r], b[2], b[3]);
        }
      }
    }
  }

  // queries adds a tile's dS·K to the sums in device memory, after the blocks before it. It also
  // increments told, the mark of the tile before, whose sums are by now visible. It returns the
  // mark of this tile, to be incremented later.
  METHOD u32 *queries(u32 shared, u32 tile, Step s, u32 *told, float *sums, u32 *marks, const Shape &a) {
    int thread = thread_now(), lane = thread & 31, warp = thread >> 5, down = warp % DOWN * ROWS, across = warp / DOWN * COLUMNS;
    int unit = noted(shared, FIRST_UNIT) + s.head * units(a) + s.row / UNIT, block = noted(shared, BLOCK);
    // The first block that adds to this tile is the one with the first key that the tile's queries
    // see.
    int first = a.window > 0 ? max_i(0, s.row + noted(shared, GAP) + block * BN - a.window + 1) / BN : 0;
    u32 *mark = marks + unit, turn = (block - first) * WARPS, seen = load_mark(mark);
    float dq[ROWS / 16][COLUMNS / 8][4];
    share(dq, shared, tile, down, across, lane);
    await_mark(mark, seen, turn);
    fence();
    if (told) tell(told, lane);
    float *to = sums + (i64)(unit + down / UNIT) * (UNIT * D) + across * UNIT + lane;
    int rows = noted(shared, QUERIES) - s.row - down;
#pragma unroll
    for (int r = 0; r < ROWS / 16; r++) {
      if (r * 16 >= rows) break;
      if (turn == 0) {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) to[r * UNIT * D + i * 32] = dq[r][i / 4][i % 4];
      } else {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) add_global(to + r * UNIT * D + i * 32, dq[r][i / 4][i % 4]);
      }
    }
    return mark;
  }

  // place takes the block's ticket, finds the tile of keys that the ticket stands for, and writes
  // the notes. It returns false if there is no such tile.
  METHOD bool place(Place &w, u32 *ticket, const Shape &a, u32 shared) {
    if (threadIdx_x == 0) {
      u32 mine;
      asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(mine) : "l"(GLOBAL(u32, ticket)) : "memory");
      note(shared, TICKET, mine);
    }
    sync_threads();
    if (!find_place<BN>(w, a, a.cu_k, false, noted(shared, TICKET))) return false;
    Range see = queries_seeing(w, w.first, BN, a.window);
    int low = see.low / BM * BM, group = a.heads / a.kv_heads;
    bool any = see.high > low;
    if (threadIdx_x == 0) {
      note(shared, FIRST, (int)w.q0);
      note(shared, QUERIES, w.nq);
      note(shared, LOW, low);
      note(shared, HIGH, (see.high - 1) / BM * BM);
      note(shared, HEADS, any ? (w.head + 1) * group : 0);
      note(shared, GAP, w.shift() - w.first);
      note(shared, KEYS, w.nk - w.first);
      note(shared, BLOCK, w.first / BN);
      note(shared, FIRST_UNIT, first_unit(w, a) - a.first_head * group * units(a));
    }
    return true;
  }

  METHOD void run(float *sums, u32 *marks, bf16 *dk_out, bf16 *dv_out, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse,
                  const float *delta, i64 out_stride, const Shape &a, u32 shared) {
    Place w;
    if (!place(w, marks, a, shared)) return;
    marks += 1;
    i64 kv = (w.k0 + w.first) * a.k_stride + (i64)w.head * a.dim;
    load_tile<BN, D, THREADS>(shared, k + kv, a.k_stride, w.nk - w.first, a.dim, a.vector & 1);
    load_tile<BN, D, THREADS>(shared + STAGE_AT, v + kv, a.k_stride, w.nk - w.first, a.dim, a.vector & 1);
    copy_async_commit();
    clear(dk);
    clear(dv);
    Step s{w.head * (a.heads / a.kv_heads), 0};
    copy_async_wait<0>();
    sync_threads(); // K, V and the notes are written
    s.row = noted(shared, HIGH);
    u32 lane = Tile::lane_a(shared + STAGE_AT + (threadIdx_x >> 5) * 16 * Tile::PITCH);
#pragma unroll
    for (int i = 0; i < D / 16; i++) ldmatrix_x4(kept[i], Tile::step(lane, 0, i * 16));
    sync_threads();
    u32 tile = 0, *told = nullptr;
    if (STAGES == 2 && s.head < noted(shared, HEADS)) fetch(shared, tile, s, q, dout, lse, delta, a);
    for (; s.head < noted(shared, HEADS); s = after(shared, s), tile++) {
      if (STAGES == 1) {
        sync_threads(); // everyone is done with the stage
        fetch(shared, tile, s, q, dout, lse, delta, a);
      }
      copy_async_wait<0>();
      sync_threads(); // the stage is there and dS of the tile before, everyone is done with the others
      Step next = after(shared, s);
      if (STAGES == 2 && next.head < noted(shared, HEADS)) fetch(shared, tile + 1, next, q, dout, lse, delta, a);
      if (tile > 0) told = queries(shared, tile - 1, before(shared, s), told, sums, marks, a);
#pragma clang loop unroll(disable)
      for (int i = BM - SUB; i >= 0; i -= SUB) add(shared, tile, s.row, i, a);
    }
    copy_async_wait<0>();
    sync_threads(); // dS of the last tile is written
    if (tile > 0) told = queries(shared, tile - 1, before(shared, s), told, sums, marks, a);
    sync_threads(); // the sums are written; every warp now stores DK and DV through a part of K's former tile
    fence();
    if (tile > 0) tell(told, thread_now() & 31);
    find_place<BN>(w, a, a.cu_k, false, noted(shared, TICKET)); // found again, because keeping it would cost registers
    int warp = threadIdx_x >> 5, first = w.first + warp * 16;
    u32 part = shared + warp * 16 * Tile::PITCH;
    i64 to = (w.k0 + first) * out_stride + (i64)w.head * a.dim;
    store_tile<D>(dv_out + to, out_stride, dv, {1.0f, 1.0f}, part, min_i(16, w.nk - first), a.dim, a.vector & 2);
    store_tile<D>(dk_out + to, out_stride, dk, {a.scale, a.scale}, part, min_i(16, w.nk - first), a.dim, a.vector & 2);
  }
};

// round_sums writes DQ of one unit (16 queries) from its sums, multiplied by scale. If no key was
// seen, it writes zeros. tile is BM, the tile of queries in the kernel that made the sums: each
// mark belongs to the first unit of such a tile.
template <int D> DEV void round_sums(bf16 *dq, const float *sums, const u32 *marks, i64 out_stride, int tile, const Shape &a) {
  Place w;
  if (!find_place<UNIT>(w, a, a.cu_q, false)) return;
  int head = first_unit(w, a) + (w.head - a.first_head) * units(a);
  float factor = marks[1 + head + w.first / tile * (tile / UNIT)] > 0 ? a.scale : 0.0f;
  sums += (i64)(head + w.first / UNIT) * (UNIT * D);
  dq += (w.q0 + w.first) * out_stride + (i64)w.head * a.dim;
  int lane = threadIdx_x & 31;
#pragma unroll
  for (int i = threadIdx_x >> 5; i < D / 4; i += 4) { // pairs of rows of fragments
    int row = (lane >> 2) + 8 * (i & 1), column = (i >> 1) * 8 + (lane & 3) * 2;
    float v[2] = {0.0f, 0.0f};
    if (factor > 0.0f) {
      v[0] = sums[i * 64 + lane] * factor;
      v[1] = sums[i * 64 + 32 + lane] * factor;
    }
    if (w.first + row >= w.nq || column >= a.dim) continue;
    bf16 *to = dq + row * out_stride + column;
    u32 pair = pack_bf16(v[0], v[1]);
    if (a.vector & 2) {
      *(u32 *)to = pair;
      continue;
    }
    to[0].bits = (u16)pair;
    if (column + 1 < a.dim) to[1].bits = (u16)(pair >> 16);
  }
}

#define ATTENTION_GRADIENTS(NAME, D, BM, STAGES, ROWS)                                                                              \
  __global__ __launch_bounds__(256, 1) void attention_##NAME##_d##D(                                                                \
      float *sums, u32 *marks, bf16 *dk, bf16 *dv, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse, \
      const float *delta, i64 out_stride, SHAPE_PARAMS) {                                                                           \
    Gradients<D, 8, BM, STAGES, ROWS> g;                                                                                            \
    g.run(sums, marks, dk, dv, q, k, v, dout, lse, delta, out_stride, SHAPE, shared_address(shared));                               \
  }
#define ATTENTION_ROUND(D)                                                                                                              \
  __global__ __launch_bounds__(128) void attention_round_d##D(bf16 *dq, const float *sums, const u32 *marks, i64 out_stride, int tile, \
                                                              SHAPE_PARAMS) {                                                          \
    round_sums<D>(dq, sums, marks, out_stride, tile, SHAPE);                                                                            \
  }
