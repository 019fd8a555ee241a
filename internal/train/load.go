package train

import (
	"fmt"

	"mt/checkpoint"
)

// doesNotLoad is the error of a checkpoint that does not load although its checksums
// are right. Train then takes the checkpoint before it, as it does where they are
// wrong.
type doesNotLoad struct {
	dir string
	err error
}

func (e *doesNotLoad) Error() string { return fmt.Sprintf("resume: %v", e.err) }

func (e *doesNotLoad) Unwrap() error { return e.err }

// load fills the store from the checkpoint dir; with reset, moments begin at zero. Where the user
// named that checkpoint, none is taken in its place.
func (s *session) load(dir string, reset bool) error {
	load := checkpoint.Load
	if reset {
		load = checkpoint.LoadWeights
	}
	_, err := load(dir, checkpointLayers(s.store), nil)
	switch {
	case err == nil:
		return nil
	case checkpoint.IsDiskError(err) || s.c.Resume == dir:
		return fmt.Errorf("resume: %w", err)
	}
	return &doesNotLoad{dir, err}
}
