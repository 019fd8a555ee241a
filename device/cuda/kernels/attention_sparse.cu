// Attention to chosen keys in bf16, on tensor cores. A block has 32 heads of one query, or, for the
// gradient of keys, 32 keys of a segment (attention_sparse.cuh) and 32 heads of one query after
// another. Rows are gathered to shared memory. They count as D elements long, and what is beyond
// dim is 0; products over columns take only the steps of 16 columns that dim and values have.
//
// Eight warps are two halves of 16 rows times four parts. A product over columns divides its steps
// among the parts, which then exchange sums through shared memory in a fixed order. A product whose
// result has D columns divides these columns.
#include "attention_sparse.cuh"

static constexpr int D = 576, V = 512, ROWS = 32, THREADS = 256;
static constexpr int STEPS = D / 64, VALUE_STEPS = V / 64; // of a part: 16 columns each
using Tile = SharedTile<D>;
static constexpr int TILE = ROWS * Tile::PITCH;

// now makes the compiler treat x as unknown from here on. What follows from x is then computed here, and takes no registers
// before.
DEV int now(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// thread_now reads the thread's number anew, so that the compiler does not keep it in a register.
DEV int thread_now() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// steps_of returns how many steps of 16 columns one of count parts has.
DEV int steps_of(int columns, int part, int count) { return now((columns + 16 * count - 1 - part * 16) / (16 * count)); }

// Thread's numbers: of its warp's half and part, and of its rows and columns in fragments.
struct Who {
  int half, part, lane, row, column;
};
DEV Who who() {
  int thread = thread_now(), lane = thread & 31;
  return Who{thread >> 5 & 1, thread >> 6, lane, lane >> 2, (lane & 3) * 2};
}

// load_row starts to copy this thread's part of a row to the tile; eight neighbouring threads share
// row thread/8. A row that is not real becomes zeros; then src is any readable row.
template <int C = D> DEV void load_row(u32 tile, const bf16 *src, bool real, int columns, bool vector) {
  int thread = thread_now(), row = thread >> 3, part = thread & 7, chunks = (columns + 15) / 16 * 2;
  if (vector) {
    u32 to = tile + SharedTile<C>::at(row, part);
#pragma unroll
    for (int i = 0; i < C / 64; i++) {
      int chunk = i * 8 + part;
      bool take = real && chunk * 8 < columns;
      if (chunk < chunks) copy_async_16(to + i * 128, take ? src + chunk * 8 : src, take);
    }
    return;
  }
#pragma clang loop unroll(disable)
  for (int c = part * 2; c < chunks * 8; c += 16) {
    u32 pair = 0;
    if (real && c < columns) pair = src[c].bits;
    if (real && c + 1 < columns) pair |= (u32)src[c + 1].bits << 16;
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile + SharedTile<C>::at(row, c / 8) + c % 8 * 2), "r"(pair) : "memory");
  }
}

// key_of returns the key in this thread's row of the tile that begins with key number from of the n chosen ones; −1: none.
DEV int key_of(const int *keys, int from, int n) {
  int at = from + (thread_now() >> 3);
  return at < n ? keys[at] : -1;
}

// load_key starts to copy this thread's part of a key's row.
DEV void load_key(u32 tile, const bf16 *k, int k0, int key, const Sparse &a) {
  load_row(tile, k + (i64)(k0 + max_i(key, 0)) * a.k_stride, key >= 0, a.dim, a.vector & 1);
}

// keep loads this warp's part of the tile's rows, as A operands.
template <int N> DEV void keep(u32 (&kept)[N][4], u32 tile, int columns, const Who &w) {
  u32 lane = (Tile::lane_a(tile) + w.half * 16 * Tile::PITCH) ^ (w.part * 32);
  int steps = steps_of(columns, w.part, 4);
#pragma unroll
  for (int i = 0; i < N; i++)
    if (i < steps) ldmatrix_x4(kept[i], lane + i * 128);
}

