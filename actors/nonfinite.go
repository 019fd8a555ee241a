package actors

// NonFiniteError ends a run whose loss or gradients were not finite.
type NonFiniteError struct {
	Step   int // at which the run gave up
	Finite int // the last before whose loss and gradients were finite
	err    error
}

func (e *NonFiniteError) Error() string { return e.err.Error() }

// Unwrap is what Error says.
func (e *NonFiniteError) Unwrap() error { return e.err }
