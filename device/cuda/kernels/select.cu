// SelectKeys chooses for each query of sparse attention the top keys with the largest scores, among the keys up to its
// own (arXiv:2512.02556, section 2.1):
//
//	score = Σ_h wscale·w[h]·max(0, scale·q[h]·k)
//
// It works on a segment of queries at a time, whose scores (queries, pitch) are in scratch memory. The first kernel
// writes scores as u32 numbers that are ordered as the scores are. The second finds the limit, the smallest chosen
// score, by its bytes, and writes the keys at and above the limit in ascending order. If not all keys at the limit
// are chosen, one thread chooses as std::nth_element and std::partial_sort of the GNU C++ library do, as torch.topk
// on a CPU (device/cpu/select.go).
//
// No call can take less time than the products of queries and keys. The scores are written once and read five times,
// mostly from the L2 cache.
#include "attention_f32.cuh"

DYNAMIC_SHARED(shared);

static constexpr int GROUP = 32; // queries of a block of scores

// ordered returns a number that is ordered as x is. −0 becomes 0.
DEV u32 ordered(float x) {
  u32 bits = bits_of(x + 0.0f);
  return (int)bits < 0 ? ~bits : bits | 0x80000000u;
}
static constexpr u32 NOTHING = 0x007fffffu; // ordered(−∞), the score of a later key

// sequence_of returns the sequence of a query: the last that begins at or before it.
DEV int sequence_of(const int *cu, int seqs, int query) {
  int low = 0, high = seqs;
  while (high - low > 1) {
    int middle = (low + high) >> 1;
    if (cu[middle] <= query) low = middle;
    else high = middle;
  }
  return low;
}

// Span is what the query needs to know of its sequence.
struct Span {
  int end;    // of its queries
  int k0, nk; // its first key and its number of keys
  int shift;  // from a query's number to its place among the keys
};
DEV Span span_of(const int *cu_q, const int *cu_k, int seqs, int query) {
  int i = sequence_of(cu_q, seqs, query), nk = cu_k[i + 1] - cu_k[i];
  return Span{cu_q[i + 1], cu_k[i], nk, nk - cu_q[i + 1]};
}

// Scores has the parameters of a kernel of scores. Block (x, y) computes the y-th GROUP of queries from … end−1 and the
// x-th tile of keys of each of their sequences. Later keys than a query's own get any scores.
template <class Act> struct Scores {
  u32 *scores;
  const Act *q, *k, *w;
  const int *cu_q, *cu_k;
  int seqs, from, end, heads, dim, pitch;
  float scale, wscale;
  int vector; // bit 0: rows of q can be read in 16 bytes; bit 1: those of k in 4
  METHOD u32 *row(int query) const { return scores + (i64)(query - from) * pitch; }
};

// slow computes scores by multiply-adds. A tile has 64 keys. A product has as rows the heads of several queries of a
// sequence, or 64 heads of one. A score sums its heads in their order.
template <class Act> DEV void slow(const Scores<Act> &a, float *space) {
  int first = a.from + blockIdx_y * GROUP, end = min_i(first + GROUP, a.end), key = blockIdx_x * TILE;
  int thread = threadIdx_x, y = thread / 16, heads = min_i(a.heads, TILE), several = TILE / heads;
  for (int query = first; query < end;) {
    Span of = span_of(a.cu_q, a.cu_k, a.seqs, query);
    int count = min_i(several, min_i(end, of.end) - query);
    bool seen = query + count - 1 + of.shift >= key;
    for (int head = 0; seen && head < a.heads; head += TILE) {
      float s[4][4];
      int rows = min_i(a.heads - head, heads) * count;
      dots(s, Rows<Act>{a.q + ((i64)query * a.heads + head) * a.dim, a.dim, rows}, Rows<Act>{a.k + ((i64)of.k0 + key) * a.dim, a.dim, of.nk - key},
           a.dim, space);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float w = y + 16 * i < rows ? to_float(a.w[(i64)query * a.heads + head + y + 16 * i]) * a.wscale : 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++) s[i][j] = w * max_f(0.0f, s[i][j] * a.scale);
      }
      put(space + FIRST, s); // dots has barriers after the sums of the square before
      sync_threads();
      int each = min_i(a.heads - head, heads);
      for (int at = thread; at < count * TILE; at += THREADS) {
        int number = at / TILE, column = at % TILE;
        if (key + column >= of.nk) continue;
        float *sum = space + SECOND + at, total = head > 0 ? *sum : 0.0f;
        for (int h = 0; h < each; h++) total += space[FIRST + (number * each + h) * SQUARE + column];
        *sum = total;
        if (head + TILE >= a.heads) a.row(query + number)[key + column] = ordered(total);
      }
    }
    query += count;
  }
}