// multiply adds to c the products of the kept rows with the 32 rows of the tile, over this part's columns.
template <int N, int C = D> DEV void multiply(float (&c)[4][4], const u32 (&kept)[N][4], u32 tile, int columns, int part) {
  u32 lane = SharedTile<C>::lane_b(tile) ^ (part * 32);
  int steps = steps_of(columns, part, 4);
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (i >= steps) continue;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      u32 b[4];
      ldmatrix_x4(b, lane + i * 128 + j * 16 * SharedTile<C>::PITCH);
      mma_bf16(c[2 * j], kept[i], b[0], b[1]);
      mma_bf16(c[2 * j + 1], kept[i], b[2], b[3]);
    }
  }
}

// combine adds to c, which has this part's blocks of 16 columns, the product of weights (16 rows by 32 of the tile's)
// and the tile.
template <int N, int C = D, int A> DEV void combine(float (&c)[A][4], const u32 (&weights)[2][4], u32 tile, int columns, int part) {
  u32 lane = SharedTile<C>::lane_a(tile) ^ (part * 32);
  int steps = steps_of(columns, part, 4);
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (i >= steps) continue;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      u32 b[4];
      ldmatrix_x4_trans(b, lane + i * 128 + j * 16 * SharedTile<C>::PITCH);
      mma_bf16(c[2 * i], weights[j], b[0], b[1]);
      mma_bf16(c[2 * i + 1], weights[j], b[2], b[3]);
    }
  }
}

DEV void store_4(u32 address, const float (&v)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
DEV void load_4(float (&v)[4], u32 address) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(address));
}

// store_pair rounds two neighbouring elements of a row.
DEV void store_pair(bf16 *row, int column, int columns, float x, float y, bool vector) {
  if (column >= columns) return;
  u32 pair = pack_bf16(x, y);
  if (vector) {
    *(u32 *)(row + column) = pair;
    return;
  }
  row[column].bits = (u16)pair;
  if (column + 1 < columns) row[column + 1].bits = (u16)(pair >> 16);
}

// store_rows rounds this warp's 16 rows, of which some exist, and writes its columns.
template <int N>
DEV void store_rows(bf16 *dst, i64 stride, const float (&c)[2 * N][4], const float (&factor)[2], int rows, int columns, const Who &w, bool vector) {
#pragma unroll
  for (int i = 0; i < N; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int row = w.half * 16 + w.row + j / 2 * 8, column = (i * 4 + w.part) * 16 + j % 2 * 8 + w.column;
      if (row < rows) store_pair(dst + row * stride, column, columns, c[2 * i + j % 2][j / 2 * 2] * factor[j / 2], c[2 * i + j % 2][j / 2 * 2 + 1] * factor[j / 2], vector);
    }
  }
}

template <int N> DEV void clear(float (&c)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; i++) c[i][0] = c[i][1] = c[i][2] = c[i][3] = 0.0f;
}

// load_heads starts to copy 32 heads to the tile, from number first on.
template <int C = D> DEV void load_heads(u32 tile, const bf16 *row, int first, int width, const Sparse &a) {
  int head = first + (thread_now() >> 3);
  load_row<C>(tile, head < a.heads ? row + (i64)head * width : row, head < a.heads, width, a.vector & 1);
}

DYNAMIC_SHARED(memory);

static constexpr int FORWARD_PARTS = 2 * TILE, FORWARD_SPACE = FORWARD_PARTS + 8 * 1024;
static constexpr int QUERIES_PARTS = 2 * TILE, QUERIES_DS = QUERIES_PARTS + 24 * 1024, QUERIES_SPACE = QUERIES_DS + ROWS * ROWS * 2;

