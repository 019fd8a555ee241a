// Attention, forward, bf16, for sm_90a: the same results as attention_forward.cuh, by wgmma and
// TMA.
//
// There are at most as many blocks as multiprocessors. A block computes one piece of work after
// another: BM queries of a head. It goes over the keys in tiles of BN from the last to the first.
// The producer warp brings the next piece's Q, K and V while the consumers finish a piece.
//
// While a warpgroup turns scores into exponentials, tensor cores multiply P·V of the tile before and
// Q·Kᵀ of the next for it, or work for the other warpgroup.
#pragma once

#include "attention_hopper.cuh"

// Pieces finds a block's pieces of work, one after another. A piece is BM queries of a head. The
// lanes of a warp work together, one for each of 32 sequences.
//
// All pieces of a launch have numbers, group after group of 32 sequences. In a group the last
// queries come first, because causal attention gives them the most keys. Pieces with equal first
// queries are ordered by sequence, then by head. In each round every block takes one piece. The
// blocks take them in reverse order in every second round, so all blocks get about the same work.
template <int BM> struct Pieces {
  u32 round = 0, passed = 0; // passed: the number of pieces before those of the current tile
  int sequence = 0, tile = -1; // the group's first sequence; the tile of queries, −1: not yet known

  // next finds the block's next piece, and returns false if there is none.
  METHOD bool next(Place &p, const Shape &a) {
    u32 lane = thread_now() & 31, block, blocks, heads = a.some_heads;
    asm volatile("mov.u32 %0, %%ctaid.x; mov.u32 %1, %%nctaid.x;" : "=r"(block), "=r"(blocks)); // anew, as by thread_now
    u32 number = round * blocks + (round & 1 ? blocks - 1 - block : block) - passed;
    round++;
#pragma clang loop unroll(disable)
    for (; sequence < a.seqs; sequence += 32) {
      const int *cu = a.cu_q + sequence + lane;
      u32 queries = sequence + lane < a.seqs ? cu[1] - cu[0] : 0;
      if (tile < 0) tile = (int)__nvvm_redux_sync_umax(queries, 0xffffffffu) / BM;
#pragma clang loop unroll(disable)
      for (; tile >= 0; tile--) {
        u32 having = __nvvm_vote_ballot_sync(0xffffffffu, queries > tile * BM);
        u32 count = __builtin_popcount(having) * heads;
        if (number < count) {
          u32 skipped = number / heads;
          p.head = a.first_head + number - skipped * heads;
#pragma clang loop unroll(disable)
          for (; skipped > 0; skipped--) having &= having - 1; // without the lowest
          at(p, a, sequence + __builtin_popcount(~having & (having - 1)));
          return true;
        }
        number -= count;
        passed += count;
      }
    }
    return false;
  }
  // keep and kept write the fields to shared memory and read them, because the producer has few
  // registers. All lanes call both.
  METHOD void keep(u32 to) const {
    sync_warp();
    if ((thread_now() & 31) == 0) asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(round), "r"(sequence), "r"(tile), "r"(passed) : "memory");
  }
  METHOD void kept(u32 at) {
    sync_warp();
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(round), "=r"(sequence), "=r"(tile), "=r"(passed) : "r"(at) : "memory");
  }
  // at sets a place to the current queries of a sequence.
  METHOD void at(Place &p, const Shape &a, int sequence) {
    p.q0 = a.cu_q[sequence];
    p.k0 = a.cu_k[sequence];
    p.nq = a.cu_q[sequence + 1] - (int)p.q0;
    p.nk = a.cu_k[sequence + 1] - (int)p.k0;
    p.first = tile * BM;
  }
};

// Ring counts how many buffers have been used, of STAGES that are used in turn. stage is the current
// buffer. filled and free are the parities of the phases in which its barriers report that it is
// filled and that its last use has ended.
template <int STAGES> struct Ring {
  u32 uses = 0;
  METHOD u32 stage() const { return uses % STAGES; }
  METHOD u32 filled() const { return uses / STAGES & 1; }
  METHOD u32 free() const { return filled() ^ 1; }
};

