// Matrix products in bf16 by tiles of 128 × 256: 8 warps of 64 × 64 and a ring
// of 4 stages of 32 k, 96 KiB; one block at a time on a multiprocessor.
#include "matmul_bf16.cuh"

using Large = Shape<128, 256, 32, 64, 64, 4>;

extern "C" {
MATMUL_KERNELS(matmul_bf16_large, Large, true, 1)
}
