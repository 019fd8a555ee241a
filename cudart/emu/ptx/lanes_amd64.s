//go:build !noasm

#include "textflag.h"

// One instruction of PTX for the 32 threads of a warp: four registers of eight.

#define BINARY(NAME, OP) \
TEXT NAME(SB), NOSPLIT, $0-24 \
	MOVQ d+0(FP), DI \
	MOVQ a+8(FP), SI \
	MOVQ b+16(FP), DX \
	VMOVUPS (SI), Y0 \
	VMOVUPS 32(SI), Y1 \
	VMOVUPS 64(SI), Y2 \
	VMOVUPS 96(SI), Y3 \
	OP (DX), Y0, Y0 \
	OP 32(DX), Y1, Y1 \
	OP 64(DX), Y2, Y2 \
	OP 96(DX), Y3, Y3 \
	VMOVUPS Y0, (DI) \
	VMOVUPS Y1, 32(DI) \
	VMOVUPS Y2, 64(DI) \
	VMOVUPS Y3, 96(DI) \
	VZEROUPPER \
	RET

// func addF32AVX2(d, a, b *lanes32)
BINARY(·addF32AVX2, VADDPS)

// func subF32AVX2(d, a, b *lanes32)
BINARY(·subF32AVX2, VSUBPS)

// func mulF32AVX2(d, a, b *lanes32)
BINARY(·mulF32AVX2, VMULPS)

// func add32AVX2(d, a, b *lanes32)
BINARY(·add32AVX2, VPADDD)

// func sub32AVX2(d, a, b *lanes32)
BINARY(·sub32AVX2, VPSUBD)

// func mul32AVX2(d, a, b *lanes32)
BINARY(·mul32AVX2, VPMULLD)

// func and32AVX2(d, a, b *lanes32)
BINARY(·and32AVX2, VPAND)

// func or32AVX2(d, a, b *lanes32)
BINARY(·or32AVX2, VPOR)

// func xor32AVX2(d, a, b *lanes32)
BINARY(·xor32AVX2, VPXOR)

// func shl32AVX2(d, a, b *lanes32)
BINARY(·shl32AVX2, VPSLLVD)

// func shrU32AVX2(d, a, b *lanes32)
BINARY(·shrU32AVX2, VPSRLVD)

// func shrS32AVX2(d, a, b *lanes32)
BINARY(·shrS32AVX2, VPSRAVD)

#define HALF64(OP, AT) \
	VMOVUPS AT(SI), Y0 \
	VMOVUPS AT+32(SI), Y1 \
	VMOVUPS AT+64(SI), Y2 \
	VMOVUPS AT+96(SI), Y3 \
	OP AT(DX), Y0, Y0 \
	OP AT+32(DX), Y1, Y1 \
	OP AT+64(DX), Y2, Y2 \
	OP AT+96(DX), Y3, Y3 \
	VMOVUPS Y0, AT(DI) \
	VMOVUPS Y1, AT+32(DI) \
	VMOVUPS Y2, AT+64(DI) \
	VMOVUPS Y3, AT+96(DI)

// func add64AVX2(d, a, b *lanes64)
TEXT ·add64AVX2(SB), NOSPLIT, $0-24
	MOVQ d+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	HALF64(VPADDQ, 0)
	HALF64(VPADDQ, 128)
	VZEROUPPER
	RET

#define WIDE(EXTEND, OP, FROM, TO) \
	EXTEND FROM(SI), Y0 \
	EXTEND FROM(DX), Y1 \
	OP Y1, Y0, Y0 \
	VMOVUPS Y0, TO(DI)

#define WIDES(EXTEND, OP) \
	MOVQ d+0(FP), DI \
	MOVQ a+8(FP), SI \
	MOVQ b+16(FP), DX \
	WIDE(EXTEND, OP, 0, 0) \
	WIDE(EXTEND, OP, 16, 32) \
	WIDE(EXTEND, OP, 32, 64) \
	WIDE(EXTEND, OP, 48, 96) \
	WIDE(EXTEND, OP, 64, 128) \
	WIDE(EXTEND, OP, 80, 160) \
	WIDE(EXTEND, OP, 96, 192) \
	WIDE(EXTEND, OP, 112, 224) \
	VZEROUPPER \
	RET

// func mulWideSAVX2(d *lanes64, a, b *lanes32)
TEXT ·mulWideSAVX2(SB), NOSPLIT, $0-24
	WIDES(VPMOVSXDQ, VPMULDQ)

// func mulWideUAVX2(d *lanes64, a, b *lanes32)
TEXT ·mulWideUAVX2(SB), NOSPLIT, $0-24
	WIDES(VPMOVZXDQ, VPMULUDQ)

#define OFFSETS(FROM, TO) \
	VPADDD FROM(SI), Y0, Y4 \
	VPMINUD Y4, Y1, Y1 \
	VPMAXUD Y4, Y2, Y2 \
	VPOR Y4, Y3, Y3 \
	VPMOVZXDQ X4, Y5 \
	VMOVUPS Y5, TO(DI) \
	VEXTRACTI128 $1, Y4, X4 \
	VPMOVZXDQ X4, Y5 \
	VMOVUPS Y5, TO+32(DI)

