// ShortConv: y (T, C) = SiLU(p) with p[t] = Σ_j w[c][j]·x[t − taps + 1 + j], along each sequence; x (T, C) with rows stride
// elements apart, w (C, taps) f32. What lies before a sequence is 0, or the rows of tail.
//
// ShortConvBackward: with d = dy·SiLU'(p), dx[u] = Σ_j w[c][j]·d[u + taps − 1 − j] within the sequence, and dw[c][j] +=
// Σ_t d[t]·x[t − taps + 1 + j]: first sums over slices of the rows, then (add_slices) the sum of those, by the same tree
// each time. p is computed again wherever it is needed, for it is few multiplications.
//
// A block has a row, blockIdx.x, and a thread a channel of it.
#include "activation.cuh"

static constexpr int THREADS = 256; // at most
static constexpr int MOST = 8;      // taps

// sequence gives where the sequence with token t begins, and its end.
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

// window reads what the taps of token t read in channel c.
template <class T> DEV void window(float (&v)[MOST], const T *x, const T *tail, int t, int first, int c, int channels, int taps, int stride) {
#pragma unroll
  for (int j = 0; j < MOST; j++) {
    int from = t - taps + 1 + j;
    v[j] = 0.0f;
    if (j >= taps) continue;
    if (from >= first) v[j] = to_float(x[(i64)from * stride + c]);
    else if (tail) v[j] = to_float(tail[(i64)(from - first + taps - 1) * channels + c]);
  }
}

DEV void load_taps(float (&w)[MOST], const float *weight, int c, int taps) {
#pragma unroll
  for (int j = 0; j < MOST; j++) w[j] = j < taps ? weight[(i64)c * taps + j] : 0.0f;
}

DEV float sum_of(const float (&w)[MOST], const float (&v)[MOST]) {
  float p = 0.0f;
#pragma unroll
  for (int j = 0; j < MOST; j++) p = __builtin_fmaf(w[j], v[j], p);
  return p;
}

// slope_of is SiLU' at p.
DEV float slope_of(float p) {
  float s, rest;
  sigmoids(p, s, rest);
  return __builtin_fmaf(p * s, rest, s);
}

template <class T>
DEV void conv(T *y, const T *x, const float *weight, const int *cu, const T *tail, int seqs, int channels, int taps, int stride) {
  int t = blockIdx_x, first, end;
  sequence(cu, seqs, t, first, end);
#pragma clang loop unroll(disable)
  for (int c = threadIdx_x; c < channels; c += blockDim_x) {
    float w[MOST], v[MOST], s, rest;
    load_taps(w, weight, c, taps);
    window(v, x, tail, t, first, c, channels, taps, stride);
    float p = sum_of(w, v);
    sigmoids(p, s, rest);
    store(y + (i64)t * channels + c, p * s);
  }
}

// conv_tail moves the last rows of tail and x together into tail, channel by channel.
template <class T> DEV void conv_tail(T *tail, const T *x, int rows, int channels, int taps, int stride) {
  int c = blockIdx_x * blockDim_x + threadIdx_x;
  if (c >= channels) return;
#pragma clang loop unroll(disable)
  for (int i = 0; i < taps - 1; i++) {
    int t = rows - taps + 1 + i;
    tail[(i64)i * channels + c] = t >= 0 ? x[(i64)t * stride + c] : tail[(i64)(t + taps - 1) * channels + c];
  }
}

template <class T>
DEV void conv_backward(T *dx, const T *dy, const T *x, const float *weight, const int *cu, int seqs, int channels, int taps, int stride,
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
      window(v, x, (const T *)0, t, first, c, channels, taps, stride);
      sum = __builtin_fmaf(w[j], to_float(dy[(i64)t * channels + c]) * slope_of(sum_of(w, v)), sum);
    }
    store(dx + (i64)u * dstride + c, sum);
  }
}

// conv_slice: a thread has a channel, blockIdx.y a slice of the rows; part (slices, channels, taps) f32 is overwritten.
template <class T>
DEV void conv_slice(float *part, const T *dy, const T *x, const float *weight, const int *cu, int seqs, int rows, int channels, int taps,
                    int stride, int each) {
  int c = blockIdx_x * blockDim_x + threadIdx_x;
  if (c >= channels) return;
  int from = blockIdx_y * each, to = min_i(rows, from + each), first, end = from;
  float w[MOST], sum[MOST];
  load_taps(w, weight, c, taps);
#pragma unroll
  for (int j = 0; j < MOST; j++) sum[j] = 0.0f;
#pragma clang loop unroll(disable)
  for (int t = from; t < to; t++) {
    if (t >= end) sequence(cu, seqs, t, first, end);
    float v[MOST];
    window(v, x, (const T *)0, t, first, c, channels, taps, stride);
    float d = to_float(dy[(i64)t * channels + c]) * slope_of(sum_of(w, v));
#pragma unroll
    for (int j = 0; j < MOST; j++) sum[j] = __builtin_fmaf(d, v[j], sum[j]);
  }
#pragma unroll
  for (int j = 0; j < MOST; j++)
    if (j < taps) part[((i64)blockIdx_y * channels + c) * taps + j] = sum[j];
}

#define KERNELS(T, SUFFIX)                                                                                                                  \
  __global__ __launch_bounds__(THREADS) void conv_##SUFFIX(T *y, const T *x, const float *w, const int *cu, const T *tail, int seqs,        \
                                                          int channels, int taps, int stride) {                                            \
    conv(y, x, w, cu, tail, seqs, channels, taps, stride);                                                                                  \
  }                                                                                                                                         \
  __global__ __launch_bounds__(THREADS) void conv_tail_##SUFFIX(T *tail, const T *x, int rows, int channels, int taps, int stride) {        \
    conv_tail(tail, x, rows, channels, taps, stride);                                                                                       \
  }                                                                                                                                         \
  __global__ __launch_bounds__(THREADS) void conv_backward_##SUFFIX(T *dx, const T *dy, const T *x, const float *w, const int *cu, int seqs, \
                                                                   int channels, int taps, int stride, int dstride) {                      \
    conv_backward(dx, dy, x, w, cu, seqs, channels, taps, stride, dstride);                                                                 \
  }                                                                                                                                         \
  __global__ __launch_bounds__(THREADS) void conv_slice_##SUFFIX(float *part, const T *dy, const T *x, const float *w, const int *cu,       \
                                                                int seqs, int rows, int channels, int taps, int stride, int each) {        \
    conv_slice(part, dy, x, w, cu, seqs, rows, channels, taps, stride, each);                                                               \
  }

extern "C" {
KERNELS(float, f32)
KERNELS(bf16, bf16)
}
