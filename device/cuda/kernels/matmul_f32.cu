// D (M, N) = op(A)·op(B) + C + Bias from float. It does not use tensor cores, which would round to
// TF32: every thread sums 8 × 8 elements, over k in order.
//
//	large: tiles of 128 × 64, 128 threads, 32000 bytes of shared memory
//	small: tiles of 64 × 64, 64 threads, 21760 bytes
//
// A tile has 8 k. In shared memory it is 8 rows, one for each k, whichever way the matrix lies in
// memory: cp.async copies single elements, so no alignment is needed. These rows are four elements
// longer than the tile, so that copies have no bank conflicts.
#include "matmul_out.cuh"
#include "mma.cuh"

static constexpr int BK = 8, STAGES = 5;

// copy_async_4 starts to copy one element to shared memory (cp.async). If take is false, it writes
// zero.
DEV void copy_async_4(u32 dst, const float *src, bool take) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"((const __attribute__((address_space(1))) float *)src),
               "r"(take ? 4 : 0));
}

// Operand loads tiles of A or B, with ROWS rows of m or n and BK of k. ALONG says that a row of the
// matrix in memory runs along K.
template <int ROWS, int THREADS, bool ALONG> struct Operand {
  static constexpr int LINE = (ROWS + 4) * 4; // bytes of one k in shared memory
  // If rows run along K, a warp copies 8 k of 4 rows at a time; otherwise 32 rows of one k.
  static constexpr int STEP = ALONG ? THREADS / 8 : THREADS / ROWS; // lines from copy to copy
  static constexpr int LINES = ALONG ? ROWS : BK;

  const float *next; // address of this thread's first element of the next tile
  i64 ld;            // elements from line to line
  u32 to;            // where the first element goes in the tile
  int line, left;    // the thread's first line; if lines are rows, the number of lines from it on

  METHOD void start(const float *matrix, int first, int rows, int stride, int k) {
    ld = stride;
    line = ALONG ? threadIdx_x / 8 : threadIdx_x / ROWS;
    int at = ALONG ? threadIdx_x % 8 : threadIdx_x % ROWS;
    if (ALONG) {
      left = rows - first - line;
      next = matrix + (first + line) * ld + k + at;
      to = at * LINE + line * 4;
    } else {
      // For rows beyond the last, the last row is read again. Their results are not stored.
      next = matrix + (k + line) * ld + min_i(first + at, rows - 1);
      to = line * LINE + at * 4;
    }
  }

  // fetch enqueues the copy of the next tile. in is how many k are left in the matrix; further ones
  // become zeros.
  METHOD void fetch(u32 tile, int in) {
    const float *from = next;
    i64 step = ld * STEP;
    int left = this->left;
    // The compiler must take step and left for unknown; otherwise it would keep a pointer for every
    // line.
    asm volatile("" : "+l"(step), "+r"(left));
    in -= ALONG ? threadIdx_x % 8 : line;
#pragma unroll
    for (int i = 0; i < LINES; i += STEP) {
      if (ALONG)
        copy_async_4(tile + to + i * 4, from, i < left && 0 < in);
      else
        copy_async_4(tile + to + i * LINE, from, i < in);
      from += step;
    }
    next += ALONG ? (i64)BK : BK * ld;
  }
};

