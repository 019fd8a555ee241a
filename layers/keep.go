package layers

import (
	"fmt"
	"slices"
	"strings"
)

// Keep is the level that says which tensors a block's forward keeps on the device for its backward. The backward
// computes its other inputs again.
type Keep uint8

// The levels of Keep. Each keeps the tensors of the levels before it, and its own.
const (
	KeepNothing   Keep = iota // only the layer's input ("recompute: full")
	KeepAttention             // attention's output and log-sum-exp, and an indexer's choice
	KeepQKV                   // q, k and v as attention reads them; with q/k norm, q and k as they are before the norm, which is computed again with all that follows it
	KeepAll                   // gate/up and the MLP's residual input; only products before output norms (Gemma) and of experts are computed twice ("recompute: none")
	KeepInputs                // inputs of products: normed inputs with the norms' statistics, and the MLP's activation; saves passes over memory, no product
)

var keepNames = [...]string{"nothing", "attention", "qkv", "all", "inputs"}

// String returns the level's name in plans.
func (k Keep) String() string {
	if int(k) < len(keepNames) {
		return keepNames[k]
	}
	return fmt.Sprintf("Keep(%d)", uint8(k))
}

// Keeps are the levels of all decoder blocks of a run, by block. Missing blocks keep nothing, so nil is KeepNothing
// everywhere.
type Keeps []Keep

// KeepIn returns Keeps with the same level for each of the given number of blocks.
func KeepIn(blocks int, level Keep) Keeps { return slices.Repeat(Keeps{level}, blocks) }

// Of returns a block's level, which says what the forward keeps for the backward.
func (k Keeps) Of(block int) Keep {
	if block < len(k) {
		return k[block]
	}
	return KeepNothing
}

// KeptShare returns the share of the micro-batches of which a block keeps what its level says.
func (s Spec) KeptShare(block int) float64 {
	if block < len(s.KeptOnHost) && s.KeptOnHost[block] {
		return float64(s.KeptOf.N) / float64(s.KeptOf.Of)
	}
	return 1
}

// Anything reports whether the forward of any block keeps something for the backward.
func (k Keeps) Anything() bool { return len(k) > 0 && slices.Max(k) > KeepNothing }

// String returns one level, such as "attention", or "all in 20 of 28 blocks, attention in 8" if blocks differ.
func (k Keeps) String() string {
	if !k.Anything() {
		return KeepNothing.String()
	}
	var counts [len(keepNames)]int
	for _, level := range k {
		counts[level]++
	}
	var words []string
	for level := KeepInputs; ; level-- {
		if n := counts[level]; n == len(k) {
			return level.String()
		} else if n > 0 && words == nil {
			words = append(words, fmt.Sprintf("%s in %d of %d blocks", level, n, len(k)))
		} else if n > 0 {
			words = append(words, fmt.Sprintf("%s in %d", level, n))
		}
		if level == KeepNothing {
			return strings.Join(words, ", ")
		}
	}
}
