// AddNoise: x (T, C) act += scale/√L · u, in place. L is the length of the row's document, and u is
// what the generator Philox4x32-10 draws for the element's position in the step (op.AddNoise says
// how). cu (seqs+1) i32 has the bounds of the documents; x holds the rows of the step from row
// `from` on. A row outside all documents becomes NaN.
//
// No call can move fewer bytes than it does: one read and one write of x, 4 bytes an element in
// bf16. The ten rounds of Philox take about 20 instructions an element.
//
// blockIdx.x is the row, blockIdx.y a block of its columns.
#include "common.cuh"

static constexpr int THREADS = 128; // at most
static constexpr int ELEMS = 16;    // columns that a thread computes

// draw returns the four random words that Philox4x32-10 gives for a counter and a key.
DEV u32x4 draw(u32 c0, u32 c1, u32 c2, u64 key) {
  u32 c3 = 0, k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
  for (int i = 0; i < 10; i++) {
    u64 a = (u64)c0 * 0xd2511f53u, b = (u64)c2 * 0xcd9e8d57u;
    c0 = (u32)(b >> 32) ^ c1 ^ k0, c2 = (u32)(a >> 32) ^ c3 ^ k1;
    c1 = (u32)b, c3 = (u32)a;
    k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
  }
  return u32x4{c0, c1, c2, c3};
}

// size_of returns scale/√L, where L is the length of the document with this row.
DEV float size_of(const int *cu, int seqs, int row, float scale) {
  int low = 0, high = seqs; // the first document that ends behind the row
#pragma clang loop unroll(disable)
  while (low < high) {
    int middle = (low + high) / 2;
    if (cu[middle + 1] > row) high = middle;
    else low = middle + 1;
  }
  if (low == seqs || row < cu[low]) return NAN_F;
  return scale / __builtin_sqrtf((float)(cu[low + 1] - cu[low]));
}

// added returns x + size·u, where u in (−1, 1) is made of the high 24 bits of word. The product is
// rounded by itself (no fma), as on every other device.
DEV float added(float x, float size, u32 word) {
  float u = (float)(int)(2 * (word >> 8) + 1 - (1u << 24)) * (1.0f / (1 << 24));
  return x + __nvvm_mul_rn_f(size, u);
}

template <int N, class T>
DEV void add_noise(T *x, const int *cu, int seqs, int from, int first, int step, int columns, u64 seed, float scale) {
  constexpr int CHUNKS = ELEMS / N;
  int row = from + blockIdx_x;
  float size = size_of(cu, seqs, row, scale);
  T *to = x + (i64)blockIdx_x * columns;
  int start = (blockIdx_y * CHUNKS * blockDim_x + threadIdx_x) * N, stride = blockDim_x * N;
#pragma clang loop unroll(disable)
  for (int c = 0; c < CHUNKS; c++) {
    int col = start + c * stride;
    if (col >= columns) break;
    float v[N];
    unpack(v, load_chunk<N>(to + col));
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      u32x4 words = draw((u32)(col + i) / 4, (u32)(first + row), (u32)step, seed);
      if constexpr (N == 1) {
        int word = col & 3;
        v[0] = added(v[0], size, word == 0 ? words.x : word == 1 ? words.y : word == 2 ? words.z : words.w);
      } else {
#pragma unroll
        for (int j = 0; j < 4; j++) v[i + j] = added(v[i + j], size, words[j]);
      }
    }
    store_floats<N>(to + col, v);
  }
}

#define KERNELS(T, N, SUFFIX)                                                                                            \
  __global__ __launch_bounds__(THREADS) void add_noise##SUFFIX(T *x, const int *cu, int seqs, int from, int first,       \
                                                               int step, int columns, float scale, u64 seed) {           \
    add_noise<N>(x, cu, seqs, from, first, step, columns, seed, scale);                                                  \
  }

extern "C" {
KERNELS(float, 1, _f32)
KERNELS(bf16, 1, _bf16)
KERNELS(float, 4, 16_f32)
KERNELS(bf16, 8, 16_bf16)
}
