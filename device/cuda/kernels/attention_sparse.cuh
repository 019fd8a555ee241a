// Attention to the keys that are chosen for each query (op.SparseAttention). All heads share one
// row per key, whose first values elements are the key's value. A row of keys (TQ, top) i32 has the
// query's keys in ascending order, counted from the sequence's first key, and −1 after the last.
#pragma once

#include "mma.cuh"

struct Sparse {
  const int *keys, *cu_q, *cu_k;
  int seqs, heads, dim, values, top;
  i64 tq, q_stride, k_stride; // in elements
  float scale;
  int vector; // bit 0: inputs can be read, bit 1: outputs written in 16 bytes
};

// SPARSE_PARAMS are the parameters of every kernel after its tensors, and SPARSE is the Sparse made of them.
#define SPARSE_PARAMS                                                                                          \
  const int *keys, const int *cu_q, const int *cu_k, int seqs, int heads, int dim, int values, int top, i64 tq, \
      i64 q_stride, i64 k_stride, float scale, int vector
#define SPARSE (Sparse{keys, cu_q, cu_k, seqs, heads, dim, values, top, tq, q_stride, k_stride, scale, vector})

// sequence_of returns the sequence of a query, counted over all sequences; −1: none.
DEV int sequence_of(int query, const Sparse &a) {
  int low = 0, high = a.seqs;
  while (high - low > 1) {
    int middle = (low + high) >> 1;
    if (a.cu_q[middle] <= query) low = middle;
    else high = middle;
  }
  return query >= a.cu_q[low] && query < a.cu_q[low + 1] ? low : -1;
}

// count_keys returns the number of keys of a query in every thread of a block of THREADS. space holds a word a warp.
template <int THREADS> DEV int count_keys(const int *keys, int top, float *space) {
  float n = 0.0f; // exact below 2^24
#pragma clang loop unroll(disable)
  for (int i = threadIdx_x; i < top; i += THREADS) n += keys[i] >= 0 ? 1.0f : 0.0f;
  return (int)block_sum<THREADS / 32, true>(n, space);
}

// Block is what a block of the kernels for queries works on: some heads of a query.
struct Block {
  int query, first; // first: the first head
  int k0, n;        // the sequence's first key, and the query's keys
  const int *keys;
};

// find_block returns false if the block's query belongs to no sequence.
template <int HEADS, int THREADS> DEV bool find_block(Block &b, int first_query, const Sparse &a, float *space) {
  int groups = (a.heads + HEADS - 1) / HEADS;
  b.query = first_query + blockIdx_x / groups;
  b.first = blockIdx_x % groups * HEADS;
  b.keys = a.keys + (i64)b.query * a.top;
  int sequence = sequence_of(b.query, a);
  if (sequence < 0) return false;
  b.k0 = a.cu_k[sequence];
  b.n = count_keys<THREADS>(b.keys, a.top, space);
  return true;
}

// Segments: key row r, counted over all sequences, belongs to segment r/GRAIN % segments. A block of the kernels for
// the gradient of keys owns the rows of a segment for a range of queries. So each long sequence spreads over all
// blocks, and a short one meets few.
static constexpr int GRAIN = 32;

// meets says whether any of the rows low … high can belong to the segment.
DEV bool meets(int low, int high, int segment, int segments) {
  int first = low / GRAIN, ahead = (segment - first % segments + segments) % segments;
  return first + ahead <= high / GRAIN;
}

