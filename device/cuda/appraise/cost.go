package appraise

import "mt/cudart/emu/ptx"

// unit is a kind of execution unit of a multiprocessor that an instruction keeps busy. A
// multiprocessor has four quarters (NVIDIA's SM sub-partitions), and each quarter has its own
// units.
type unit uint8

const (
	unitNone unit = iota
	unitFloat
	unitInteger
	unitSpecial
	unitTensor
	units
)

// cost says what one instruction of a warp occupies, and for how many cycles.
type cost struct {
	issue   float64 // cycles in which the quarter issues nothing else
	unit    unit
	cycles  float64 // cycles in which the unit is busy
	memory  bool    // it uses the path to shared memory and the caches, which all quarters share
	latency float64 // cycles until its result can be read
}

// Latencies of instructions in cycles. Sources: arXiv:2208.11174 and 2206.02874 (A100), 2402.13499
// (A100, RTX 4090 and H100, which differ by a few cycles). The latencies of division (which ptxas
// expands to several instructions), barriers, branches, mbarriers, bulk copies and the end of a
// wgmma are estimates.
const (
	latencyALU      = 4
	latencyShort    = 12 // votes and similar instructions
	latencySpecial  = 20
	latencyDivide   = 60
	latencyShuffle  = 23
	latencyShared   = 29
	latencyMMA      = 33
	latencyMMA8     = 25
	latencyL1       = 38
	latencyL2       = 260
	latencyMemory   = 560
	latencyAtomic   = 300
	latencyBarrier  = 20
	latencyBranch   = 10
	latencyNewBlock = 100
	latencyMbar     = 30  // from the last arrival to the waiting warp: about the latency of shared memory
	latencyBulk     = 170 // in addition to the memory's latency
	latencyProduct  = 32  // in addition to the cycles in which tensor cores are busy
)

// costs returns the cost of each class of instructions on g. Moves and parameter loads of PTX
// mostly do not exist in the GPU's own code, so they cost nothing.
func (g *GPU) costs() (out [ptx.Classes]cost) {
	float, integer := lanesOfQuarters/g.Arch.Float, lanesOfQuarters/g.Arch.Integer
	const special, pack = lanesOfQuarters / specialLanes, lanesOfQuarters / packLanes
	for c, to := range map[ptx.Class]cost{
		ptx.ClassInteger:     {1, unitInteger, integer, false, latencyALU},
		ptx.ClassInteger64:   {2, unitInteger, 2 * integer, false, 2 * latencyALU},
		ptx.ClassMultiply:    {1, unitFloat, pack, false, latencyALU},
		ptx.ClassMultiply64:  {3, unitFloat, 3 * pack, false, 3 * latencyALU},
		ptx.ClassBits:        {1, unitSpecial, special, false, latencyShort},
		ptx.ClassDivide:      {10, unitFloat, 10 * float, false, latencyDivide},
		ptx.ClassFloat:       {1, unitFloat, float, false, latencyALU},
		ptx.ClassDouble:      {1, unitSpecial, 2 * special, false, latencySpecial},
		ptx.ClassSpecial:     {1, unitSpecial, special, false, latencySpecial},
		ptx.ClassConvert:     {1, unitSpecial, special, false, latencyShort},
		ptx.ClassPack:        {1, unitInteger, pack, false, latencyALU},
		ptx.ClassCompare:     {1, unitInteger, integer, false, latencyALU},
		ptx.ClassBranch:      {1, unitNone, 0, false, 0},
		ptx.ClassShuffle:     {1, unitNone, 0, true, latencyShuffle},
		ptx.ClassVote:        {1, unitInteger, integer, false, latencyShort},
		ptx.ClassMMA16:       {1, unitTensor, g.MMA, false, latencyMMA},
		ptx.ClassMMA8:        {1, unitTensor, g.MMA / 2, false, latencyMMA8},
		ptx.ClassLdmatrix:    {1, unitNone, 0, true, latencyShared},
		ptx.ClassLoadGlobal:  {1, unitNone, 0, true, latencyL1},
		ptx.ClassStoreGlobal: {1, unitNone, 0, true, 0},
		ptx.ClassLoadShared:  {1, unitNone, 0, true, latencyShared},
		ptx.ClassStoreShared: {1, unitNone, 0, true, 0},
		ptx.ClassLoadLocal:   {1, unitNone, 0, true, latencyL1},
		ptx.ClassStoreLocal:  {1, unitNone, 0, true, 0},
		ptx.ClassAtomic:      {1, unitNone, 0, true, latencyAtomic},
		ptx.ClassCopy:        {1, unitNone, 0, true, 0},
		ptx.ClassCopyWait:    {issue: 1},
		ptx.ClassBarrier:     {issue: 1},
		ptx.ClassWarpSync:    {issue: 1},
		ptx.ClassFence:       {issue: 1},
		ptx.ClassWGMMA:       {1, unitTensor, 0, false, 0}, // product computes the cycles from the number of columns
		ptx.ClassWGMMAOrder:  {issue: 1},
		ptx.ClassBulk:        {issue: 1},
		ptx.ClassBulkWait:    {issue: 1},
		ptx.ClassMbar:        {1, unitNone, 0, true, 0},
		ptx.ClassMbarWait:    {issue: 1},
	} {
		out[c] = to
	}
	return out
}

// groupedRate is how many bf16 multiply-adds with fp32 sums a quarter's tensor core makes in a
// cycle of wgmma. An H100 has 989.4 TFLOP/s dense on 132 multiprocessors at 1.83 GHz (datasheet),
// which is 4,096 operations, or 2,048 multiply-adds, a cycle and multiprocessor. A quarter makes a
// fourth of them.
const groupedRate = 512

// slowed returns the factor by which wgmma, Hopper's matrix instruction, is slower than the datasheet's peak. A GPU
// whose tensor cores are all busy lowers its clock to stay within its power limit. The factor follows from the measured
// rate of large matrix products; it is 1 if that rate is unknown.
func (g *GPU) slowed() float64 {
	if g.Multiplied == 0 {
		return 1
	}
	return max(1, g.Arithmetic(true)/g.Multiplied)
}

// product returns how many cycles a quarter of the multiprocessor takes for its part of a wgmma
// (Hopper's matrix instruction). The part is 16 rows by 16 columns of A, times the given number of
// columns of B. It takes at least wavefronts cycles, in which shared memory delivers the operands
// to all quarters.
func (m *machine) product(columns int, wavefronts uint16) float64 {
	return max(float64(16*16*columns)/groupedRate*m.slowed, float64(wavefronts))
}

// path returns how many cycles memory requests occupy the path to shared memory and the first-level
// cache. A wavefront is a pass through shared memory, of one cycle. A sector is 32 bytes that come
// from or go to the L2 cache. Each request takes at least one cycle.
func path(wavefronts, sectors, requests int64) float64 {
	return max(float64(wavefronts)+float64(sectors)/sectorsOfL1, float64(requests))
}
