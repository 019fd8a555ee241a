// Instructions of sm_90a beyond mma.cuh: wgmma, which are products by a warpgroup (four warps, 128
// threads) straight from shared memory; copies of whole tiles by the TMA unit; and the mbarriers at
// which these copies report their end.
//
// Products and copies are asynchronous. They access shared memory through the asynchronous proxy,
// not as loads and stores do. They see a thread's stores only after that thread's fence_async.
//
// Tiles of bf16 lie in panels of 64 columns. A row of a panel takes 128 bytes, and chunk c (16
// bytes) of row r lies at chunk c XOR r%8 of its row: the 128-byte swizzle of TMA and wgmma. A tile
// begins at a multiple of 1,024 bytes.
//
// Source: PTX ISA, "Asynchronous warpgroup level matrix instructions", "Data movement and
// conversion instructions: bulk copy", "mbarrier".
#pragma once

#include "common.cuh"

// TensorMap is what cuTensorMapEncodeTiled writes: where a tensor lies and which part of it a copy
// takes. The TMA unit reads a map by its address. If C took the address of a parameter, clang would
// copy the parameter to the stack. So kernels take it in PTX, by the parameter's name: MAP(x,
// KERNEL, N) makes x the address of parameter N of KERNEL.
struct alignas(64) TensorMap { u64 words[16]; };
#define MAP(x, KERNEL, N)  \
  const TensorMap *x;      \
  asm("{ .reg .b64 t; mov.b64 t, " #KERNEL "_param_" #N "; cvta.param.u64 %0, t; }" : "=l"(x))

// SHARED_TILES declares the dynamic shared memory like DYNAMIC_SHARED, with the alignment that
// tiles need.
#define SHARED_TILES(name) extern __attribute__((shared, aligned(1024))) u8 name[]

static constexpr int PANEL = 64, PANEL_PITCH = PANEL * 2; // columns, and bytes of a row

// warpgroup returns the number of this thread's warpgroup. The shuffle tells the compiler that the
// number is the same in all lanes of a warp.
DEV int warpgroup() { return (int)__nvvm_shfl_sync_idx_i32(0xffffffffu, threadIdx_x >> 7, 0, 31); }

// give_registers and take_registers set how many registers each thread of the warpgroup has: N,
// fewer or more than before.
template <int N> DEV void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> DEV void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

// fence_async makes this thread's stores to shared memory visible to the asynchronous proxy, that
// is to wgmma and TMA.
DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// arrive_some arrives at a barrier of sync_some without waiting.
template <int COUNT> DEV void arrive_some(int number) { asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(COUNT) : "memory"); }