template <int D, int BN> struct HopperForward {
  static constexpr int BM = 128, STAGES = 2, SLOTS = D == 256 ? 1 : 2; // buffers of K and of V, and of Q
  static constexpr int TILE_BYTES = BN * D * 2, Q_BYTES = BM * D * 2;
  static constexpr int K_AT = SLOTS * Q_BYTES, V_AT = K_AT + STAGES * TILE_BYTES;
  // Barriers of 8 bytes: V_RAW for a tile of V whose rows of another sequence are yet to be cleared,
  // and for each buffer of Q, K and V one for filled and one for free. Both warpgroups free every
  // buffer, even if one of them has no rows.
  static constexpr int Q_FILLED = V_AT + STAGES * TILE_BYTES, Q_FREE = Q_FILLED + 8 * SLOTS, V_RAW = Q_FREE + 8 * SLOTS, K_FILLED = V_RAW + 8,
                       K_FREE = K_FILLED + 8 * STAGES, V_FILLED = K_FREE + 8 * STAGES, V_FREE = V_FILLED + 8 * STAGES, PIECES_AT = (V_FREE + 8 * STAGES + 15) / 16 * 16, NOTES_AT = PIECES_AT + 16;
  static constexpr int TOGETHER = D == 192 ? 1 : D <= 128 ? D / 16 : 8; // for store_rows
  static constexpr float SLACK = 8.0f;
  using Work = TilesOfKeys<BM, BN>;

  float m[2], l[2]; // of rows g and g+8: about the maximum (unscaled), this lane's part of the sum
  float o[D / 8][4];

  // The notes of a buffer of Q describe its piece of work:
  //
  //  - LEFT: its number of tiles of keys; −1: there is no more piece
  //  - GAP: the distance from the last tile's first key to the place of the first query
  //  - ROW, QUERIES: the first query over all sequences, and the sequence's number of queries from there on
  //  - HEAD: the query head
  enum Note { LEFT, GAP, ROW, QUERIES, HEAD, NOTES };
  DEV void note(u32 shared, int slot, Note which, int v) { store_shared(shared + NOTES_AT + (slot * NOTES + which) * 4, (u32)v); }
  DEV int noted(u32 shared, int slot, Note which) {
    int v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(shared + NOTES_AT + (slot * NOTES + which) * 4) : "memory");
    return v;
  }

  // produce is run by the producer warp: for one piece after another it writes the notes and has the
  // TMA unit copy Q and the tiles of K and V to shared memory.
  DEV void produce(const TensorMap *q, const TensorMap *k, const TensorMap *v, const Shape &a, u32 shared) {
    bool first = (threadIdx_x & 31) == 0;
    Ring<STAGES> at;
    u32 raw = 0;
    Pieces<BM>().keep(shared + PIECES_AT);
    for (;;) {
      Pieces<BM> pieces;
      pieces.kept(shared + PIECES_AT);
      Work w{.left = -1};
      if (pieces.next(w.place, a)) w.begin(a);
      pieces.keep(shared + PIECES_AT);
      Ring<SLOTS> slot{pieces.round - 1};
      int query = (int)w.place.q0 + w.place.first, queries = w.place.nq - w.place.first, row = (int)w.place.k0 + w.key, rows = w.rows(), left = w.left;
      asm volatile("" : "+r"(query), "+r"(queries), "+r"(row), "+r"(rows)); // registers hold these, not all of the place
      wait_for(shared + Q_FREE + 8 * slot.stage(), slot.free());
      if (first) {
        u32 filled = shared + Q_FILLED + 8 * slot.stage();
        note(shared, slot.stage(), LEFT, left);
        note(shared, slot.stage(), GAP, rows - queries);
        note(shared, slot.stage(), ROW, query);
        note(shared, slot.stage(), QUERIES, queries);
        note(shared, slot.stage(), HEAD, w.place.head);
        if (left < 0) {
          arrive(filled);
        } else {
          arrive_and_expect(filled, Q_BYTES);
          copy_tile<BM, D>(shared + slot.stage() * Q_BYTES, q, w.place.head * D, query, filled);
        }
      }
      if (left < 0) return;
      int kv_heads = a.kv_heads;
      asm volatile("" : "+r"(kv_heads)); // so that no register holds the quotient in the next piece
      int shared_by = a.heads / kv_heads, column = w.place.head / shared_by * D;
#pragma clang loop unroll(disable)
      for (; left > 0; left--) {
        u32 stage = at.stage();
        bool ragged = rows < BN;
        asm volatile("" : "+r"(column)); // so that no registers hold the columns of panels
        wait_for(shared + K_FREE + 8 * stage, at.free());
        if (first) fill(shared + K_AT + stage * TILE_BYTES, k, column, row, shared + K_FILLED + 8 * stage);
        wait_for(shared + V_FREE + 8 * stage, at.free());
        if (first) fill(shared + V_AT + stage * TILE_BYTES, v, column, row, shared + (ragged ? V_RAW : V_FILLED + 8 * stage));
        if (ragged) {
          wait_for(shared + V_RAW, raw);
          raw ^= 1;
          clear_rows<BN, D>(shared + V_AT + stage * TILE_BYTES, rows, thread_now());
          arrive_stored(shared + V_FILLED + 8 * stage);
        }
        at.uses++;
        row -= BN;
        rows = BN;
      }
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
    if (window == 0) { // most cases, with fewer instructions
#pragma unroll
      for (int n = 0; n < BN / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = gap >= n * 8 + (e & 1) - (e >> 1) * 8 ? s[n][e] : -INFINITY_F;
      return;
    }
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
    softmax(s, down, a.factor());
  }

  // The two warpgroups take turns with the tensor cores: one multiplies while the other computes
  // exponentials. Warpgroup number waits for its turn at the barrier TURN + number, and the other
  // one arrives there to give the turn.
  static constexpr int TURN = 3;
  DEV void give_turn(int number) { arrive_some<256>(TURN + 1 - number); }

  // consume is run by each of the two other warpgroups, number 0 and 1: it computes its rows of one
  // piece after another.
  METHOD void consume(int number, bf16 *out, float *lse, const Shape &a, u32 shared) {
    Ring<STAGES> at;
    Ring<SLOTS> piece;
#pragma clang loop unroll(disable)
    for (;; piece.uses++) {
      u32 slot = piece.stage();
      wait_for(shared + Q_FILLED + 8 * slot, piece.filled());
      int left = noted(shared, slot, LEFT);
      if (left < 0) return;
      bool both = noted(shared, slot, QUERIES) > ROWS;
      if (both || number == 0) attend(slot, left, both, at, number, out, lse, a, shared);
      else skip(left, at, shared);
      arrive_stored(shared + Q_FREE + 8 * slot);
    }
  }
  // skip frees the tiles of a piece in which this warpgroup has no rows.
  DEV void skip(int left, Ring<STAGES> &at, u32 shared) {
#pragma clang loop unroll(disable)
    for (; left > 0; left--, at.uses++) {
      u32 barrier = shared + 8 * at.stage();
      wait_for(barrier + K_FILLED, at.filled());
      release(barrier + K_FREE);
      wait_for(barrier + V_FILLED, at.filled());
      release(barrier + V_FREE);
    }
  }
  // attend goes over all tiles of a piece and writes O and LSE of this warpgroup's rows. both says
  // whether both warpgroups have rows.
  METHOD void attend(u32 slot, int left, bool both, Ring<STAGES> &at, int number, bf16 *out, float *lse, const Shape &a, u32 shared) {
    int own = number * ROWS;
    u32 tile = shared + slot * Q_BYTES;
    m[0] = m[1] = -INFINITY_F;
    l[0] = l[1] = 0.0f;
    clear(o);
    if (left > 0) {
      float s[BN / 8][4], down[2];
      u32 p[BN / 16][4], stage = at.stage();
      Operand q = operand(tile + own * PANEL_PITCH, 0), k = operand(shared + K_AT, 0), v = operand(shared + V_AT, BN * PANEL_PITCH);
      int gap = noted(shared, slot, GAP) + own;
      if (both && number == 1 && left > 1) give_turn(number);
      wait_for(shared + K_FILLED + 8 * stage, at.filled());
      tile_product<D, BM, BN>(s, q, beyond(k, stage * TILE_BYTES));
      wait_products<0>();
      settled(s);
      release(shared + K_FREE + 8 * stage);
      consider(s, down, gap, a);
      pack(p, s);
#pragma clang loop unroll(disable)
      while (--left > 0) {
        u32 before = at.stage(), before_filled = at.filled();
        at.uses++;
        stage = at.stage();
        gap += BN;
        wait_for(shared + K_FILLED + 8 * stage, at.filled());
        if (both) sync_some<256>(TURN + number);
        tile_product<D, BM, BN>(s, q, beyond(k, stage * TILE_BYTES));
        wait_for(shared + V_FILLED + 8 * before, before_filled);
        add_tile_product(o, p, beyond(v, before * TILE_BYTES));
        if (both && (number == 0 || left > 1)) give_turn(number);
        wait_products<1>();
        settled(s);
        release(shared + K_FREE + 8 * stage);
        consider(s, down, gap, a);
        wait_products<0>();
        settled(o);
        settled(p);
        release(shared + V_FREE + 8 * before);
        rescale(down);
        pack(p, s);
      }
      wait_for(shared + V_FILLED + 8 * stage, at.filled());
      add_tile_product(o, p, beyond(v, stage * TILE_BYTES));
      wait_products<0>();
      settled(o);
      release(shared + V_FREE + 8 * stage);
      at.uses++;
    }
    Place w;
    w.q0 = 0;
    w.first = noted(shared, slot, ROW);
    w.nq = w.first + noted(shared, slot, QUERIES);
    w.head = noted(shared, slot, HEAD);
    finish(w, number, out, lse, a, tile);
  }

  // finish writes O and LSE of a warpgroup. O passes through the warpgroup's part of Q's tile in
  // shared memory.
  METHOD void finish(const Place &w, int number, bf16 *out, float *lse, const Shape &a, u32 tile) {
    int thread = thread_now();
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = l[half];
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      inverse[half] = sum == 0.0f ? 0.0f : 1.0f / sum;
      int r = w.first + number * ROWS + row_of_thread(thread) + 8 * half;
      if (lse && (thread & 3) == 0 && r < w.nq) lse[w.head * a.tq + w.q0 + r] = log_sum_exp2(m[half], a.factor(), sum);
    }
    sync_some<128>(1 + number); // every warp's products have read Q
    store_rows<D, BM, TOGETHER>(out, (i64)a.heads * D, o, inverse, number * ROWS, w.q0, w.first, w.nq, w.head, tile, thread);
  }

  METHOD void run(bf16 *out, float *lse, const TensorMap *q, const TensorMap *k, const TensorMap *v, const Shape &a, u32 shared) {
    int group = warpgroup();
    if (threadIdx_x == 0) {
      barrier_init(shared + V_RAW, 1);
#pragma unroll
      for (int i = 0; i < SLOTS; i++) {
        barrier_init(shared + Q_FILLED + 8 * i, 1);
        barrier_init(shared + Q_FREE + 8 * i, 8); // one arrival from each warp
      }
#pragma unroll
      for (int i = 0; i < STAGES; i++) {
        barrier_init(shared + K_FILLED + 8 * i, 1);
        barrier_init(shared + V_FILLED + 8 * i, 1);
        barrier_init(shared + K_FREE + 8 * i, 8);
        barrier_init(shared + V_FREE + 8 * i, 8);
      }
      barriers_ready();
    }
    sync_threads();
    if (group == 0) {
      give_registers<PRODUCER_REGISTERS>();
      if (threadIdx_x < 32) produce(q, k, v, a, shared);
    } else {
      take_registers<CONSUMER_REGISTERS>();
      consume(group - 1, out, lse, a, shared);
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
