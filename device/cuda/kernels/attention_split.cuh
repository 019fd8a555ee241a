// Attention, backward, bf16, for heads whose sums exceed the registers of one warp:
// SPLIT warps share 16 rows, and each has D/SPLIT columns. The formulas stand in
// attention_backward.cuh.
//
// Rows are keys (for DK and DV) or queries (for DQ). The others, columns of P and
// dS, come in stages of 16: Q and DO of queries, or K and V of keys. K and V of the
// rows, or Q and DO, stay in registers, a part of the columns in each warp.
//
// Each warp multiplies its part, which gives parts of the sums S and dP. The warps
// exchange these through shared memory: a warp adds up a quarter of the elements,
// in the order of the parts, and turns them into one register of P and of dS. These
// go back to all warps of the group, for the products with their own columns. So no
// product is computed twice.
#pragma once

#include "attention_backward.cuh"

// SplitGradients has blocks of GROUPS groups, each of SPLIT warps with 16 rows. With
// KEYS, rows are keys.
template <int D, int GROUPS, bool KEYS> struct SplitGradients {
  static constexpr int SPLIT = 4, THREADS = GROUPS * SPLIT * 32, ROWS = GROUPS * 16, COUNT = 16, W = D / SPLIT;
  using Tile = SharedTile<D>;
  static constexpr int SECOND_AT = COUNT * Tile::PITCH, LSE_AT = 2 * SECOND_AT, DELTA_AT = LSE_AT + COUNT * 4, STAGE = DELTA_AT + COUNT * 4;
  static constexpr int PARTS_AT = 2 * STAGE, PARTS = GROUPS * SPLIT * SPLIT * 512; // 16 bytes a lane, from each warp to each
  static constexpr int DONE_AT = PARTS_AT + PARTS, DONE = GROUPS * SPLIT * 256;    // P and dS, 4 bytes a lane each
  static constexpr int NOTES_AT = DONE_AT + DONE;                                  // 32 bytes
  static_assert(STAGE >= ROWS * Tile::PITCH && STAGE % 128 == 0); // the rows' tiles are staged in both stages

  float first[W / 8][4], second[W / 8][4]; // DK or DQ, and DV
  u32 kept_first[W / 16][4], kept_second[W / 16][4];
  float lse[1], delta[1]; // of this lane's query, where rows are queries

  // Notes, kept in shared memory since registers are all taken: the first column of the
  // sequence, how many it has, the first that is used, stages from there on; the first
  // query head, from the block's first row to the first stage's first column, stages of all
  // heads, how many rows there are. Distances are between places.
  DEV u32x4 notes(u32 shared, int which) { return load_shared_4(shared + NOTES_AT + which * 16); }
  METHOD u32 note(u32 shared, const Place &w, const Shape &a) {
    int group = a.heads / a.kv_heads;
    Range see = KEYS ? queries_seeing(w, w.first, ROWS, a.window) : keys_seen(w, w.first, ROWS, a.window);
    u32 stages = (u32)max_i(0, (see.high - see.low + COUNT - 1) / COUNT), of_all = KEYS ? stages * (u32)group : stages;
    if (threadIdx_x == 0) {
      store_shared(shared + NOTES_AT, KEYS ? u32x4{(u32)w.q0, (u32)w.nq, (u32)see.low, stages} : u32x4{(u32)w.k0, (u32)w.nk, (u32)see.low, stages});
      store_shared(shared + NOTES_AT + 16, u32x4{(u32)(KEYS ? w.head * group : w.head), (u32)(KEYS ? see.low + w.shift() - w.first : see.low - w.first - w.shift()),
                                                 of_all, (u32)((KEYS ? w.nk : w.nq) - w.first)});
    }
    return of_all;
  }

  // fetch starts to fetch a stage. Stages go over the queries of head after head.
  DEV void fetch(u32 shared, u32 number, const bf16 *one, const bf16 *two, const float *lse_in, const float *delta_in, const Shape &a) {
    u32x4 of = notes(shared, 0);
    i64 head = notes(shared, 1)[0] + (KEYS ? number / of[3] : 0);
    int column = of[2] + (KEYS ? number % of[3] : number) * COUNT, left = (int)of[1] - column;
    i64 at = (i64)of[0] + column, wide = (i64)a.heads * a.dim;
    u32 stage = shared + number % 2 * STAGE;
    bool vector = a.vector & 1;
    if constexpr (KEYS) {
      load_tile<COUNT, D, THREADS>(stage, one + at * a.q_stride + head * a.dim, a.q_stride, left, a.dim, vector);
      load_tile<COUNT, D, THREADS>(stage + SECOND_AT, two + at * wide + head * a.dim, wide, left, a.dim, vector);
      load_floats<COUNT>(stage + LSE_AT, lse_in + head * a.tq + at, left);
      load_floats<COUNT>(stage + DELTA_AT, delta_in + head * a.tq + at, left);
    } else {
      i64 from = at * a.k_stride + head / (a.heads / a.kv_heads) * a.dim;
      load_tile<COUNT, D, THREADS>(stage, one + from, a.k_stride, left, a.dim, vector);
      load_tile<COUNT, D, THREADS>(stage + SECOND_AT, two + from, a.k_stride, left, a.dim, vector);
    }
    copy_async_commit();
  }

  // keep loads this warp's part of the rows' tiles into registers.
  METHOD void keep(u32 shared, const bf16 *one, i64 one_stride, const bf16 *two, i64 two_stride, int rows, const Shape &a) {
    load_tile<ROWS, D, THREADS>(shared, one, one_stride, rows, a.dim, a.vector & 1);
    load_tile<ROWS, D, THREADS>(shared + STAGE, two, two_stride, rows, a.dim, a.vector & 1);
    copy_async_commit();
    copy_async_wait<0>();
    sync_threads();
    int warp = threadIdx_x >> 5;
    u32 lane = Tile::lane_a(shared + warp / SPLIT * 16 * Tile::PITCH) + warp % SPLIT * W * 2;
#pragma unroll
    for (int i = 0; i < W / 16; i++) {
      ldmatrix_x4(kept_first[i], Tile::step(lane, 0, i * 16));
      ldmatrix_x4(kept_second[i], Tile::step(lane + STAGE, 0, i * 16));
    }
    sync_threads();
  }

  // put gives each warp of the group its elements of this warp's parts of S and dP.
  DEV void put(u32 parts, const float (&s)[2][4], const float (&dp)[2][4], int part, int lane) {
#pragma unroll
    for (int to = 0; to < SPLIT; to++) {
      const float *x = s[to & 1] + (to >> 1) * 2, *y = dp[to & 1] + (to >> 1) * 2;
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(parts + (to * SPLIT + part) * 512 + lane * 16), "f"(x[0]), "f"(x[1]), "f"(y[0]), "f"(y[1]) : "memory");
    }
  }

  // finish adds up this warp's elements: row g + 8·(part / 2) and columns 2t and 2t+1 of
  // 8·(part % 2) on. It turns them into P and dS and gives these to all warps of the group.
  // apart is from the group's first row to the stage's first column.
  METHOD void finish(u32 parts, u32 done, u32 floats, int apart, int part, int lane, const Shape &a) {
    float sum[4] = {};
#pragma unroll
    for (int from = 0; from < SPLIT; from++) {
      float x[4];
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(parts + (part * SPLIT + from) * 512 + lane * 16));
#pragma unroll
      for (int e = 0; e < 4; e++) sum[e] += x[e];
    }
    float log[2] = {lse[0], lse[0]}, mean[2] = {delta[0], delta[0]};
    int column = part % 2 * 8 + (lane & 3) * 2;
    if constexpr (KEYS) {
      load_shared(log, floats + LSE_AT + column * 4);
      load_shared(mean, floats + DELTA_AT + column * 4);
    }
    apart += column - (lane >> 2) - part / 2 * 8;
    Seen seen = seen_within(a.window);
    float p[2], ds[2], factor = a.factor();
