// CopyColumns copies columns 0 … C−1 of each of T rows of src to the same columns of dst, bit by
// bit; act. Rows are src_stride and dst_stride elements apart. It overwrites dst's columns. No call
// can move fewer bytes than it does: one read and one write of T·C elements.
//
// blockIdx.x is the row, blockIdx.y a block of its columns.
#include "common.cuh"

static constexpr int THREADS = 128; // at most
static constexpr int UNITS = 4;     // units a thread copies

template <class Unit> DEV void copy_row(Unit *dst, const Unit *src, int units, int dst_stride, int src_stride) {
  Unit *to = dst + (i64)blockIdx_x * dst_stride;
  const Unit *from = src + (i64)blockIdx_x * src_stride;
  int first = blockIdx_y * UNITS * blockDim_x + threadIdx_x;
  Unit x[UNITS];
#pragma unroll
  for (int i = 0; i < UNITS; i++) {
    int at = first + i * blockDim_x;
    if (at < units) x[i] = from[at];
  }
#pragma unroll
  for (int i = 0; i < UNITS; i++) {
    int at = first + i * blockDim_x;
    if (at < units) to[at] = x[i];
  }
}

#define KERNEL(UNIT, SUFFIX)                                                                                           \
  __global__ __launch_bounds__(THREADS, 8) void copy_columns##SUFFIX(UNIT *dst, const UNIT *src, int units,            \
                                                                  int dst_stride, int src_stride) {                    \
    copy_row(dst, src, units, dst_stride, src_stride);                                                                 \
  }

extern "C" {
KERNEL(u32, _f32)
KERNEL(u16, _bf16)
KERNEL(u32x4, 16)
}