// Scores: in the forward a warp computes the scores of 16 heads and 16 keys over half of the steps. Then each warp adds
// up the scores of its 16 heads and all 32 keys, which it needs as an operand.
DEV void forward_scores(float (&s)[4][4], const u32 (&q)[2 * STEPS][4], u32 tile, u32 parts, int dim, const Who &w) {
  int keys = w.part >> 1, part = w.part & 1, steps = steps_of(dim, part, 2);
  float c[2][4];
  clear(c);
  u32 lane = (Tile::lane_b(tile) + keys * 16 * Tile::PITCH) ^ (part * 32);
#pragma unroll
  for (int i = 0; i < 2 * STEPS; i++) {
    if (i >= steps) continue;
    u32 b[4];
    ldmatrix_x4(b, (lane ^ (i % 2 * 64)) + i / 2 * 128);
    mma_bf16(c[0], q[i], b[0], b[1]);
    mma_bf16(c[1], q[i], b[2], b[3]);
  }
  u32 mine = parts + w.half * 4096 + w.lane * 16;
#pragma unroll
  for (int j = 0; j < 2; j++) store_4(mine + ((keys * 2 + j) * 2 + part) * 512, c[j]);
  sync_threads();
#pragma unroll
  for (int j = 0; j < 4; j++) {
    float other[4];
    load_4(s[j], mine + j * 1024);
    load_4(other, mine + j * 1024 + 512);
#pragma unroll
    for (int i = 0; i < 4; i++) s[j][i] += other[i];
  }
}

extern "C" __global__ __launch_bounds__(THREADS, 1) void attention_sparse_forward_bf16(bf16 *o, float *lse, const bf16 *q, const bf16 *k, int first_query,
                                                                                       SPARSE_PARAMS) {
  Sparse a = SPARSE;
  Block b;
  u32 shared = shared_address(memory);
  if (!find_block<ROWS, THREADS>(b, first_query, a, (float *)(memory + FORWARD_SPACE))) return;
  Who w = who();
  load_heads(shared + TILE, q + b.query * a.q_stride, b.first, a.dim, a);
  load_key(shared, k, b.k0, key_of(b.keys, 0, b.n), a);
  copy_async_commit();
  copy_async_wait<0>();
  sync_threads();
  u32 kept[2 * STEPS][4];
  {
    u32 lane = (Tile::lane_a(shared + TILE) + w.half * 16 * Tile::PITCH) ^ ((w.part & 1) * 32);
#pragma unroll
    for (int i = 0; i < 2 * STEPS; i++)
      if ((i * 2 + (w.part & 1)) * 16 < a.dim) ldmatrix_x4(kept[i], (lane ^ (i % 2 * 64)) + i / 2 * 128);
  }
  float out[2 * VALUE_STEPS][4], high[2] = {-INFINITY_F, -INFINITY_F}, sum[2] = {0.0f, 0.0f}, factor = a.scale * LOG2E;
  clear(out);
  int number = 0, next = key_of(b.keys, ROWS, b.n);
#pragma clang loop unroll(disable)
  for (int from = 0; from < b.n; from += ROWS, number++) {
    u32 tile = shared + number % 2 * TILE;
    copy_async_wait<0>();
    sync_threads();
    if (from + ROWS < b.n) load_key(shared + (number + 1) % 2 * TILE, k, b.k0, next, a);
    copy_async_commit();
    next = key_of(b.keys, from + 2 * ROWS, b.n); // early, so that no copy waits for it
    float s[4][4];
    forward_scores(s, kept, tile, shared + FORWARD_PARTS, a.dim, w);
    u32 p[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float most = high[half];
#pragma unroll
      for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float &x = s[j][half * 2 + i];
          x = from + j * 8 + w.column + i < b.n ? x : -INFINITY_F;
          most = max_f(most, x);
        }
      }
      most = max_f(most, shuffle_xor(most, 1));
      most = max_f(most, shuffle_xor(most, 2));
      float less = exp2_approx((high[half] - most) * factor), base = most * factor, more = 0.0f;
      high[half] = most;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float x = exp2_approx(s[j][half * 2] * factor - base), y = exp2_approx(s[j][half * 2 + 1] * factor - base);
        more += x + y;
        p[j / 2][j % 2 * 2 + half] = pack_bf16(x, y);
      }
      sum[half] = sum[half] * less + more;