// func offsetsAVX2(off *lanes64, a *lanes32, imm uint32, bounds *[3][8]uint32)
TEXT ·offsetsAVX2(SB), NOSPLIT, $0-32
	MOVQ         off+0(FP), DI
	MOVQ         a+8(FP), SI
	MOVQ         bounds+24(FP), DX
	MOVL         imm+16(FP), AX
	VMOVD        AX, X0
	VPBROADCASTD X0, Y0
	VPCMPEQD     Y1, Y1, Y1
	VPXOR        Y2, Y2, Y2
	VPXOR        Y3, Y3, Y3
	OFFSETS(0, 0)
	OFFSETS(32, 64)
	OFFSETS(64, 128)
	OFFSETS(96, 192)
	VMOVUPS      Y1, (DX)
	VMOVUPS      Y2, 32(DX)
	VMOVUPS      Y3, 64(DX)
	VZEROUPPER
	RET

// Valid addresses are below 2^63, so signed comparisons suffice. A larger address becomes
// the minimum and is in no buffer.
#define OFFSETS64(AT) \
	VPADDQ AT(SI), Y0, Y4 \
	VPCMPGTQ Y4, Y1, Y5 \
	VBLENDVPD Y5, Y4, Y1, Y1 \
	VPCMPGTQ Y2, Y4, Y5 \
	VBLENDVPD Y5, Y4, Y2, Y2 \
	VPOR Y4, Y3, Y3 \
	VMOVUPS Y4, AT(DI)

// func offsets64AVX2(off, a *lanes64, imm uint64, bounds *[3][4]uint64)
TEXT ·offsets64AVX2(SB), NOSPLIT, $0-32
	MOVQ         off+0(FP), DI
	MOVQ         a+8(FP), SI
	MOVQ         imm+16(FP), AX
	MOVQ         bounds+24(FP), DX
	VMOVQ        AX, X0
	VPBROADCASTQ X0, Y0
	VPADDQ       (SI), Y0, Y1
	VMOVAPS      Y1, Y2
	VPXOR        Y3, Y3, Y3
	OFFSETS64(0)
	OFFSETS64(32)
	OFFSETS64(64)
	OFFSETS64(96)
	OFFSETS64(128)
	OFFSETS64(160)
	OFFSETS64(192)
	OFFSETS64(224)
	VMOVUPS      Y1, (DX)
	VMOVUPS      Y2, 32(DX)
	VMOVUPS      Y3, 64(DX)
	VZEROUPPER
	RET

// func fmaF32AVX2(d, a, b, c *lanes32)
TEXT ·fmaF32AVX2(SB), NOSPLIT, $0-32
	MOVQ        d+0(FP), DI
	MOVQ        a+8(FP), SI
	MOVQ        b+16(FP), DX
	MOVQ        c+24(FP), CX
	VMOVUPS     (SI), Y0
	VMOVUPS     32(SI), Y1
	VMOVUPS     64(SI), Y2
	VMOVUPS     96(SI), Y3
	VMOVUPS     (DX), Y4
	VMOVUPS     32(DX), Y5
	VMOVUPS     64(DX), Y6
	VMOVUPS     96(DX), Y7
	VFMADD213PS (CX), Y4, Y0
	VFMADD213PS 32(CX), Y5, Y1
	VFMADD213PS 64(CX), Y6, Y2
	VFMADD213PS 96(CX), Y7, Y3
	VMOVUPS     Y0, (DI)
	VMOVUPS     Y1, 32(DI)
	VMOVUPS     Y2, 64(DI)
	VMOVUPS     Y3, 96(DI)
	VZEROUPPER
	RET

// func productAVX2(sums *[64]uint64, a *[128]uint64, b *[16][8]float32, depth int)
TEXT ·productAVX2(SB), NOSPLIT, $0-32
	MOVQ sums+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ depth+24(FP), CX
	MOVQ $2, BX

rows:
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
	VMOVUPS 128(DI), Y4
	VMOVUPS 160(DI), Y5
	VMOVUPS 192(DI), Y6
	VMOVUPS 224(DI), Y7
	MOVQ    SI, R8
	MOVQ    DX, R9
	MOVQ    CX, R10

next:
	VMOVUPS      (R9), Y8
	VBROADCASTSS (R8), Y9
	VBROADCASTSS 64(R8), Y10
	VBROADCASTSS 128(R8), Y11
	VBROADCASTSS 192(R8), Y12
	VFMADD231PS  Y8, Y9, Y0
	VFMADD231PS  Y8, Y10, Y1
	VFMADD231PS  Y8, Y11, Y2
	VFMADD231PS  Y8, Y12, Y3
	VBROADCASTSS 256(R8), Y9
	VBROADCASTSS 320(R8), Y10
	VBROADCASTSS 384(R8), Y11
	VBROADCASTSS 448(R8), Y12
	VFMADD231PS  Y8, Y9, Y4
	VFMADD231PS  Y8, Y10, Y5
	VFMADD231PS  Y8, Y11, Y6
	VFMADD231PS  Y8, Y12, Y7
	ADDQ         $4, R8
	ADDQ         $32, R9
	DECQ         R10
	JNZ          next
	VMOVUPS      Y0, (DI)
	VMOVUPS      Y1, 32(DI)
	VMOVUPS      Y2, 64(DI)
	VMOVUPS      Y3, 96(DI)
	VMOVUPS      Y4, 128(DI)
	VMOVUPS      Y5, 160(DI)
	VMOVUPS      Y6, 192(DI)
	VMOVUPS      Y7, 224(DI)
	ADDQ         $256, DI
	ADDQ         $512, SI
	DECQ         BX
	JNZ          rows
	VZEROUPPER
	RET
