// The parts that all attention kernels share: the shape, the search for a block's tile in a ragged
// batch, which keys a query sees, and how tiles of bf16 are read and written.
//
// Query r of a sequence with nq queries and nk keys stands at position r + nk − nq among the keys,
// called its place. It sees the keys place−Window+1 … place (Window 0: from key 0). A tile is a run
// of consecutive queries or keys of one sequence that a block works on.
//
// A file that defines SOFTCAP before it includes this one makes the kernels attention_cap_…. In
// these a score x = scale·q·k counts as cap·tanh(x/cap) (arXiv:2408.00118), and the gradient of x
// is multiplied by the slope 1 − tanh².
#pragma once

#include "mma.cuh"

struct Shape {
  const int *cu_q, *cu_k;
  int seqs, heads, kv_heads, dim, window;
  int first_head, some_heads; // the heads of the launch: query heads, or key heads if a block has a tile of keys
  i64 tq, q_stride, k_stride; // in elements
  float scale;                // > 0
  int vector;                 // bit 0: inputs can be read, bit 1: outputs written in 16 bytes
  float cap, ratio;           // ratio: scale / cap
  METHOD float unit() const;   // the factor of a score in registers: cap, or scale
  METHOD float factor() const; // unit()·log₂ e: scores in registers become exponents of 2
};

// SHAPE_PARAMS are the parameters of every kernel after its tensors, SHAPE is the Shape made of
// them, and ATTENTION(NAME) is the name of a kernel. They depend on whether the file defines
// SOFTCAP.
#define SHAPE_OF_ALL                                                                                                        \
  const int *cu_q, const int *cu_k, int seqs, int heads, int kv_heads, int dim, int window, int first_head, int some_heads, \
      i64 tq, i64 q_stride, i64 k_stride, float scale, int vector
#ifdef SOFTCAP
static constexpr bool CAPPED = true;
#define SHAPE_PARAMS SHAPE_OF_ALL, float cap, float ratio
#define ATTENTION(NAME) attention_cap_##NAME
#else
static constexpr bool CAPPED = false;
static constexpr float cap = 0.0f, ratio = 0.0f;
#define SHAPE_PARAMS SHAPE_OF_ALL
#define ATTENTION(NAME) attention_##NAME
#endif
#define SHAPE                                                                                                               \
  (Shape{cu_q, cu_k, seqs, heads, kv_heads, dim, window, first_head, some_heads, tq, q_stride, k_stride, scale, vector, cap, ratio})

METHOD float Shape::unit() const { return CAPPED ? cap : scale; }
METHOD float Shape::factor() const { return unit() * LOG2E; }

// capped returns tanh(score/cap), computed from the product of a query and a key. slope becomes 1 −
// tanh², the derivative of the capped score by the score.
DEV float capped(float product, float &slope, const Shape &a) {
  float t = tanh_f(product * a.ratio);
  slope = __builtin_fmaf(-t, t, 1.0f);
  return t;
}

// Place says what a block works on: a tile of one sequence and one head.
struct Place {
  i64 q0, k0;     // the sequence's first query and key, counted over all sequences
  int nq, nk;     // the sequence's number of queries and keys
  int first;      // the tile's first query or key in the sequence
  int head, sequence;
  METHOD int shift() const { return nk - nq; } // place of a query − its number in the sequence
};

// find_place finds the tile and the head for a block, by the block's number. Heads vary fastest.
// The tiles of sequence i, whose queries or keys begin at cu[i], have numbers from cu[i]/TILE + i
// on, which leaves room for all of them. A grid of some_heads · (T/TILE + seqs) blocks therefore
// covers all tiles. It returns false for a number that has no tile. from_end numbers tiles from the
// last on, so that the long rows of causal attention start first. block is the number to use in
// place of the block's own.
template <int TILE> DEV bool find_place(Place &p, const Shape &s, const int *cu, bool from_end, int block = blockIdx_x) {
  int tile = block / s.some_heads;
  p.head = s.first_head + block % s.some_heads;
  if (from_end) tile = gridDim_x / s.some_heads - 1 - tile;
  int low = 0, high = s.seqs, begin = cu[0];
  while (high - low > 1) {
    int middle = (low + high) >> 1;
    if ((cu[middle] - begin) / TILE + middle <= tile) low = middle;
    else high = middle;
  }
  p.sequence = low;
  p.q0 = s.cu_q[low];
  p.k0 = s.cu_k[low];
  p.nq = s.cu_q[low + 1] - (int)p.q0;
  p.nk = s.cu_k[low + 1] - (int)p.k0;
  p.first = (tile - (cu[low] - begin) / TILE - low) * TILE;
  return p.first < cu[low + 1] - cu[low];
}

// keys_seen returns the keys that queries first … first+count−1 of a sequence see: low … high−1, or
// none if high <= low.
struct Range { int low, high; };
DEV Range keys_seen(const Place &p, int first, int count, int window) {
  int last = min_i(first + count, p.nq) - 1 + p.shift();
  int low = window > 0 ? first + p.shift() - window + 1 : 0;
  return Range{max_i(0, low), last + 1};
}
// queries_seeing returns the queries that see any of the keys first … first+count−1.
DEV Range queries_seeing(const Place &p, int first, int count, int window) {
  int low = max_i(0, first - p.shift()), high = p.nq;
  if (window > 0) high = (int)min_i((i64)high, (i64)first + count - 1 + window - p.shift());
  return Range{low, high};
}

