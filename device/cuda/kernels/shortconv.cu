// ShortConv: y (T, C) = SiLU(p) with p[t] = Σ_j w[c][j]·x[t − taps + 1 + j], along each sequence. x
// (T, C) has rows stride elements apart; w (C, taps) f32. Rows before a sequence's first are 0, or
// the rows of tail.
//
// ShortConvBackward: with d = dy·SiLU'(p), dx[u] = Σ_j w[c][j]·d[u + taps − 1 − j] within the
// sequence, and dw[c][j] += Σ_t d[t]·x[t − taps + 1 + j]. For dw a kernel sums over slices of the
// rows, then add_slices adds these sums, always in the same order. p is computed again wherever it
// is needed, for it is few multiplications. With a bias, p begins with it, and dbias += Σ_t d[t].
//
// GATED: a row of x holds b, c and x (channels each). The convolution reads b·x, and y = c·p in
// place of SiLU(p).
//
// A block computes a row, blockIdx.x, and a thread some of its channels.
#include "activation.cuh"

static constexpr int THREADS = 256; // at most
static constexpr int MOST = 8;      // most taps

// sequence finds the sequence with token t: first is its first token, and end the one after its
// last.
DEV void sequence(const int *cu, int seqs, int t, int &first, int &end) {
  int lo = 0, hi = seqs; // cu[lo] <= t < cu[hi]
#pragma clang loop unroll(disable)
  while (hi - lo > 1) {
    int mid = (lo + hi) >> 1;
    if (cu[mid] <= t) lo = mid;
    else hi = mid;
  }
  first = cu[lo], end = cu[hi];
}

// width returns the number of columns of x.
template <bool GATED> DEV int width(int channels) { return GATED ? 3 * channels : channels; }

// input returns the input of the convolution at the channel that x points to: x itself, or b·x if
// GATED.
template <bool GATED, class T> DEV float input(const T *x, int channels) {
  if constexpr (GATED) return to_float(x[0]) * to_float(x[2 * channels]);
  return to_float(x[0]);
}

// window reads the inputs of all taps of token t in channel c.
template <bool GATED, class T> DEV void window(float (&v)[MOST], const T *x, const T *tail, int t, int first, int c, int channels, int taps, int stride) {
#pragma unroll
  for (int j = 0; j < MOST; j++) {
    int from = t - taps + 1 + j;
    v[j] = 0.0f;
    if (j >= taps) continue;
    if (from >= first) v[j] = input<GATED>(x + (i64)from * stride + c, channels);
    else if (tail) v[j] = input<GATED>(tail + (i64)(from - first + taps - 1) * width<GATED>(channels) + c, channels);
  }
}

DEV void load_taps(float (&w)[MOST], const float *weight, int c, int taps) {
#pragma unroll
  for (int j = 0; j < MOST; j++) w[j] = j < taps ? weight[(i64)c * taps + j] : 0.0f;
}

DEV float sum_of(const float (&w)[MOST], const float (&v)[MOST], const float *bias, int c) {
  float p = bias ? bias[c] : 0.0f;
#pragma unroll
  for (int j = 0; j < MOST; j++) p = __builtin_fmaf(w[j], v[j], p);
  return p;
}

// slope_of returns the derivative of SiLU at p.
DEV float slope_of(float p) {
  float s, rest;
  sigmoids(p, s, rest);
  return __builtin_fmaf(p * s, rest, s);
}

// slope returns the gradient of p at a token and channel, given dy, the gradient of y. x points at
// the channel in the token's row.
template <bool GATED, class T> DEV float slope(const T *x, int channels, float p, float dy) {
  if constexpr (GATED) return dy * to_float(x[channels]);
  return dy * slope_of(p);
}

template <bool GATED, class T>
DEV void conv(T *y, const T *x, const float *weight, const float *bias, const int *cu, const T *tail, int seqs, int channels, int taps, int stride) {
  int t = blockIdx_x, first, end;
  sequence(cu, seqs, t, first, end);
#pragma clang loop unroll(disable)
  for (int c = threadIdx_x; c < channels; c += blockDim_x) {
    float w[MOST], v[MOST], s, rest;
    load_taps(w, weight, c, taps);
    window<GATED>(v, x, tail, t, first, c, channels, taps, stride);
    float p = sum_of(w, v, bias, c);
    if constexpr (GATED) s = to_float(x[(i64)t * stride + channels + c]);
    else sigmoids(p, s, rest);
    store(y + (i64)t * channels + c, p * s);
  }
}

// conv_tail updates tail, the last taps − 1 rows that the convolution has seen: it takes them from
// the end of x, and if x is shorter, from the old tail.
template <class T> DEV void conv_tail(T *tail, const T *x, int rows, int columns, int taps, int stride) {
  int c = blockIdx_x * blockDim_x + threadIdx_x;
  if (c >= columns) return;
#pragma clang loop unroll(disable)
  for (int i = 0; i < taps - 1; i++) {
    int t = rows - taps + 1 + i;
    tail[(i64)i * columns + c] = t >= 0 ? x[(i64)t * stride + c] : tail[(i64)(t + taps - 1) * columns + c];
  }
}

