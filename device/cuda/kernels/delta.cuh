// Parts of the kernels of channeldelta.cu: products of a block of 256 threads, loads, and the chunk's linear system.
#include "common.cuh"

static constexpr int THREADS = 256, CHUNK = 64, STEP = 16;
static constexpr int PITCH = CHUNK + 4;  // of tiles in shared memory
static constexpr int LPITCH = CHUNK + 1; // of L

struct tiles { float a[STEP][PITCH], b[STEP][PITCH]; };

struct delta_shape {
  int seqs, key_heads, heads, key_dim, value_dim, gate_stride;
  METHOD int width() const { return 2 * key_heads * key_dim + heads * value_dim; }
  METHOD int group() const { return heads / key_heads; }
};

// product is C (m, n) = A (m, k)·B (k, n), or with ADDS added to C. Element (i, x) of A is at i·ai + x·ax, (x, j) of B at x·bx +
// j·bj, (i, j) of C at i·n + j or, where c_pitch is given, i·c_pitch + j. The whole block calls it; before and after, all
// threads have met.
template <bool ADDS>
DEV void product(tiles &s, float *c, int c_pitch, const float *a, int ai, int ax, const float *b, int bx, int bj, int m, int n, int k) {
  int ti = threadIdx_x / 16 * 4, tj = threadIdx_x % 16 * 4;
#pragma clang loop unroll(disable)
  for (int tile = 0; tile < ((m + CHUNK - 1) / CHUNK) * ((n + CHUNK - 1) / CHUNK); tile++) {
    int i0 = tile / ((n + CHUNK - 1) / CHUNK) * CHUNK, j0 = tile % ((n + CHUNK - 1) / CHUNK) * CHUNK;
    float sum[4][4];
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
      for (int e = 0; e < 4; e++) sum[r][e] = 0.0f;
#pragma clang loop unroll(disable)
    for (int x0 = 0; x0 < k; x0 += STEP) {
#pragma clang loop unroll(disable)
      for (int r = 0; r < 4; r++) {
        int at = threadIdx_x + r * THREADS;
        int i = ax == 1 ? at / STEP : at % CHUNK, x = ax == 1 ? at % STEP : at / CHUNK;
        s.a[x][i] = i0 + i < m && x0 + x < k ? a[(i0 + i) * ai + (x0 + x) * ax] : 0.0f;
        int j = bj == 1 ? at % CHUNK : at / STEP, y = bj == 1 ? at / CHUNK : at % STEP;
        s.b[y][j] = j0 + j < n && x0 + y < k ? b[(x0 + y) * bx + (j0 + j) * bj] : 0.0f;
      }
      sync_threads();
#pragma clang loop unroll_count(2)
      for (int x = 0; x < STEP; x++) {
        f32x4 u = *(const f32x4 *)&s.a[x][ti], v = *(const f32x4 *)&s.b[x][tj];
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
          for (int e = 0; e < 4; e++) sum[r][e] = __builtin_fmaf(u[r], v[e], sum[r][e]);
      }
      sync_threads();
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int i = i0 + ti + r, j = j0 + tj + e;
        if (i < m && j < n) c[i * c_pitch + j] = ADDS ? c[i * c_pitch + j] + sum[r][e] : sum[r][e];
      }
  }
  sync_threads();
}

// every calls f for every element (i, j) of a matrix, each by one thread, and then all meet.
template <class F> DEV void every(int m, int n, F f) {
#pragma clang loop unroll(disable)
  for (int at = threadIdx_x; at < m * n; at += THREADS) f(at / n, at % n);
  sync_threads();
}

// rows_dot calls f with the sum over j < n of g(i, j), for every row i < m, in lane 0 of a warp; then all meet.
template <class G, class F> DEV void rows_dot(int m, int n, G g, F f) {
#pragma clang loop unroll(disable)
  for (int i = threadIdx_x / 32; i < m; i += THREADS / 32) {
    float sum = 0.0f;
#pragma clang loop unroll(disable)
    for (int j = threadIdx_x % 32; j < n; j += 32) sum += g(i, j);
    sum = warp_sum(sum);
    if (threadIdx_x % 32 == 0) f(i, sum);
  }
  sync_threads();
}

// load_rows copies the chunk's q or k, normed and times scale, and keeps 1 over the lengths.
template <class T> DEV void load_rows(float *y, float *r, const T *x, int width, int n, int dim, float scale) {
  rows_dot(n, dim, [=](int i, int j) { float v = to_float(x[(i64)i * width + j]); return v * v; },
           [=](int i, float sum) { r[i] = rsqrt_newton(sum + 1e-6f); });
  every(n, dim, [=](int i, int j) { y[i * dim + j] = to_float(x[(i64)i * width + j]) * r[i] * scale; });
}

// solve replaces X, of n rows, by the solution of (I + L)·X' = X; solve_transposed by that of (I + Lᵀ)·X' = X. A thread has
// a column.
DEV void solve(const float *l, float *x, int n, int width) {
  if (threadIdx_x < width) {
#pragma clang loop unroll(disable)
    for (int i = 1; i < n; i++) {
      float sum = x[i * width + threadIdx_x];
#pragma clang loop unroll(disable)
      for (int e = 0; e < i; e++) sum = __builtin_fmaf(-l[i * LPITCH + e], x[e * width + threadIdx_x], sum);
      x[i * width + threadIdx_x] = sum;
    }
  }
  sync_threads();
}
DEV void solve_transposed(const float *l, float *x, int n, int width) {
  if (threadIdx_x < width) {
#pragma clang loop unroll(disable)
    for (int i = n - 2; i >= 0; i--) {
      float sum = x[i * width + threadIdx_x];
#pragma clang loop unroll(disable)
      for (int e = i + 1; e < n; e++) sum = __builtin_fmaf(-l[e * LPITCH + i], x[e * width + threadIdx_x], sum);
      x[i * width + threadIdx_x] = sum;
    }
  }
  sync_threads();
}

// state_at is where the state before the chunk at token t of head h is.
DEV float *state_at(float *states, const delta_shape &z, int t, int h) { return states + ((i64)(t / CHUNK) * z.heads + h) * (z.key_dim * z.value_dim); }

// through_norm turns dy, the gradient of y = scale·x·r, into that of x, row by row, and stores it.
template <class T> DEV void through_norm(T *dx, const float *dy, const float *y, const float *r, int width, int n, int dim, float scale, float *along) {
  rows_dot(n, dim, [=](int i, int j) { return dy[i * dim + j] * y[i * dim + j]; }, [=](int i, float sum) { along[i] = sum / scale; });
  every(n, dim, [=](int i, int j) { store(dx + (i64)i * width + j, r[i] * (scale * dy[i * dim + j] - y[i * dim + j] * along[i])); });
}
