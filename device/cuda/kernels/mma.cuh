// Tensor cores and asynchronous copies of sm_80: mma.sync m16n8k16 in bf16 with fp32 sums,
// ldmatrix, cp.async, and a layout of bf16 tiles in shared memory in which none of them has bank
// conflicts.
//
// Fragments (PTX ISA, "Matrix fragments for mma.m16n8k16"): lane l, with g = l/4 and t = l%4, has
// two elements in a register, the lower index in the lower half.
//
//	A (16×16)  a0: row g, columns 2t, 2t+1; a1: row g+8; a2, a3: columns +8
//	B (16×8)   b0: rows 2t, 2t+1 of column g; b1: rows +8
//	C (16×8)   c0, c1: row g, columns 2t, 2t+1; c2, c3: row g+8
//
// So two neighbouring C tiles, rounded, are one A operand: a0 = (c0, c1) and a1 = (c2, c3) of the
// first, a2 and a3 those of the second.
#pragma once

#include "common.cuh"

// shared_address returns the 32-bit address of p in shared memory, as the instructions below take
// it.
DEV u32 shared_address(const void *p) {
  return (u32)(u64)(const __attribute__((address_space(3))) void *)p;
}

// mma_bf16 is c += a·b, of fragments as above.
DEV void mma_bf16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ldmatrix_x4 loads four 8×8 matrices of bf16 from shared memory. Lanes 8i … 8i+7 give the
// addresses of the rows of matrix i, which is loaded to d[i].
DEV void ldmatrix_x4(u32 (&d)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(address));
}

// ldmatrix_x4_trans is ldmatrix_x4 with every matrix transposed.
DEV void ldmatrix_x4_trans(u32 (&d)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(address));
}

// copy_async_16 starts to copy 16 bytes to shared memory. If take is false it writes zeros instead,
// but src must still be a valid global address. The copy is complete after copy_async_wait.
DEV void copy_async_16(u32 dst, const void *src, bool take) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"((const __attribute__((address_space(1))) void *)src),
               "r"(take ? 16 : 0));
}
DEV void copy_async_16(u32 dst, const void *src) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"((const __attribute__((address_space(1))) void *)src));
}

// copy_async_commit closes a group of copies. copy_async_wait<N> waits until at most the N newest
// groups of this thread are still running. Other threads see the copied bytes after a barrier.
DEV void copy_async_commit() { asm volatile("cp.async.commit_group;"); }
template <int N> DEV void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// SharedTile is a tile of rows of COLUMNS bf16 in shared memory, 128-byte
// aligned. Chunk c (16 bytes) of row r lies at chunk c XOR key(r) of its row, so
// that eight chunks of one column, and eight of one row, are in different banks.
// COLUMNS is a multiple of 64, or an odd multiple of 32.
template <int COLUMNS> struct SharedTile {
  static constexpr int PITCH = COLUMNS * 2; // bytes
  static constexpr int CHUNKS = COLUMNS / 8;
  static constexpr u32 MASK = COLUMNS % 64 == 0 ? 127 : 63; // the bits of an offset that the XOR may change
  static_assert(COLUMNS % 32 == 0);

  DEV u32 key(int row) { return COLUMNS % 64 == 0 ? row & 7 : (row >> 1) & 3; }
  // at returns the offset of a chunk (16 bytes) in the tile, in bytes.
  DEV u32 at(int row, int chunk) { return row * PITCH + ((chunk ^ key(row)) << 4); }

  // lane_a and lane_b return this lane's address for ldmatrix_x4 at the tile's origin. lane_a loads
  // a 16×16 block as an A operand or, with ldmatrix_x4_trans, as two neighbouring B operands; d[0]
  // and d[1] are the first. lane_b loads 16 rows as two B operands: d[0], d[1] are rows 0…7 and
  // d[2], d[3] rows 8…15.
  DEV u32 lane_a(u32 tile, int lane = threadIdx_x & 31) {
    return tile + at(lane & 15, lane >> 4);
  }
  DEV u32 lane_b(u32 tile, int lane = threadIdx_x & 31) {
    return tile + at((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
  }
  // step moves the address of lane_a or lane_b to the block that begins at row and column, both
  // multiples of 16. If both are constants, it costs at most one XOR.
  DEV u32 step(u32 lane, int row, int column) {
    u32 offset = column * 2;
    return (lane ^ (offset & MASK)) + (offset & ~MASK) + row * PITCH;
  }
};
