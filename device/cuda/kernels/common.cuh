// What every kernel file starts from: the CUDA keywords (there is no toolkit to include them from),
// bf16 conversions, approximate functions and reductions.
//
// Conventions: T tokens, C or N columns; indices that may exceed 2^31 are i64. "act" is float or
// bf16, chosen by template; sums are float.
//
// Rules of this file: everything is inlined and nothing is kept in local memory. All threads of a
// warp, block or team must call its warp_…, block_… and team_… functions. The functions give all
// these threads the same bits; the order of their sums depends on the number of threads alone. A
// chunk is N neighbouring elements of act, held in registers as they lie in memory. N is either 1
// or the number that fills 16 bytes (VEC), and then a chunk's address is a multiple of 16.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define DEV static __attribute__((device, always_inline)) inline
// METHOD is DEV for non-static member functions.
#define METHOD __attribute__((device, always_inline)) inline

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
#define blockIdx_x ((int)__nvvm_read_ptx_sreg_ctaid_x())
#define blockIdx_y ((int)__nvvm_read_ptx_sreg_ctaid_y())
#define gridDim_x ((int)__nvvm_read_ptx_sreg_nctaid_x())
#define gridDim_y ((int)__nvvm_read_ptx_sreg_nctaid_y())
#define blockDim_x ((int)__nvvm_read_ptx_sreg_ntid_x())

// DYNAMIC_SHARED declares the dynamic shared memory as an array. All kernels of a file use the same
// array.
#define DYNAMIC_SHARED(name) extern __attribute__((shared, aligned(128))) u8 name[]

// A kernel that waits for another block, another warp or the TMA unit traps after this many periods
// of 2^32 cycles, some 20 seconds. So a launch that would hang becomes an error. Only polls that
// fail read the clock.
#define MOST_PERIODS "8"

DEV void sync_threads() { __nvvm_bar_sync(0); }

// sync_some is a barrier of its own for the COUNT threads that use number.
template <int COUNT> DEV void sync_some(int number) { asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(COUNT) : "memory"); }
DEV void sync_warp() { __nvvm_bar_warp_sync(0xffffffffu); }

DEV u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }
DEV float float_of(u32 x) { return __builtin_bit_cast(float, x); }

DEV float to_float(float x) { return x; }
DEV float to_float(bf16 x) { return float_of((u32)x.bits << 16); }

// pack_bf16 rounds two floats to nearest even and packs them; lo is the element at the lower
// address.
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
#define NAN_F __builtin_nanf("")

DEV float exp_approx(float x) { return exp2_approx(x * LOG2E); }

// log_sum_exp2 returns log₂ Σ 2^(factor·s) of a row's scores s, given their maximum top and sum = Σ 2^(factor·s − factor·top).
// It adds factor·top as these exponentials subtract it: rounded, never part of a multiply-add.
DEV float log_sum_exp2(float top, float factor, float sum) { return __nvvm_mul_rn_f(top, factor) + log2_approx(sum); }

DEV float max_f(float a, float b) { return __builtin_fmaxf(a, b); }
DEV int min_i(int a, int b) { return a < b ? a : b; }
DEV int max_i(int a, int b) { return a > b ? a : b; }
DEV i64 min_i(i64 a, i64 b) { return a < b ? a : b; }

DEV float shuffle_xor(float x, int lane_mask) {
  return float_of(__nvvm_shfl_sync_bfly_i32(0xffffffffu, bits_of(x), lane_mask, 31));
}

// warp_sum and warp_max return the sum and the maximum of x over the 32 lanes, in every lane.
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
// WARPS floats of shared memory, with FRESH not used before. All threads must call it.
template <int WARPS, bool FRESH = false> DEV float block_sum(float x, float *space) {
  x = warp_sum(x);
  if (!FRESH) sync_threads();
  if ((threadIdx_x & 31) == 0) space[threadIdx_x >> 5] = x;
  sync_threads();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < WARPS; i++) sum += space[i];
  return sum;
}

static constexpr int MAX_WARPS = 16; // of a block that calls block_sum_any

// block_sum_any is block_sum for any number of warps up to MAX_WARPS. space holds MAX_WARPS floats,
// at a multiple of 16 bytes. Before the first call zero_space must have cleared it, since it adds
// all of them. Two calls in a row need two spaces.
DEV float block_sum_any(float x, float *space) {
  x = warp_sum(x);
  if (blockDim_x == 32) return x;
  if ((threadIdx_x & 31) == 0) space[threadIdx_x >> 5] = x;
  sync_threads();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < MAX_WARPS; i += 4) {
    f32x4 four = *(const f32x4 *)(space + i);
    sum += (four.x + four.y) + (four.z + four.w);
  }
  return sum;
}

// zero_space clears n floats of shared memory; all threads of the block call it.
DEV void zero_space(float *space, int n) {
  for (int i = threadIdx_x; i < n; i += blockDim_x) space[i] = 0.0f;
  sync_threads();
}

// team_sum returns the sum of x over a team: team neighbouring lanes, a power of two.
DEV float team_sum(float x, int team) {
#pragma clang loop unroll(disable)
  for (int m = team >> 1; m > 0; m >>= 1) x += shuffle_xor(x, m);
  return x;
}

// VEC<T> elements fill 16 bytes.
template <class T> static constexpr int VEC = 16 / (int)sizeof(T);

template <class T, int N> struct chunk_of;
template <class T> struct chunk_of<T, 1> { typedef T type; };
template <> struct chunk_of<float, 4> { typedef f32x4 type; };
template <> struct chunk_of<bf16, 8> { typedef u32x4 type; };
template <class T, int N> using chunk = typename chunk_of<T, N>::type;

