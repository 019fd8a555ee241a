// Matrix products in bf16 whose D is small or whose rows do not start at multiples of 16 bytes.
//
// - small: tiles of 64 × 64, 4 warps of 32 × 32, 3 stages of 64 k, 48 KiB
// - any: the same, but matrices without A_CHUNKS or B_CHUNKS are read element by element
// - rows: tiles of 16 × 128, 4 warps of 16 × 32, 4 stages of 64 k, 72 KiB: for a few rows by a matrix that is read once, as in generation
#include "matmul_bf16.cuh"

using Small = Shape<64, 64, 64, 32, 32, 3>;
using Rows = Shape<16, 128, 64, 16, 32, 4>;

extern "C" {
MATMUL_KERNELS(matmul_bf16_small, Small, true, 3)
MATMUL_KERNELS(matmul_bf16_any, Small, false, 2)
MATMUL_KERNEL(matmul_bf16_rows_nn, Rows, false, false, true, 2)
MATMUL_KERNEL(matmul_bf16_rows_nt, Rows, false, true, true, 2)
}
