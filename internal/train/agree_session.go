package train

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"mt/actors"
	"mt/checkpoint"
)

// filled is what a rank has after its store was filled.
type filled struct {
	Unloadable string   `json:"unloadable,omitempty"` // the checkpoint that did not load, and Why
	Why        string   `json:"why,omitempty"`
	Tiles      []uint32 `json:"tiles,omitempty"` // by layer, the CRC32C of its tile
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// agreeOnTiles has all ranks compare the weights that they have loaded; err is that of loading.
// Where a checkpoint does not load on one rank, all take the one before.
func (s *session) agreeOnTiles(err error) error {
	t := s.team
	if t.Size() == 1 {
		return err
	}
	var mine filled
	var bad *doesNotLoad
	switch {
	case errors.As(err, &bad):
		mine.Unloadable, mine.Why = bad.dir, bad.err.Error()
	case err != nil:
		return err
	default:
		mine.Tiles = make([]uint32, len(s.store.Layers))
		s.pool.Run(len(mine.Tiles), func(i int) { mine.Tiles[i] = crc32.Checksum(s.store.Layers[i].Tile, castagnoli) })
	}
	all, err := tell(t, "the loaded weights", mine)
	if err != nil {
		return err
	}
	for r, f := range all {
		if f.Unloadable != "" {
			return &doesNotLoad{f.Unloadable, fmt.Errorf("%s: %s", t.named(r), f.Why)}
		}
	}
	for r, f := range all {
		for i := range f.Tiles {
			if f.Tiles[i] != all[0].Tiles[i] {
				// All ranks find this, and say it in one way.
				return fmt.Errorf("the weights of layer %d are not the same on %s and %s after they were loaded: %s", i, t.named(0), t.named(r), alikeFiles)
			}
		}
	}
	return nil
}

// begun is what rank 0 has found in output_dir, which the others need to know.
type begun struct {
	EvalStep   int             `json:"eval_step"`   // of the last evaluation
	EvalLoss   uint64          `json:"eval_loss"`   // the bits of its loss, which may not be finite
	EvalTokens int64           `json:"eval_tokens"` // that it is of
	Sampled    int             `json:"sampled"`     // the step of the last samples
	Bests      checkpoint.Best `json:"bests"`
}

// agreeOnOutput tells all ranks what rank 0 has found in output_dir.
func (s *session) agreeOnOutput() error {
	t := s.team
	all, err := tell(t, "the output directory", begun{EvalStep: s.lastEval.Step, EvalLoss: math.Float64bits(s.lastEval.Loss), EvalTokens: s.lastEval.Tokens,
		Sampled: s.samples.last, Bests: s.bests.reported})
	if err != nil {
		return err
	}
	if first := all[0]; !t.first() {
		s.lastEval = actors.EvalReport{Step: first.EvalStep, Loss: math.Float64frombits(first.EvalLoss), Tokens: first.EvalTokens}
		if len(s.prompts) > 0 {
			s.samples = samples{every: s.c.SampleSteps.Of(s.c.MaxSteps), prompts: s.prompts, last: first.Sampled}
		}
		s.bests.begin(first.Bests)
	}
	return nil
}
