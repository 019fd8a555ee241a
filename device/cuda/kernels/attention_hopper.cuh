// Attention, forward, bf16, for sm_90a: what attention_forward.cuh computes, by wgmma
// and TMA (hopper.cuh). Heads have D elements exactly, rows lie at multiples of 16
// bytes, and scores have no cap.
//
// A block has three warpgroups and takes BM = 128 queries of a head. One thread of the
// first warpgroup (the producer) has the TMA unit bring Q, then tiles of BN keys from
// the last to the first, K and V each into one of STAGES buffers. Each of the other
// two warpgroups owns 64 queries: while tensor cores multiply P·V of one tile and Q·Kᵀ
// of the next, it turns scores into exponentials, and while it does that, tensor cores
// work for the other one. (The structure is that of arXiv:2407.08608.)
//
// Every buffer has two barriers: it is filled when its bytes have arrived, and free when
// each warpgroup that has queries is done with it.
#pragma once

#include "attention.cuh"
#include "hopper.cuh"

template <int D> struct HopperForward {
  static constexpr int BM = 128, BN = 128, STAGES = 2, THREADS = 384, ROWS = 64; // ROWS: of a warpgroup
  static constexpr int Q_BYTES = BM * D * 2, TILE_BYTES = BN * D * 2;
  static constexpr int K_AT = Q_BYTES, V_AT = K_AT + STAGES * TILE_BYTES, BARRIERS_AT = V_AT + STAGES * TILE_BYTES;
  // Barriers of 8 bytes: Q, then those of the buffers of K and of V.
  static constexpr int K_FILLED = BARRIERS_AT + 8, K_FREE = K_FILLED + 8 * STAGES, V_FILLED = K_FREE + 8 * STAGES,
                       V_FREE = V_FILLED + 8 * STAGES, V_RAW = V_FREE + 8 * STAGES;
  static constexpr float SLACK = 8.0f;

  float m[2], l[2]; // of rows g and g+8: about the maximum (unscaled), this lane's part of the sum
  float o[D / 8][4];

  // Work is what all warps of a block know of it.
  struct Work {
    Place place;
    int key, left; // the first key of the next tile, tiles from there on
    METHOD int gap() const { return place.first + place.shift() - key; } // from that key to the place of the block's first query
    METHOD void next() { left--, key -= BN; }
  };
  DEV bool find_work(Work &w, const Shape &a) {
    if (!find_place<BM>(w.place, a, a.cu_q, true)) return false;
    Range keys = keys_seen(w.place, w.place.first, BM, a.window);
    w.key = keys.high > 0 ? (keys.high - 1) / BN * BN : 0;
    w.left = keys.high > keys.low ? w.key / BN - keys.low / BN + 1 : 0;
    return true;
  }

  // produce is the producer warp's part.
  DEV void produce(Work w, const TensorMap *q, const TensorMap *k, const TensorMap *v, const Shape &a, u32 shared) {
    int lane = threadIdx_x & 31, column = w.place.head / (a.heads / a.kv_heads) * D, row = (int)w.place.k0 + w.key, stage = 0;
    u32 parity = 1;
    if (w.left == 0) return;
    bool ragged = w.place.nk - w.key < BN; // rows behind the sequence's last are another's
    if (lane == 0) {
      copy_tile<BM, D>(shared, q, w.place.head * D, (int)w.place.q0 + w.place.first, shared + BARRIERS_AT);
      copy_tile<BN, D>(shared + K_AT, k, column, row, shared + K_FILLED);
      copy_tile<BN, D>(shared + V_AT, v, column, row, shared + (ragged ? V_RAW : V_FILLED));
    }
    if (ragged) clear_behind(w.place.nk - w.key, shared);
    if (lane != 0) return;
    for (int left = w.left - 1; left > 0; left--) {
      row -= BN;
      if (++stage == STAGES) stage = 0, parity ^= 1;
      u32 buffer = stage * TILE_BYTES, barrier = shared + 8 * stage;
      wait_for(barrier + K_FREE, parity);
      copy_tile<BN, D>(shared + K_AT + buffer, k, column, row, barrier + K_FILLED);
      wait_for(barrier + V_FREE, parity);
      copy_tile<BN, D>(shared + V_AT + buffer, v, column, row, barrier + V_FILLED);
    }
  }

  // clear_behind makes the rows of V's first tile from rows on zeros before it counts as filled: they
  // belong to another sequence, and nothing in them, not even an infinity, may show.
  DEV void clear_behind(int rows, u32 shared) {
    wait_for(shared + V_RAW, 0);
#pragma clang loop unroll(disable)
    for (int at = (threadIdx_x & 31) + rows * 8; at < BN * 8; at += 32)
#pragma unroll
      for (int panel = 0; panel < D / PANEL; panel++)
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(shared + V_AT + panel * BN * PANEL_PITCH + at * 16), "r"(0) : "memory");
    fence_async();
    sync_warp();
    if ((threadIdx_x & 31) == 0) arrive(shared + V_FILLED);
  }

  // scores starts s = Q·Kᵀ of this warpgroup's rows.
  DEV void scores(float (&s)[BN / 8][4], Operand q, Operand k) {
    settled(s);
    fence_products();
#pragma unroll
    for (int c = 0; c < D; c += 16) {
      int in_panel = c % PANEL * 2;
      Operand at_q = beyond(q, c / PANEL * BM * PANEL_PITCH + in_panel), at_k = beyond(k, c / PANEL * BN * PANEL_PITCH + in_panel);
      if (c == 0) multiply<false>(s, at_q, at_k);
      else multiply<true>(s, at_q, at_k);
    }
    commit_products();
  }

  // values starts o += P·V.
  METHOD void values(u32 (&p)[BN / 16][4], Operand v) {
    settled(p);
    settled(o);
    fence_products();
#pragma unroll
    for (int i = 0; i < BN / 16; i++) multiply_add(o, p[i], beyond(v, i * 16 * PANEL_PITCH));
    commit_products();
  }

  // mask hides keys; gap is from the tile's first key to the place of this thread's first row.
  DEV void mask(float (&s)[BN / 8][4], int gap, int window) {
    gap -= (threadIdx_x & 3) * 2;
    Seen seen = seen_within(window);
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[n][e] = seen.at(gap + (e >> 1) * 8 - n * 8 - (e & 1)) ? s[n][e] : -INFINITY_F;
  }

  // softmax turns scores into exponentials relative to the maxima and brings the sums to these maxima;
  // down is what outputs are to be multiplied by. factor is scale·log2 e. A maximum stays until one
  // SLACK above it comes, as in attention_forward.cuh.
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
      down[half] = exp2_approx((m[half] - base) * factor); // 1, exactly, where the maximum stayed
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

  // rescale multiplies outputs where a maximum of the warp moved: after the first tile that is rare.
  METHOD void rescale(const float (&down)[2]) {
    if (!__nvvm_vote_any_sync(0xffffffffu, down[0] != 1.0f || down[1] != 1.0f)) return;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) o[n][e] *= down[e >> 1];
  }

  // consume is the part of one of the other two warpgroups, number 0 or 1.
  METHOD void consume(Work w, int number, bf16 *out, float *lse, const Shape &a, u32 shared) {
    int thread = threadIdx_x & 127, own = number * ROWS + (thread >> 5) * 16 + ((thread & 31) >> 2); // this thread's first row
    m[0] = m[1] = -INFINITY_F;
    l[0] = l[1] = 0.0f;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) o[n][e] = 0.0f;
    if (w.left > 0) {
      float s[BN / 8][4], down[2], factor = a.scale * LOG2E;
      u32 p[BN / 16][4];
      Operand q = operand(shared + number * ROWS * PANEL_PITCH, 0), k = operand(shared + K_AT, 0), v = operand(shared + V_AT, BN * PANEL_PITCH);
      wait_for(shared + BARRIERS_AT, 0);
      wait_for(shared + K_FILLED, 0);
      scores(s, q, k);
      wait_products<0>();
      settled(s);
      release(shared + K_FREE, thread);
      consider(s, down, w, own, number, factor, a);
      pack(p, s);
      int stage = 0;
      u32 parity = 0;
      for (w.next(); w.left > 0; w.next()) {
        int before = stage;
        u32 before_parity = parity;
        if (++stage == STAGES) stage = 0, parity ^= 1;
        wait_for(shared + K_FILLED + 8 * stage, parity);
        scores(s, q, beyond(k, stage * TILE_BYTES));
        wait_for(shared + V_FILLED + 8 * before, before_parity);
        values(p, beyond(v, before * TILE_BYTES));
        wait_products<1>();
        settled(s);
        release(shared + K_FREE + 8 * stage, thread);
        consider(s, down, w, own, number, factor, a);
        wait_products<0>();
        settled(o);
        settled(p);
        release(shared + V_FREE + 8 * before, thread);
        rescale(down);
        pack(p, s);
      }
      wait_for(shared + V_FILLED + 8 * stage, parity);
      values(p, beyond(v, stage * TILE_BYTES));
      wait_products<0>();
      settled(o);
    }
    finish(w.place, number, own, out, lse, a, shared);
  }

  // consider hides what a tile's queries do not see and takes its scores in.
  METHOD void consider(float (&s)[BN / 8][4], float (&down)[2], const Work &w, int own, int number, float factor, const Shape &a) {
    int gap = w.gap() + number * ROWS;
    if (crosses(gap, gap + ROWS - 1, 0, BN - 1, a.window)) mask(s, w.gap() + own, a.window);
    softmax(s, down, factor);
  }

  DEV void pack(u32 (&p)[BN / 16][4], const float (&s)[BN / 8][4]) {
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
      for (int half = 0; half < 2; half++) p[n / 2][n % 2 * 2 + half] = pack_bf16(s[n][2 * half], s[n][2 * half + 1]);
  }

  // release says that this warpgroup is done with a buffer: once its products have been waited for by
  // every warp of it.
  DEV void release(u32 barrier, int thread) {
    if ((thread & 31) == 0) arrive(barrier);
  }

  // finish writes O and LSE by way of the warpgroup's part of Q's tile.
  METHOD void finish(const Place &w, int number, int own, bf16 *out, float *lse, const Shape &a, u32 shared) {
    int thread = threadIdx_x & 127, lane = thread & 31, first = own - (lane >> 2); // of the warp's rows
    sync_some<128>(1 + number); // every warp's products have read Q
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = l[half];
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      inverse[half] = sum == 0.0f ? 0.0f : 1.0f / sum;
      int r = w.first + own + 8 * half;
      if (lse && (lane & 3) == 0 && r < w.nq) lse[w.head * a.tq + w.q0 + r] = m[half] * a.scale + log2_approx(sum) * LN2;
    }
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        u32 pair = pack_bf16(o[n][2 * half] * inverse[half], o[n][2 * half + 1] * inverse[half]);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared + in_tile(own + 8 * half, n) + (lane & 3) * 4), "r"(pair) : "memory");
      }
    sync_warp();
    int rows = min_i(16, w.nq - w.first - first);
    i64 stride = (i64)a.heads * D;
    out += (w.q0 + w.first + first) * stride + (i64)w.head * D;
