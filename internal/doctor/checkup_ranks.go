package doctor

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"mt/base/cluster"
)

// Rank is what a rank reports about itself to the others.
type Rank struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	// Threads is the number of compute threads, Cores the number of cores that the rank may use, and Online the number
	// of cores of its host; 0: unknown.
	Threads int `json:"threads"`
	Cores   int `json:"cores"`
	Online  int `json:"online_cores,omitempty"`
	// Broken names the broken parts of the rank's machine. Problem is the error that prevented the check.
	Broken  []string `json:"broken,omitempty"`
	Problem string   `json:"problem,omitempty"`
}

// OnlineCores returns the number of cores of a machine, given its root folder; 0 if unknown.
func OnlineCores(root fs.FS) int {
	return count(Sources{Root: root}.text("sys/devices/system/cpu/online"))
}

// BrokenNames returns the names of the broken parts.
func (p Parts) BrokenNames() (out []string) {
	for _, part := range p {
		if part.State == Broken {
			out = append(out, part.Name)
		}
	}
	return out
}

// CheckRanks judges the ranks of a run and the rates of exchanges between them.
func CheckRanks(all []Rank, r cluster.Rates) Parts {
	var out Parts
	for _, look := range []func([]Rank) []Part{placement, bindings, remoteProblems} {
		out = append(out, look(all)...)
	}
	out = append(out, one("all to all", OK, fmt.Sprintf("%.3g GB/s out of each rank, and as much into it", r.AllToAll/1e9))...)
	return append(out, one("all gather", OK, fmt.Sprintf("%.3g GB/s into each rank; a few bytes take %.3g µs", r.AllGather/1e9, 1e6*r.Latency))...)
}

// placement reports on which hosts the ranks are.
func placement(all []Rank) []Part {
	var hosts, shared []string
	on := map[string][]string{}
	for _, r := range all {
		if on[r.Host] == nil {
			hosts = append(hosts, r.Host)
		}
		on[r.Host] = append(on[r.Host], fmt.Sprint(r.Rank))
	}
	var where []string
	for _, h := range hosts {
		first := all[slices.IndexFunc(all, func(r Rank) bool { return r.Host == h })]
		where = append(where, fmt.Sprintf("%s (%s; threads of each: %d)", h, list("rank", on[h]), first.Threads))
		if len(on[h]) > 1 {
			shared = append(shared, h)
		}
	}
	found := fmt.Sprintf("%d on %s", len(all), strings.Join(where, ", "))
	if len(shared) == 0 {
		return one("ranks", OK, found)
	}
	return one("ranks", Slow, found+"; those of "+strings.Join(shared, ", ")+" share its memory and its cores",
		"one rank on each host is enough, since it uses all cores and GPUs:", "$ mpirun -ppn 1 mt … (MPICH)",
		"$ mpirun --map-by ppr:1:node --bind-to none mt … (Open MPI)", "$ srun --ntasks-per-node=1 mt … (Slurm)")
}

// bindings reports ranks that may use only one core, which makes them slow. Open MPI binds each rank to one core by
// default.
func bindings(all []Rank) []Part {
	var bound []string
	for _, r := range all {
		if r.Cores == 1 && r.Online > 1 {
			bound = append(bound, fmt.Sprint(r.Rank))
		}
	}
	if bound == nil {
		return nil
	}
	return one("binding", Slow, list("rank", bound)+" may run on one core only", "let all threads of a rank use all cores:",
		"$ mpirun --bind-to none mt … (Open MPI)", "$ mpirun -bind-to none mt … (MPICH)", "$ srun --cpu-bind=none --cpus-per-task=CORES mt … (Slurm)")
}

// remoteProblems reports broken parts on the machines of all ranks but the first. The parts of the first rank are shown
// separately.
func remoteProblems(all []Rank) (out []Part) {
	for _, r := range all[1:] {
		name, found := fmt.Sprintf("rank %d", r.Rank), "on "+r.Host+": "
		switch {
		case r.Problem != "":
			out = append(out, one(name, Broken, found+r.Problem)...)
		case len(r.Broken) > 0:
			out = append(out, one(name, Broken, found+strings.Join(r.Broken, ", "), "what to do, says there:", "$ mt doctor")...)
		}
	}
	return out
}

// list returns what, such as "rank", in front of names: "rank 1" or, in the plural, "ranks 1, 2".
func list(what string, names []string) string {
	if len(names) > 1 {
		what += "s"
	}
	return what + " " + strings.Join(names, ", ")
}
