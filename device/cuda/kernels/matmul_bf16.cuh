// D (M, N) = op(A)·op(B) + C + Bias from bf16 on tensor cores: mma.sync m16n8k16 with float sums. A
// block keeps a ring of STAGES tiles in shared memory, which cp.async fills and ldmatrix reads.
//
// In memory, the rows of A run along K, or across it if A is transposed; those of B run across K,
// or along it if B is transposed. A tile is kept in shared memory as it lies in memory, and
// ldmatrix.trans transposes matrices whose rows run across K. Copies have chunks of 8 elements (16
// bytes).
//
// Every element's sum runs over k in order, 16 at a time.
#pragma once
#include "matmul_out.cuh"
#include "mma.cuh"

// Shape has the sizes of a block's tile (BM, BN, BK), of a warp's part of it (WM, WN), and of the
// ring (STAGES).
template <int BM_, int BN_, int BK_, int WM_, int WN_, int STAGES_> struct Shape {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, STAGES = STAGES_;
  static constexpr int THREADS = BM / WM * (BN / WN) * 32;
  static constexpr int A_BYTES = BM * BK * 2, BYTES = (BM + BN) * BK * 2;
};

// Operand loads tiles of A or B, with ROWS rows of m or n and BK of k, and reads fragments of 16 by
// 16 from them. ALONG says that a row of the matrix in memory runs along K.
template <int ROWS, int BK, int THREADS, bool ALONG> struct Operand {
  static constexpr int CHUNKS = (ALONG ? BK : ROWS) / 8, LINES = ALONG ? ROWS : BK;
  static constexpr int LINE = CHUNKS * 16; // bytes of a line in shared memory
  using T = SharedTile<CHUNKS * 8>;
  static constexpr int STEP = THREADS / CHUNKS, PER = LINES / STEP;
  static_assert(PER * STEP == LINES && (PER == 1 || STEP % 8 == 0), "the XOR must be the same for all lines of a thread");

  const u16 *base, *next; // the matrix; address of this thread's first chunk of the next tile
  u32 offset[PER];        // bytes from next
  i64 ld;                 // elements from line to line
  int first, rows;        // first row of the tile, rows of the matrix
  u32 to;                 // where the first chunk goes in the tile

  METHOD int line() const { return threadIdx_x / CHUNKS; }
  METHOD int chunk() const { return threadIdx_x % CHUNKS; }

  METHOD void start(const void *matrix, int first_row, int count, int stride, int k) {
    base = (const u16 *)matrix;
    first = first_row, rows = count, ld = stride;
    to = T::at(line(), chunk());
    // For rows beyond the last, the last row is read again. Their results are not stored.
    if (ALONG) {
      next = base + first * ld + k + chunk() * 8;
#pragma unroll
      for (int i = 0; i < PER; i++) offset[i] = (u32)min_i(line() + i * STEP, rows - 1 - first) * (u32)ld * 2;
    } else {
      next = base + (k + line()) * ld + min_i(first + chunk() * 8, max_i(rows - 8, 0));
#pragma unroll
      for (int i = 0; i < PER; i++) offset[i] = (u32)(i * STEP) * (u32)ld * 2;
    }
  }

  // fetch enqueues the copy of the next tile. left is how many k are left in the matrix; further
  // ones become zeros.
  METHOD void fetch(u32 tile, int left) {
#pragma unroll
    for (int i = 0; i < PER; i++) {
      int k = ALONG ? chunk() * 8 : line() + i * STEP;
      copy_async_16(tile + to + i * STEP * LINE, (const u8 *)next + offset[i], k < left);
    }
    next += ALONG ? (i64)BK : BK * ld;
  }

  // fetch_elements loads the tile at k element by element, for matrices whose rows do not start at
  // multiples of 16 bytes. The tile is complete after the next barrier.
  METHOD void fetch_elements(u8 *tile, int k, int end) {
#pragma unroll
    for (int i = 0; i < PER; i++) {
      u32x4 v;
#pragma unroll
      for (int e = 0; e < 8; e += 2) v[e / 2] = element(i, e, k, end) | element(i, e + 1, k, end) << 16;
      *(u32x4 *)(tile + to + i * STEP * LINE) = v;
    }
  }

  METHOD u32 element(int i, int e, int k, int end) const {
    int l = line() + i * STEP, c = chunk() * 8 + e;
    int at = k + (ALONG ? c : l);
    i64 row = min_i(first + (ALONG ? l : c), rows - 1), column = min_i(at, end - 1);
    u32 x = base[ALONG ? row * ld + column : column * ld + row];
    return at < end ? x : 0;
  }

  // read loads the fragment of 16 rows, from row on, by 16 k, from k on. lane is this lane's
  // address for the fragment at 0, 0.
  static METHOD void read(u32 (&r)[4], u32 tile, u32 lane, int row, int k) {
    if (ALONG)
      ldmatrix_x4(r, tile + T::step(lane, row, k));
    else
      ldmatrix_x4_trans(r, tile + T::step(lane, k, row));
  }
};

