// Convert: dst (n) = src (n) in dst's type. bf16 is rounded to nearest even, equal types are copied
// bit by bit. It overwrites dst. No call can move fewer bytes than it does: one read of src and one
// write of dst, 6 bytes an element between fp32 and bf16.
//
// A thread moves UNITS units of N elements, which are THREADS units apart. The n % N remaining
// elements go one by one.
#include "common.cuh"

static constexpr int THREADS = 256;
static constexpr int UNITS = 4;

// read4 and write4 move units of four elements, so that both sides of a conversion are accessed
// without gaps. bf16 needs 8 bytes of alignment, fp32 16.
DEV void read4(float (&v)[4], const float *p) { unpack(v, *(const f32x4 *)p); }
DEV void read4(float (&v)[4], const bf16 *p) {
  u32x2 x = *(const u32x2 *)p;
  v[0] = low_bf16(x.x), v[1] = high_bf16(x.x), v[2] = low_bf16(x.y), v[3] = high_bf16(x.y);
}
DEV void write4(float *p, const float (&v)[4]) { *(f32x4 *)p = f32x4{v[0], v[1], v[2], v[3]}; }
DEV void write4(bf16 *p, const float (&v)[4]) { *(u32x2 *)p = u32x2{pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])}; }

template <class Dst, class Src> DEV void convert4(Dst *dst, const Src *src, i64 n) {
  i64 units = n / 4, first = (i64)blockIdx_x * (THREADS * UNITS) + threadIdx_x;
  float v[UNITS][4];
#pragma unroll
  for (int i = 0; i < UNITS; i++)
    if (first + i * THREADS < units) read4(v[i], src + 4 * (first + i * THREADS));
#pragma unroll
  for (int i = 0; i < UNITS; i++)
    if (first + i * THREADS < units) write4(dst + 4 * (first + i * THREADS), v[i]);
  i64 rest = 4 * units + first;
  if (blockIdx_x == 0 && rest < n) store(dst + rest, to_float(src[rest]));
}

template <class Dst, class Src> DEV void convert(Dst *dst, const Src *src, i64 n) {
  i64 first = (i64)blockIdx_x * (THREADS * UNITS) + threadIdx_x;
#pragma unroll
  for (int i = 0; i < UNITS; i++)
    if (first + i * THREADS < n) store(dst + first + i * THREADS, to_float(src[first + i * THREADS]));
}

// copy_units copies units of 16 bytes, then the remaining elements one by one.
template <class T, class Wide> DEV void copy_units(T *dst, const T *src, i64 n) {
  constexpr int N = sizeof(Wide) / sizeof(T);
  i64 units = n / N, first = (i64)blockIdx_x * (THREADS * UNITS) + threadIdx_x;
  Wide v[UNITS];
#pragma unroll
  for (int i = 0; i < UNITS; i++)
    if (first + i * THREADS < units) v[i] = ((const Wide *)src)[first + i * THREADS];
#pragma unroll
  for (int i = 0; i < UNITS; i++)
    if (first + i * THREADS < units) ((Wide *)dst)[first + i * THREADS] = v[i];
  i64 rest = N * units + first;
  if (blockIdx_x == 0 && rest < n) dst[rest] = src[rest];
}

#define KERNEL(NAME, DST, SRC, CALL) \
  __global__ __launch_bounds__(THREADS, 4) void NAME(DST *dst, const SRC *src, i64 n) { CALL(dst, src, n); }

extern "C" {
KERNEL(convert_f32_bf16, float, bf16, convert)
KERNEL(convert_bf16_f32, bf16, float, convert)
KERNEL(convert16_f32_bf16, float, bf16, convert4)
KERNEL(convert16_bf16_f32, bf16, float, convert4)
KERNEL(copy_f32, u32, u32, (copy_units<u32, u32>))
KERNEL(copy_bf16, u16, u16, (copy_units<u16, u16>))
KERNEL(copy16_f32, u32, u32, (copy_units<u32, u32x4>))
KERNEL(copy16_bf16, u16, u16, (copy_units<u16, u32x4>))
}
