package appraise

import (
	"fmt"
	"strings"

	"mt/plan/rates"
)

// GPU has the properties of a GPU on which predicted kernel times depend.
type GPU struct {
	Name string // name in plan/rates
	Arch *Architecture
	SMs  int
	// Clock is the clock in GHz at which the GPU has the peak rates of its datasheet.
	Clock float64
	// MMA is the cycles in which a quarter of a multiprocessor computes one mma.sync m16n8k16 of bf16 with fp32 sums,
	// which is 2048 multiply-adds.
	MMA float64
	// L2 is the L2 cache's rate in bytes a cycle, for the whole GPU.
	L2 float64
	// Peak is the datasheet's rate of device memory in GB/s. Reached is the measured rate of
	// device-to-device copies, from plan/rates.
	Peak, Reached float64
	// Multiplied is the FLOP/s of large bf16 products, from plan/rates; 0: unknown.
	Multiplied float64
	// Launch is the gap between two kernels of a stream in microseconds, from plan/rates.
	Launch float64
}

// Architecture has the properties of multiprocessors of one compute capability. A multiprocessor has four quarters,
// and each issues one instruction of a warp a cycle. Sources: CUDA C++ Programming Guide, "Technical Specifications
// per Compute Capability" for resident blocks and warps, "Throughput of Native Arithmetic Instructions" for lanes.
type Architecture struct {
	Name          string
	Warps, Blocks int // most on a multiprocessor at a time
	Shared        int // bytes of shared memory for all resident blocks
	// Operations that a multiprocessor completes in a cycle: fp32 multiply-adds, and 32-bit integer additions,
	// comparisons and logic.
	Float, Integer float64
}

// Properties that multiprocessors (SMs) of all compute capabilities from 8.0 on share. Sources: as
// for Architecture; CUDA's occupancy calculator for the allocation units of registers and shared
// memory. Lanes are operations that an SM starts in a cycle.
const (
	registersOfSM   = 64 << 10
	registerUnit    = 256 // a warp's registers are allocated in multiples of this
	warpUnit        = 4   // warps are allocated in multiples of this
	sharedUnit      = 128 // bytes
	sharedReserved  = 1 << 10
	specialLanes    = 16 // exponentials, reciprocals, conversions of integers and floats
	packLanes       = 64 // conversions of two floats to a pair, integer products
	sectorsOfL1     = 4  // sectors of 32 bytes that the first-level cache moves in a cycle
	bytesToL2       = 64 // bytes that a multiprocessor exchanges with the L2 cache in a cycle
	quarters        = 4
	lanesOfQuarters = 32 * quarters
)

var (
	sm80  = &Architecture{"sm_80", 64, 32, 164 << 10, 64, 64}
	sm86  = &Architecture{"sm_86", 48, 16, 100 << 10, 128, 64}
	sm89  = &Architecture{"sm_89", 48, 24, 100 << 10, 128, 64}
	sm90  = &Architecture{"sm_90", 64, 32, 228 << 10, 128, 64}
	sm100 = &Architecture{"sm_100", 64, 32, 228 << 10, 128, 64}
	sm120 = &Architecture{"sm_120", 48, 24, 100 << 10, 128, 128}
)

// Cycles of one mma.sync m16n8k16 in a quarter of a multiprocessor. They follow from the
// datasheets' peaks in TFLOP/s (at the right) and the clocks below. GeForce cards have half or a
// quarter of the tensor core rate when sums are fp32. On Hopper mma.sync reaches 62.9 % of the
// peak, which only wgmma reaches (arXiv:2402.13499). Nothing is published about Blackwell, so
// Hopper's value is assumed.
const (
	mmaA100    = 8.0       // 312 TFLOP/s
	mmaGeForce = 32.0      // 71.2 (RTX 3090), 165.2 (RTX 4090), 209.5 (RTX 5090)
	mmaL40S    = 16.0      // 362
	mmaHopper  = 4 / 0.629 // 989 by wgmma
)

// Rates of L2 caches in bytes a cycle. NVIDIA's A100 white paper says 5120. No other numbers are published. The
// estimate for the others is 64 bytes for each slice: GA102 and AD102 have 48 slices, GB202 64.
const (
	l2Data  = 5120
	l2GA102 = 3072
	l2AD102 = 3072
	l2GB202 = 4096
	l2GB10  = 1536
)