// List gathers the keys of a query that belong to a segment. All threads call its functions.
template <int THREADS> struct List {
  static constexpr int AHEAD = 8, STEP = 2, ROOM = STEP * THREADS; // AHEAD: a thread's keys at a time; ROOM: rows in the list
  const int *keys;
  int top, k0, segment, segments;

  // row returns the row of a key, counted over all sequences; −1: it is not in the segment, or there is no such key.
  METHOD int row(int at) const {
    int key = at < top ? keys[at] : -1;
    return key >= 0 && (k0 + key) / GRAIN % segments == segment ? k0 + key : -1;
  }

  // count returns how many of the keys from number `from` on are in the segment: of AHEAD for each thread.
  METHOD int count(int from, float *space) const {
    int n = 0;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) n += row(from + i * THREADS + threadIdx_x) >= 0;
    return (int)block_sum<THREADS / 32>((float)n, space);
  }

  // gather writes the rows of n keys of each thread to list, and returns how many they are. The first key of all is
  // number `from`.
  METHOD int gather(int from, int n, int *list, float *space) const {
    int lane = threadIdx_x & 31, warp = threadIdx_x >> 5, mine = 0, before = 0, all = 0;
#pragma clang loop unroll(disable)
    for (int i = 0; i < n; i++) mine += __builtin_popcount(__nvvm_vote_ballot_sync(0xffffffffu, row(from + i * THREADS + threadIdx_x) >= 0));
    sync_threads();
    if (lane == 0) space[warp] = (float)mine;
    sync_threads();
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) before += w < warp ? (int)space[w] : 0, all += (int)space[w];
#pragma clang loop unroll(disable)
    for (int i = 0; i < n; i++) {
      int at = row(from + i * THREADS + threadIdx_x);
      u32 votes = __nvvm_vote_ballot_sync(0xffffffffu, at >= 0);
      if (at >= 0) list[before + __builtin_popcount(votes & ((1u << lane) - 1))] = at;
      before += __builtin_popcount(votes);
    }
    sync_threads();
    return all;
  }
};

// keys_of_segment calls add(query, n) for the queries of a range that chose keys of the segment, in their order. Then the
// list has n rows. It first clears the segment's sums, which are (tk, dim).
template <int THREADS, class Add>
DEV void keys_of_segment(float *sums, int range, int ranges, i64 tk, int segment, int segments, const Sparse &a, int *list, float *space, Add add) {
#pragma clang loop unroll(disable)
  for (i64 row = (i64)segment * GRAIN; row < tk; row += (i64)segments * GRAIN) {
    i64 end = min_i(row + GRAIN, tk) * a.dim;
#pragma clang loop unroll(disable)
    for (i64 i = row * a.dim + threadIdx_x; i < end; i += THREADS) sums[i] = 0.0f;
  }
  int query = max_i(a.cu_q[0], (int)(a.tq * range / ranges)), end = (int)min_i((i64)a.cu_q[a.seqs], a.tq * (range + 1) / ranges), sequence = 0;
#pragma clang loop unroll(disable)
  for (; query < end; query++) {
    while (a.cu_q[sequence + 1] <= query) sequence++;
    int k0 = a.cu_k[sequence], last = a.cu_k[sequence + 1] - 1 - (a.cu_q[sequence + 1] - 1 - query);
    if (!meets(k0, last, segment, segments)) continue;
    List<THREADS> of{a.keys + (i64)query * a.top, a.top, k0, segment, segments};
#pragma clang loop unroll(disable)
    for (int from = 0; from < a.top; from += of.AHEAD * THREADS) {
      int all = of.count(from, space), step = all <= of.ROOM ? of.AHEAD : of.STEP;
#pragma clang loop unroll(disable)
      for (int i = 0; i < of.AHEAD && all > 0; i += step) {
        int n = of.gather(from + i * THREADS, step, list, space);
        if (n > 0) add(query, n);
      }
    }
  }
}

// sum_ranges adds up the ranges' sums of a key's row: one warp a row. sums is (ranges, tk, dim).
template <class Act> DEV void sum_ranges(Act *dk, const float *sums, i64 dk_stride, int ranges, i64 tk, int dim, const int *cu_k, int seqs) {
  i64 row = (i64)blockIdx_x * (blockDim_x / 32) + threadIdx_x / 32;
  if (row < cu_k[0] || row >= cu_k[seqs]) return;
#pragma clang loop unroll(disable)
  for (int c = threadIdx_x % 32; c < dim; c += 32) {
    float sum = 0.0f;
#pragma clang loop unroll(disable)
    for (int i = 0; i < ranges; i++) sum += sums[(i * tk + row) * dim + c];
    store(dk + row * dk_stride + c, sum);
  }
}