#pragma clang loop unroll(disable)
    for (int at = lane; at < rows * (D / 8); at += 32) {
      int r = at / (D / 8), chunk = at % (D / 8);
      u32x4 x;
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(shared + in_tile(first + r, chunk)));
      *(u32x4 *)(out + r * stride + chunk * 8) = x;
    }
  }
  // in_tile is where a chunk of Q's tile lies.
  DEV u32 in_tile(int row, int chunk) { return chunk / 8 * BM * PANEL_PITCH + row * PANEL_PITCH + (((chunk ^ row) & 7) << 4); }

  METHOD void run(bf16 *out, float *lse, const TensorMap *q, const TensorMap *k, const TensorMap *v, const Shape &a, u32 shared) {
    Work w;
    if (!find_work(w, a)) return;
    int group = warpgroup(), consumers = w.place.nq - w.place.first > ROWS ? 2 : 1; // those that have queries
    if (threadIdx_x == 0) {
      barrier_init(shared + BARRIERS_AT, 1);
      barrier_init(shared + V_RAW, 1);
#pragma unroll
      for (int i = 0; i < STAGES; i++) {
        barrier_init(shared + K_FILLED + 8 * i, 1);
        barrier_init(shared + V_FILLED + 8 * i, 1);
        barrier_init(shared + K_FREE + 8 * i, 4 * consumers); // one from each warp
        barrier_init(shared + V_FREE + 8 * i, 4 * consumers);
      }
      barriers_ready();
    }
    sync_threads();
    if (group == 0) {
      give_registers<24>();
      if (threadIdx_x < 32) produce(w, q, k, v, a, shared);
    } else {
      take_registers<240>();
      if (group <= consumers) consume(w, group - 1, out, lse, a, shared);
    }
  }
};

#define ATTENTION_HOPPER_FORWARD(D)                                                                                      \
  __global__ __launch_bounds__(HopperForward<D>::THREADS, 1) void attention_sm90a_forward_d##D(                          \
      TensorMap q_map, TensorMap k_map, TensorMap v_map, bf16 *o, float *lse, SHAPE_PARAMS) {                            \
    HopperForward<D> f;                                                                                                  \
    MAP(q, attention_sm90a_forward_d##D, 0);                                                                             \
    MAP(k, attention_sm90a_forward_d##D, 1);                                                                             \
    MAP(v, attention_sm90a_forward_d##D, 2);                                                                             \
    f.run(o, lse, q, k, v, SHAPE, shared_address(shared));                                                               \
  }
