// What every kernel file starts from: the CUDA keywords (there is no toolkit
// to include them from), bf16 conversions, approximate functions and reductions.
//
// Conventions: T tokens, C or N columns; indices that may exceed 2^31 are i64.
// "act" is float or bf16, chosen by template; sums are float.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define DEV static __attribute__((device, always_inline)) inline

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

struct bf16 { u16 bits; };

typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef u32 u32x2 __attribute__((ext_vector_type(2)));

#define threadIdx_x ((int)__nvvm_read_ptx_sreg_tid_x())
#define threadIdx_y ((int)__nvvm_read_ptx_sreg_tid_y())
#define blockIdx_x ((int)__nvvm_read_ptx_sreg_ctaid_x())
#define blockIdx_y ((int)__nvvm_read_ptx_sreg_ctaid_y())
#define blockIdx_z ((int)__nvvm_read_ptx_sreg_ctaid_z())
#define gridDim_x ((int)__nvvm_read_ptx_sreg_nctaid_x())
#define gridDim_y ((int)__nvvm_read_ptx_sreg_nctaid_y())
#define blockDim_x ((int)__nvvm_read_ptx_sreg_ntid_x())

// Dynamic shared memory: one array for every kernel of a file.
#define DYNAMIC_SHARED(name) extern __attribute__((shared, aligned(128))) u8 name[]

DEV void sync_threads() { __nvvm_bar_sync(0); }
DEV void sync_warp() { __nvvm_bar_warp_sync(0xffffffffu); }

DEV u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }
DEV float float_of(u32 x) { return __builtin_bit_cast(float, x); }

DEV float to_float(float x) { return x; }
DEV float to_float(bf16 x) { return float_of((u32)x.bits << 16); }

// pack_bf16 rounds to nearest even; lo is the element at the lower address.
DEV u32 pack_bf16(float lo, float hi) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
}
DEV float low_bf16(u32 pair) { return float_of(pair << 16); }
DEV float high_bf16(u32 pair) { return float_of(pair & 0xffff0000u); }

DEV void store(float *p, float x) { *p = x; }
DEV void store(bf16 *p, float x) { p->bits = (u16)pack_bf16(x, 0.0f); }

// 2^x, log2 x, 1/sqrt x, 1/x; relative error about 2^-22.
DEV float exp2_approx(float x) { return __nvvm_ex2_approx_ftz_f(x); }
DEV float log2_approx(float x) { return __nvvm_lg2_approx_ftz_f(x); }
DEV float rsqrt_approx(float x) { return __nvvm_rsqrt_approx_ftz_f(x); }
DEV float rcp_approx(float x) { return __nvvm_rcp_approx_ftz_f(x); }

static constexpr float LOG2E = 1.4426950408889634f;
static constexpr float LN2 = 0.6931471805599453f;
#define INFINITY_F __builtin_inff()

DEV float exp_approx(float x) { return exp2_approx(x * LOG2E); }

DEV float max_f(float a, float b) { return __builtin_fmaxf(a, b); }
DEV int min_i(int a, int b) { return a < b ? a : b; }
DEV int max_i(int a, int b) { return a > b ? a : b; }
DEV i64 min_i(i64 a, i64 b) { return a < b ? a : b; }

DEV float shuffle_xor(float x, int lane_mask) {
  return float_of(__nvvm_shfl_sync_bfly_i32(0xffffffffu, bits_of(x), lane_mask, 31));
}

// warp_sum and warp_max give every lane the result.
DEV float warp_sum(float x) {
#pragma clang loop unroll(disable)
  for (int m = 16; m > 0; m >>= 1) x += shuffle_xor(x, m);
  return x;
}
DEV float warp_max(float x) {
#pragma clang loop unroll(disable)
  for (int m = 16; m > 0; m >>= 1) x = max_f(x, shuffle_xor(x, m));
  return x;
}

// block_sum gives every thread the sum over a block of WARPS warps; space holds
// WARPS floats of shared memory. All threads must call it.
template <int WARPS> DEV float block_sum(float x, float *space) {
  x = warp_sum(x);
  sync_threads();
  if ((threadIdx_x & 31) == 0) space[threadIdx_x >> 5] = x;
  sync_threads();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < WARPS; i++) sum += space[i];
  return sum;
}
