// Matrix products in bf16 by tiles of 128 × 128: 4 warps of 64 × 64 and a ring
// of 3 stages of 32 k, 48 KiB; two blocks at a time on a multiprocessor.
#include "matmul_bf16.cuh"

using Medium = Shape<128, 128, 32, 64, 64, 3>;

extern "C" {
MATMUL_KERNELS(matmul_bf16_medium, Medium, true, 2)
}
