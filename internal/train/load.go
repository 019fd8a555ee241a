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

// load fills the store from the checkpoint that the run goes on from; with reset, moments begin at
// zero.
func (s *session) load(from resume) error {
	beside, load := checkpoint.Everything, checkpoint.Load
	if from.reset {
		beside, load = checkpoint.LowerHalves, checkpoint.LoadWeights
	}
	if from.sent {
		return s.receive(from.dir, beside)
	}
	_, err := load(from.local, checkpointLayers(s.store), nil)
	return s.loading(from.dir, err)
}

// loading is the error of loading the checkpoint dir, of which err came. Where the user named that
// checkpoint, none is taken in its place.
func (s *session) loading(dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case checkpoint.IsDiskError(err) || s.c.Resume == dir:
		return fmt.Errorf("resume: %w", err)
	}
	return &doesNotLoad{dir, err}
}
