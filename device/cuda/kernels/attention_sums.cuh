// Sums of DQ in device memory, to which the blocks of attention_gradients.cuh and
// attention_hopper_gradients.cuh add in a fixed order: the marks at which blocks wait for each
// other, and where the sums lie.
#pragma once

#include "attention.cuh"

#define GLOBAL(T, P) ((__attribute__((address_space(1))) T *)(P))

DEV u32 load_mark(const u32 *mark) {
  u32 v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(GLOBAL(const u32, mark)) : "memory");
  return v;
}
// await_mark waits until the counter mark is at least turn. seen is the value that was read before.
DEV void await_mark(const u32 *mark, u32 seen, u32 turn) {
  asm volatile("{\n"
               ".reg .pred done, late;\n"
               ".reg .b32 seen, begin, now;\n"
               "setp.ge.u32 done, %1, %2;\n"
               "@done bra over;\n"
               "mov.u32 begin, %%clock_hi;\n"
               "again:\n"
               "ld.relaxed.gpu.global.u32 seen, [%0];\n"
               "setp.ge.u32 done, seen, %2;\n"
               "@done bra over;\n"
               "mov.u32 now, %%clock_hi;\n"
               "sub.u32 now, now, begin;\n"
               "setp.gt.u32 late, now, " MOST_PERIODS ";\n"
               "@late trap;\n"
               "bra again;\n"
               "over:\n"
               "}" ::"l"(GLOBAL(const u32, mark)), "r"(seen), "r"(turn) : "memory");
}
DEV void add_global(float *to, float v) { asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(GLOBAL(float, to)), "f"(v) : "memory"); }

// tell adds 1 to a mark, in one lane of the warp. A block that then reads the mark, and has a fence
// after that, sees everything the warp wrote before the last barrier.
DEV void tell(u32 *mark, int lane) {
  asm volatile("{ .reg .pred first; setp.eq.u32 first, %1, 0; @first red.relaxed.gpu.global.add.u32 [%0], 1; }" ::"l"(GLOBAL(u32, mark)), "r"(lane) : "memory");
}
DEV void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

static constexpr int UNIT = 16; // queries

// units returns an upper bound of a head's number of units (16 queries each) over all sequences.
// first_unit is the number of the first unit of a sequence.
DEV int units(const Shape &a) { return (int)(a.tq / UNIT) + a.seqs; }
DEV int first_unit(const Place &w, const Shape &a) { return ((int)w.q0 - a.cu_q[0]) / UNIT + w.sequence; }
