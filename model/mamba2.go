package model

// Mamba2 is a state space mixer. One product makes a token's gate z, the vectors x, b and c, and a step per head. A
// short convolution along the tokens changes x, b and c. Each head carries a state (HeadDim, StateDim) from token to
// token. The output is gated by SiLU(z) and normed in Groups groups. Source: arXiv:2405.21060; transformers,
// modeling_mamba2.
type Mamba2 struct {
	Groups, Heads     int // Heads is a multiple of Groups; the heads of a group share b and c
	HeadDim, StateDim int
	Taps              int  // taps of the convolution
	ConvBias, Bias    bool // the convolution has a bias; the products have biases
	NoNorm            bool // the gated output is not normed
	DtMin, DtMax      float64
}

// Inner returns the number of columns of x for all heads together. The mixer's output has as many.
func (r *Mamba2) Inner() int { return r.Heads * r.HeadDim }

// Convolved returns the number of columns that pass the convolution: x, b and c.
func (r *Mamba2) Convolved() int { return r.Inner() + 2*r.Groups*r.StateDim }

// Columns returns the number of columns that the input projection makes: z, x, b, c and a step per
// head.
func (r *Mamba2) Columns() int { return r.Inner() + r.Convolved() + r.Heads }

// ConvFLOPs implements Recurrence: one multiply-add per tap and column.
func (r *Mamba2) ConvFLOPs() int64 { return 2 * int64(r.Taps) * int64(r.Convolved()) }

// StateFLOPs implements Recurrence. A token writes the state once and reads it once, each with a
// multiply-add per element.
func (r *Mamba2) StateFLOPs() int64 { return 4 * int64(r.Inner()) * int64(r.StateDim) }

// mamba2Tensors are the usual tensor names of a Mamba-2 mixer, after the block's prefix.
var mamba2Tensors = tensors{
	RoleRecurIn:       {"mamba.in_proj.weight"},
	RoleRecurInBias:   {"mamba.in_proj.bias"},
	RoleRecurTaps:     {"mamba.conv1d.weight"},
	RoleRecurTapsBias: {"mamba.conv1d.bias"},
	RoleRecurDecay:    {"mamba.A_log"},
	RoleRecurDtBias:   {"mamba.dt_bias"},
	RoleRecurSkip:     {"mamba.D"},
	RoleRecurNorm:     {"mamba.norm.weight"},
	RoleRecurOut:      {"mamba.out_proj.weight"},
	RoleRecurOutBias:  {"mamba.out_proj.bias"},
}

func (r *Mamba2) tensorNames(role Role) []string { return mamba2Tensors[role] }

func (r *Mamba2) params(n blockNames) []Param {
	h, perHead := n.c.HiddenSize, func(role Role) Param { return vector(role, n.stored(role, r.Heads)) }
	p := []Param{matrix(RoleRecurIn, h, n.stored(RoleRecurIn, r.Columns())), n.convTaps(r.Taps, r.Convolved())}
	if r.Bias {
		p = append(p, vector(RoleRecurInBias, n.stored(RoleRecurInBias, r.Columns())), vector(RoleRecurOutBias, n.stored(RoleRecurOutBias, h)))
	}
	if r.ConvBias {
		p = append(p, vector(RoleRecurTapsBias, n.stored(RoleRecurTapsBias, r.Convolved())))
	}
	p = append(p, perHead(RoleRecurDecay), perHead(RoleRecurDtBias), perHead(RoleRecurSkip))
	if !r.NoNorm {
		p = append(p, vector(RoleRecurNorm, n.stored(RoleRecurNorm, r.Inner())))
	}
	return append(p, matrix(RoleRecurOut, r.Inner(), n.stored(RoleRecurOut, h)))
}

// Multipliers are constant factors on activations that some models have. None is 0.
//
//	Value: attention's values
//	Gate, Down: the MLP's gate, and the input of its down projection
//	ScanIn: the columns z, x, b, c and dt of a Mamba-2 mixer
//	ScanOut: the input of the mixer's output projection
type Multipliers struct {
	Value, Gate, Down float64
	ScanIn            [5]float64
	ScanOut           float64
}

// Limits on heads, head width and state width of Mamba-2 mixers. The device operation op.SSD has
// the same limits.
const (
	maxScanHeads = 1024
	maxScanHead  = 128
	maxScanState = 256
)

// mamba2Keys are the keys of config.json that Config.mamba2Fields reads.
var mamba2Keys = []string{"mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand", "mamba_chunk_size",
	"mamba_conv_bias", "mamba_proj_bias", "time_step_limit"}

// mamba2Fields reads the sizes of Mamba-2 mixers. Argument inner is the width of all heads
// together. The key mamba_chunk_size is not read, because a kernel's chunks change no result.
func (c *Config) mamba2Fields(f *fields, inner int) *Mamba2 {
	r := &Mamba2{Groups: f.int("mamba_n_groups", 1, 1, maxScanHeads), Heads: f.int("mamba_n_heads", 128, 1, maxScanHeads),
		StateDim: f.int("mamba_d_state", 256, 1, maxScanState), Taps: f.int("mamba_d_conv", 4, 1, maxTaps), ConvBias: f.bool("mamba_conv_bias", true),
		Bias: f.bool("mamba_proj_bias", false)}
	r.HeadDim = inner / r.Heads
	if auto, ok := f.vals["mamba_d_head"].(string); !ok || auto != "auto" {
		r.HeadDim = f.int("mamba_d_head", r.HeadDim, 1, maxScanHead)
	}
	r.limits(f)
	switch {
	case r.Inner() != inner:
		f.fail("mamba_d_head", "%d heads of %d are not the %d columns of the mixer", r.Heads, r.HeadDim, inner)
	case r.HeadDim > maxScanHead:
		f.fail("mamba_d_head", "%d: at most %d", r.HeadDim, maxScanHead)
	case r.Heads%r.Groups != 0:
		f.fail("mamba_n_heads", "%d heads do not share %d groups evenly", r.Heads, r.Groups)
	}
	return r
}

// limits reads time_step_limit: the least and largest value that a head's time step is clamped to
// after the softplus.
func (r *Mamba2) limits(f *fields) {
	if r.DtMax = maxStep; !f.has("time_step_limit") {
		return
	}
	list, _ := f.vals["time_step_limit"].([]any)
	if len(list) != 2 {
		f.fail("time_step_limit", "%s is not a list of two numbers", show(f.vals["time_step_limit"]))
		return
	}
	lo, isLo := number(list[0])
	hi, isHi := number(list[1])
	if !isLo || !isHi || !(lo >= 0 && lo <= hi) {
		f.fail("time_step_limit", "%s are no bounds from 0 on in order", show(f.vals["time_step_limit"]))
	}
	r.DtMin, r.DtMax = lo, min(hi, maxStep)
}

// maxStep stands for no upper bound of a time step. It is near the largest fp32 number.
const maxStep = 3e38

// Limited says whether time steps are clamped.
func (r *Mamba2) Limited() bool { return r.DtMin > 0 || r.DtMax < maxStep }

func (r *Mamba2) json(m map[string]any) {
	m["mamba_n_heads"], m["mamba_n_groups"], m["mamba_d_state"], m["mamba_d_head"] = r.Heads, r.Groups, r.StateDim, r.HeadDim
	m["mamba_d_conv"], m["mamba_conv_bias"], m["mamba_proj_bias"] = r.Taps, r.ConvBias, r.Bias
	if r.Limited() {
		m["time_step_limit"] = []float{float(r.DtMin), float(r.DtMax)}
	}
}
