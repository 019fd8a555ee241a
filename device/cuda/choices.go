package cuda

import (
	"slices"
	"sync"

	"mt/cudart"
)

// Platform is what the choice of an algorithm holds for: elsewhere the same words may mean another
// algorithm, or none, and another one may be the fastest.
type Platform struct {
	Device   string `json:"device"`   // its name
	Driver   int    `json:"driver"`   // 12040 serves CUDA 12.4
	CuBLASLt int    `json:"cublaslt"` // 120402 is 12.4.2
}

// Store keeps choices of algorithms from one process to the next.
type Store interface {
	// Load returns what was kept for a platform, by Algorithm.Shape. note, unless empty, says why
	// something that is there was passed over.
	Load(p Platform) (kept map[string][8]uint64, note string)
	// Keep adds a choice.
	Keep(p Platform, shape string, words [8]uint64) error
}

// Choices say which algorithm of cuBLASLt computes products of a shape. Devices that share Choices,
// as those of a run do, choose alike where they are of one platform. Of the algorithms that cuBLASLt
// proposes for a shape it is, in this order: that of Resume, with timing that of the store, with timing
// the one that is the fastest when the shape is first used, the first one. What the library does not
// propose is never used, wherever it was kept.
type Choices struct {
	timed bool
	store Store

	mu       sync.Mutex // also held while a product is timed, so that no two devices choose for one shape
	recorded map[string]cudart.Algorithm
	kept     map[Platform]map[string]cudart.Algorithm
}

// NewChoices returns choices of cuBLASLt's first proposals or, with timed, of those that are the
// fastest on the device. A store, which may be nil, has what was timed earlier, and is told what is
// timed.
func NewChoices(timed bool, store Store) *Choices {
	return &Choices{timed: timed, store: store, kept: map[Platform]map[string]cudart.Algorithm{}}
}

// resume has shapes computed as was recorded.
func (c *Choices) resume(recorded map[string][8]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recorded = map[string]cudart.Algorithm{}
	for shape, words := range recorded {
		c.recorded[shape] = words
	}
}

// of returns the choices that were kept for a platform, which it loads when it is first asked. c.mu
// is held.
func (c *Choices) of(p Platform, note func(string)) map[string]cudart.Algorithm {
	if c.kept[p] == nil {
		c.kept[p] = map[string]cudart.Algorithm{}
		if c.store != nil {
			loaded, passedOver := c.store.Load(p)
			if passedOver != "" {
				note(passedOver)
			}
			for shape, words := range loaded {
				c.kept[p][shape] = words
			}
		}
	}
	return c.kept[p]
}

// made returns which of the proposed algorithms was chosen before for a shape. c.mu is held.
func (c *Choices) made(p Platform, shape string, proposed []cudart.Algorithm, note func(string)) (cudart.Algorithm, bool) {
	if a, ok := c.recorded[shape]; ok && slices.Contains(proposed, a) {
		return a, true
	}
	if !c.timed || len(proposed) == 1 {
		return proposed[0], true
	}
	a, ok := c.of(p, note)[shape]
	return a, ok && slices.Contains(proposed, a)
}

// keep keeps the choice for a shape. c.mu is held.
func (c *Choices) keep(p Platform, shape string, a cudart.Algorithm) error {
	c.kept[p][shape] = a
	if c.store == nil {
		return nil
	}
	return c.store.Keep(p, shape, a)
}

// ResumeAlgorithms has shapes computed in the way that a run which goes on has recorded, by
// Algorithm.Shape, where cuBLASLt still proposes that. It is to be called before the first product.
func (d *dev) ResumeAlgorithms(recorded map[string][8]uint64) { d.blas.choices.resume(recorded) }
