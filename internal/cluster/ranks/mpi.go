package ranks

import (
	"fmt"
	"os"

	"mt/internal/cluster/mpi"
)

// overMPI is a World whose ranks are processes.
type overMPI struct{ *mpi.World }

// Start is the World that MPI makes of the processes that l started. It waits for all
// of them. A process that has called it ends by mpi.Exit.
func Start(f mpi.Found, l mpi.Launch, o mpi.Options) (World, error) {
	w, err := mpi.Start(f, l, o)
	if err != nil {
		return nil, err
	}
	return overMPI{w}, nil
}

// NewComm implements World.
func (w overMPI) NewComm(name string) (Comm, error) {
	c, err := w.World.NewComm(name)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Abort implements World.
func (w overMPI) Abort(reason string) {
	fmt.Fprintf(os.Stderr, "mt: rank %d on %s: %s\n", w.Rank(), w.Hosts()[w.Rank()], reason)
	w.World.Abort(1)
}

// Close implements World.
func (w overMPI) Close() error { return w.Finalize() }