template <bool GATED, class T>
DEV void conv_backward(T *dx, const T *dy, const T *x, const float *weight, const float *bias, const int *cu, int seqs, int channels, int taps, int stride,
                       int dstride) {
  int u = blockIdx_x, first, end;
  sequence(cu, seqs, u, first, end);
#pragma clang loop unroll(disable)
  for (int c = threadIdx_x; c < channels; c += blockDim_x) {
    float w[MOST], sum = 0.0f;
    load_taps(w, weight, c, taps);
#pragma unroll
    for (int j = MOST - 1; j >= 0; j--) {
      int t = u + taps - 1 - j;
      if (j >= taps || t >= end) continue;
      float v[MOST];
      window<GATED>(v, x, (const T *)0, t, first, c, channels, taps, stride);
      float p = sum_of(w, v, bias, c), d = to_float(dy[(i64)t * channels + c]);
      sum = __builtin_fmaf(w[j], slope<GATED>(x + (i64)t * stride + c, channels, p, d), sum);
      if (GATED && t == u) store(dx + (i64)u * dstride + channels + c, p * d);
    }
    T *to = dx + (i64)u * dstride + c;
    if constexpr (GATED) {
      const T *from = x + (i64)u * stride + c;
      store(to, sum * to_float(from[2 * channels])), store(to + 2 * channels, sum * to_float(from[0]));
    } else {
      store(to, sum);
    }
  }
}

// conv_slice sums the terms of dw and dbias over one slice of the rows, blockIdx.y; a thread has a
// channel. It overwrites part (slices, channels, taps) and part_bias (slices, channels) f32.
template <bool GATED, class T>
DEV void conv_slice(float *part, float *part_bias, const T *dy, const T *x, const float *weight, const float *bias, const int *cu, int seqs, int rows, int channels, int taps,
                    int stride, int each) {
  int c = blockIdx_x * blockDim_x + threadIdx_x;
  if (c >= channels) return;
  int from = blockIdx_y * each, to = min_i(rows, from + each), first, end = from;
  float w[MOST], sum[MOST], sum_bias = 0.0f;
  load_taps(w, weight, c, taps);
#pragma unroll
  for (int j = 0; j < MOST; j++) sum[j] = 0.0f;
#pragma clang loop unroll(disable)
  for (int t = from; t < to; t++) {
    if (t >= end) sequence(cu, seqs, t, first, end);
    float v[MOST];
    window<GATED>(v, x, (const T *)0, t, first, c, channels, taps, stride);
    float d = slope<GATED>(x + (i64)t * stride + c, channels, sum_of(w, v, bias, c), to_float(dy[(i64)t * channels + c]));
    sum_bias += d;
#pragma unroll
    for (int j = 0; j < MOST; j++) sum[j] = __builtin_fmaf(d, v[j], sum[j]);
  }
#pragma unroll
  for (int j = 0; j < MOST; j++)
    if (j < taps) part[((i64)blockIdx_y * channels + c) * taps + j] = sum[j];
  part_bias[(i64)blockIdx_y * channels + c] = sum_bias;
}

#define KERNELS(NAME, GATED, T, SUFFIX)                                                                                                     \
  __global__ __launch_bounds__(THREADS) void NAME##_##SUFFIX(T *y, const T *x, const float *w, const float *bias, const int *cu,            \
                                                             const T *tail, int seqs, int channels, int taps, int stride) {                \
    conv<GATED>(y, x, w, bias, cu, tail, seqs, channels, taps, stride);                                                                     \
  }                                                                                                                                         \
  __global__ __launch_bounds__(THREADS) void NAME##_backward_##SUFFIX(T *dx, const T *dy, const T *x, const float *w, const float *bias,    \
                                                                      const int *cu, int seqs, int channels, int taps, int stride,         \
                                                                      int dstride) {                                                       \
    conv_backward<GATED>(dx, dy, x, w, bias, cu, seqs, channels, taps, stride, dstride);                                                    \
  }                                                                                                                                         \
  __global__ __launch_bounds__(THREADS) void NAME##_slice_##SUFFIX(float *part, float *part_bias, const T *dy, const T *x, const float *w,  \
                                                                   const float *bias, const int *cu, int seqs, int rows, int channels,     \
                                                                   int taps, int stride, int each) {                                       \
    conv_slice<GATED>(part, part_bias, dy, x, w, bias, cu, seqs, rows, channels, taps, stride, each);                                       \
  }

#define TAILS(T, SUFFIX)                                                                                                                    \
  __global__ __launch_bounds__(THREADS) void conv_tail_##SUFFIX(T *tail, const T *x, int rows, int columns, int taps, int stride) {         \
    conv_tail(tail, x, rows, columns, taps, stride);                                                                                        \
  }

extern "C" {
KERNELS(conv, false, float, f32)
KERNELS(conv, false, bf16, bf16)
KERNELS(gated_conv, true, float, f32)
KERNELS(gated_conv, true, bf16, bf16)
TAILS(float, f32)
TAILS(bf16, bf16)
}
