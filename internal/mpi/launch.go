package mpi

import (
	"errors"
	"fmt"
	"strconv"
)

// Family is a group of MPI libraries whose launchers start each other's processes.
type Family string

// The families. Implementations that descend from MPICH, such as Intel's, Cray's and
// MVAPICH, are of its family.
const (
	OfAny     Family = ""
	OfMPICH   Family = "MPICH"
	OfOpenMPI Family = "Open MPI"
)

// Launch says who started this process, and as which of how many ranks.
type Launch struct {
	// By names the launcher for people; it is empty where the process was started
	// alone, and then Rank is 0 and Size is 1.
	By         string
	Rank, Size int
	// Family is that of the library which can talk to the launcher.
	Family Family
}

// ErrNoMPI is the error of LaunchOf where several processes were started together by
// something that is no MPI.
var ErrNoMPI = errors.New("mt's ranks are started by MPI")

// launchers are the marks that launchers leave in the environment, in the order in
// which they are looked for: a mark of MPI's counts before one of a program that may
// have started it.
var launchers = []struct {
	by         string
	rank, size string // names of variables
	family     Family
	wrong      func(size int) string // what to start instead; nil for an MPI
}{
	{by: "Open MPI's mpirun", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", family: OfOpenMPI},
	{by: "MPICH's mpirun", rank: "PMI_RANK", size: "PMI_SIZE", family: OfMPICH},
	{by: "srun --mpi=pmix", rank: "PMIX_RANK", size: "SLURM_STEP_NUM_TASKS"},
	{by: "srun without an MPI", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS", wrong: func(int) string {
		return "srun --mpi=pmix with Open MPI, srun --mpi=pmi2 with MPICH (srun --mpi=list shows what there is)"
	}},
	{by: "torchrun, or something that sets its variables,", rank: "RANK", size: "WORLD_SIZE", wrong: func(size int) string {
		return fmt.Sprintf("mpirun -n %d mt …, one rank on each host", size)
	}},
}

// LaunchOf reads the environment. Where something else than an MPI started several
// processes the error is ErrNoMPI and says what to start instead; Rank and Size are
// right all the same.
func LaunchOf(getenv func(string) string) (Launch, error) {
	for _, l := range launchers {
		rank, err := strconv.Atoi(getenv(l.rank))
		if err != nil {
			continue
		}
		size, err := strconv.Atoi(getenv(l.size))
		if err != nil || rank < 0 || rank >= size {
			continue
		}
		out := Launch{By: l.by, Rank: rank, Size: size, Family: l.family}
		switch {
		case l.wrong != nil && size > 1:
			return out, fmt.Errorf("%s has started %d processes (%s=%d, %s=%d): %w: %s", l.by, size, l.rank, rank, l.size, size, ErrNoMPI, l.wrong(size))
		case l.wrong != nil:
			continue // one process, which needs no MPI
		case getenv("SLURM_STEP_ID") != "" && l.family == OfMPICH:
			out.By, out.Family = "srun --mpi=pmi2", OfAny // Open MPI may know it too
		}
		return out, nil
	}
	return Launch{Size: 1}, nil
}
