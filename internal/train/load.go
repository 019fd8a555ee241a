package train

import (
	"fmt"

	"mt/checkpoint"
)

// doesNotLoad is the error of a checkpoint that does not load although it
// verifies. Train takes the one before, as it does of one that does not verify.
type doesNotLoad struct {
	dir string
	err error
}

func (e *doesNotLoad) Error() string { return fmt.Sprintf("resume: %v", e.err) }

func (e *doesNotLoad) Unwrap() error { return e.err }

// load fills memory from the checkpoint dir. One that the user named is not
// replaced by another.
func (s *session) load(dir string) error {
	_, err := checkpoint.Load(dir, checkpointLayers(s.store), nil)
	switch {
	case err == nil:
		return nil
	case checkpoint.IsDiskError(err) || s.c.Resume == dir:
		return fmt.Errorf("resume: %w", err)
	}
	return &doesNotLoad{dir, err}
}