// Source loads the tiles of both matrices, one after the other along K. CHUNKED: rows of both can
// be read 16 bytes at a time; otherwise the flags say which of them.
template <class S, bool TA, bool TB, bool CHUNKED> struct Source {
  using A = Operand<S::BM, S::BK, S::THREADS, !TA>;
  using B = Operand<S::BN, S::BK, S::THREADS, TB>;
  A a;
  B b;
  int k, end, flags; // the first k of the tile fetched next, and the end of K

  // fetch enqueues the next tiles of A and B, for byte at of shared memory. Past the end of K it
  // loads zeros, which are never added.
  METHOD void fetch(u8 *shared, u32 at) {
    u32 ring = shared_address(shared);
    if (CHUNKED || (flags & A_CHUNKS))
      a.fetch(ring + at, end - k);
    else
      a.fetch_elements(shared + at, k, end);
    if (CHUNKED || (flags & B_CHUNKS))
      b.fetch(ring + at + S::A_BYTES, end - k);
    else
      b.fetch_elements(shared + at + S::A_BYTES, k, end);
    copy_async_commit();
    k = min_i(k + S::BK, end);
  }
};

// put_sums writes a warp's sums to D, from row row and column col on. They pass through the warp's
// part of shared memory, 16 rows at a time. The loop is not unrolled, since it would be most of the
// code; it moves sums so that each round uses sum[0].
template <class S, int MT, int NT> DEV void put_sums(const Out &o, u8 *shared, float (&sum)[MT][NT][4], int row, int col) {
  constexpr int W = S::WN, PITCH = W + 8;
  static_assert(S::THREADS / 32 * STAGE_FLOATS<W> * 4 <= S::BYTES * S::STAGES, "");
  int lane = threadIdx_x & 31;
  float *stage = (float *)shared + (threadIdx_x >> 5) * STAGE_FLOATS<W>;
  int blocks = min_i(MT, (o.M - row + 15) / 16);
#pragma clang loop unroll(disable)
  for (int i = 0; i < blocks; i++) {
#pragma unroll
    for (int n = 0; n < NT; n++) {
      float *at = stage + lane / 4 * PITCH + n * 8 + lane % 4 * 2;
      *(f32x2 *)at = f32x2{sum[0][n][0], sum[0][n][1]};
      *(f32x2 *)(at + 8 * PITCH) = f32x2{sum[0][n][2], sum[0][n][3]};
#pragma unroll
      for (int m = 0; m + 1 < MT; m++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[m][n][e] = sum[m + 1][n][e];
    }
    sync_warp();
    put_rows<W, W / 8>(o, stage, row + i * 16, col);
    sync_warp();
  }
}

template <class S, bool TA, bool TB, bool CHUNKED> DEV void matmul(const Out &o, const void *a, const void *b, int K, int lda, int ldb, int slice) {
  constexpr int MT = S::WM / 16, NT = S::WN / 16, KT = S::BK / 16;
  using From = Source<S, TA, TB, CHUNKED>;
  using A = From::A;
  using B = From::B;
  DYNAMIC_SHARED(shared);
  Tile tile = tile_of<S::BM, S::BN>(o.M, o.N);
  From from;
  from.k = blockIdx_y * slice, from.end = min_i(K - from.k, slice) + from.k, from.flags = o.flags;
  from.a.start(a, tile.row, o.M, lda, from.k);
  from.b.start(b, tile.col, o.N, ldb, from.k);
  int tiles = (from.end - from.k + S::BK - 1) / S::BK;

  int warp = threadIdx_x >> 5;
  int warp_row = warp / (S::BN / S::WN) * S::WM, warp_col = warp % (S::BN / S::WN) * S::WN;
  // a_at and b_at are the addresses, relative to a tile, at which this lane reads the fragments at
  // 0, 0 of A and B.
  u32 a_at = TA ? A::T::step(A::T::lane_b(0), 0, warp_row) : A::T::step(A::T::lane_a(0), warp_row, 0);
  u32 b_at = TB ? B::T::step(B::T::lane_b(0), warp_col, 0) : B::T::step(B::T::lane_a(0), 0, warp_col);
  u32 fa[2][MT][4], fb[2][NT][4];
  auto read = [&](int to, u32 at, int j) INLINE {
    at += shared_address(shared);
#pragma unroll
    for (int i = 0; i < MT; i++) A::read(fa[to][i], at, a_at, i * 16, j * 16);
#pragma unroll
    for (int i = 0; i < NT; i++) B::read(fb[to][i], at + S::A_BYTES, b_at, i * 16, j * 16);
  };
  float sum[MT][NT * 2][4];
#pragma unroll
  for (int i = 0; i < MT; i++)
#pragma unroll
    for (int n = 0; n < NT * 2; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) sum[i][n][e] = 0.0f;

#pragma clang loop unroll(disable)
  for (int s = 0; s < S::STAGES - 1; s++) from.fetch(shared, s * S::BYTES);
  copy_async_wait<S::STAGES - 2>();
  sync_threads();
  read(0, 0, 0);

  // Fragments are read one step before their use, even across the barrier. The stage that is being
  // filled is the one that all warps finished reading before the last barrier.
  constexpr u32 LAST = (S::STAGES - 1) * S::BYTES;
  u32 reading = 0, writing = LAST;
#pragma clang loop unroll(disable)
  for (; tiles > 0; tiles--) {
#pragma unroll
    for (int j = 0; j < KT; j++) {
      if (j == KT - 1) {
        copy_async_wait<S::STAGES - 2>();
        sync_threads();
        writing = reading;
        reading = reading == LAST ? 0 : reading + S::BYTES;
      }
      read((j + 1) & 1, reading, (j + 1) % KT);
      if (j == 0) from.fetch(shared, writing);
#pragma unroll
      for (int i = 0; i < MT; i++)
#pragma unroll
        for (int n = 0; n < NT * 2; n++) mma_bf16(sum[i][n], fa[j & 1][i], fb[j & 1][n / 2][n % 2 * 2], fb[j & 1][n / 2][n % 2 * 2 + 1]);
    }
  }
  copy_async_wait<0>();
  sync_threads();
  put_sums<S>(o, shared, sum, tile.row + warp_row, tile.col + warp_col);
}

// MATMUL_KERNELS defines the four kernels of a shape: name_nn, _tn (A transposed), _nt (B
// transposed), _tt. Rows in memory are lda, ldb and ldd elements apart. If K is split, block row y
// computes k from y·slice to (y+1)·slice.
#define MATMUL_KERNEL(name, S, TA, TB, CHUNKED, BLOCKS)                                                                     \
  __global__ __launch_bounds__(S::THREADS, BLOCKS) void name(void *d, const void *a, const void *b, const void *c,          \
                                                             const float *bias, int M, int N, int K, int lda, int ldb,     \
                                                             int ldd, int slice, int flags) {                              \
    matmul<S, TA, TB, CHUNKED>(out_of(d, c, bias, M, N, ldd, flags), a, b, K, lda, ldb, slice);                             \
  }
#define MATMUL_KERNELS(name, S, CHUNKED, BLOCKS)            \
  MATMUL_KERNEL(name##_nn, S, false, false, CHUNKED, BLOCKS) \
  MATMUL_KERNEL(name##_tn, S, true, false, CHUNKED, BLOCKS)  \
  MATMUL_KERNEL(name##_nt, S, false, true, CHUNKED, BLOCKS)  \
  MATMUL_KERNEL(name##_tt, S, true, true, CHUNKED, BLOCKS)
