// Attention, backward, bf16, for sm_90a: the same results as attention_backward.cuh, also by one
// kernel for DK and DV and one for DQ, and also with the same bits in every run. It uses wgmma and
// TMA (hopper.cuh). Heads have exactly D elements, rows lie at multiples of 16 bytes, and scores
// have no cap.
//
// Both kernels have the warpgroups of attention_hopper.cuh: a producer, and two that own 64 rows of
// the result each. The result of one product, once rounded, is the A operand of the next one and
// never leaves registers.
#pragma once

#include "attention_hopper.cuh"

// HopperKeyGradients computes in each block DK and DV of BN keys of one key head. A tile is BM
// queries of a head: Q, DO, LSE and Delta, in one of STAGES buffers. For wide heads, registers have
// no room for the sums of both gradients. Then BN is ROWS and the two consumer warpgroups share the
// same keys (APART): the first computes DV, the second DK.
template <int D, int BN> struct HopperKeyGradients {
  static constexpr int BM = 64, STAGES = 2;
  static constexpr bool APART = BN == ROWS;
  static constexpr int KEYS_BYTES = BN * D * 2, TILE_BYTES = BM * D * 2, STAGE = 2 * TILE_BYTES;
  static constexpr int V_AT = KEYS_BYTES, STAGES_AT = 2 * KEYS_BYTES, FLOATS_AT = STAGES_AT + STAGES * STAGE;
  static constexpr int FLOATS = 2 * BM * 4; // bytes of LSE and Delta of a stage
  static constexpr int KEYS_FILLED = FLOATS_AT + STAGES * FLOATS, FILLED = KEYS_FILLED + 8, FREE = FILLED + 8 * STAGES, RAW = FREE + 8 * STAGES;

  float dk[D / 8][4], dv[D / 8][4];

  // Work says what a block computes; all its warps know it.
  struct Work {
    Place place;
    int low, tiles, group; // the first query that sees a key, tiles from there on, heads that share the keys
  };
  DEV bool find_work(Work &w, const Shape &a) {
    if (!find_place<BN>(w.place, a, a.cu_k, false)) return false;
    Range see = queries_seeing(w.place, w.place.first, BN, a.window);
    w.low = see.low;
    w.tiles = max_i(0, (see.high - see.low + BM - 1) / BM);
    w.group = a.heads / a.kv_heads;
    return true;
  }

  // produce is run by the producer warp: it has the TMA unit copy the block's keys and then one
  // tile of queries after another to shared memory. LSE and Delta of missing queries become zeros.
  // Their P is then 1, so that P·DO and dS·Q are zeros; another LSE could make P infinite.
  DEV void produce(const Work &w, const TensorMap *q, const TensorMap *k, const TensorMap *v, const TensorMap *dout, const float *lse,
                   const float *delta, const Shape &a, u32 shared) {
    if (w.tiles == 0) return;
    int lane = threadIdx_x & 31, stage = 0;
    u32 parity = 1, raw = 0;
    if (lane == 0) {
      int column = w.place.head * D, row = (int)w.place.k0 + w.place.first;
      arrive_and_expect(shared + KEYS_FILLED, 2 * KEYS_BYTES);
      copy_tile<BN, D>(shared, k, column, row, shared + KEYS_FILLED);
      copy_tile<BN, D>(shared + V_AT, v, column, row, shared + KEYS_FILLED);
    }
    for (int i = 0; i < w.group; i++) {
      int head = w.place.head * w.group + i;
      for (int first = w.low; first < w.low + w.tiles * BM; first += BM) {
        u32 to = shared + STAGES_AT + stage * STAGE, floats = shared + FLOATS_AT + stage * FLOATS, filled = shared + FILLED + 8 * stage;
        int rows = w.place.nq - first;
        wait_for(shared + FREE + 8 * stage, parity);
        if (lane == 0) {
          u32 barrier = rows < BM ? shared + RAW : filled;
          arrive_and_expect(barrier, STAGE);
          copy_tile<BM, D>(to, q, head * D, (int)w.place.q0 + first, barrier);
          copy_tile<BM, D>(to + TILE_BYTES, dout, head * D, (int)w.place.q0 + first, barrier);
        }
#pragma unroll
        for (int r = lane; r < BM; r += 32) {
          i64 from = head * a.tq + w.place.q0 + first + r;
          store_float(floats + r * 4, r < rows ? lse[from] : 0.0f);
          store_float(floats + (BM + r) * 4, r < rows ? delta[from] : 0.0f);
        }
        if (rows < BM) {
          wait_for(shared + RAW, raw);
          raw ^= 1;
          clear_rows<BM, D>(to, rows);
          clear_rows<BM, D>(to + TILE_BYTES, rows);
          arrive_stored(filled);
        }
        sync_warp();
        if (lane == 0) arrive(filled);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
  }

  // add adds the terms of a tile of queries to dv (if VALUES) and dk (if KEYS). gap is the distance
  // from this warpgroup's first key to the place of the tile's first query.
  template <bool VALUES, bool KEYS> METHOD void add(Operand k, Operand q, u32 floats, int gap, const Shape &a) {
    float s[BM / 8][4], ds[BM / 8][4];
    u32 p[BM / 16][4], packed[BM / 16][4];
    Operand dout = beyond(q, TILE_BYTES);
    tile_product<D, BN, BM>(s, k, q);
    if constexpr (KEYS) tile_product<D, BN, BM>(ds, beyond(k, V_AT), dout);
    floats += (threadIdx_x & 3) * 8;
    wait_products<KEYS ? 1 : 0>();
    settled(s);
    float factor = a.factor();
#pragma unroll
    for (int n = 0; n < BM / 8; n++) {
      float lse[2];
      load_shared(lse, floats + n * 32);
#pragma unroll
      for (int e = 0; e < 4; e++) s[n][e] = exp2_approx(s[n][e] * factor - lse[e & 1]);
    }
    if (crosses(gap, gap + BM - 1, 0, ROWS - 1, a.window)) {
      int away = gap + (threadIdx_x & 3) * 2 - row_of_thread(); // from this thread's key
      Seen seen = seen_within(a.window);
#pragma unroll
      for (int n = 0; n < BM / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = seen.at(away + n * 8 + (e & 1) - (e >> 1) * 8) ? s[n][e] : 0.0f;
    }
    if constexpr (VALUES) {
      pack(p, s);
      add_tile_product(dv, p, dout);
    }
    if constexpr (KEYS) {
      wait_products<VALUES ? 1 : 0>();
      settled(ds);
#pragma unroll
      for (int n = 0; n < BM / 8; n++) {
        float delta[2];
        load_shared(delta, floats + n * 32 + BM * 4);
#pragma unroll
        for (int e = 0; e < 4; e++) ds[n][e] = s[n][e] * (ds[n][e] - delta[e & 1]);
      }
      pack(packed, ds);
      add_tile_product(dk, packed, q);
    }
    wait_products<0>();
    if constexpr (VALUES) settled(p), settled(dv);
    if constexpr (KEYS) settled(packed), settled(dk);
  }

  // consume is run by each of the two other warpgroups, number 0 and 1: it adds up the terms of all
  // tiles and writes its gradients.
  template <bool VALUES, bool KEYS> METHOD void consume(Work w, int number, bf16 *dk_out, bf16 *dv_out, i64 out_stride, const Shape &a, u32 shared) {
    int own = APART ? 0 : number * ROWS, gap = w.low + w.place.shift() - w.place.first - own; // own: the warpgroup's first key
    clear(dk);
    clear(dv);
    if (w.tiles > 0) {
      Operand k = operand(shared + own * PANEL_PITCH, 0), q = operand(shared + STAGES_AT, BM * PANEL_PITCH);
      int stage = 0, from = gap;
      u32 parity = 0;
      wait_for(shared + KEYS_FILLED, 0);
      for (int left = w.tiles * w.group, end = gap + w.tiles * BM; left > 0; left--) {
        wait_for(shared + FILLED + 8 * stage, parity);
        if (!blind(from, from + BM - 1, 0, ROWS - 1, a.window))
          add<VALUES, KEYS>(k, beyond(q, stage * STAGE), shared + FLOATS_AT + stage * FLOATS, from, a);
        release(shared + FREE + 8 * stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
        if ((from += BM) == end) from = gap; // begin the next head
      }
    }
    if (APART) sync_some<256>(1); // every warp's products have read K and V
    else sync_some<128>(1 + number);
    find_work(w, anew(a)); // found again, because keeping it would cost registers
    if constexpr (VALUES) store(dv_out, out_stride, dv, 1.0f, own, w.place, shared + V_AT);
    if constexpr (KEYS) store(dk_out, out_stride, dk, a.scale, own, w.place, shared);
  }
  DEV void store(bf16 *out, i64 stride, const float (&c)[D / 8][4], float factor, int own, const Place &w, u32 tile) {
    store_rows<D, BN>(out, stride, c, {factor, factor}, own, w.k0, w.first, w.nk, w.head, tile);
  }

  METHOD void run(bf16 *dk_out, bf16 *dv_out, const TensorMap *q, const TensorMap *k, const TensorMap *v, const TensorMap *dout, const float *lse,
                  const float *delta, i64 out_stride, const Shape &a, u32 shared) {
    Work w;
    if (!find_work(w, a)) return;
    int group = warpgroup(), consumers = APART || w.place.nk - w.place.first > ROWS ? 2 : 1; // consumers: the warpgroups that have keys
    if (threadIdx_x == 0) {
      barrier_init(shared + KEYS_FILLED, 1);
      barrier_init(shared + RAW, 1);
#pragma unroll
      for (int i = 0; i < STAGES; i++) {
        barrier_init(shared + FILLED + 8 * i, 2); // Q and DO; LSE and Delta
        barrier_init(shared + FREE + 8 * i, 4 * consumers);
      }
      barriers_ready();
    }
    sync_threads();
    if (group == 0) {
      give_registers<APART ? 56 : PRODUCER_REGISTERS>();
      if (threadIdx_x < 32) produce(w, q, k, v, dout, lse, delta, a, shared);
    } else {
      take_registers<APART ? 224 : CONSUMER_REGISTERS>();
      if constexpr (APART) {
        if (group == 1) consume<true, false>(w, 0, dk_out, dv_out, out_stride, a, shared);
        else consume<false, true>(w, 1, dk_out, dv_out, out_stride, a, shared);
      } else if (group <= consumers) {
        consume<true, true>(w, group - 1, dk_out, dv_out, out_stride, a, shared);
      }
    }
  }
};

// HopperQueryGradients computes in each block DQ of BM queries of one head. A tile is BN keys, K
// and V, in one of STAGES buffers, from the last to the first.
template <int D, int BN> struct HopperQueryGradients {
  static constexpr int BM = 128, STAGES = 2;
  static constexpr int QUERIES_BYTES = BM * D * 2, TILE_BYTES = BN * D * 2, STAGE = 2 * TILE_BYTES;
  static constexpr int DO_AT = QUERIES_BYTES, STAGES_AT = 2 * QUERIES_BYTES;
  static constexpr int QUERIES_FILLED = STAGES_AT + STAGES * STAGE, FILLED = QUERIES_FILLED + 8, FREE = FILLED + 8 * STAGES, RAW = FREE + 8 * STAGES;

  float dq[D / 8][4];

  using Work = TilesOfKeys<BM, BN>;

  // produce is run by the producer warp: it has the TMA unit copy the block's queries and then one
  // tile of keys after another to shared memory.
  DEV void produce(Work w, const TensorMap *q, const TensorMap *k, const TensorMap *v, const TensorMap *dout, const Shape &a, u32 shared) {
    if (w.left == 0) return;
    int lane = threadIdx_x & 31, stage = 0;
    u32 parity = 1;
    int column = w.place.head / (a.heads / a.kv_heads) * D, row = (int)w.place.k0 + w.key, rows = w.rows();
    if (lane == 0) {
      arrive_and_expect(shared + QUERIES_FILLED, 2 * QUERIES_BYTES);
      copy_tile<BM, D>(shared, q, w.place.head * D, (int)w.place.q0 + w.place.first, shared + QUERIES_FILLED);
      copy_tile<BM, D>(shared + DO_AT, dout, w.place.head * D, (int)w.place.q0 + w.place.first, shared + QUERIES_FILLED);
    }
    for (bool ragged = rows < BN; w.left > 0; w.next(), ragged = false, row -= BN) {
      u32 to = shared + STAGES_AT + stage * STAGE, filled = shared + FILLED + 8 * stage;
      if (lane == 0) {
        wait_for(shared + FREE + 8 * stage, parity);
        u32 barrier = ragged ? shared + RAW : filled;
        arrive_and_expect(barrier, STAGE);
        copy_tile<BN, D>(to, k, column, row, barrier);
        copy_tile<BN, D>(to + TILE_BYTES, v, column, row, barrier);
      }
      if (ragged) {
        wait_for(shared + RAW, 0);
        clear_rows<BN, D>(to, rows);
        clear_rows<BN, D>(to + TILE_BYTES, rows);
        arrive_stored(filled);
      }
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  }

  // add adds the terms of a tile of keys to dq. gap is the distance from the first of them to the
  // place of this warpgroup's first query.
  METHOD void add(Operand q, Operand dout, Operand k, Operand v, const float (&lse)[2], const float (&delta)[2], int gap, const Shape &a) {
    float s[BN / 8][4], ds[BN / 8][4];
    u32 packed[BN / 16][4];
    tile_product<D, BM, BN>(s, q, k);
    tile_product<D, BM, BN>(ds, dout, v);
    wait_products<1>();
    settled(s);
    float factor = a.factor();
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[n][e] = exp2_approx(s[n][e] * factor - lse[e >> 1]);
    if (crosses(gap, gap + ROWS - 1, 0, BN - 1, a.window)) {
      int away = gap + row_of_thread() - (threadIdx_x & 3) * 2;
      Seen seen = seen_within(a.window);
#pragma unroll
      for (int n = 0; n < BN / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = seen.at(away + (e >> 1) * 8 - n * 8 - (e & 1)) ? s[n][e] : 0.0f;
    }
    wait_products<0>();
    settled(ds);
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) ds[n][e] = s[n][e] * (ds[n][e] - delta[e >> 1]);
    pack(packed, ds);
    add_tile_product(dq, packed, k);
    wait_products<0>();
    settled(packed);
    settled(dq);
  }

  // consume is run by each of the two other warpgroups, number 0 and 1: it adds up the terms of all
  // tiles and writes its rows of DQ.
  METHOD void consume(Work w, int number, bf16 *dq_out, const float *lse_in, const float *delta_in, i64 out_stride, const Shape &a, u32 shared) {
    int own = number * ROWS;
    clear(dq);
    if (w.left > 0) {
      float lse[2], delta[2];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int row = w.place.first + own + row_of_thread() + 8 * half;
        i64 at = w.place.head * a.tq + w.place.q0 + min_i(row, w.place.nq - 1);
        lse[half] = lse_in[at];
        delta[half] = delta_in[at];
      }
      Operand q = operand(shared + own * PANEL_PITCH, 0), dout = beyond(q, DO_AT);
      Operand k = operand(shared + STAGES_AT, BN * PANEL_PITCH), v = beyond(k, TILE_BYTES);
      int stage = 0;
      u32 parity = 0;
      wait_for(shared + QUERIES_FILLED, 0);
      for (; w.left > 0; w.next()) {
        int gap = w.gap() + own;
        wait_for(shared + FILLED + 8 * stage, parity);
        if (!blind(gap, gap + ROWS - 1, 0, BN - 1, a.window)) add(q, dout, beyond(k, stage * STAGE), beyond(v, stage * STAGE), lse, delta, gap, a);
        release(shared + FREE + 8 * stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
    sync_some<128>(1 + number); // every warp's products have read Q
    store_rows<D, BM>(dq_out, out_stride, dq, {a.scale, a.scale}, own, w.place.q0, w.place.first, w.place.nq, w.place.head, shared);
  }

  METHOD void run(bf16 *dq_out, const TensorMap *q, const TensorMap *k, const TensorMap *v, const TensorMap *dout, const float *lse, const float *delta,
                  i64 out_stride, const Shape &a, u32 shared) {
    Work w;
    if (!w.find(a)) return;
    int group = warpgroup(), consumers = w.consumers();
    if (threadIdx_x == 0) {
      barrier_init(shared + QUERIES_FILLED, 1);
      barrier_init(shared + RAW, 1);
#pragma unroll
      for (int i = 0; i < STAGES; i++) {
        barrier_init(shared + FILLED + 8 * i, 1);
        barrier_init(shared + FREE + 8 * i, 4 * consumers);
      }
      barriers_ready();
    }
    sync_threads();
    if (group == 0) {
      give_registers<PRODUCER_REGISTERS>();
      if (threadIdx_x < 32) produce(w, q, k, v, dout, a, shared);
    } else {
      take_registers<CONSUMER_REGISTERS>();
      if (group <= consumers) consume(w, group - 1, dq_out, lse, delta, out_stride, a, shared);
    }
  }
};

#define ATTENTION_HOPPER_KEY_GRADIENTS(D, BN)                                                                                \
  __global__ __launch_bounds__(GROUPS_THREADS, 1) void attention_sm90a_dkdv_d##D(                                          \
      TensorMap q_map, TensorMap k_map, TensorMap v_map, TensorMap do_map, bf16 *dk, bf16 *dv, const float *lse,           \
      const float *delta, i64 out_stride, SHAPE_PARAMS) {                                                                  \
    HopperKeyGradients<D, BN> g;                                                                                            \
    MAP(q, attention_sm90a_dkdv_d##D, 0);                                                                                  \
    MAP(k, attention_sm90a_dkdv_d##D, 1);                                                                                  \
    MAP(v, attention_sm90a_dkdv_d##D, 2);                                                                                  \
    MAP(dout, attention_sm90a_dkdv_d##D, 3);                                                                               \
    g.run(dk, dv, q, k, v, dout, lse, delta, out_stride, SHAPE, shared_address(shared));                                   \
  }
#define ATTENTION_HOPPER_QUERY_GRADIENTS(D, BN)                                                                              \
  __global__ __launch_bounds__(GROUPS_THREADS, 1) void attention_sm90a_dq_d##D(                                            \
      TensorMap q_map, TensorMap k_map, TensorMap v_map, TensorMap do_map, bf16 *dq, const float *lse, const float *delta, \
      i64 out_stride, SHAPE_PARAMS) {                                                                                      \
    HopperQueryGradients<D, BN> g;                                                                                          \
    MAP(q, attention_sm90a_dq_d##D, 0);                                                                                    \
    MAP(k, attention_sm90a_dq_d##D, 1);                                                                                    \
    MAP(v, attention_sm90a_dq_d##D, 2);                                                                                    \
    MAP(dout, attention_sm90a_dq_d##D, 3);                                                                                 \
    g.run(dq, q, k, v, dout, lse, delta, out_stride, SHAPE, shared_address(shared));                                       \
  }
