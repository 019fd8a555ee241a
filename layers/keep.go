package layers

import (
	"fmt"
	"slices"
	"strings"
)

// Keep says what a block's forward keeps on the device for its backward. What the backward
// reads and was not kept it computes again, and nothing else.
type Keep uint8

// The levels, each with everything of those before it.
const (
	KeepNothing   Keep = iota // from the layer's input alone ("recompute: full")
	KeepAttention             // attention's output and log-sum-exp
	KeepQKV                   // rotated q and k, v; with q/k norm as they were before it and, unless that is behind it, the rotation, which are repeated
	KeepAll                   // gate/up and the MLP's residual input: no product is computed twice, but for those before norms (Gemma) and of experts ("recompute: none")
)

var keepNames = [...]string{"nothing", "attention", "qkv", "all"}

// String is the level's name in plans.
func (k Keep) String() string {
	if int(k) < len(keepNames) {
		return keepNames[k]
	}
	return fmt.Sprintf("Keep(%d)", uint8(k))
}

// Keeps are the levels of all decoder blocks of a run, by block. A block beyond its end keeps
// nothing, so nil is KeepNothing everywhere.
type Keeps []Keep

// KeepIn is the same level in so many blocks.
func KeepIn(blocks int, level Keep) Keeps { return slices.Repeat(Keeps{level}, blocks) }

// Of is the level of a block.
func (k Keeps) Of(block int) Keep {
	if block < len(k) {
		return k[block]
	}
	return KeepNothing
}

// Anything says whether a block keeps more than nothing.
func (k Keeps) Anything() bool { return len(k) > 0 && slices.Max(k) > KeepNothing }

// String says it in words: "attention" or, where blocks differ, "all in 20 of 28 blocks,
// attention in 8".
func (k Keeps) String() string {
	if !k.Anything() {
		return KeepNothing.String()
	}
	var counts [len(keepNames)]int
	for _, level := range k {
		counts[level]++
	}
	var words []string
	for level := KeepAll; ; level-- {
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