template <int N, class T> DEV chunk<T, N> load_chunk(const T *p) { return *(const chunk<T, N> *)p; }
template <int N, class T> DEV void store_chunk(T *p, chunk<T, N> x) { *(chunk<T, N> *)p = x; }

DEV void zero_chunk(float &x) { x = 0.0f; }
DEV void zero_chunk(bf16 &x) { x.bits = 0; }
DEV void zero_chunk(f32x4 &x) { x = f32x4{0.0f, 0.0f, 0.0f, 0.0f}; }
DEV void zero_chunk(u32x4 &x) { x = u32x4{0, 0, 0, 0}; }

DEV void unpack(float (&v)[1], float x) { v[0] = x; }
DEV void unpack(float (&v)[1], bf16 x) { v[0] = to_float(x); }
DEV void unpack(float (&v)[4], f32x4 x) {
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = x[i];
}
DEV void unpack(float (&v)[8], u32x4 x) {
#pragma unroll
  for (int i = 0; i < 4; i++) v[2 * i] = low_bf16(x[i]), v[2 * i + 1] = high_bf16(x[i]);
}

// keep_packed makes the compiler convert x to floats again after this point. Otherwise it would
// keep the floats, which take twice the registers of bf16.
DEV void keep_packed(u32x4 &x) {
  u32 a = x.x, b = x.y, c = x.z, d = x.w;
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
  x = u32x4{a, b, c, d};
}
DEV void keep_packed(f32x4 &) {}
DEV void keep_packed(bf16 &) {}
DEV void keep_packed(float &) {}

// pack converts floats to a chunk of act, rounding to nearest even.
DEV void pack(float &x, const float (&v)[1]) { x = v[0]; }
DEV void pack(bf16 &x, const float (&v)[1]) { x.bits = (u16)pack_bf16(v[0], 0.0f); }
DEV void pack(f32x4 &x, const float (&v)[4]) { x = f32x4{v[0], v[1], v[2], v[3]}; }
DEV void pack(u32x4 &x, const float (&v)[8]) {
#pragma unroll
  for (int i = 0; i < 4; i++) x[i] = pack_bf16(v[2 * i], v[2 * i + 1]);
}

template <int N, class T> DEV void store_floats(T *p, const float (&v)[N]) {
  chunk<T, N> x;
  pack(x, v);
  store_chunk<N>(p, x);
}

// load_f32 reads N floats. N is 1, or a multiple of four; then p is a multiple of 16 bytes.
template <int N> DEV void load_f32(float (&v)[N], const float *p) {
  if constexpr (N == 1) {
    v[0] = *p;
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      f32x4 four = *(const f32x4 *)(p + i);
#pragma unroll
      for (int j = 0; j < 4; j++) v[i + j] = four[j];
    }
  }
}
// store_f32 writes N floats. N is 1, or a multiple of four; then p is a multiple of 16 bytes.
template <int N> DEV void store_f32(float *p, const float (&v)[N]) {
  if constexpr (N == 1) {
    *p = v[0];
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 4) *(f32x4 *)(p + i) = f32x4{v[i], v[i + 1], v[i + 2], v[i + 3]};
  }
}

// rsqrt_newton returns 1/√x for normal x, to about an ulp, by one Newton step on the approximation.
DEV float rsqrt_newton(float x) {
  float y = rsqrt_approx(x);
  return y + 0.5f * y * __builtin_fmaf(-x * y, y, 1.0f);
}

// log_f is the natural logarithm of a normal x, to about an ulp. With x = 2^e·m and m in [√½, √2),
// log m = 2·atanh((m−1)/(m+1)). The series of atanh ends before a term that is under 1e-10.
// log_f(1) is exactly 0.
DEV float log_f(float x) {
  u32 bits = bits_of(x);
  if (bits - 0x00800000u >= 0x7f000000u) return log2_approx(x) * LN2; // 0, subnormal, negative, infinite, NaN
  u32 above = bits - 0x3f3504f3u;                                    // √½
  float e = (float)((int)above >> 23), m = float_of((above & 0x007fffffu) + 0x3f3504f3u);
  float s = (m - 1.0f) / (m + 1.0f), q = s * s;
  float series = q * (0.33333333f + q * (0.2f + q * (0.14285714f + q * (0.11111111f + q * 0.09090909f))));
  float low = __builtin_fmaf(2.0f * s, series, e * -0.00021219444f);
  return __builtin_fmaf(e, 0.693359375f, 2.0f * s + low);
}

// sigmoids sets up to σ(x) and down to σ(−x), both to a few ulps. It uses the exponential of −|x|,
// which is at most 1 and cannot overflow.
DEV void sigmoids(float x, float &up, float &down) {
  float e = exp_approx(-__builtin_fabsf(x)), large = rcp_approx(1.0f + e), small = e * large;
  up = x >= 0.0f ? large : small;
  down = x >= 0.0f ? small : large;
}

// tanh_f is the hyperbolic tangent to a few ulps, also near 0. For |x| below 0.55 it is an odd
// polynomial (fitted; relative error under 2^-24), above that 1 − 2/(1 + exp 2|x|).
DEV float tanh_f(float x) {
  float size = __builtin_fabsf(x), q = x * x;
  float near = q * (-0.3333294690f + q * (0.1332072616f + q * (-0.05267188326f + q * 0.01643771864f)));
  float far = __builtin_fmaf(-2.0f, rcp_approx(1.0f + exp_approx(2.0f * size)), 1.0f);
  return size < 0.55f ? __builtin_fmaf(x, near, x) : __builtin_copysignf(far, x);
}
