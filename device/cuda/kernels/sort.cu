// SortByExpert lists the pairs (token, choice), numbered t·K + k, by expert, and in rising order
// within one expert. It is a counting sort whose result follows from the input alone, without
// atomics.
//
//	ids (N) i32 the expert of each pair; one outside 0 … E−1 is left out
//	order (N) i32 pairs by expert, rows (N) i32 = order / K; overwritten
//	offsets (E+1) i32: where the pairs of each expert begin, overwritten; counts (E) i32
//	+= the number of pairs of each expert, unless null
//
// The pairs are cut into pieces of `each`, one for a warp. First every warp counts its own piece by
// expert: table (pieces, E). A second kernel replaces, down each column of the table, counts by the
// number of pairs before the piece, and writes the column's sum to totals (E). The totals give
// offsets. Last the warps go over their pieces again and write each pair to its position.
//
// No call can move fewer bytes than two reads of ids and a write of order and rows, 16 bytes a
// pair. The table is E/each times that, three times.
#include "common.cuh"

static constexpr int WARPS = 4;   // of a block that works on pieces
static constexpr int MOST = 1024; // most experts
static constexpr int LANES = 32;  // columns of a block of sort_columns
static constexpr int PARTS = 32;  // threads that share a column in sort_columns

DEV int popcount(u32 x) { return __builtin_popcount(x); }

// peers returns a mask of the lanes that have the same x as this one.
DEV u32 peers(int x) { return __nvvm_match_any_sync_i32(0xffffffffu, x); }

// zero clears the counts of one warp.
DEV void zero(int *mine, int experts) {
  for (int e = threadIdx_x & 31; e < experts; e += 32) mine[e] = 0;
  sync_warp();
}

extern "C" {
__global__ __launch_bounds__(WARPS * 32) void sort_count(int *table, const int *ids, int n, int experts, int each) {
  __shared__ int counts[WARPS][MOST];
  int lane = threadIdx_x & 31, piece = blockIdx_x * WARPS + (threadIdx_x >> 5), *mine = counts[threadIdx_x >> 5];
  i64 begin = (i64)piece * each;
  if (begin >= n) return;
  int end = (int)min_i((i64)n, begin + each);
  zero(mine, experts);
#pragma clang loop unroll(disable)
  for (int i = (int)begin; i < end; i += 32) {
    int e = i + lane < end ? ids[i + lane] : -1;
    u32 same = peers(e);
    bool last = same >> lane == 1u; // whether this is the last lane with the same expert
    if (last && (u32)e < (u32)experts) mine[e] += popcount(same);
    sync_warp();
  }
  for (int e = lane; e < experts; e += 32) table[(i64)piece * experts + e] = mine[e];
}

// sort_columns replaces each column of the table, the counts of one expert, by running sums.
// blockIdx.x is a block of LANES experts; thread (column, p) adds up the p-th run of pieces.
__global__ __launch_bounds__(LANES *PARTS) void sort_columns(int *table, int *totals, int pieces, int experts) {
  __shared__ int sums[PARTS][LANES];
  int lane = threadIdx_x & 31, p = threadIdx_x >> 5, e = blockIdx_x * LANES + lane;
  int run = (pieces + PARTS - 1) / PARTS, first = p * run, end = min_i(pieces, first + run), sum = 0;
  if (e < experts) {
#pragma clang loop unroll_count(4)
    for (int i = first; i < end; i++) sum += table[(i64)i * experts + e];
  }
  sums[p][lane] = sum;
  sync_threads();
  if (e >= experts) return;
  int before = 0;
#pragma clang loop unroll(disable)
  for (int i = 0; i < p; i++) before += sums[i][lane];
  if (p == PARTS - 1) totals[e] = before + sum;
#pragma clang loop unroll_count(4)
  for (int i = first; i < end; i++) {
    int *at = table + (i64)i * experts + e, count = *at;
    *at = before;
    before += count;
  }
}

// sort_offsets turns the experts' totals into offsets: one block, with a thread for each expert.
__global__ __launch_bounds__(MOST) void sort_offsets(int *offsets, int *counts, const int *totals, int experts) {
  __shared__ int sums[MOST];
  int e = threadIdx_x, own = e < experts ? totals[e] : 0, sum = own;
#pragma clang loop unroll(disable)
  for (int by = 1; by < blockDim_x; by <<= 1) { // sum: of the last 2·by up to this one
    sums[e] = sum;
    sync_threads();
    if (e >= by) sum += sums[e - by];
    sync_threads();
  }
  if (e == 0) offsets[0] = 0;
  if (e >= experts) return;
  offsets[e + 1] = sum;
  if (counts) counts[e] += own;
}

__global__ __launch_bounds__(WARPS * 32) void sort_place(int *order, int *rows, const int *table, const int *offsets, const int *ids,
                                                        int n, int experts, int K, int each) {
  __shared__ int next[WARPS][MOST];
  int lane = threadIdx_x & 31, piece = blockIdx_x * WARPS + (threadIdx_x >> 5), *mine = next[threadIdx_x >> 5];
  i64 begin = (i64)piece * each;
  if (begin >= n) return;
  int end = (int)min_i((i64)n, begin + each);
  for (int e = lane; e < experts; e += 32) mine[e] = offsets[e] + table[(i64)piece * experts + e];
  sync_warp();
#pragma clang loop unroll(disable)
  for (int i = (int)begin; i < end; i += 32) {
    int pair = i + lane, e = pair < end ? ids[pair] : -1, at = 0;
    u32 same = peers(e);
    bool known = (u32)e < (u32)experts;
    if (known) at = mine[e] + popcount(same & ((1u << lane) - 1u));
    sync_warp(); // every lane has read its counts
    if (known && same >> lane == 1u) mine[e] = at + 1;
    sync_warp();
    if (known) order[at] = pair, rows[at] = (int)((u32)pair / (u32)K);
  }
}
}
