package device

// The most experts a router chooses from, and the most it chooses.
const (
	MaxExperts = 1024
	MaxChosen  = 32
)

// ScaleRows holds the arguments of Ops.ScaleRows.
//
//	X (T, C) act; W (P) f32; Index (T) i32, each < P
type ScaleRows struct {
	X, W, Index Tensor
	T, C, P     int
}

// ScaleRowsBackward holds the arguments of Ops.ScaleRowsBackward.
//
//	Y (T, C) act: the rows before they were scaled; DY (T, C) act: the gradient
//	of the scaled rows
//	W (P) f32; Index (T) i32, each < P, none twice
//	DW (P) f32: element Index[t] becomes Σ_c DY·Y, the others stay
//
// Then row t of both DY and Y is multiplied by W[Index[t]], in place: DY becomes
// the gradient of the rows before, Y the rows after they were scaled.
type ScaleRowsBackward struct {
	DY, Y, W, DW, Index Tensor
	T, C, P             int
}

// Router holds the arguments of Ops.Router.
//
//	Logits (T, E) f32, E ≤ MaxExperts; 1 ≤ K ≤ min(E, MaxChosen)
//	IDs (T, K) i32, Weights (T, K) f32, the greatest probability first: of the
//	softmax over E, with Normalize divided by the sum of those chosen. IDs are
//	less than E and differ, whatever the logits hold
//	ProbSum (E) f32 accumulates Σ_t softmax; none: not wanted
type Router struct {
	Logits, IDs, Weights, ProbSum Tensor
	T, E, K                       int
	Normalize                     bool
}

// RouterBackward holds the arguments of Ops.RouterBackward.
//
//	DLogits (T, E) f32 overwritten, may be Logits; DWeights (T, K) f32
//	Logits, IDs, Normalize as in the forward
//	Counts (E) i32: the probability of expert e has, for every token, the
//	additional gradient AuxScale·Counts[e]; none: no such term
type RouterBackward struct {
	DLogits, Logits, IDs, DWeights, Counts Tensor
	T, E, K                                int
	Normalize                              bool
	AuxScale                               float32
}

// SortByExpert holds the arguments of Ops.SortByExpert.
//
//	IDs (N) i32, N = T·K, each < E ≤ MaxExperts: what Router writes
//	Order (N) i32: the numbers t·K + k of the pairs by expert, rising within one
//	Rows (N) i32 = Order/K
//	Offsets (E+1) i32: expert e has Order[Offsets[e]:Offsets[e+1]]
//	Counts (E) i32 accumulates how many pairs an expert has; none: not wanted
type SortByExpert struct {
	IDs, Order, Rows, Offsets, Counts Tensor
	N, K, E                           int
}
