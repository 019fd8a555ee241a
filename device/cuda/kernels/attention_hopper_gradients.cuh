// Attention, backward, bf16, for sm_90a, with DQ, DK and DV by one kernel: five matrix products
// instead of the seven of attention_hopper_backward.cuh, for heads of exactly D = 64 or 128 elements.
// As in attention_gradients.cuh, a block has a tile of keys and goes over the queries from the last
// to the first, head by head. It adds the terms of DQ to fp32 sums in device memory, after the
// blocks with earlier keys of the sequence, so bits repeat.
//
// The two consumer warpgroups own 64 keys each, with DK and DV in registers. They exchange dS
// through shared memory, because DQ sums over all keys of the block. Each then computes 64 by 64
// elements of the tile's DQ.
#pragma once

#include "attention_hopper.cuh"
#include "attention_sums.cuh"

// HopperGradients has blocks of BN keys and tiles of BM queries of a head: Q, DO, LSE and Delta, in
// one of STAGES buffers. dS has as many buffers. So one barrier a tile suffices: a warpgroup that
// has passed it has ended its products with the dS of the tile before.
template <int D> struct HopperGradients {
  static constexpr int BN = 128, BM = D == 64 ? 128 : 64, SUB = 64, STAGES = 2;
  static constexpr int KEYS_BYTES = BN * D * 2, TILE_BYTES = BM * D * 2, STAGE = 2 * TILE_BYTES, DS = BN * BM * 2, DS_PANEL = BN * PANEL_PITCH;
  static constexpr int V_AT = KEYS_BYTES, STAGES_AT = 2 * KEYS_BYTES, DS_AT = STAGES_AT + STAGES * STAGE, FLOATS_AT = DS_AT + STAGES * DS;
  static constexpr int FLOATS = 2 * BM * 4; // bytes of LSE and Delta of a stage
  static constexpr int KEYS_FILLED = FLOATS_AT + STAGES * FLOATS, FILLED = KEYS_FILLED + 8, FREE = FILLED + 8 * STAGES, RAW = FREE + 8 * STAGES, NOTES_AT = RAW + 8;
  static constexpr int ADDING = 8; // warps that add to the sums of a tile

  float dk[D / 8][4], dv[D / 8][4];

  // The notes are numbers that all warps need. They are kept in shared memory, because no registers
  // are left:
  //
  //  - KEY, KEYS: the block's first key over all sequences, and the number of keys from there on (0: the block has no work)
  //  - HEAD, GROUP: the key head, and the number of query heads that share it
  //  - FIRST, QUERIES: the sequence's first query, and its number of queries
  //  - LOW, HIGH: the first query of the lowest tile and of the highest
  //  - GAP: the distance from the block's first key to the place of query 0
  //  - BLOCK: the block's number in the sequence
  //  - FIRST_UNIT: the unit of query 0 of the first head
  enum Note { KEY, KEYS, HEAD, GROUP, FIRST, QUERIES, LOW, HIGH, GAP, BLOCK, FIRST_UNIT };
  DEV void note(u32 shared, Note which, int v) { store_shared(shared + NOTES_AT + which * 4, (u32)v); }
  DEV int noted(u32 shared, Note which) {
    int v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(shared + NOTES_AT + which * 4) : "memory");
    return v;
  }

  // place takes the block's ticket, finds the tile of keys that the ticket stands for, and writes
  // the notes. One thread runs it.
  DEV void place(u32 *marks, const Shape &a, u32 shared) {
    u32 ticket;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(ticket) : "l"(GLOBAL(u32, marks)) : "memory");
    Place w;
    bool found = find_place<BN>(w, a, a.cu_k, false, ticket);
    note(shared, KEYS, found ? w.nk - w.first : 0);
    if (!found) return;
    Range see = queries_seeing(w, w.first, BN, a.window);
    int low = see.low / BM * BM, group = a.heads / a.kv_heads;
    note(shared, KEY, (int)w.k0 + w.first);
    note(shared, HEAD, w.head);
    note(shared, GROUP, group);
    note(shared, FIRST, (int)w.q0);
    note(shared, QUERIES, w.nq);
    note(shared, LOW, low);
    note(shared, HIGH, see.high > low ? (see.high - 1) / BM * BM : low - BM);
    note(shared, GAP, w.shift() - w.first);
    note(shared, BLOCK, w.first / BN);
    note(shared, FIRST_UNIT, first_unit(w, a) + (w.head - a.first_head) * group * units(a));
  }

  // produce is run by the first producer warp: it has the TMA unit copy the block's keys and then
  // one tile of queries after another to shared memory.
  DEV void produce(const TensorMap *q, const TensorMap *k, const TensorMap *v, const TensorMap *dout, u32 shared) {
    int lane = threadIdx_x & 31, stage = 0, keys = noted(shared, KEYS), group = noted(shared, GROUP), column = noted(shared, HEAD) * D;
    u32 parity = 1, raw = 0;
    if (lane == 0) {
      u32 barrier = keys < BN ? shared + RAW : shared + KEYS_FILLED;
      arrive_and_expect(barrier, 2 * KEYS_BYTES);
      copy_tile<BN, D>(shared, k, column, noted(shared, KEY), barrier);
      copy_tile<BN, D>(shared + V_AT, v, column, noted(shared, KEY), barrier);
    }
    if (keys < BN) clear_raw<BN>(shared, keys, shared + KEYS_FILLED, raw, shared);
    column *= group;
#pragma clang loop unroll(disable)
    for (int end = column + group * D; column < end; column += D) {
#pragma clang loop unroll(disable)
      for (int row = noted(shared, HIGH); row >= noted(shared, LOW); row -= BM) {
        u32 to = shared + STAGES_AT + stage * STAGE, filled = shared + FILLED + 8 * stage;
        int rows = noted(shared, QUERIES) - row;
        wait_for(shared + FREE + 8 * stage, parity);
        if (lane == 0) {
          int from = noted(shared, FIRST) + row;
          u32 barrier = rows < BM ? shared + RAW : filled;
          arrive_and_expect(barrier, STAGE);
          copy_tile<BM, D>(to, q, column, from, barrier);
          copy_tile<BM, D>(to + TILE_BYTES, dout, column, from, barrier);
        }
        if (rows < BM) clear_raw<BM>(to, rows, filled, raw, shared);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
  }
  // clear_raw waits for two tiles of ROWS_OF_TILE rows that report to the barrier RAW, and clears
  // their rows from first on.
  template <int ROWS_OF_TILE> DEV void clear_raw(u32 tiles, int first, u32 filled, u32 &raw, u32 shared) {
    wait_for(shared + RAW, raw);
    raw ^= 1;
    clear_rows<ROWS_OF_TILE, D>(tiles, first);
    clear_rows<ROWS_OF_TILE, D>(tiles + ROWS_OF_TILE * D * 2, first);
    arrive_stored(filled);
  }

  // produce_floats is run by the second producer warp: it copies LSE and Delta. Those of missing
  // queries become zeros. Their P is then finite, so that P·DO and dS·Q are zeros.
  DEV void produce_floats(const float *lse, const float *delta, const Shape &a, u32 shared) {
    int lane = thread_now() & 31, stage = 0;
    u32 parity = 1;
#pragma clang loop unroll(disable)
    for (int head = 0; head < noted(shared, GROUP); head++) {
#pragma clang loop unroll(disable)
      for (int row = noted(shared, HIGH); row >= noted(shared, LOW); row -= BM) {
        wait_for(shared + FREE + 8 * stage, parity);
        int rows = noted(shared, QUERIES) - row - lane;
        i64 from = (noted(shared, HEAD) * noted(shared, GROUP) + head) * a.tq + noted(shared, FIRST) + row + lane;
        u32 to = shared + FLOATS_AT + stage * FLOATS + ((lane & 17) | (lane & 6) << 1 | (lane & 8) >> 2) * 4; // as load_four reads them
#pragma unroll
        for (int r = 0; r < BM; r += 32) {
          store_float(to + r * 4, r < rows ? lse[from + r] : 0.0f);
          store_float(to + (BM + r) * 4, r < rows ? delta[from + r] : 0.0f);
        }
        sync_warp();
        if (lane == 0) arrive(shared + FILLED + 8 * stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
  }

  // put writes a warpgroup's rows of dSᵀ to shared memory: 64 keys, of a panel of 64 queries.
  DEV void put(u32 panel, const u32 (&ds)[SUB / 16][4]) {
    int thread = thread_now(), row = row_of_thread(thread);
    panel += row * PANEL_PITCH + (thread & 3) * 4;
#pragma unroll
    for (int n = 0; n < SUB / 8; n++)
#pragma unroll
      for (int half = 0; half < 2; half++) store_shared(panel + (((n ^ row) & 7) << 4) + 8 * half * PANEL_PITCH, ds[n / 2][n % 2 * 2 + half]);
  }

  // load_four reads LSE or Delta of this thread's columns in two groups of eight (hopper.cuh), which lie side by side.
  DEV void load_four(float (&d)[4], u32 from) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "r"(from));
  }

  // terms computes P and dS of SUB queries, starts to add their terms to dv, and writes dS to shared
  // memory. gap is the distance from this warpgroup's first key to the place of the first query.
  METHOD void terms(u32 (&p)[SUB / 16][4], u32 (&packed)[SUB / 16][4], Operand k, Operand q, u32 floats, int gap, bool running, const Shape &a) {
    float s[SUB / 8][4], ds[SUB / 8][4];
    Operand dout = beyond(q, TILE_BYTES);
    tile_product<D, BN, SUB>(s, k, q);
    tile_product<D, BN, SUB>(ds, beyond(k, V_AT), dout);
    int thread = thread_now();
    floats += (thread & 3) * 16;
    wait_products<1>();
    settled(s);
    if (running) settled(p), settled(packed), settled(dv), settled(dk);
    float factor = a.factor();
#pragma unroll
    for (int n = 0; n < SUB / 8; n += 2) {
      float lse[4];
      load_four(lse, floats + n * 32);
#pragma unroll
      for (int e = 0; e < 8; e++) s[n + e / 4][e % 4] = exp2_approx(s[n + e / 4][e % 4] * factor - lse[e / 4 * 2 + (e & 1)]);
    }
    if (crosses(gap, gap + SUB - 1, 0, ROWS - 1, a.window)) {
      int away = gap + (thread & 3) * 2 - row_of_thread(thread); // from this thread's key
      Seen seen = seen_within(a.window);
#pragma unroll
      for (int n = 0; n < SUB / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = seen.at(away + n * 8 + (e & 1) - (e >> 1) * 8) ? s[n][e] : 0.0f;
    }
    pack(p, s);
    add_tile_product(dv, p, dout);
    wait_products<1>();
    settled(ds);
#pragma unroll
    for (int n = 0; n < SUB / 8; n += 2) {
      float delta[4];
      load_four(delta, floats + n * 32 + BM * 4);
#pragma unroll
      for (int e = 0; e < 8; e++) ds[n + e / 4][e % 4] = s[n + e / 4][e % 4] * (ds[n + e / 4][e % 4] - delta[e / 4 * 2 + (e & 1)]);
    }
    pack(packed, ds);
  }

  // product starts dq = dS·K for this warpgroup's part of a tile.
  METHOD void product(float (&dq)[8][4], u32 shared, int stage, int number) {
    Operand ds = operand(shared + DS_AT + stage * DS + (D == 64 ? number * DS_PANEL : 0), DS_PANEL), k = operand(shared + (D == 64 ? 0 : number * DS_PANEL), DS_PANEL);
    settled(dq);
    fence_products();
#pragma unroll
    for (int i = 0; i < BN; i += 16) {
      if (i == 0) multiply_across<false>(dq, ds, k);
      else multiply_across<true>(dq, beyond(ds, i * PANEL_PITCH), beyond(k, i * PANEL_PITCH));
    }
    commit_products();
  }

  // unit_of returns the number of the unit that begins at query row of the head-th head of the group.
  DEV int unit_of(int head, int row, u32 shared, const Shape &a) { return noted(shared, FIRST_UNIT) + head * units(a) + row / UNIT; }

  // add_sums adds this warp's part of a tile's DQ to the sums in device memory, after the blocks
  // before it. seen is what the tile's mark was before. First it increments the mark of the tile
  // before, if there is one, whose sums are by now visible.
  METHOD void add_sums(const float (&dq)[8][4], float *sums, u32 *marks, u32 seen, int head, int row, u32 shared, const Shape &a) {
    int thread = thread_now(), lane = thread & 31, number = (thread >> 7) - 1, down = (D == 64 ? number * SUB : 0) + ((thread & 127) >> 5) * UNIT;
    int block = noted(shared, BLOCK);
    // The first block that adds to this tile has the first key that the tile's queries see.
    int turn = block - (a.window > 0 ? max_i(0, row + noted(shared, GAP) + block * BN - a.window + 1) / BN : 0);
    int unit = unit_of(head, row, shared, a);
    await_mark(marks + unit, seen, turn * ADDING);
    fence();
    if (row < noted(shared, HIGH)) tell(marks + unit + BM / UNIT, lane);
    else if (head > 0) tell(marks + unit_of(head - 1, noted(shared, LOW), shared, a), lane);
    if (down >= noted(shared, QUERIES) - row) return;
    float *to = sums + (i64)(unit + down / UNIT) * (UNIT * D) + (D == 64 ? 0 : number * SUB * UNIT) + lane;
    if (turn == 0) {
#pragma unroll
      for (int i = 0; i < SUB / 2; i++) to[i * 32] = dq[i / 4][i % 4];
    } else {
#pragma unroll
      for (int i = 0; i < SUB / 2; i++) add_global(to + i * 32, dq[i / 4][i % 4]);
    }
  }

  // consume is run by each of the two other warpgroups, number 0 and 1: it adds up the terms of all
  // tiles.
  METHOD void consume(int number, float *sums, u32 *marks, const Shape &a, u32 shared) {
    int own = number * ROWS, stage = 0; // own: the warpgroup's first key
    u32 parity = 0;
    Operand k = operand(shared + own * PANEL_PITCH, 0);
    wait_for(shared + KEYS_FILLED, 0);
#pragma clang loop unroll(disable)
    for (int head = 0; head < noted(shared, GROUP); head++) {
#pragma clang loop unroll(disable)
      for (int row = noted(shared, HIGH); row >= noted(shared, LOW); row -= BM) {
        u32 p[SUB / 16][4], ds[SUB / 16][4];
        Operand q = operand(shared + STAGES_AT + stage * STAGE, BM * PANEL_PITCH);
        wait_for(shared + FILLED + 8 * stage, parity);
#pragma unroll
        for (int i = 0; i < BM; i += SUB) {
          int gap = noted(shared, GAP) + row + i - own;
          terms(p, ds, k, beyond(q, i * PANEL_PITCH), shared + FLOATS_AT + stage * FLOATS + i * 4, gap, i > 0, a);
          put(shared + DS_AT + stage * DS + own * PANEL_PITCH + i / SUB * DS_PANEL, ds);
          if (i + SUB < BM) add_tile_product(dk, ds, beyond(q, i * PANEL_PITCH));
        }
        fence_async();
        sync_some<256>(1); // dS is written
        u32 seen = load_mark(marks + unit_of(head, row, shared, a));
        float dq[8][4];
        product(dq, shared, stage, number);
        add_tile_product(dk, ds, beyond(q, (BM - SUB) * PANEL_PITCH));
        wait_products<1>();
        settled(p), settled(dv), settled(dq);
        add_sums(dq, sums, marks, seen, head, row, shared, a);
        wait_products<0>();
        settled(ds), settled(dk);
        release(shared + FREE + 8 * stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
    sync_some<256>(1); // the sums are written, and every warp's products have read K and V
    fence();
    tell(marks + unit_of(noted(shared, GROUP) - 1, noted(shared, LOW), shared, a), threadIdx_x & 31);
  }

  METHOD void run(float *sums, u32 *marks, bf16 *dk_out, bf16 *dv_out, const TensorMap *q, const TensorMap *k, const TensorMap *v, const TensorMap *dout,
                  const float *lse, const float *delta, i64 out_stride, const Shape &a, u32 shared) {
    if (threadIdx_x == 0) {
      place(marks, a, shared);
      barrier_init(shared + KEYS_FILLED, 1);
      barrier_init(shared + RAW, 1);
#pragma unroll
      for (int i = 0; i < STAGES; i++) {
        barrier_init(shared + FILLED + 8 * i, 2); // Q and DO; LSE and Delta
        barrier_init(shared + FREE + 8 * i, ADDING);
      }
      barriers_ready();
    }
    sync_threads();
    if (noted(shared, KEYS) == 0) return;
    bool any = noted(shared, LOW) <= noted(shared, HIGH);
    int number = warpgroup() - 1;
    if (number < 0) {
      give_registers<D == 64 ? 40 : PRODUCER_REGISTERS>();
      if (!any) return;
      if (threadIdx_x < 32) produce(q, k, v, dout, shared);
      else if (threadIdx_x < 64) produce_floats(lse, delta, a, shared);
      return;
    }
    take_registers<D == 64 ? 232 : CONSUMER_REGISTERS>();
    clear(dk);
    clear(dv);
    if (any) consume(number, sums, marks + 1, a, shared);
    int key = noted(shared, KEY), keys = noted(shared, KEYS), head = noted(shared, HEAD);
    store_rows<D, BN>(dv_out, out_stride, dv, {1.0f, 1.0f}, number * ROWS, key, 0, keys, head, shared + V_AT);
    store_rows<D, BN>(dk_out, out_stride, dk, {a.scale, a.scale}, number * ROWS, key, 0, keys, head, shared);
  }
};

#define ATTENTION_HOPPER_GRADIENTS(D)                                                                                    \
  __global__ __launch_bounds__(GROUPS_THREADS, 1) void attention_sm90a_gradients_d##D(                                   \
      float *sums, u32 *marks, bf16 *dk, bf16 *dv, TensorMap q_map, TensorMap k_map, TensorMap v_map, TensorMap do_map, \
      const float *lse, const float *delta, i64 out_stride, SHAPE_PARAMS) {                                              \
    HopperGradients<D> g;                                                                                                \
    MAP(q, attention_sm90a_gradients_d##D, 4);                                                                           \
    MAP(k, attention_sm90a_gradients_d##D, 5);                                                                           \
    MAP(v, attention_sm90a_gradients_d##D, 6);                                                                           \
    MAP(dout, attention_sm90a_gradients_d##D, 7);                                                                        \
    g.run(sums, marks, dk, dv, q, k, v, dout, lse, delta, out_stride, SHAPE, shared_address(shared));                    \
  }