#pragma unroll
      for (int i = 0; i < 2 * VALUE_STEPS; i++) out[i][half * 2] *= less, out[i][half * 2 + 1] *= less;
    }
    combine<VALUE_STEPS>(out, p, tile, a.values, w.part);
  }
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    inverse[half] = rcp_approx(sum[half]);
    int head = b.first + w.half * 16 + half * 8 + w.row;
    if (lse && w.part == 0 && w.column == 0 && head < a.heads) lse[head * a.tq + b.query] = log_sum_exp2(high[half], factor, sum[half]);
  }
  bf16 *to = o + ((i64)b.query * a.heads + b.first) * a.values;
  store_rows<VALUE_STEPS>(to, a.values, out, inverse, a.heads - b.first, a.values, w, a.vector & 2);
}

// exchange sends each part the products with its 8 of the tile's 32 rows, and adds these up in the order of the parts. s
// and dp are products over all of a part's steps.
DEV void exchange(float (&sum)[2][4], const float (&s)[4][4], const float (&dp)[4][4], u32 parts, const Who &w) {
  u32 mine = parts + w.half * 12288 + w.lane * 16; // (8 columns, 3 other parts, 2 products) of 512 bytes
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if (j == w.part) continue;
    u32 to = mine + (j * 3 + w.part - (w.part > j)) * 1024;
    store_4(to, s[j]);
    store_4(to + 512, dp[j]);
  }
  sync_threads();
#pragma unroll
  for (int i = 0; i < 4; i++) sum[0][i] = sum[1][i] = 0.0f;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    float x[4], y[4];
    if (j == w.part) {
#pragma unroll
      for (int i = 0; i < 4; i++) x[i] = s[j][i], y[i] = dp[j][i];
    } else {
      u32 from = mine + (w.part * 3 + j - (j > w.part)) * 1024;
      load_4(x, from);
      load_4(y, from + 512);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) sum[0][i] += x[i], sum[1][i] += y[i];
  }
}

using Square = SharedTile<ROWS>; // weights: 32 rows by 32 of the tile's rows

// put_weights stores this warp's 16 by 8 weights, and get_weights loads 16 by 32 as operands.
DEV void put_weights(u32 square, const float (&v)[4], const Who &w) {
#pragma unroll
  for (int half = 0; half < 2; half++)
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(square + Square::at(w.half * 16 + half * 8 + w.row, w.part) + w.column * 2),
                 "r"(pack_bf16(v[half * 2], v[half * 2 + 1])) : "memory");
}
DEV void get_weights(u32 (&v)[2][4], u32 square, const Who &w) {
  u32 lane = Square::lane_a(square);
#pragma unroll
  for (int j = 0; j < 2; j++) ldmatrix_x4(v[j], Square::step(lane, w.half * 16, j * 16));
}

