// Attention, forward, bf16: O (TQ, Heads·Dim) = softmax(scale·QKᵀ)V and LSE (Heads, TQ), both
// overwritten. LSE is log₂ Σ 2^(scale·log₂e·q·k) over the keys k of a query q. A query
// that sees no key gets O = 0 and LSE = −∞.
//
// Flash attention (arXiv:2205.14135, 2307.08691): a block has BM = 16·MT·WARPS queries of a head
// and goes over the keys in tiles of BN. It starts with the last tile, which the causal mask
// crosses. A warp owns 16·MT queries: their maxima, sums and outputs stay in its registers. The
// probabilities P, once rounded, are the A operand of P·V without any move.
//
// A tile is copied in PARTS parts of K (columns) and PARTS parts of V (rows), one after the other
// into two buffers: while the block works on one part, the next arrives. With 48 KiB of Q and
// buffers, two blocks share a multiprocessor of sm_86, sm_89 or sm_120. The order of sums does not
// depend on PARTS.
#pragma once

#include "attention.cuh"

template <int D, int MT, int WARPS, int BN, int PARTS, int SPLIT> struct Forward {
  static constexpr int THREADS = WARPS * 32, BM = WARPS / SPLIT * MT * 16, W = D / SPLIT; // W: columns of a warp
  static constexpr int COLUMNS = D / PARTS, ROWS = BN / PARTS; // of a part of K, and of V
  using Tile = SharedTile<D>;
  using KeyTile = SharedTile<COLUMNS>;
  static constexpr int BUFFERS_AT = SPLIT == 1 ? BM * Tile::PITCH : 0, BUFFER = ROWS * Tile::PITCH;
  static constexpr int HALVES_AT = BUFFERS_AT + 2 * BUFFER, PARKED_AT = HALVES_AT + WARPS * 16 * BN * 4; // with SPLIT 2
  // With SPLIT 2, Q is multiplied in steps of 16 columns: KEPT of them stay in registers, PARKED in shared memory, since
  // ptxas spills registers with fewer.
  static constexpr int PARKED = 2, KEPT = SPLIT == 1 ? 1 : W / 16 - PARKED;
  static_assert(BN * KeyTile::PITCH == BUFFER && ROWS % 16 == 0);
  static_assert(SPLIT == 1 || (SPLIT == 2 && MT == 1 && PARTS == 1 && 2 * BUFFER >= BM * Tile::PITCH)); // Q is staged in the buffers

  // buffer returns where a part of a tile lies in shared memory. Parts 0 … PARTS−1 are those of K,
  // then follow those of V.
  static constexpr int buffer(int part) { return BUFFERS_AT + part % 2 * BUFFER; }

  static constexpr float SLACK = 8.0f;

  float m[MT][2], l[MT][2]; // of rows g and g+8: about the maximum (unscaled), this lane's part of the sum
  float o[MT][W / 8][4];
  u32 kept[KEPT][4];

  // own is the first of this warp's rows in the block, column the first of its columns.
  DEV int own(int thread) { return (thread >> 5) / SPLIT * MT * 16; }
  DEV int column(int thread) { return (thread >> 5) % SPLIT * W; }

  // keep moves this warp's columns of Q from the buffers to registers and to where parked says.
  METHOD void keep(u32 shared) {
    copy_async_commit();
    arrived();
    u32 lane = Tile::lane_a(shared + own(threadIdx_x) * Tile::PITCH) + column(threadIdx_x) * 2;
#pragma unroll
    for (int i = 0; i < KEPT; i++) ldmatrix_x4(kept[i], Tile::step(lane, 0, i * 16));
#pragma unroll
    for (int i = 0; i < PARKED; i++) {
      u32 a[4];
      ldmatrix_x4(a, Tile::step(lane, 0, (KEPT + i) * 16));
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(parked(shared, i)), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]) : "memory");
    }
    sync_threads();
  }

  // parked is where this lane's elements of a parked step lie.
  DEV u32 parked(u32 shared, int i) { return shared + PARKED_AT + i * THREADS * 16 + thread_now() * 16; }

  // half_scores is s = Q·Kᵀ of this warp's columns.
  METHOD void half_scores(float (&s)[MT][BN / 8][4], u32 shared) {
    int thread = thread_now();
    u32 k = Tile::lane_b(shared + buffer(0), thread & 31) + column(thread) * 2;
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[0][n][e] = 0.0f;
#pragma unroll
    for (int i = 0; i < W / 16; i++) {
      u32 a[4];
      if (i >= KEPT)
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(parked(shared, i - KEPT)));
#pragma unroll
      for (int n = 0; n < BN / 16; n++) {
        u32 b[4];
        ldmatrix_x4(b, Tile::step(k, n * 16, i * 16));
        mma_bf16(s[0][2 * n], i < KEPT ? kept[i % KEPT] : a, b[0], b[1]);
        mma_bf16(s[0][2 * n + 1], i < KEPT ? kept[i % KEPT] : a, b[2], b[3]);
      }
    }
  }

  // half is where this lane's products of a warp lie.
  DEV u32 half(u32 shared, int warp) { return shared + HALVES_AT + warp * (16 * BN * 4) + (thread_now() & 31) * 16; }
  // put gives this warp's products to the other warp of its rows; get adds the other warp's.
  DEV void put(const float (&s)[MT][BN / 8][4], u32 shared) {
    u32 to = half(shared, thread_now() >> 5);
#pragma unroll
    for (int n = 0; n < BN / 8; n++)
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + n * 512), "f"(s[0][n][0]), "f"(s[0][n][1]), "f"(s[0][n][2]), "f"(s[0][n][3]) : "memory");
  }
  DEV void get(float (&s)[MT][BN / 8][4], u32 shared) {
    u32 from = half(shared, (thread_now() >> 5) ^ 1);
#pragma unroll
    for (int n = 0; n < BN / 8; n++) {
      float x[4];
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(from + n * 512));
#pragma unroll
      for (int e = 0; e < 4; e++) s[0][n][e] += x[e];
    }
  }

  // scores multiplies this warp's rows of Q by the columns of K in a part. Part 0 sets s, and the
  // other parts add to it; after all parts s = Q·Kᵀ.
  template <int PART> DEV void scores(float (&s)[MT][BN / 8][4], u32 shared) {
    int thread = thread_now();
    u32 q = Tile::lane_a(shared + (thread >> 5) * MT * 16 * Tile::PITCH, thread & 31), k = KeyTile::lane_b(shared + buffer(PART), thread & 31);
    if constexpr (PART == 0) {
#pragma unroll
      for (int i = 0; i < MT; i++)
#pragma unroll
        for (int n = 0; n < BN / 8; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) s[i][n][e] = 0.0f;
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c += 16) {
      u32 a[MT][4];
#pragma unroll
      for (int i = 0; i < MT; i++) ldmatrix_x4(a[i], Tile::step(q, i * 16, PART * COLUMNS + c));
#pragma unroll
      for (int n = 0; n < BN / 16; n++) {
        u32 b[4];
        ldmatrix_x4(b, KeyTile::step(k, n * 16, c));
#pragma unroll
        for (int i = 0; i < MT; i++) {
          mma_bf16(s[i][2 * n], a[i], b[0], b[1]);
          mma_bf16(s[i][2 * n + 1], a[i], b[2], b[3]);
        }
      }
    }
  }

  // limit replaces scores by their tanh (softcap).
  DEV void limit(float (&s)[MT][BN / 8][4], const Shape &a) {
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
      for (int n = 0; n < BN / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          float slope;
          s[i][n][e] = capped(s[i][n][e], slope, a);
        }
  }

  // nothing_seen says whether none of this warp's queries sees a key of the tile, or the warp has
  // no query. gap is the distance from the tile's first key to the place of the block's first
  // query. rows is the number of keys from the tile's first on; a query's place is always less than
  // the sequence's number of keys.
  DEV bool nothing_seen(int gap, int rows, int window) {
    gap += own(thread_now());
    return gap >= rows || blind(gap, gap + MT * 16 - 1, 0, BN - 1, window);
  }

  // mask sets the scores of keys that a query does not see to −∞. gap is the distance from the
  // tile's first key to the place of the block's first query.
  DEV void mask(float (&s)[MT][BN / 8][4], int gap, int window) {
    int thread = thread_now(), lane = thread & 31;
    gap += own(thread) + (lane >> 2) - (lane & 3) * 2;
    Seen seen = seen_within(window);
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
      for (int n = 0; n < BN / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          s[i][n][e] = seen.at(gap + i * 16 + (e >> 1) * 8 - n * 8 - (e & 1)) ? s[i][n][e] : -INFINITY_F;
  }

  // softmax turns scores s into exponentials relative to each row's maximum, rounded into A
  // operands p. It rescales the sums and outputs so far to these maxima. factor is
  // Shape::factor(). A maximum is replaced only by one that is more than SLACK above
  // it. Exponentials are then up to 2^SLACK, which costs no precision, and outputs are multiplied
  // only if a maximum of the warp changed: after the first tile that is rare.
  METHOD void softmax(u32 (&p)[MT][BN / 16][4], float (&s)[MT][BN / 8][4], float factor) {
    float down[MT][2], least = 1.0f;
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float top = m[i][half];
#pragma unroll
        for (int n = 0; n < BN / 8; n++) top = max_f(top, max_f(s[i][n][2 * half], s[i][n][2 * half + 1]));
        top = max_f(top, shuffle_xor(top, 1));
        top = max_f(top, shuffle_xor(top, 2));
        if ((top - m[i][half]) * factor <= SLACK) top = m[i][half];
        float base = top == -INFINITY_F ? 0.0f : top;
        down[i][half] = exp2_approx((m[i][half] - base) * factor); // exactly 1 if the maximum stayed
        m[i][half] = top;
        base *= factor;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < BN / 8; n++) {
          float left = exp2_approx(s[i][n][2 * half] * factor - base), right = exp2_approx(s[i][n][2 * half + 1] * factor - base);
          sum += left + right;
          p[i][n / 2][n % 2 * 2 + half] = pack_bf16(left, right);
        }
        l[i][half] = l[i][half] * down[i][half] + sum;
      }
      least = __builtin_fminf(least, __builtin_fminf(down[i][0], down[i][1]));
    }
    if (!__nvvm_vote_any_sync(0xffffffffu, least != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
      for (int n = 0; n < W / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[i][n][e] *= down[i][e >> 1];
  }

  // values adds P·V to the outputs o, for the rows of V in one part.
  template <int PART> METHOD void values(const u32 (&p)[MT][BN / 16][4], u32 shared) {
    int thread = thread_now();
    u32 v = Tile::lane_a(shared + buffer(PARTS + PART), thread & 31) + column(thread) * 2;
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) {
#pragma unroll
      for (int n = 0; n < W / 16; n++) {
        u32 b[4];
        ldmatrix_x4_trans(b, Tile::step(v, k * 16, n * 16));
#pragma unroll
        for (int i = 0; i < MT; i++) {
          mma_bf16(o[i][2 * n], p[i][PART * (ROWS / 16) + k], b[0], b[1]);
          mma_bf16(o[i][2 * n + 1], p[i][PART * (ROWS / 16) + k], b[2], b[3]);
        }
      }
    }
  }

  // finish writes O and LSE of this warp's rows. They pass through the shared memory of Q's tile,
  // where no other warp reads these rows.
  METHOD void finish(bf16 *out, float *lse, const Shape &a, u32 shared) {
    Place p;
    find_place<BM>(p, a, a.cu_q, true); // anew: kept, it would cost registers
    int thread = thread_now(), lane = thread & 31, first = own(thread), column = Forward::column(thread);
#pragma unroll
    for (int i = 0; i < MT; i++) {
      float inverse[2];
      int row = p.first + first + i * 16;
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float sum = l[i][half];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        inverse[half] = sum == 0.0f ? 0.0f : 1.0f / sum;
        int r = row + (lane >> 2) + 8 * half;
        if (lse && (lane & 3) == 0 && (SPLIT == 1 || column == 0) && r < p.nq)
          lse[p.head * a.tq + p.q0 + r] = log_sum_exp2(m[i][half], a.factor(), sum);
      }
      i64 stride = (i64)a.heads * a.dim;
      store_tile<W>(out + (p.q0 + row) * stride + (i64)p.head * a.dim + column, stride, o[i], inverse,
                    shared + (first + i * 16) * Tile::PITCH + column * 16 * 2, min_i(16, p.nq - row), a.dim - column, a.vector & 2);
    }
  }

  // Source says where a tile's keys and values lie in global memory.
  struct Source {
    const bf16 *k, *v;
    i64 at;   // offset of the tile in k and v, in elements
    int rows; // number of keys from the tile's first on
  };

  // fetch starts to copy one part of a tile to its buffer.
  template <int PART> DEV void fetch(const Source &from, const Shape &a, u32 shared) {
    if constexpr (PART < PARTS) {
      constexpr int FIRST = PART * COLUMNS;
      load_tile<BN, COLUMNS, THREADS>(shared + buffer(PART), from.k + from.at + FIRST, a.k_stride, from.rows, min_i(a.dim - FIRST, COLUMNS), a.vector & 1);
    } else {
      constexpr int FIRST = (PART - PARTS) * ROWS;
      load_tile<ROWS, D, THREADS>(shared + buffer(PART), from.v + from.at + FIRST * a.k_stride, a.k_stride, from.rows - FIRST, a.dim, a.vector & 1);
    }
    copy_async_commit();
  }

  // arrived waits until the part that is being copied is complete. Its barrier also says that all
  // warps have finished with the part before it.
  DEV void arrived() {
    copy_async_wait<0>();
    sync_threads();
  }

  // all_scores computes scores with the parts of K from PART on, and fetches the next parts
  // meanwhile. A warp that is IDLE, because it sees nothing of the tile, only fetches.
  template <bool IDLE, int PART> METHOD void all_scores(float (&s)[MT][BN / 8][4], const Source &from, const Shape &a, u32 shared) {
    arrived();
    fetch<PART + 1>(from, a, shared);
    if constexpr (!IDLE && SPLIT == 1) scores<PART>(s, shared);
    if constexpr (!IDLE && SPLIT == 2) half_scores(s, shared);
    if constexpr (PART + 1 < PARTS) all_scores<IDLE, PART + 1>(s, from, a, shared);
  }

  // next waits for a part of V and starts to fetch what follows: behind the last part the next tile's first
  // part, where any is left.
  template <int PART> METHOD void next(Source &from, int &left, const Shape &a, u32 shared) {
    arrived();
    if constexpr (PART + 1 < PARTS) {
      fetch<PARTS + PART + 1>(from, a, shared);
    } else {
      left--, from.at -= BN * a.k_stride, from.rows += BN;
      if (left > 0) fetch<0>(from, a, shared);
    }
  }

  // all_values works on the parts of V from PART on, and moves to the next tile. With SPLIT 2 the part is there.
  template <bool IDLE, int PART> METHOD void all_values(const u32 (&p)[MT][BN / 16][4], Source &from, int &left, const Shape &a, u32 shared) {
    if constexpr (SPLIT == 1) next<PART>(from, left, a, shared);
    if constexpr (!IDLE) values<PART>(p, shared);
    if constexpr (PART + 1 < PARTS) all_values<IDLE, PART + 1>(p, from, left, a, shared);
  }

  // add adds the terms of a tile of keys to the outputs. IDLE warps, which see nothing of the tile,
  // pass the same number of barriers as the others.
  template <bool IDLE> METHOD void add(Source &from, int &left, int gap, const Shape &a, u32 shared) {
    float s[MT][BN / 8][4];
    u32 p[MT][BN / 16][4];
    all_scores<IDLE, 0>(s, from, a, shared);
    if constexpr (SPLIT == 2) {
      if constexpr (!IDLE) put(s, shared);
      next<0>(from, left, a, shared);
      if constexpr (!IDLE) get(s, shared);
    }
    if constexpr (!IDLE) {
      if constexpr (CAPPED) limit(s, a);
      if (crosses(gap, gap + BM - 1, 0, BN - 1, a.window)) mask(s, gap, a.window);
      softmax(p, s, a.factor());
    }
    all_values<IDLE, 0>(p, from, left, a, shared);
  }

  METHOD void run(bf16 *out, float *lse, const bf16 *q, const bf16 *k, const bf16 *v, const Shape &a, u32 shared) {
    Place w;
    if (!find_place<BM>(w, a, a.cu_q, true)) return;
    load_tile<BM, D, THREADS>(shared, q + (w.q0 + w.first) * a.q_stride + (i64)w.head * a.dim, a.q_stride, w.nq - w.first, a.dim, a.vector & 1);
    if constexpr (SPLIT == 2) keep(shared);
    Range keys = keys_seen(w, w.first, BM, a.window);
    int key = keys.high > 0 ? (keys.high - 1) / BN * BN : 0; // first key of the last tile
    int left = keys.high > keys.low ? key / BN - keys.low / BN + 1 : 0;
    Source from{k, v, (w.k0 + key) * a.k_stride + (i64)(w.head / (a.heads / a.kv_heads)) * a.dim, w.nk - key};
    int gap = w.first + w.shift() - key; // from the tile's first key to the first query's place
    if (left > 0) fetch<0>(from, a, shared);
    else copy_async_commit();
#pragma unroll
    for (int i = 0; i < MT; i++) {
      m[i][0] = m[i][1] = -INFINITY_F;
      l[i][0] = l[i][1] = 0.0f;
#pragma unroll
      for (int n = 0; n < W / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[i][n][e] = 0.0f;
    }
    for (; left > 0; gap += BN) {
      keep_here(from.at);
      if (nothing_seen(gap, from.rows, a.window)) add<true>(from, left, gap, a, shared);
      else add<false>(from, left, gap, a, shared);
    }
    arrived();
    finish(out, lse, a, shared);
  }
};

#define ATTENTION_FORWARD(D, MT, WARPS, BN, PARTS, SPLIT)                                                                     \
  __global__ __launch_bounds__(WARPS * 32, 8 / WARPS) void ATTENTION(forward_d##D)(bf16 *o, float *lse, const bf16 *q,        \
                                                                         const bf16 *k, const bf16 *v, SHAPE_PARAMS) {        \
    Forward<D, MT, WARPS, BN, PARTS, SPLIT> f;                                                                                \
    f.run(o, lse, q, k, v, SHAPE, shared_address(shared));                                                                    \
  }
