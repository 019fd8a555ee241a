package cuda

import (
	"slices"
	"sync"

	"mt/cudart"
)

// Platform says for which GPU model, driver and version of cuBLASLt a choice of algorithm is valid.
// On another platform the same words (the bits of cublasLtMatmulAlgo_t) may mean another algorithm
// or none, and another algorithm may be the fastest.
type Platform struct {
	Device   string `json:"device"`   // the device's name
	Driver   int    `json:"driver"`   // 12040: the driver serves CUDA 12.4
	CuBLASLt int    `json:"cublaslt"` // 120402: version 12.4.2
}

// Store keeps the chosen algorithms across processes, for example in a file.
type Store interface {
	// Load returns the stored choices for a platform, by Algorithm.Shape. If Load skipped a stored
	// choice, note says why.
	Load(p Platform) (kept map[string][8]uint64, note string)
	// Keep stores the algorithm for products of this shape. words are cuBLASLt's 64 bytes that describe the algorithm.
	Keep(p Platform, shape string, words [8]uint64) error
}

// Choices decide which algorithm of cuBLASLt computes products of a shape. Devices that share Choices, as the devices
// of a run do, choose alike if they have the same Platform (GPU model, driver, cuBLASLt). Only algorithms that cuBLASLt
// proposes for the shape are used. The first of these wins:
//
//   - the algorithm that a resumed run recorded (ResumeAlgorithms)
//   - with timing, the algorithm in the store
//   - with timing, the fastest when the shape is first used
//   - the first proposal
type Choices struct {
	timed bool
	store Store

	mu       sync.Mutex // also held during timing, so that no two devices choose for one shape
	recorded map[string]cudart.Algorithm
	kept     map[Platform]map[string]cudart.Algorithm
}

// NewChoices returns Choices that take cuBLASLt's first proposal for each shape or, if timed is
// true, the proposal that is fastest on the device. The store has choices timed by earlier
// processes and receives new ones; nil: no store.
func NewChoices(timed bool, store Store) *Choices {
	return &Choices{timed: timed, store: store, kept: map[Platform]map[string]cudart.Algorithm{}}
}

// resume is called when a run is resumed. It makes products of a recorded shape use the algorithm
// that the run has recorded for that shape.
func (c *Choices) resume(recorded map[string][8]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recorded = map[string]cudart.Algorithm{}
	for shape, words := range recorded {
		c.recorded[shape] = words
	}
}

// of returns the choices for a platform, by shape. The first call loads them from the store. If the
// store skipped choices, note is called with the reason. The caller holds c.mu.
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

// made returns the algorithm for a shape and true, if no timing is needed. That is a recorded
// algorithm that is still proposed, the first proposal if there is nothing to time, or an earlier
// or stored choice. It returns false if the proposals have yet to be timed. The store's remarks go
// to note. The caller holds c.mu.
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

// keep makes a the algorithm for products of this shape, and puts the choice into the store, if
// there is one. The caller holds c.mu.
func (c *Choices) keep(p Platform, shape string, a cudart.Algorithm) error {
	c.kept[p][shape] = a
	if c.store == nil {
		return nil
	}
	return c.store.Keep(p, shape, a)
}

// ResumeAlgorithms makes products use the algorithms that a resumed run recorded, by Algorithm.Shape, if cuBLASLt
// still proposes them. It must be called before the first product.
func (d *dev) ResumeAlgorithms(recorded map[string][8]uint64) { d.blas.choices.resume(recorded) }
