// What all attention kernels share: the shape, the search for a block's tile in a
// ragged batch, which keys a query sees, and how tiles of bf16 are read and
// written.
//
// Query r of a sequence of nq queries and nk keys stands at place r + nk − nq and
// sees keys place−Window+1 … place (Window 0: from key 0). "Tile" is a run of
// consecutive queries or keys of one sequence that a block works on.
//
// A file that defines SOFTCAP before it includes this makes the kernels attention_cap_…,
// where a score x = scale·q·k counts as cap·tanh(x/cap) (arXiv:2408.00118) and the
// gradient of x has the slope 1 − tanh² as a factor.
#pragma once

#include "mma.cuh"

struct Shape {
  const int *cu_q, *cu_k;
  int seqs, heads, kv_heads, dim, window;
  int first_head, some_heads; // of the launch: those of queries, or of keys where a block has a tile of keys
  i64 tq, q_stride, k_stride; // in elements
  float scale;                // > 0
  int vector;                 // bit 0: inputs can be read, bit 1: outputs written in 16 bytes
  float cap, ratio;           // ratio: scale / cap
  METHOD float unit() const;  // what a score in registers is multiplied by: cap, or scale
};

// The parameters of every kernel after its tensors, the Shape that is made of them, and the name of
// a kernel.
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

// capped is the tanh of a score, computed from the product of a query and a key.
// slope becomes its slope with respect to the score.
DEV float capped(float product, float &slope, const Shape &a) {
  float t = tanh_f(product * a.ratio);
  slope = __builtin_fmaf(-t, t, 1.0f);
  return t;
}

// Place is where a block works: a tile of a sequence and a head.
struct Place {
  i64 q0, k0;     // the sequence's first query and key among all
  int nq, nk;     // how many it has
  int first;      // the tile's first query or key in the sequence
  int head, sequence;
  METHOD int shift() const { return nk - nq; } // from a query to its place
};

// find_place distributes the blocks. Heads vary fastest. The tiles of sequence i,
// whose length cu_q or cu_k gives, begin at number cu[i]/TILE + i, which leaves at
// least as many numbers as the sequence has tiles. A grid of some_heads · (T/TILE +
// seqs) blocks therefore covers all tiles. The result is false for a number that
// has no tile. from_end numbers tiles from the last on, so that the long rows of
// causal attention start first. block is the number, where it is not the block's own.
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

// The keys that queries first … first+count−1 of a sequence see: low … high−1, none
// where high <= low.
struct Range { int low, high; };
DEV Range keys_seen(const Place &p, int first, int count, int window) {
  int last = min_i(first + count, p.nq) - 1 + p.shift();
  int low = window > 0 ? first + p.shift() - window + 1 : 0;
  return Range{max_i(0, low), last + 1};
}
// The queries that see any of the keys first … first+count−1.
DEV Range queries_seeing(const Place &p, int first, int count, int window) {
  int low = max_i(0, first - p.shift()), high = p.nq;
  if (window > 0) high = (int)min_i((i64)high, (i64)first + count - 1 + window - p.shift());
  return Range{low, high};
}

// crosses says whether any query at a place from low_place to high_place fails
// to see any key from low_key to high_key.
DEV bool crosses(int low_place, int high_place, int low_key, int high_key, int window) {
  return high_key > low_place || (window > 0 && low_key <= high_place - window);
}
// blind says whether all of these queries fail to see all of these keys.
DEV bool blind(int low_place, int high_place, int low_key, int high_key, int window) {
  return high_place < low_key || (window > 0 && high_key <= low_place - window);
}
DEV bool sees(int place, int key, int window) { return key <= place && (window == 0 || key > place - window); }

// Seen answers the same question for many keys with one unsigned comparison each. A
// key at distance d = place − key is seen where 0 <= d < window; window 0 is no
// limit.
struct Seen {
  u32 limit;
  METHOD bool at(int distance) const { return (u32)distance < limit; }
};
DEV Seen seen_within(int window) { return Seen{window > 0 ? (u32)window : 0x80000000u}; }

// keep_here makes the compiler forget what it knows of x. What is computed from x
// in a loop is then computed inside the loop, and takes no register outside of it.
DEV void keep_here(i64 &x) { asm volatile("" : "+l"(x)); }
DEV void keep_here(const bf16 *&x) { asm volatile("" : "+l"(x)); }

// thread_now reads the thread's number anew, for the same reason.
DEV int thread_now() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// load_tile starts to fetch ROWS rows of dim columns; what lies beyond rows or dim
// becomes zeros. The tile is there after commit, wait and a barrier.
template <int ROWS, int D, int THREADS>
DEV void load_tile(u32 tile, const bf16 *src, i64 stride, int rows, int dim, bool vector) {
  constexpr int CHUNKS = D / 8, ACROSS = CHUNKS == 12 ? 16 : CHUNKS, STEP = THREADS / ACROSS; // STEP rows at a time
  static_assert(ROWS % STEP == 0);
  if (vector) {
    int thread = thread_now(), row = thread / ACROSS, chunk = thread % ACROSS;
    if (ACROSS != CHUNKS && chunk >= CHUNKS) return;
    const bf16 *from = src + row * stride + chunk * 8;
    if (rows >= ROWS && dim == D) { // all there: half the instructions
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
  for (int at = thread_now(); at < ROWS * D / 2; at += THREADS) { // two columns at a time: few registers
    int row = at / (D / 2), column = at % (D / 2) * 2;
    const bf16 *from = src + row * stride + column;
    u32 pair = 0;
    if (row < rows && column < dim) pair = from[0].bits;
    if (row < rows && column + 1 < dim) pair |= (u32)from[1].bits << 16;
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile + SharedTile<D>::at(row, column / 8) + column % 8 * 2), "r"(pair) : "memory");
  }
}

// load_floats starts to fetch COUNT floats; those from n on become zeros.
template <int COUNT> DEV void load_floats(u32 dst, const float *src, int n) {
  if (threadIdx_x < COUNT) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst + threadIdx_x * 4),
                 "l"((const __attribute__((address_space(1))) float *)src + threadIdx_x), "r"(threadIdx_x < n ? 4 : 0));
  }
}

DEV void load_shared(float (&d)[2], u32 address) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(d[0]), "=f"(d[1]) : "r"(address));
}

// store_tile rounds this warp's 16 rows of D fp32 sums and writes them, by way of
// the 16 rows of shared memory at tile that belong to this warp alone. dst is the
// first row; rows and columns say how many of each exist.
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