template <int BM, int BN, bool TA, bool TB>
DEV void matmul(void *d, const float *a, const float *b, const void *c, const float *bias, int M, int N, int K, int lda, int ldb, int ldd, int slice,
                int flags) {
  using A = Operand<BM, BM * BN / 64, !TA>;
  using B = Operand<BN, BM * BN / 64, TB>;
  constexpr int THREADS = BM * BN / 64, A_BYTES = BK * A::LINE, BYTES = A_BYTES + BK * B::LINE;
  DYNAMIC_SHARED(shared);
  u32 ring = shared_address(shared);
  Tile tile = tile_of<BM, BN>(M, N);
  int k = blockIdx_y * slice, left = min_i(K - k, slice); // k not fetched yet
  int tiles = (left + BK - 1) / BK;
  A from_a;
  B from_b;
  from_a.start(a, tile.row, M, lda, k);
  from_b.start(b, tile.col, N, ldb, k);
  auto fetch = [&](int stage) INLINE {
    from_a.fetch(ring + stage * BYTES, left);
    from_b.fetch(ring + stage * BYTES + A_BYTES, left);
    copy_async_commit();
    left -= BK;
  };

  // A warp computes 32 × 64 elements. A lane has four rows from 4·y and four from 16 + 4·y on, and
  // four columns from 4·x and four from 32 + 4·x on.
  int warp = threadIdx_x >> 5, y = threadIdx_x >> 3 & 3, x = threadIdx_x & 7;
  int warp_row = warp / (BN / 64) * 32, warp_col = warp % (BN / 64) * 64;
  f32x4 sum[2][4][2];
#pragma unroll
  for (int h = 0; h < 2; h++)
#pragma unroll
    for (int i = 0; i < 4; i++) sum[h][i][0] = sum[h][i][1] = f32x4{0, 0, 0, 0};

#pragma clang loop unroll(disable)
  for (int s = 0; s < STAGES - 1; s++) fetch(s);
  int reading = 0, writing = STAGES - 1;
#pragma clang loop unroll(disable)
  for (; tiles > 0; tiles--) {
    copy_async_wait<STAGES - 2>();
    sync_threads();
    fetch(writing);
    const u8 *a_at = shared + reading * BYTES + (warp_row + y * 4) * 4;
    const u8 *b_at = shared + reading * BYTES + A_BYTES + (warp_col + x * 4) * 4;
    writing = reading;
    reading = reading == STAGES - 1 ? 0 : reading + 1;
#pragma unroll
    for (int kk = 0; kk < BK; kk++) {
      f32x4 va[2], vb[2];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        va[h] = *(const f32x4 *)(a_at + kk * A::LINE + h * 16 * 4);
        vb[h] = *(const f32x4 *)(b_at + kk * B::LINE + h * 32 * 4);
      }
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int c = 0; c < 2; c++) sum[h][i][c] += va[h][i] * vb[c];
    }
  }
  copy_async_wait<0>();
  sync_threads();

  static_assert(THREADS / 32 * STAGE_FLOATS<64> * 4 <= BYTES * STAGES, "");
  Out o = out_of(d, c, bias, M, N, ldd, flags);
  float *stage = (float *)shared + warp * STAGE_FLOATS<64>;
  int halves = min_i(2, (M - tile.row - warp_row + 15) / 16);
#pragma clang loop unroll(disable)
  for (int h = 0; h < halves; h++) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        *(f32x4 *)(stage + (y * 4 + i) * (64 + 8) + c * 32 + x * 4) = sum[0][i][c];
        sum[0][i][c] = sum[1][i][c];
      }
    sync_warp();
    put_rows<64, 4>(o, stage, tile.row + warp_row + h * 16, tile.col + warp_col);
    sync_warp();
  }
}

// MATMUL_KERNELS defines the four kernels of a tile. Rows in memory are lda, ldb and ldd elements
// apart. If K is split, block row y computes k from y·slice to (y+1)·slice.
#define MATMUL_KERNEL(name, BM, BN, TA, TB, BLOCKS)                                                                    \
  __global__ __launch_bounds__(BM *BN / 64, BLOCKS) void name(void *d, const float *a, const float *b, const void *c, \
                                                              const float *bias, int M, int N, int K, int lda,        \
                                                              int ldb, int ldd, int slice, int flags) {               \
    matmul<BM, BN, TA, TB>(d, a, b, c, bias, M, N, K, lda, ldb, ldd, slice, flags);                                    \
  }
#define MATMUL_KERNELS(name, BM, BN, BLOCKS)            \
  MATMUL_KERNEL(name##_nn, BM, BN, false, false, BLOCKS) \
  MATMUL_KERNEL(name##_tn, BM, BN, true, false, BLOCKS)  \
  MATMUL_KERNEL(name##_nt, BM, BN, false, true, BLOCKS)  \
  MATMUL_KERNEL(name##_tt, BM, BN, true, true, BLOCKS)

extern "C" {
MATMUL_KERNELS(matmul_f32_large, 128, 64, 3)
MATMUL_KERNELS(matmul_f32_small, 64, 64, 5)
}