// Fast computes scores of bf16 by tensor cores, for dim up to 128. A tile has 256 keys, 32 of each warp, which stay in
// registers as A operands. Steps go over the queries and HEADS of their heads at a time, in two buffers.
struct Fast {
  static constexpr int DIM = 128, HEADS = 32, KEYS = 256;
  using Tile = SharedTile<DIM>;
  static constexpr int STAGE = HEADS * Tile::PITCH;

  u32 keys[2][DIM / 16][4];

  // pair returns two elements of a row with left more of them; further elements are zeros.
  DEV u32 pair(const bf16 *x, int left, bool vector) {
    if (left <= 0) return 0;
    if (vector) return *(const u32 *)x;
    return x[0].bits | (left > 1 ? (u32)x[1].bits << 16 : 0);
  }

  // load loads this warp's keys, of which the first is key in its sequence.
  METHOD void load(const Scores<bf16> &a, const Span &of, int key) {
    int lane = threadIdx_x & 31;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int row = key + i * 16 + (e & 1) * 8 + (lane >> 2), column = (lane & 3) * 2 + (e >> 1) * 8;
        const bf16 *from = a.k + ((i64)of.k0 + row) * a.dim + column;
#pragma unroll
        for (int c = 0; c < DIM / 16; c++) keys[i][c][e] = pair(from + c * 16, row < of.nk ? a.dim - column - c * 16 : 0, a.vector & 2);
      }
  }

  // add adds to sums the terms of the heads of a step: sums of keys 16i + g and 16i + g + 8.
  METHOD void add(float (&sums)[2][2], u32 stage, const bf16 *w, int heads, const Scores<bf16> &a) {
    int lane = threadIdx_x & 31;
    u32 from = Tile::lane_b(stage, lane);
#pragma unroll
    for (int n = 0; n < HEADS / 16; n++) {
      float s[2][2][4] = {};
#pragma unroll
      for (int c = 0; c < DIM / 16; c++) {
        u32 b[4];
        ldmatrix_x4(b, Tile::step(from, n * 16, c * 16));
#pragma unroll
        for (int i = 0; i < 2; i++) mma_bf16(s[i][0], keys[i][c], b[0], b[1]), mma_bf16(s[i][1], keys[i][c], b[2], b[3]);
      }
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int head = n * 16 + (e >> 1) * 8 + (lane & 3) * 2 + (e & 1);
        float weight = head < heads ? to_float(w[head]) * a.wscale : 0.0f;
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
          for (int half = 0; half < 2; half++) sums[i][half] += weight * max_f(0.0f, s[i][e >> 1][2 * half + (e & 1)] * a.scale);
      }
    }
  }

  DEV void fetch(u32 shared, const Scores<bf16> &a, int first, int chunks, int step) {
    int head = step % chunks * HEADS;
    load_tile<HEADS, DIM, THREADS>(shared + step % 2 * STAGE, a.q + ((i64)(first + step / chunks) * a.heads + head) * a.dim, a.dim, a.heads - head,
                                   a.dim, a.vector & 1);
    copy_async_commit();
  }

  METHOD void run(const Scores<bf16> &a, u32 shared) {
    int first = a.from + blockIdx_y * GROUP, queries = min_i(GROUP, a.end - first), chunks = (a.heads + HEADS - 1) / HEADS;
    int lane = threadIdx_x & 31, key = blockIdx_x * KEYS;
    Span of = span_of(a.cu_q, a.cu_k, a.seqs, first);
    if (first + queries <= of.end && first + queries - 1 + of.shift < key) return; // no query sees a key
    key += (threadIdx_x >> 5) * 32;
    load(a, of, key);
    fetch(shared, a, first, chunks, 0);
    float sums[2][2] = {};
    for (int step = 0; step < queries * chunks; step++) {
      copy_async_wait<0>();
      sync_threads(); // the step is there, everyone is done with the other
      if (step + 1 < queries * chunks) fetch(shared, a, first, chunks, step + 1);
      int query = first + step / chunks, head = step % chunks * HEADS;
      if (query >= of.end) {
        of = span_of(a.cu_q, a.cu_k, a.seqs, query);
        load(a, of, key);
      }
      if (query + of.shift < key) continue;
      add(sums, shared + step % 2 * STAGE, a.w + (i64)query * a.heads + head, a.heads - head, a);
      if (head + HEADS < a.heads) continue;
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float sum = sums[i][half];
          sum += shuffle_xor(sum, 1);
          sum += shuffle_xor(sum, 2);
          int at = key + i * 16 + half * 8 + (lane >> 2);
          if ((lane & 3) == 0 && at < of.nk) a.row(query)[at] = ordered(sum);
          sums[i][half] = 0.0f;
        }
    }
  }
};