// An mbarrier (8 bytes of shared memory) goes through phases. A phase ends when the barrier has got
// as many arrivals as barrier_init says, and all bytes that it was told to expect. wait_for waits
// until the phase of the given parity has ended, and traps after MOST_PERIODS. Before the first
// phase has ended, the phase of parity 1 counts as over.
DEV void barrier_init(u32 barrier, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory"); }
// barriers_ready makes initialized mbarriers visible to other threads and the TMA unit.
DEV void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEV void arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
DEV void arrive_and_expect(u32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
DEV void wait_for(u32 barrier, u32 parity) {
  asm volatile("{\n"
               ".reg .pred done, late;\n"
               ".reg .b32 begin, now;\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra over;\n"
               "mov.u32 begin, %%clock_hi;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@done bra over;\n"
               "mov.u32 now, %%clock_hi;\n"
               "sub.u32 now, now, begin;\n"
               "setp.gt.u32 late, now, " MOST_PERIODS ";\n"
               "@late trap;\n"
               "bra again;\n"
               "over:\n"
               "}" ::"r"(barrier), "r"(parity) : "memory");
}

// copy_panel starts to copy one box of a map, beginning at this column and row, to shared memory.
// The copy's bytes count at barrier. Rows beyond the tensor become zeros.
DEV void copy_panel(u32 to, const TensorMap *map, int column, int row, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
               "l"(map), "r"(column), "r"(row), "r"(barrier) : "memory");
}
// copy_tile starts to copy ROWS rows of D columns, panel by panel. ROWS is the number of rows of
// the map's box.
template <int ROWS, int D> DEV void copy_tile(u32 to, const TensorMap *map, int column, int row, u32 barrier) {
#pragma unroll
  for (int panel = 0; panel < D / PANEL; panel++) copy_panel(to + panel * ROWS * PANEL_PITCH, map, column + panel * PANEL, row, barrier);
}

// Operand is a matrix descriptor of wgmma for a matrix in shared memory. In units of 16 bytes, bits
// 0 to 13 are the address, bits 16 to 29 the distance from a panel to the next (only operands with
// their rows along K have it), and bits 32 to 45 the distance from eight rows to the next eight.
// Bits 62 and 63 select the 128-byte swizzle.
typedef u64 Operand;
DEV Operand operand(u32 at, int panel_bytes) {
  constexpr u64 EIGHT = 8 * PANEL_PITCH / 16;
  return (u64)((at & 0x3ffff) >> 4) | (u64)(panel_bytes / 16) << 16 | EIGHT << 32 | 1ull << 62;
}
// beyond returns an operand that begins some bytes later.
DEV Operand beyond(Operand o, int bytes) { return o + bytes / 16; }

// The sums of a wgmma are 64 rows by N columns. Of every eight columns n, thread t of warp w has
// four elements: c[n][0] and c[n][1] in row 16w + t/4, columns 8n + t%4·2 and the next, and c[n][2]
// and c[n][3] 8 rows below. Two neighbouring groups of eight columns, rounded, are an A operand in
// registers, as with mma.sync (mma.cuh).
#define FOUR(C, N) "+f"(C[N][0]), "+f"(C[N][1]), "+f"(C[N][2]), "+f"(C[N][3])
#define SUMS_32(C) FOUR(C, 0), FOUR(C, 1), FOUR(C, 2), FOUR(C, 3)
#define SUMS_64(C) SUMS_32(C), FOUR(C, 4), FOUR(C, 5), FOUR(C, 6), FOUR(C, 7)
#define SUMS_128(C)                                                                                                        \
  SUMS_64(C), FOUR(C, 8), FOUR(C, 9), FOUR(C, 10), FOUR(C, 11), FOUR(C, 12), FOUR(C, 13), FOUR(C, 14), FOUR(C, 15)
#define SUMS_192(C)                                                                                                        \
  SUMS_128(C), FOUR(C, 16), FOUR(C, 17), FOUR(C, 18), FOUR(C, 19), FOUR(C, 20), FOUR(C, 21), FOUR(C, 22), FOUR(C, 23)
#define SUMS_256(C)                                                                                                        \
  SUMS_192(C), FOUR(C, 24), FOUR(C, 25), FOUR(C, 26), FOUR(C, 27), FOUR(C, 28), FOUR(C, 29), FOUR(C, 30), FOUR(C, 31)
#define NAMES_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES_64 NAMES_32 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_128                                                                                                          \
  NAMES_64 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_192                                                                                                          \
  NAMES_128 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define NAMES_256                                                                                                          \
  NAMES_192 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define MULTIPLY(N, OPERANDS, ADD) \
  "{ .reg .pred add; setp.ne.b32 add, " ADD ", 0;\n" \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES_##N "}, " OPERANDS "; }"

// fence_products (wgmma.fence) must stand between accesses to the registers of sums or of A and the
// wgmma that uses them. commit_products closes a group of products.
DEV void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// wait_products<N> waits until at most the N newest groups of products are still running.
template <int N> DEV void wait_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// settled keeps the compiler from moving code that reads or writes these sums across this point.
// The compiler does not know that products are asynchronous.
DEV void settled(float (&c)[4][4]) { asm volatile("" : SUMS_32(c)::"memory"); }
DEV void settled(float (&c)[8][4]) { asm volatile("" : SUMS_64(c)::"memory"); }
DEV void settled(float (&c)[16][4]) { asm volatile("" : SUMS_128(c)::"memory"); }
DEV void settled(float (&c)[24][4]) { asm volatile("" : SUMS_192(c)::"memory"); }
DEV void settled(float (&c)[32][4]) { asm volatile("" : SUMS_256(c)::"memory"); }
template <int F> DEV void settled(u32 (&p)[F][4]) {
#pragma unroll
  for (int i = 0; i < F; i++) asm volatile("" : "+r"(p[i][0]), "+r"(p[i][1]), "+r"(p[i][2]), "+r"(p[i][3])::"memory");
}

// multiply starts c = A·Bᵀ, or c += A·Bᵀ with ADD, for 16 columns of A and B. The rows of both lie
// along K in memory.
template <bool ADD> DEV void multiply(float (&c)[4][4], Operand a, Operand b) {
  asm volatile(MULTIPLY(32, "%16, %17, add, 1, 1, 0, 0", "%18") : SUMS_32(c) : "l"(a), "l"(b), "n"(ADD) : "memory");
}
template <bool ADD> DEV void multiply(float (&c)[8][4], Operand a, Operand b) {
  asm volatile(MULTIPLY(64, "%32, %33, add, 1, 1, 0, 0", "%34") : SUMS_64(c) : "l"(a), "l"(b), "n"(ADD) : "memory");
}
template <bool ADD> DEV void multiply(float (&c)[16][4], Operand a, Operand b) {
  asm volatile(MULTIPLY(128, "%64, %65, add, 1, 1, 0, 0", "%66") : SUMS_128(c) : "l"(a), "l"(b), "n"(ADD) : "memory");
}

// multiply_add starts c += A·B for 16 columns of A, in registers, and 16 rows of B. The columns of
// B lie along K, so wgmma transposes it.
DEV void multiply_add(float (&c)[8][4], const u32 (&a)[4], Operand b) {
  asm volatile(MULTIPLY(64, "{%32, %33, %34, %35}, %36, add, 1, 1, 1", "1")
               : SUMS_64(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory");
}
DEV void multiply_add(float (&c)[16][4], const u32 (&a)[4], Operand b) {
  asm volatile(MULTIPLY(128, "{%64, %65, %66, %67}, %68, add, 1, 1, 1", "1")
               : SUMS_128(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory");
}
DEV void multiply_add(float (&c)[24][4], const u32 (&a)[4], Operand b) {
  asm volatile(MULTIPLY(192, "{%96, %97, %98, %99}, %100, add, 1, 1, 1", "1")
               : SUMS_192(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory");
}
DEV void multiply_add(float (&c)[32][4], const u32 (&a)[4], Operand b) {
  asm volatile(MULTIPLY(256, "{%128, %129, %130, %131}, %132, add, 1, 1, 1", "1")
               : SUMS_256(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory");
}

// multiply_across starts c = Aᵀ·B, or c += Aᵀ·B with ADD, for 16 rows of A and B in shared memory.
// The columns of both lie along K, so wgmma transposes them.
template <bool ADD> DEV void multiply_across(float (&c)[8][4], Operand a, Operand b) {
  asm volatile(MULTIPLY(64, "%32, %33, add, 1, 1, 1, 1", "%34") : SUMS_64(c) : "l"(a), "l"(b), "n"(ADD) : "memory");
}