// table has the GPUs of plan/rates. Numbers of multiprocessors are from NVIDIA's architecture white papers. Each clock
// is the one at which the multiprocessors and the cycles of their instructions give the datasheet's peak.
var table = []GPU{
	{Name: "rtx-3080", Arch: sm86, SMs: 68, Clock: 1.71, MMA: mmaGeForce, L2: l2GA102, Peak: 760},
	{Name: "rtx-3090", Arch: sm86, SMs: 82, Clock: 1.695, MMA: mmaGeForce, L2: l2GA102, Peak: 936},
	{Name: "rtx-4090", Arch: sm89, SMs: 128, Clock: 2.52, MMA: mmaGeForce, L2: l2AD102, Peak: 1008},
	{Name: "rtx-5090", Arch: sm120, SMs: 170, Clock: 2.407, MMA: mmaGeForce, L2: l2GB202, Peak: 1792},
	{Name: "a100-pcie-40gb", Arch: sm80, SMs: 108, Clock: 1.41, MMA: mmaA100, L2: l2Data, Peak: 1555},
	{Name: "a100-pcie-80gb", Arch: sm80, SMs: 108, Clock: 1.41, MMA: mmaA100, L2: l2Data, Peak: 1935},
	{Name: "a100-sxm-40gb", Arch: sm80, SMs: 108, Clock: 1.41, MMA: mmaA100, L2: l2Data, Peak: 1555},
	{Name: "a100-sxm-80gb", Arch: sm80, SMs: 108, Clock: 1.41, MMA: mmaA100, L2: l2Data, Peak: 2039},
	{Name: "l40s", Arch: sm89, SMs: 142, Clock: 2.49, MMA: mmaL40S, L2: l2AD102, Peak: 864},
	{Name: "h100-pcie", Arch: sm90, SMs: 114, Clock: 1.62, MMA: mmaHopper, L2: l2Data, Peak: 2000},
	{Name: "h100-sxm", Arch: sm90, SMs: 132, Clock: 1.83, MMA: mmaHopper, L2: l2Data, Peak: 3350},
	{Name: "h200", Arch: sm90, SMs: 132, Clock: 1.83, MMA: mmaHopper, L2: l2Data, Peak: 4800},
	{Name: "gh200", Arch: sm90, SMs: 132, Clock: 1.83, MMA: mmaHopper, L2: l2Data, Peak: 4000},
	{Name: "b200", Arch: sm100, SMs: 148, Clock: 1.86, MMA: mmaHopper, L2: l2Data, Peak: 8000},
	{Name: "gb10", Arch: sm120, SMs: 48, Clock: 2.52, MMA: mmaL40S, L2: l2GB10, Peak: 273},
}

// FindGPU returns the GPU called name, such as h100 or rtx-4090. The names are those of plan/rates.
func FindGPU(name string) (*GPU, error) {
	m, err := rates.Find(name)
	if err != nil {
		return nil, fmt.Errorf("appraise: %w", err)
	}
	plain, _, _ := strings.Cut(m.Name, "+")
	for _, g := range table {
		if g.Name == plain {
			g.Reached, g.Launch = m.Device.Bandwidth, m.Device.Launch
			for _, p := range m.Device.Products["bf16"] {
				g.Multiplied = max(g.Multiplied, p.Rate*1e12)
			}
			return &g, nil
		}
	}
	return nil, fmt.Errorf("appraise: nothing is known of the multiprocessors of %s (known: %s)", name, strings.Join(rates.GPUs(), ", "))
}

// Arithmetic returns the datasheet's dense peak in FLOP/s with fp32 sums. For bf16 it is the peak of the GPU's
// fastest tensor core instruction, and for fp32 the peak without tensor cores.
func (g *GPU) Arithmetic(bf16 bool) float64 {
	mma := g.MMA
	switch g.Arch {
	case sm90:
		mma = 4 // by wgmma
	case sm100:
		mma = 2 // by tcgen05
	}
	each := 2 * g.Arch.Float
	if bf16 {
		each = 2 * 2048 * quarters / mma
	}
	return each * float64(g.SMs) * g.Clock * 1e9
}
