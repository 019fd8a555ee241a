// A small matrix product that uses the same instructions as mt's own kernels: cp.async into two
// buffers, ldmatrix, mma. c (m, n) f32 = a (m, k) · b (k, n), both bf16. m and n are multiples of
// 64, k of 32.
#include "common.cuh"

static constexpr int TILE = 64, DEPTH = 32, ROW_A = 40, ROW_B = 72; // padded rows

DEV u32 shared_address(const void *p) { return (u32)(u64)(__attribute__((address_space(3))) const void *)p; }

DEV void copy16(u32 to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

DYNAMIC_SHARED(space);

extern "C" __global__ __launch_bounds__(128) void gemm(float *c, const bf16 *a, const bf16 *b, int m, int n, int k) {
  u32 sa = shared_address(space), sb = sa + 2 * TILE * ROW_A * 2;
  int t = threadIdx_x, lane = t & 31, warp = t >> 5;
  i64 row = (i64)blockIdx_y * TILE, col = (i64)blockIdx_x * TILE;
  auto fetch = [&](int step) {
    u32 pa = sa + (step & 1) * TILE * ROW_A * 2, pb = sb + (step & 1) * DEPTH * ROW_B * 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int u = t + 128 * i;
      copy16(pa + (u / 4 * ROW_A + u % 4 * 8) * 2, a + (row + u / 4) * k + step * DEPTH + u % 4 * 8, 16);
      copy16(pb + (u / 8 * ROW_B + u % 8 * 8) * 2, b + (i64)(step * DEPTH + u / 8) * n + col + u % 8 * 8, 16);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  float acc[8][4] = {};
  int steps = k / DEPTH;
  fetch(0);
  for (int s = 0; s < steps; s++) {
    if (s + 1 < steps) {
      fetch(s + 1);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    sync_threads();
    u32 pa = sa + (s & 1) * TILE * ROW_A * 2, pb = sb + (s & 1) * DEPTH * ROW_B * 2;
#pragma unroll
    for (int kk = 0; kk < DEPTH; kk += 16) {
      u32 fa[4];
      u32 at = pa + ((warp * 16 + (lane & 15)) * ROW_A + kk + (lane >> 4) * 8) * 2;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                   : "r"(at)
                   : "memory");
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        u32 fb[4];
        u32 from = pb + ((kk + (lane & 15)) * ROW_B + j * 8 + (lane >> 4) * 8) * 2;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(fb[0]), "=r"(fb[1]), "=r"(fb[2]), "=r"(fb[3])
                     : "r"(from)
                     : "memory");
#pragma unroll
        for (int h = 0; h < 2; h++)
          asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                       : "+f"(acc[j + h][0]), "+f"(acc[j + h][1]), "+f"(acc[j + h][2]), "+f"(acc[j + h][3])
                       : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[2 * h]), "r"(fb[2 * h + 1]));
      }
    }
    sync_threads();
  }
  i64 r = row + warp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < 8; j++) {
    i64 at = col + j * 8 + (lane & 3) * 2;
    *(f32x2 *)(c + r * n + at) = f32x2{acc[j][0], acc[j][1]};
    *(f32x2 *)(c + (r + 8) * n + at) = f32x2{acc[j][2], acc[j][3]};
  }
}