#pragma unroll
    for (int e = 0; e < 2; e++) {
      float slope = 1.0f, x = sum[e];
      if constexpr (CAPPED) x = capped(x, slope, a);
      p[e] = exp2_approx(x * factor - log[e]);
      p[e] = seen.at(KEYS ? apart + e : -apart - e) ? p[e] : 0.0f;
      ds[e] = (CAPPED ? p[e] * slope : p[e]) * (sum[2 + e] - mean[e]);
    }
    done += part * 256 + lane * 8;
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(done), "r"(pack_bf16(p[0], p[1])), "r"(pack_bf16(ds[0], ds[1])) : "memory");
  }

  // add takes in a stage. The warps of a group meet at their own barriers.
  METHOD void add(u32 shared, u32 number, const Shape &a) {
    int thread = thread_now(), lane = thread & 31, group = thread >> 7, part = (thread >> 5) % SPLIT, own = group * 16;
    u32x4 of = notes(shared, 1);
    int apart = (int)of[1] + (int)(KEYS ? number % notes(shared, 0)[3] : number) * COUNT; // from the block's first row to the first column
    bool none = KEYS ? blind(apart, apart + COUNT - 1, own, own + 15, a.window) : blind(own, own + 15, apart, apart + COUNT - 1, a.window);
    if (own >= (int)of[3] || none) return; // the same for all of the group
    u32 stage = shared + number % 2 * STAGE, columns = stage + part * W * 2;
    u32 parts = shared + PARTS_AT + group * SPLIT * SPLIT * 512, done = shared + DONE_AT + group * SPLIT * 256;
    float s[2][4], dp[2][4];
    u32 b_lane = Tile::lane_b(columns, lane);
    product<D, COUNT, 0, true, W>(s, kept_first, 0, b_lane);
    product<D, COUNT, SECOND_AT, true, W>(dp, kept_second, 0, b_lane);
    put(parts, s, dp, part, lane);
    sync_some<SPLIT * 32>(1 + group);
    finish(parts, done, stage, apart - own, part, lane, a);
    sync_some<SPLIT * 32>(1 + group);
    u32 p[1][4], ds[1][4], a_lane = Tile::lane_a(columns, lane);
#pragma unroll
    for (int from = 0; from < SPLIT; from++) { // the operand's register of warp from
      int of = from % 2 * 2 + from / 2;
      asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(p[0][of]), "=r"(ds[0][of]) : "r"(done + from * 256 + lane * 8));
    }
    if constexpr (KEYS) add_product<D, COUNT, W, SECOND_AT>(second, p, a_lane, 0);
    add_product<D, COUNT, W, 0>(first, ds, a_lane, 0);
  }

  // loop takes in all stages.
  METHOD void loop(u32 shared, u32 stages, const bf16 *one, const bf16 *two, const float *lse_in, const float *delta_in, const Shape &a) {
    if (stages > 0) fetch(shared, 0, one, two, lse_in, delta_in, a);
    for (u32 number = 0; number < notes(shared, 1)[2]; number++) {
      copy_async_wait<0>();
      sync_threads(); // the stage is there, everyone is done with the other
      if (number + 1 < notes(shared, 1)[2]) fetch(shared, number + 1, one, two, lse_in, delta_in, a);
      add(shared, number, a);
    }
    sync_threads(); // every warp stores through a part of the stages
  }

  // store writes this warp's part of a result, whose first row in the sequence is row.
  DEV void store(bf16 *out, i64 stride, const float (&c)[W / 8][4], float factor, const Place &w, u32 shared, const Shape &a) {
    int warp = threadIdx_x >> 5, row = w.first + warp / SPLIT * 16, column = warp % SPLIT * W;
    i64 to = ((KEYS ? w.k0 : w.q0) + row) * stride + (i64)w.head * a.dim + column;
    store_tile<W>(out + to, stride, c, {factor, factor}, shared + warp * 16 * W * 2, min_i(16, (KEYS ? w.nk : w.nq) - row), a.dim - column, a.vector & 2);
  }

  METHOD void keys(bf16 *dk_out, bf16 *dv_out, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse_in,
                   const float *delta_in, i64 out_stride, const Shape &a, u32 shared) {
    Place w;
    if (!find_place<ROWS>(w, a, a.cu_k, false)) return;
    i64 kv = (w.k0 + w.first) * a.k_stride + (i64)w.head * a.dim;
    u32 stages = note(shared, w, a);
    keep(shared, k + kv, a.k_stride, v + kv, a.k_stride, w.nk - w.first, a);
    clear(first);
    clear(second);
    loop(shared, stages, q, dout, lse_in, delta_in, a);
    find_place<ROWS>(w, a, a.cu_k, false); // anew: kept, it would cost registers
    store(dv_out, out_stride, second, 1.0f, w, shared, a);
    store(dk_out, out_stride, first, a.scale, w, shared, a);
  }

  METHOD void queries(bf16 *dq_out, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse_in, const float *delta_in,
                      i64 out_stride, const Shape &a, u32 shared) {
    Place w;
    if (!find_place<ROWS>(w, a, a.cu_q, true)) return;
    i64 wide = (i64)a.heads * a.dim, at = w.q0 + w.first, column = (i64)w.head * a.dim;
    u32 stages = note(shared, w, a);
    keep(shared, q + at * a.q_stride + column, a.q_stride, dout + at * wide + column, wide, w.nq - w.first, a);
    clear(first);
    int warp = threadIdx_x >> 5, row = w.first + warp / SPLIT * 16 + ((threadIdx_x & 31) >> 2) + warp % SPLIT / 2 * 8;
    i64 query = w.head * a.tq + w.q0 + min_i(row, w.nq - 1);
    lse[0] = lse_in[query];
    delta[0] = delta_in[query];
    loop(shared, stages, k, v, lse_in, delta_in, a);
    find_place<ROWS>(w, a, a.cu_q, true); // anew: kept, it would cost registers
    store(dq_out, out_stride, first, a.scale, w, shared, a);
  }
};

#define ATTENTION_SPLIT_GRADIENTS(D, GROUPS)                                                                                    \
  __global__ __launch_bounds__(GROUPS * 128, 1) void ATTENTION(dkdv_d##D)(                                                      \
      bf16 *dk, bf16 *dv, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse, const float *delta,  \
      i64 out_stride, SHAPE_PARAMS) {                                                                                           \
    SplitGradients<D, GROUPS, true> g;                                                                                          \
    g.keys(dk, dv, q, k, v, dout, lse, delta, out_stride, SHAPE, shared_address(shared));                                       \
  }                                                                                                                             \
  __global__ __launch_bounds__(GROUPS * 128, 1) void ATTENTION(dq_d##D)(                                                        \
      bf16 *dq, const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse, const float *delta,            \
      i64 out_stride, SHAPE_PARAMS) {                                                                                           \
    SplitGradients<D, GROUPS, false> g;                                                                                         \
    g.queries(dq, q, k, v, dout, lse, delta, out_stride, SHAPE, shared_address(shared));                                        \
  }
