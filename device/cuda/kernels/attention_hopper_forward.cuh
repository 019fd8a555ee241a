// Attention, forward, bf16, for sm_90a: the same results as attention_forward.cuh, by wgmma and
// TMA.
//
// A block has BM queries of a head, and goes over the keys in tiles of BN from the last to the
// first. While a warpgroup turns scores into exponentials, tensor cores multiply P·V of the tile
// before and Q·Kᵀ of the next for it, or work for the other warpgroup.
#pragma once

#include "attention_hopper.cuh"

template <int D, int BN> struct HopperForward {
  static constexpr int BM = 128, STAGES = 2;
  static constexpr int TILE_BYTES = BN * D * 2;
  static constexpr int K_AT = BM * D * 2, V_AT = K_AT + STAGES * TILE_BYTES;
  // Barriers of 8 bytes: Q_FILLED for Q, V_RAW for a tile of V whose rows of another sequence are
  // yet to be cleared, and for each buffer of K and of V one for filled and one for free.
  static constexpr int Q_FILLED = V_AT + STAGES * TILE_BYTES, V_RAW = Q_FILLED + 8, K_FILLED = V_RAW + 8, K_FREE = K_FILLED + 8 * STAGES,
                       V_FILLED = K_FREE + 8 * STAGES, V_FREE = V_FILLED + 8 * STAGES;
  static constexpr float SLACK = 8.0f;
  using Work = TilesOfKeys<BM, BN>;

  float m[2], l[2]; // of rows g and g+8: about the maximum (unscaled), this lane's part of the sum
  float o[D / 8][4];

  // produce is run by the producer warp: it has the TMA unit copy Q and then one tile of K and V
  // after another to shared memory. K comes a tile ahead of V.
  DEV void produce(Work w, const TensorMap *q, const TensorMap *k, const TensorMap *v, const Shape &a, u32 shared) {
    if (w.left == 0) return;
    int lane = threadIdx_x & 31, column = w.place.head / (a.heads / a.kv_heads) * D, row = (int)w.place.k0 + w.key, stage = 0;
    u32 parity = 1;
    bool ragged = w.rows() < BN;
    if (lane == 0) {
      arrive_and_expect(shared + Q_FILLED, BM * D * 2);
      copy_tile<BM, D>(shared, q, w.place.head * D, (int)w.place.q0 + w.place.first, shared + Q_FILLED);
      fill(shared + K_AT, k, column, row, shared + K_FILLED);
      fill(shared + V_AT, v, column, row, shared + (ragged ? V_RAW : V_FILLED));
    }
    if (ragged) {
      wait_for(shared + V_RAW, 0);
      clear_rows<BN, D>(shared + V_AT, w.rows());
      arrive_cleared(shared + V_FILLED);
    }
    if (lane != 0) return;
    for (int left = w.left - 1; left > 0; left--) {
      row -= BN;
      if (++stage == STAGES) stage = 0, parity ^= 1;
      u32 buffer = stage * TILE_BYTES, barrier = shared + 8 * stage;
      wait_for(barrier + K_FREE, parity);
      fill(shared + K_AT + buffer, k, column, row, barrier + K_FILLED);
      wait_for(barrier + V_FREE, parity);
      fill(shared + V_AT + buffer, v, column, row, barrier + V_FILLED);
    }
  }
  // fill starts to copy a tile of keys or values.
  DEV void fill(u32 to, const TensorMap *map, int column, int row, u32 filled) {
    arrive_and_expect(filled, TILE_BYTES);
    copy_tile<BN, D>(to, map, column, row, filled);
  }

  // mask sets the scores of keys that a query does not see to −∞. gap is the distance from the
  // tile's first key to the place of this thread's first query.
  DEV void mask(float (&s)[BN / 8][4], int gap, int window) {
    gap -= (threadIdx_x & 3) * 2;
    Seen seen = seen_within(window);
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[n][e] = seen.at(gap + (e >> 1) * 8 - n * 8 - (e & 1)) ? s[n][e] : -INFINITY_F;
  }

  // softmax turns scores into exponentials relative to each row's maximum, and rescales the sums so
  // far to these maxima. down becomes the factor by which outputs must be multiplied. factor is
  // scale·log₂ e. A maximum is replaced only by one that is more than SLACK above it, as in
  // attention_forward.cuh.
  METHOD void softmax(float (&s)[BN / 8][4], float (&down)[2], float factor) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float top = m[half];
#pragma unroll
      for (int n = 0; n < BN / 8; n++) top = max_f(top, max_f(s[n][2 * half], s[n][2 * half + 1]));
      top = max_f(top, shuffle_xor(top, 1));
      top = max_f(top, shuffle_xor(top, 2));
      if ((top - m[half]) * factor <= SLACK) top = m[half];
      float base = top == -INFINITY_F ? 0.0f : top;
      down[half] = exp2_approx((m[half] - base) * factor); // exactly 1 if the maximum stayed
      m[half] = top;
      base *= factor;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < BN / 8; n++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          s[n][e] = exp2_approx(s[n][e] * factor - base);
          sum += s[n][e];
        }
      l[half] = l[half] * down[half] + sum;
    }
  }

  // rescale multiplies the outputs by down, but only if a maximum of the warp changed: after the
  // first tile that is rare.
  METHOD void rescale(const float (&down)[2]) {
    if (!__nvvm_vote_any_sync(0xffffffffu, down[0] != 1.0f || down[1] != 1.0f)) return;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) o[n][e] *= down[e >> 1];
  }

  // consider masks the scores of a tile, where its queries do not see all keys, and calls softmax.
  // gap is the distance from the tile's first key to the place of this warpgroup's first query.
  METHOD void consider(float (&s)[BN / 8][4], float (&down)[2], int gap, const Shape &a) {
    if (crosses(gap, gap + ROWS - 1, 0, BN - 1, a.window)) mask(s, gap + row_of_thread(), a.window);
    softmax(s, down, a.scale * LOG2E);
  }

  // The two warpgroups take turns with the tensor cores: one multiplies while the other computes
  // exponentials. Warpgroup number waits for its turn at the barrier TURN + number, and the other
  // one arrives there to give the turn.
  static constexpr int TURN = 3;
  DEV void give_turn(int number) { arrive_some<256>(TURN + 1 - number); }

  // consume is run by each of the two other warpgroups, number 0 and 1: it goes over all tiles and
  // writes O and LSE of its rows.
  METHOD void consume(Work w, int number, bf16 *out, float *lse, const Shape &a, u32 shared) {
    int own = number * ROWS;
    m[0] = m[1] = -INFINITY_F;
    l[0] = l[1] = 0.0f;
    clear(o);
    if (w.left > 0) {
      float s[BN / 8][4], down[2];
      u32 p[BN / 16][4];
      Operand q = operand(shared + own * PANEL_PITCH, 0), k = operand(shared + K_AT, 0), v = operand(shared + V_AT, BN * PANEL_PITCH);
      int stage = 0;
      u32 parity = 0;
      bool turns = w.consumers() == 2;
      if (turns && number == 1 && w.left > 1) give_turn(number);
      wait_for(shared + Q_FILLED, 0);
      wait_for(shared + K_FILLED, 0);
      tile_product<D, BM, BN>(s, q, k);
      wait_products<0>();
      settled(s);
      release(shared + K_FREE);
      consider(s, down, w.gap() + own, a);
      pack(p, s);
      for (w.next(); w.left > 0; w.next()) {
        int before = stage;
        u32 before_parity = parity;
        if (++stage == STAGES) stage = 0, parity ^= 1;
        wait_for(shared + K_FILLED + 8 * stage, parity);
        if (turns) sync_some<256>(TURN + number);
        tile_product<D, BM, BN>(s, q, beyond(k, stage * TILE_BYTES));
        wait_for(shared + V_FILLED + 8 * before, before_parity);
        add_tile_product(o, p, beyond(v, before * TILE_BYTES));
        if (turns && (number == 0 || w.left > 1)) give_turn(number);
        wait_products<1>();
        settled(s);
        release(shared + K_FREE + 8 * stage);
        consider(s, down, w.gap() + own, a);
        wait_products<0>();
        settled(o);
        settled(p);
        release(shared + V_FREE + 8 * before);
        rescale(down);
        pack(p, s);
      }
      wait_for(shared + V_FILLED + 8 * stage, parity);
      add_tile_product(o, p, beyond(v, stage * TILE_BYTES));
      wait_products<0>();
      settled(o);
    }
    finish(w.place, number, out, lse, a, shared);
  }

  // finish writes O and LSE of a warpgroup. O passes through the warpgroup's part of Q's tile in
  // shared memory.
  METHOD void finish(const Place &w, int number, bf16 *out, float *lse, const Shape &a, u32 shared) {
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = l[half];
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      inverse[half] = sum == 0.0f ? 0.0f : 1.0f / sum;
      int r = w.first + number * ROWS + row_of_thread() + 8 * half;
      if (lse && (threadIdx_x & 3) == 0 && r < w.nq) lse[w.head * a.tq + w.q0 + r] = log_sum_exp2(m[half], a.factor(), sum);
    }
    sync_some<128>(1 + number); // every warp's products have read Q
    store_rows<D, BM>(out, (i64)a.heads * D, o, inverse, number * ROWS, w.q0, w.first, w.nq, w.head, shared);
  }

  METHOD void run(bf16 *out, float *lse, const TensorMap *q, const TensorMap *k, const TensorMap *v, const Shape &a, u32 shared) {
    Work w;
    if (!w.find(a)) return;
    int group = warpgroup(), consumers = w.consumers();
    if (threadIdx_x == 0) {
      barrier_init(shared + Q_FILLED, 1);
      barrier_init(shared + V_RAW, 1);
#pragma unroll
      for (int i = 0; i < STAGES; i++) {
        barrier_init(shared + K_FILLED + 8 * i, 1);
        barrier_init(shared + V_FILLED + 8 * i, 1);
        barrier_init(shared + K_FREE + 8 * i, 4 * consumers); // one arrival from each warp
        barrier_init(shared + V_FREE + 8 * i, 4 * consumers);
      }
      barriers_ready();
    }
    sync_threads();
    if (group == 0) {
      give_registers<PRODUCER_REGISTERS>();
      if (threadIdx_x < 32) produce(w, q, k, v, a, shared);
    } else {
      take_registers<CONSUMER_REGISTERS>();
      if (group <= consumers) consume(w, group - 1, out, lse, a, shared);
    }
  }
};

#define ATTENTION_HOPPER_FORWARD(D, BN)                                                                                    \
  __global__ __launch_bounds__(GROUPS_THREADS, 1) void attention_sm90a_forward_d##D(                          \
      TensorMap q_map, TensorMap k_map, TensorMap v_map, bf16 *o, float *lse, SHAPE_PARAMS) {                            \
    HopperForward<D, BN> f;                                                                                               \
    MAP(q, attention_sm90a_forward_d##D, 0);                                                                             \
    MAP(k, attention_sm90a_forward_d##D, 1);                                                                             \
    MAP(v, attention_sm90a_forward_d##D, 2);                                                                             \
    f.run(o, lse, q, k, v, SHAPE, shared_address(shared));                                                               \
  }