// crosses says whether, among the queries at places low_place … high_place and the keys low_key …
// high_key, any query does not see any key. Then scores must be masked.
DEV bool crosses(int low_place, int high_place, int low_key, int high_key, int window) {
  return high_key > low_place || (window > 0 && low_key <= high_place - window);
}
// blind says whether no query at places low_place … high_place sees any of the keys low_key …
// high_key. Then the pair of tiles can be skipped.
DEV bool blind(int low_place, int high_place, int low_key, int high_key, int window) {
  return high_place < low_key || (window > 0 && high_key <= low_place - window);
}
DEV bool sees(int place, int key, int window) { return key <= place && (window == 0 || key > place - window); }

// Seen decides with one unsigned comparison whether a query sees a key. A key at distance d = place
// − key is seen if 0 <= d < limit, where limit is the window; window 0 is no limit.
struct Seen {
  u32 limit;
  METHOD bool at(int distance) const { return (u32)distance < limit; }
};
DEV Seen seen_within(int window) { return Seen{window > 0 ? (u32)window : 0x80000000u}; }

// keep_here makes the compiler treat x as unknown from here on. Values derived from x in a loop are
// then computed inside the loop, and take no registers outside of it.
DEV void keep_here(i64 &x) { asm volatile("" : "+l"(x)); }
DEV void keep_here(const bf16 *&x) { asm volatile("" : "+l"(x)); }

// thread_now reads the thread's number anew, so that the compiler does not keep it in a register.
DEV int thread_now() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// load_tile starts to copy ROWS rows of dim columns to shared memory, asynchronously (cp.async).
// Rows and columns beyond rows and dim become zeros. The tile is complete after a commit, a wait
// and a barrier.
template <int ROWS, int D, int THREADS>
DEV void load_tile(u32 tile, const bf16 *src, i64 stride, int rows, int dim, bool vector) {
  constexpr int CHUNKS = D / 8, ACROSS = CHUNKS == 12 ? 16 : CHUNKS, STEP = THREADS / ACROSS; // a pass copies STEP rows
  static_assert(ROWS % STEP == 0);
  if (vector) {
    int thread = thread_now(), row = thread / ACROSS, chunk = thread % ACROSS;
    if (ACROSS != CHUNKS && chunk >= CHUNKS) return;
    const bf16 *from = src + row * stride + chunk * 8;
    if (rows >= ROWS && dim == D) { // no row or column is missing: half the instructions
#pragma unroll
      for (int i = 0; i < ROWS; i += STEP, from += STEP * stride) {
        keep_here(from);
        copy_async_16(tile + SharedTile<D>::at(row + i, chunk), from);
      }
      return;
    }
    if (chunk * 8 >= dim) rows = 0;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP, from += STEP * stride) {
      keep_here(from);
      copy_async_16(tile + SharedTile<D>::at(row + i, chunk), from, row + i < rows);
    }
    return;
  }
#pragma clang loop unroll(disable)
  for (int at = thread_now(); at < ROWS * D / 2; at += THREADS) { // two columns at a time need few registers
    int row = at / (D / 2), column = at % (D / 2) * 2;
    const bf16 *from = src + row * stride + column;
    u32 pair = 0;
    if (row < rows && column < dim) pair = from[0].bits;
    if (row < rows && column + 1 < dim) pair |= (u32)from[1].bits << 16;
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile + SharedTile<D>::at(row, column / 8) + column % 8 * 2), "r"(pair) : "memory");
  }
}

// load_floats starts to copy COUNT floats to shared memory (cp.async). Those from number n on
// become zeros.
template <int COUNT> DEV void load_floats(u32 dst, const float *src, int n) {
  if (threadIdx_x < COUNT) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst + threadIdx_x * 4),
                 "l"((const __attribute__((address_space(1))) float *)src + threadIdx_x), "r"(threadIdx_x < n ? 4 : 0));
  }
}

DEV void store_shared(u32 to, u32 v) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(v) : "memory"); }
DEV void load_shared(float (&d)[2], u32 address) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(d[0]), "=f"(d[1]) : "r"(address));
}

// store_tile rounds this warp's 16 rows of D fp32 sums to bf16 and writes them to dst. They pass
// through the 16 rows of shared memory at tile, which belong to this warp alone. rows and columns
// say how many of each exist in dst.
template <int D>
DEV void store_tile(bf16 *dst, i64 stride, const float (&c)[D / 8][4], const float (&factor)[2], u32 tile, int rows, int columns,
                    bool vector) {
  using Tile = SharedTile<D>;
  int lane = threadIdx_x & 31, row = lane >> 2;
  sync_warp();
#pragma unroll
  for (int n = 0; n < D / 8; n++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      u32 pair = pack_bf16(c[n][2 * half] * factor[half], c[n][2 * half + 1] * factor[half]);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile + Tile::at(row + 8 * half, n) + (lane & 3) * 4), "r"(pair) : "memory");
    }
  }
  sync_warp();
#pragma clang loop unroll(disable)
  for (int at = lane; at < rows * Tile::CHUNKS; at += 32) {
    int r = at / Tile::CHUNKS, chunk = at % Tile::CHUNKS;
    if (chunk * 8 >= columns) continue;
    u32 v[4];
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(tile + Tile::at(r, chunk)));
    bf16 *to = dst + r * stride + chunk * 8;
    if (vector) {
      *(u32x4 *)to = u32x4{v[0], v[1], v[2], v[3]};
      continue;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (chunk * 8 + i < columns) to[i].bits = (u16)(v[i / 2] >> (16 * (i % 2)));
  }
}