// Candidates are keys and their scores, which move together. The functions below are those of device/cpu/select.go
// and of the GNU C++ library, comparison by comparison.
struct Candidates {
  u32 *score;
  int *key;

  METHOD bool before(int i, int j) const { return score[i] > score[j]; }
  METHOD void swap(int i, int j) const {
    u32 s = score[i];
    int k = key[i];
    set(i, score[j], key[j]);
    set(j, s, k);
  }
  METHOD void set(int i, u32 s, int k) const { score[i] = s, key[i] = k; }
  METHOD Candidates from(int i) const { return Candidates{score + i, key + i}; }

  // sift puts a candidate into the heap of n at index i, whose element is gone.
  METHOD void sift(int n, int i, u32 s, int k) const {
    int top = i;
    while (2 * i + 1 < n) {
      int child = 2 * i + 1;
      if (child + 1 < n && !before(child + 1, child)) child++;
      set(i, score[child], key[child]);
      i = child;
    }
    for (int parent = (i - 1) / 2; i > top && score[parent] > s; parent = (i - 1) / 2) {
      set(i, score[parent], key[parent]);
      i = parent;
    }
    set(i, s, k);
  }

  // heap_select moves the n largest of count candidates to the front.
  METHOD void heap_select(int count, int n) const {
#pragma clang loop unroll(disable)
    for (int i = n / 2 - 1; i >= 0; i--) sift(n, i, score[i], key[i]);
#pragma clang loop unroll(disable)
    for (int i = n; i < count; i++) {
      if (!before(i, 0)) continue;
      u32 s = score[i];
      int k = key[i];
      set(i, score[0], key[0]);
      sift(n, 0, s, k);
    }
  }

  METHOD int median(int x, int y, int z) const {
    if (before(x, y)) return before(y, z) ? y : before(x, z) ? z : x;
    return before(x, z) ? x : before(y, z) ? z : y;
  }

  // divide moves a pivot to the front and divides the others around it. It returns the index of the second part.
  METHOD int divide(int count) const {
    swap(0, median(1, count / 2, count - 1));
    int i = 1, j = count;
    for (;; i++) {
      while (before(i, 0)) i++;
      for (j--; before(0, j);) j--;
      if (i >= j) return i;
      swap(i, j);
    }
  }

  // select moves the n largest of count candidates to the front.
  METHOD void select(int count, int n) const {
    if ((i64)n * 64 <= count) return heap_select(count, n);
    int low = 0, high = count, nth = n - 1;
#pragma clang loop unroll(disable)
    for (int depth = 2 * (31 - __builtin_clz(count)); high - low > 3; depth--) {
      if (depth == 0) return from(low).heap_select(high - low, nth + 1 - low);
      int cut = low + from(low).divide(high - low);
      if (cut <= nth) low = cut;
      else high = cut;
    }
    for (int i = low + 1; i < high; i++) // a stable sort of what is left
      for (int j = i; j > low && before(j, j - 1); j--) swap(j, j - 1);
  }
};

// Limit is the smallest chosen score, how many keys are chosen that have it, and how many have it.
struct Limit { u32 score; int chosen, equal; };

// find returns the limit of the top largest of n scores, byte by byte from the highest. counts has 256 numbers and
// notes 3.
DEV Limit find(const u32 *scores, int n, int top, int *counts, int *notes) {
  Limit limit{0, top, 0};
  int thread = threadIdx_x;
#pragma clang loop unroll(disable)
  for (int shift = 24; shift >= 0; shift -= 8) {
    counts[thread] = 0;
    sync_threads();
    for (int i = thread; i < n; i += THREADS) {
      u32 x = scores[i];
      if (((u64)(x ^ limit.score) >> (shift + 8)) == 0)
        asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(shared_address(counts + (x >> shift & 255))) : "memory");
    }
    sync_threads();
    if (thread < 32) {
      int own[8], sum = 0;
#pragma unroll
      for (int i = 0; i < 8; i++) sum += own[i] = counts[thread * 8 + i];
      int above = sum; // of the lanes from this one on
#pragma unroll
      for (int by = 1; by < 32; by *= 2) {
        int other = __nvvm_shfl_sync_down_i32(0xffffffffu, above, by, 31);
        if (thread + by < 32) above += other;
      }
      int left = limit.chosen - (above - sum); // chosen of this lane's and of lower bytes
      if (left > 0 && left <= sum) {
#pragma unroll
        for (int i = 7; i >= 0; i--) {
          if (left > 0 && left <= own[i]) notes[0] = thread * 8 + i, notes[1] = left, notes[2] = own[i];
          left -= own[i];
        }
      }
    }
    sync_threads();
    limit = Limit{limit.score | (u32)notes[0] << shift, notes[1], notes[2]};
  }
  return limit;
}

