// The parts that the attention kernels for sm_90a share: which tiles of keys a block of queries
// goes over, matrix products of whole tiles, clearing rows that belong to another sequence, and
// writing results.
//
// A block has three warpgroups. One warp of the first (the producer) has the TMA unit bring tiles
// to shared memory, into one of several buffers in turn. The other two warpgroups own ROWS rows of
// the result each. Every buffer has two barriers: it is filled when its bytes have arrived, and
// free when each warpgroup that has rows is done with it, or in the forward when both are. (The
// structure is that of arXiv:2407.08608.)
//
// Heads have exactly D elements, rows lie at multiples of 16 bytes, and scores have no cap.
// attention_forward.cuh and attention_backward.cuh compute all other attention.
#pragma once

#include "attention.cuh"
#include "hopper.cuh"

static constexpr int GROUPS_THREADS = 384, ROWS = 64; // threads of a block; rows of a warpgroup
static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240; // registers of a thread, which begins with 168

DEV void store_float(u32 to, float x) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory"); }

// anew returns a copy of a shape in which the compiler takes one field for unknown. So the compiler computes values
// derived from the shape again, and does not keep them in registers.
DEV Shape anew(Shape a) {
  asm volatile("" : "+r"(a.some_heads));
  return a;
}

// TilesOfKeys are the tiles of BN keys that a block of BM queries sees. The block goes over them
// from the last to the first.
template <int BM, int BN> struct TilesOfKeys {
  Place place;
  int key, left; // the first key of the next tile, and the number of tiles left
  METHOD bool find(const Shape &a) {
    if (!find_place<BM>(place, a, a.cu_q, true)) return false;
    begin(a);
    return true;
  }
  // begin sets the first tile of the place.
  METHOD void begin(const Shape &a) {
    Range keys = keys_seen(place, place.first, BM, a.window);
    key = keys.high > 0 ? (keys.high - 1) / BN * BN : 0;
    left = keys.high > keys.low ? key / BN - keys.low / BN + 1 : 0;
  }
  METHOD int gap() const { return place.first + place.shift() - key; } // distance from key to the place of the block's first query
  METHOD int rows() const { return place.nk - key; }                   // number of keys from key on
  METHOD int consumers() const { return place.nq - place.first > ROWS ? 2 : 1; } // warpgroups that have queries
  METHOD void next() { left--, key -= BN; }
};

// row_of_thread returns a thread's first row among those of its warpgroup, in the layout of a wgmma
// result. Its second row is 8 below.
DEV int row_of_thread() { return ((threadIdx_x & 127) >> 5) * 16 + ((threadIdx_x & 31) >> 2); }
DEV int row_of_thread(int thread) { return ((thread & 127) >> 5) * 16 + ((thread & 31) >> 2); }

template <int F> DEV void clear(float (&c)[F][4]) {
#pragma unroll
  for (int n = 0; n < F; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) c[n][e] = 0.0f;
}

// pack rounds fp32 sums to bf16, in the layout of an A operand of wgmma.
template <int F> DEV void pack(u32 (&p)[F / 2][4], const float (&s)[F][4]) {
#pragma unroll
  for (int n = 0; n < F; n++)
#pragma unroll
    for (int half = 0; half < 2; half++) p[n / 2][n % 2 * 2 + half] = pack_bf16(s[n][2 * half], s[n][2 * half + 1]);
}

// tile_product starts s = A·Bᵀ (by wgmma, which runs asynchronously). A is a warpgroup's rows in a
// tile of A_ROWS rows, B a tile of B_ROWS rows, both D wide.
template <int D, int A_ROWS, int B_ROWS> DEV void tile_product(float (&s)[B_ROWS / 8][4], Operand a, Operand b) {
  settled(s);
  fence_products();
#pragma unroll
  for (int c = 0; c < D; c += 16) {
    Operand at_a = beyond(a, c / PANEL * A_ROWS * PANEL_PITCH + c % PANEL * 2), at_b = beyond(b, c / PANEL * B_ROWS * PANEL_PITCH + c % PANEL * 2);
    if (c == 0) multiply<false>(s, at_a, at_b);
    else multiply<true>(s, at_a, at_b);
  }
  commit_products();
}

