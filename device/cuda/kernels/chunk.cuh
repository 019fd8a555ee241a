// Tiles of a chunk of 64 tokens, and their products: bf16 on tensor cores with fp32 sums, fp32 by
// fused multiply-adds. A product has 64 rows and is computed by four warps, 16 rows each.
#pragma once

#include "mma.cuh"

static constexpr int L = 64; // tokens of a chunk, and rows of a tile

// tile is a matrix of 64 rows in shared memory. Rows are padded so that fragments have no bank
// conflicts.
template <class T, int COLUMNS = L> struct tile {
  static constexpr int PITCH = COLUMNS + 16 / (int)sizeof(T);
  __attribute__((aligned(16))) T x[L][PITCH];
};

DEV float convert(float, float x) { return x; }
DEV bf16 convert(bf16, float x) { return bf16{(u16)pack_bf16(x, 0.0f)}; }

// sums_of has a thread's elements of a product with 8·N columns: c[j][0] and c[j][1] are in row(0),
// c[j][2] and c[j][3] in row(1).
template <int N> struct sums_of {
  float c[N][4];
  METHOD void clear() {
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[j][e] = 0.0f;
  }
  METHOD static int row(int half) { return threadIdx_x / 32 % 4 * 16 + (threadIdx_x & 31) / 4 + 8 * half; }
  METHOD static int column(int j, int e) { return 8 * j + 2 * (threadIdx_x & 3) + (e & 1); }
  // each calls f(row, column, element, half) for every element of the thread; half is 0 in row(0)
  // and 1 in row(1).
  template <class F> METHOD void each(F f) {
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) f(row(e >> 1), column(j, e), c[j][e], e >> 1);
  }
};
typedef sums_of<8> sums;

// multiply is s += A·B. The columns of a tile that holds A, and of one that holds Bᵀ, are summed
// over, those from k0 on before k1. AT: the tile a holds Aᵀ. BN: the tile b holds B. A barrier must precede it.
template <bool AT = false, bool BN = false, int N, int CA, int CB>
DEV void multiply(sums_of<N> &s, const tile<bf16, CA> &a, const tile<bf16, CB> &b, int k0 = 0, int k1 = L) {
  int lane = threadIdx_x & 31, i0 = threadIdx_x / 32 % 4 * 16;
  u32 at_a = shared_address(AT ? &a.x[(lane & 7) + 8 * (lane >> 4)][i0 + (lane & 8)] : &a.x[i0 + (lane & 15)][8 * (lane >> 4)]);
  u32 at_b = shared_address(BN ? &b.x[lane & 15][8 * (lane >> 4)] : &b.x[(lane & 7) + 8 * (lane >> 4)][lane & 8]);
#pragma unroll
  for (int k = k0; k < k1; k += 16) {
    u32 of_a[4], of_b[4];
    if constexpr (AT) ldmatrix_x4_trans(of_a, at_a + k * (int)sizeof(a.x[0]));
    else ldmatrix_x4(of_a, at_a + 2 * k);
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      if constexpr (BN) ldmatrix_x4_trans(of_b, at_b + k * (int)sizeof(b.x[0]) + 16 * j);
      else ldmatrix_x4(of_b, at_b + 8 * j * (int)sizeof(b.x[0]) + 2 * k);
      mma_bf16(s.c[j], of_a, of_b[0], of_b[1]);
      mma_bf16(s.c[j + 1], of_a, of_b[2], of_b[3]);
    }
  }
}
template <bool AT = false, bool BN = false, int N, int CA, int CB>
DEV void multiply(sums_of<N> &s, const tile<float, CA> &a, const tile<float, CB> &b, int k0 = 0, int k1 = L) {
  int r = s.row(0), t = threadIdx_x & 3;
#pragma clang loop unroll(disable)
  for (int k = k0; k < k1; k++) {
    float u = AT ? a.x[k][r] : a.x[r][k], v = AT ? a.x[k][r + 8] : a.x[r + 8][k];
#pragma unroll
    for (int j = 0; j < N; j++) {
      int c = 8 * j + 2 * t;
      float x = BN ? b.x[k][c] : b.x[c][k], y = BN ? b.x[k][c + 1] : b.x[c + 1][k];
      s.c[j][0] = __builtin_fmaf(u, x, s.c[j][0]), s.c[j][1] = __builtin_fmaf(u, y, s.c[j][1]);
      s.c[j][2] = __builtin_fmaf(v, x, s.c[j][2]), s.c[j][3] = __builtin_fmaf(v, y, s.c[j][3]);
    }
  }
}

// keep_sums stores the elements of a product in a tile.
template <class T, int N, int C> DEV void keep_sums(tile<T, C> &y, sums_of<N> &s) {
  s.each([&](int i, int j, float x, int) { y.x[i][j] = convert(T{}, x); });
}

// quad_sum returns the sum over the four lanes that share a row of a product.
DEV float quad_sum(float x) {
  x += shuffle_xor(x, 1);
  return x + shuffle_xor(x, 2);
}
