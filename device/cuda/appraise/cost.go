package appraise

import "mt/cudart/emu/ptx"

// unit is a part of a quarter of a multiprocessor that instructions keep busy.
type unit uint8

const (
	unitNone unit = iota
	unitFloat
	unitInteger
	unitSpecial
	unitTensor
	units
)

// cost is what one instruction of a warp takes.
type cost struct {
	issue   float64 // cycles of the quarter in which nothing else is issued
	unit    unit
	cycles  float64 // that it keeps the unit busy
	memory  bool    // it goes through the path to shared memory and the caches, which all quarters share
	latency float64 // cycles until what it writes can be read
}

// Latencies in cycles. Sources: arXiv:2208.11174 and 2206.02874 (A100), 2402.13499 (A100, RTX 4090 and H100,
// which differ by a few cycles); of the expanded division, of barriers, of branches, of mbarriers, of bulk copies and of the end of
// a wgmma they are estimates.
const (
	latencyALU      = 4
	latencyShort    = 12 // votes and the like
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
	latencyMbar     = 30  // from the last arrival to the warp that waits: about that of shared memory
	latencyBulk     = 170 // beyond that of the memory
	latencyProduct  = 32  // beyond the cycles that tensor cores are busy
)

// costs has what each class of instruction costs on g. What PTX has and the GPU mostly has not
// (moves, parameters) costs nothing.
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
		ptx.ClassWGMMA:       {1, unitTensor, 0, false, 0}, // by its columns: see product
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

// groupedRate is how many multiplications of bf16, with additions to fp32, the tensor core of a quarter makes in a cycle of wgmma: an
// eighth of the 4,096 dense operations of a multiprocessor, which H100's datasheet has (989.4 TFLOP/s of 132 at 1.83 GHz).
const groupedRate = 512

// slowed is how much longer wgmma takes than the datasheet's peak has it, where products of large matrices are known to: a GPU
// whose tensor cores are all busy lowers its clock to keep within its power.
func (g *GPU) slowed() float64 {
	if g.Multiplied == 0 {
		return 1
	}
	return max(1, g.Arithmetic(true)/g.Multiplied)
}

// product is how many cycles a quarter is busy with its part of a wgmma of so many columns: it multiplies 16 rows by 16 columns of
// A, and does not go on faster than shared memory, which all quarters share, brings the operands.
func (m *machine) product(columns int, wavefronts uint16) float64 {
	return max(float64(16*16*columns)/groupedRate*m.slowed, float64(wavefronts))
}

// path is how many cycles the path to shared memory and the caches is busy with requests.
func path(wavefronts, sectors, requests int64) float64 {
	return max(float64(wavefronts)+float64(sectors)/sectorsOfL1, float64(requests))
}