extern "C" __global__ __launch_bounds__(THREADS, 1) void attention_sparse_dq_bf16(bf16 *dq, const bf16 *dout, const float *lse, const float *delta, i64 dq_stride,
                                                                                  const bf16 *q, const bf16 *k, int first_query, SPARSE_PARAMS) {
  Sparse a = SPARSE;
  Block b;
  u32 shared = shared_address(memory);
  if (!find_block<ROWS, THREADS>(b, first_query, a, (float *)(memory + QUERIES_SPACE))) return;
  Who w = who();
  load_heads(shared, q + b.query * a.q_stride, b.first, a.dim, a);
  load_heads(shared + TILE, dout + (i64)b.query * a.heads * a.values, b.first, a.values, a);
  copy_async_commit();
  copy_async_wait<0>();
  sync_threads();
  u32 kept[STEPS][4], kept_dout[VALUE_STEPS][4];
  keep(kept, shared, a.dim, w);
  keep(kept_dout, shared + TILE, a.values, w);
  float factor = a.scale * LOG2E, less[2], minus[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    i64 head = b.first + w.half * 16 + half * 8 + w.row;
    less[half] = head < a.heads ? lse[head * a.tq + b.query] : 0.0f;
    minus[half] = head < a.heads ? delta[head * a.tq + b.query] : 0.0f;
  }
  sync_threads();
  load_key(shared, k, b.k0, key_of(b.keys, 0, b.n), a);
  copy_async_commit();
  float out[2 * STEPS][4];
  clear(out);
  int number = 0, next = key_of(b.keys, ROWS, b.n);
#pragma clang loop unroll(disable)
  for (int from = 0; from < b.n; from += ROWS, number++) {
    u32 tile = shared + number % 2 * TILE;
    copy_async_wait<0>();
    sync_threads();
    if (from + ROWS < b.n) load_key(shared + (number + 1) % 2 * TILE, k, b.k0, next, a);
    copy_async_commit();
    next = key_of(b.keys, from + 2 * ROWS, b.n); // early, so that no copy waits for it
    float sum[2][4];
    {
      float s[4][4], dp[4][4];
      clear(s);
      clear(dp);
      multiply(s, kept, tile, a.dim, w.part);
      multiply(dp, kept_dout, tile, a.values, w.part);
      exchange(sum, s, dp, shared + QUERIES_PARTS, w);
    }
    float ds[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float p = exp2_approx(sum[0][i] * factor - less[i / 2]);
      ds[i] = from + w.part * 8 + w.column + i % 2 < b.n ? a.scale * p * (sum[1][i] - minus[i / 2]) : 0.0f;
    }
    put_weights(shared + QUERIES_DS, ds, w);
    sync_threads();
    u32 weights[2][4];
    get_weights(weights, shared + QUERIES_DS, w);
    combine<STEPS>(out, weights, tile, a.dim, w.part);
  }
  float one[2] = {1.0f, 1.0f};
  store_rows<STEPS>(dq + b.query * dq_stride + (i64)b.first * a.dim, a.dim, out, one, a.heads - b.first, a.dim, w, a.vector & 2);
}

// Shared memory of the gradient of keys: Q of 32 heads (its place first takes the keys), DO, the parts, P, dS, the list of
// keys, and a word a warp.
static constexpr int KEYS_DO = TILE, KEYS_PARTS = KEYS_DO + ROWS * V * 2, KEYS_P = KEYS_PARTS + 24 * 1024, KEYS_DS = KEYS_P + ROWS * ROWS * 2;
static constexpr int KEYS_LIST = KEYS_DS + ROWS * ROWS * 2, KEYS_SPACE = KEYS_LIST + List<THREADS>::ROOM * 4;

// Gradient of the rows of keys: inputs, and the sums of the block's range of queries.
struct Inputs {
  const bf16 *dout, *q, *k;
  const float *lse, *delta;
  float *sums;
};