// write writes in ascending order the numbers of those of n scores that are at least limit. counts has a number for
// each warp.
DEV void write(int *to, const u32 *scores, int n, u32 limit, int *counts) {
  constexpr int WARPS = THREADS / 32;
  int warp = threadIdx_x >> 5, lane = threadIdx_x & 31, each = (n + THREADS - 1) / THREADS * 32, first = warp * each, end = min_i(n, first + each);
  int count = 0;
  for (int i = first; i < end; i += 32) count += __builtin_popcount(__nvvm_vote_ballot_sync(0xffffffffu, i + lane < end && scores[i + lane] >= limit));
  if (lane == 0) counts[warp] = count;
  sync_threads();
  for (int i = 0; i < WARPS; i++) to += i < warp ? counts[i] : 0;
  for (int i = first; i < end; i += 32) {
    bool is = i + lane < end && scores[i + lane] >= limit;
    u32 all = __nvvm_vote_ballot_sync(0xffffffffu, is);
    if (is) to[__builtin_popcount(all & ((1u << lane) - 1))] = i + lane;
    to += __builtin_popcount(all);
  }
}

#define SCORES_PARAMS(Act)                                                                                                       \
  u32 *scores, const Act *q, const Act *k, const Act *w, const int *cu_q, const int *cu_k, int seqs, int from, int end, int heads, \
      int dim, int pitch, float scale, float wscale, int vector
#define SCORES {scores, q, k, w, cu_q, cu_k, seqs, from, end, heads, dim, pitch, scale, wscale, vector}

extern "C" {
__global__ __launch_bounds__(THREADS, 1) void select_scores_f32(SCORES_PARAMS(float)) { slow(Scores<float> SCORES, (float *)shared); }
__global__ __launch_bounds__(THREADS, 1) void select_scores_bf16(SCORES_PARAMS(bf16)) { slow(Scores<bf16> SCORES, (float *)shared); }
__global__ __launch_bounds__(THREADS, 1) void select_scores_bf16_d128(SCORES_PARAMS(bf16)) {
  Fast f;
  f.run(Scores<bf16> SCORES, shared_address(shared));
}

// select_keys writes the keys of query from + blockIdx.x. It overwrites its scores, and its row of order (queries,
// pitch).
__global__ __launch_bounds__(THREADS, 1) void select_keys(int *keys, u32 *scores, int *order, const int *cu_q, const int *cu_k, int seqs, int from,
                                                       int pitch, int top) {
  __shared__ int counts[256 + 32]; // counts, then notes; whole 128 bytes, as the file's dynamic memory is aligned
  int query = from + blockIdx_x, thread = threadIdx_x;
  Span of = span_of(cu_q, cu_k, seqs, query);
  int seen = query + of.shift + 1;
  keys += (i64)query * top;
  if (seen <= top) {
    for (int i = thread; i < top; i += THREADS) keys[i] = i < seen ? i : -1;
    return;
  }
  scores += (i64)blockIdx_x * pitch;
  order += (i64)blockIdx_x * pitch;
  Limit limit = find(scores, seen, top, counts, counts + 256);
  if (limit.chosen < limit.equal) {
    for (int i = thread; i < of.nk; i += THREADS) { // later keys take part in the choice among equal scores
      order[i] = i;
      if (i >= seen) scores[i] = NOTHING;
    }
    sync_threads();
    if (thread == 0) Candidates{scores, order}.select(of.nk, top);
    sync_threads();
    for (int i = thread; i < seen; i += THREADS) scores[i] = 0;
    sync_threads();
    for (int i = thread; i < top; i += THREADS) scores[order[i]] = 1;
    sync_threads();
    limit.score = 1;
  }
  write(keys, scores, seen, limit.score, counts);
}
}
