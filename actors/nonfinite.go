package actors

// NonFiniteError ends a run whose loss or gradients were not finite.
type NonFiniteError struct {
	Step   int // the step at which the run gave up
	Finite int // the last step before it whose loss and gradients were finite
	err    error
}

func (e *NonFiniteError) Error() string { return e.err.Error() }

// Unwrap returns the error whose text Error returns.
func (e *NonFiniteError) Unwrap() error { return e.err }