// add_tile_product starts c += P·B (by wgmma). P is in registers, and B has as many rows as P has
// columns.
template <int F, int G> DEV void add_tile_product(float (&c)[F][4], u32 (&p)[G][4], Operand b) {
  settled(p);
  settled(c);
  fence_products();
#pragma unroll
  for (int i = 0; i < G; i++) multiply_add(c, p[i], beyond(b, i * 16 * PANEL_PITCH));
  commit_products();
}

// clear_rows sets the rows of a tile from first on to zero, with one warp. They belong to another
// sequence, and nothing in them, not even an infinity, may affect a sum over rows.
template <int ROWS_OF_TILE, int D> DEV void clear_rows(u32 tile, int first, int thread = threadIdx_x) {
#pragma clang loop unroll(disable)
  for (int at = (thread & 31) + first * 8; at < ROWS_OF_TILE * 8; at += 32)
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++)
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(tile + panel * ROWS_OF_TILE * PANEL_PITCH + at * 16), "r"(0) : "memory");
}

// arrive_stored makes the warp's stores to shared memory visible to wgmma and TMA, and arrives at
// the barrier once for the warp.
DEV void arrive_stored(u32 barrier) {
  fence_async();
  sync_warp();
  if ((threadIdx_x & 31) == 0) arrive(barrier);
}

// release arrives at a buffer's free barrier: this warp is done with the buffer. The products that
// read it must have ended.
DEV void release(u32 barrier) {
  if ((threadIdx_x & 31) == 0) arrive(barrier);
}

// load_chunk reads 16 bytes of shared memory.
DEV u32x4 load_chunk(u32 at) {
  u32x4 x;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
  return x;
}

// store_rows multiplies c, this warp's rows g and g+8, by factor, rounds it and writes it to dst.
// The rows pass through the warp's own part of a tile in shared memory. The tile has TILE rows, and
// own is the warpgroup's first one. Row 0 of the tile is row first of a sequence of n rows that
// begins at row base of dst. TOGETHER chunks of 16 bytes are on their way at a time.
template <int D, int TILE, int TOGETHER = 1>
DEV void store_rows(bf16 *dst, i64 stride, const float (&c)[D / 8][4], const float (&factor)[2], int own, i64 base, int first, int n, int head, u32 tile,
                    int thread = threadIdx_x) {
  auto at = [&](int row, int chunk) { return tile + chunk / 8 * TILE * PANEL_PITCH + row * PANEL_PITCH + (((chunk ^ row) & 7) << 4); };
  int lane = thread & 31, row = own + row_of_thread(thread);
  sync_warp();
#pragma unroll
  for (int n = 0; n < D / 8; n++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      u32 pair = pack_bf16(c[n][2 * half] * factor[half], c[n][2 * half + 1] * factor[half]);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(at(row + 8 * half, n) + (lane & 3) * 4), "r"(pair) : "memory");
    }
  sync_warp();
  row -= lane >> 2; // now the warp's first row
  int rows = min_i(16, n - first - row);
  dst += (base + first + row) * stride + (i64)head * D;
  if (TOGETHER > 1 && rows == 16) {
#pragma clang loop unroll(disable)
    for (int from = lane; from < 2 * D; from += 32 * TOGETHER) {
      u32x4 x[TOGETHER];
#pragma unroll
      for (int j = 0; j < TOGETHER; j++) x[j] = load_chunk(at(row + (from + 32 * j) / (D / 8), (from + 32 * j) % (D / 8)));
#pragma unroll
      for (int j = 0; j < TOGETHER; j++) *(u32x4 *)(dst + (from + 32 * j) / (D / 8) * stride + (from + 32 * j) % (D / 8) * 8) = x[j];
    }
    return;
  }
#pragma clang loop unroll(disable)
  for (int i = lane; i < rows * (D / 8); i += 32) {
    int r = i / (D / 8), chunk = i % (D / 8);
    *(u32x4 *)(dst + r * stride + chunk * 8) = load_chunk(at(row + r, chunk));
  }
}