// add_keys adds what all heads of a query give to the gradients of up to 32 rows of the list.
DEV void add_keys(const Inputs &in, int query, const int *list, int n, const Sparse &a) {
  u32 shared = shared_address(memory);
  int at = thread_now() >> 3;
  i64 row = list[at < n ? at : 0];
  sync_threads();
  load_row(shared, in.k + row * a.k_stride, at < n, a.dim, a.vector & 1);
  copy_async_commit();
  copy_async_wait<0>();
  sync_threads();
  u32 kept[STEPS][4];
  keep(kept, shared, a.dim, who());
  float out[2 * STEPS][4];
  clear(out);
#pragma clang loop unroll(disable)
  for (int first = 0; first < a.heads; first += ROWS) {
    sync_threads();
    load_heads(shared, in.q + query * a.q_stride, first, a.dim, a);
    load_heads<V>(shared + KEYS_DO, in.dout + (i64)query * a.heads * a.values, first, a.values, a);
    copy_async_commit();
    Who w = who();
    float less[2], minus[2], sum[2][4], p[4], ds[4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      i64 head = first + w.part * 8 + w.column + i;
      less[i] = head < a.heads ? in.lse[head * a.tq + query] : INFINITY_F;
      minus[i] = head < a.heads ? in.delta[head * a.tq + query] : 0.0f;
    }
    copy_async_wait<0>();
    sync_threads();
    {
      float s[4][4], dp[4][4];
      clear(s);
      clear(dp);
      multiply(s, kept, shared, a.dim, w.part);
      multiply<STEPS, V>(dp, kept, shared + KEYS_DO, a.values, w.part);
      exchange(sum, s, dp, shared + KEYS_PARTS, w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      p[i] = exp2_approx(sum[0][i] * (a.scale * LOG2E) - less[i % 2]);
      ds[i] = a.scale * p[i] * (sum[1][i] - minus[i % 2]);
    }
    put_weights(shared + KEYS_P, p, w);
    put_weights(shared + KEYS_DS, ds, w);
    sync_threads();
    u32 weights[2][4];
    get_weights(weights, shared + KEYS_DS, w);
    combine<STEPS>(out, weights, shared, a.dim, w.part);
    get_weights(weights, shared + KEYS_P, w);
    combine<VALUE_STEPS, V>(out, weights, shared + KEYS_DO, a.values, w.part);
  }
  Who w = who();
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int at = w.half * 16 + half * 8 + w.row;
    if (at >= n) continue;
    float *to = in.sums + (i64)list[at] * a.dim + w.part * 16 + w.column;
    int left = a.dim - w.part * 16 - w.column; // columns from the first on
    f32x2 was[2 * STEPS];                      // all loads come before all stores, so that they wait once
#pragma unroll
    for (int i = 0; i < 2 * STEPS; i++) {
      int column = i / 2 * 64 + i % 2 * 8;
      was[i] = f32x2{0.0f, 0.0f};
      if (column >= left) continue;
      if (a.dim % 2 == 0) was[i] = *(const f32x2 *)(to + column);
      else was[i] = f32x2{to[column], column + 1 < left ? to[column + 1] : 0.0f};
    }
#pragma unroll
    for (int i = 0; i < 2 * STEPS; i++) {
      int column = i / 2 * 64 + i % 2 * 8;
      f32x2 sum = was[i] + f32x2{out[i][half * 2], out[i][half * 2 + 1]};
      if (column >= left) continue;
      if (a.dim % 2 == 0) {
        *(f32x2 *)(to + column) = sum;
      } else {
        to[column] = sum.x;
        if (column + 1 < left) to[column + 1] = sum.y;
      }
    }
  }
}

extern "C" __global__ __launch_bounds__(THREADS, 1) void attention_sparse_dk_bf16(float *sums, const bf16 *dout, const float *lse, const float *delta, i64 tk,
                                                                                  int segments, const bf16 *q, const bf16 *k, int ranges, SPARSE_PARAMS) {
  Sparse a = SPARSE;
  int segment = blockIdx_x % segments, range = blockIdx_x / segments;
  Inputs in{dout, q, k, lse, delta, sums + range * tk * dim};
  int *list = (int *)(memory + KEYS_LIST);
  keys_of_segment<THREADS>(in.sums, range, ranges, tk, segment, segments, a, list, (float *)(memory + KEYS_SPACE), [&](int query, int n) {
#pragma clang loop unroll(disable)
    for (int from = 0; from < n; from += ROWS) add_keys(in, query, list + from, min_i(ROWS, n - from), a);
  });
}

extern "C" __global__ __launch_bounds__(THREADS) void attention_sparse_sum_bf16(bf16 *dk, const float *sums, i64 dk_stride, int ranges, i64 tk, int dim,
                                                                                const int *cu_k, int seqs) {
  sum_ranges(dk, sums, dk_stride, ranges, tk, dim, cu_k, seqs);
}
