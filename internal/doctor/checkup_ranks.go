package doctor

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"mt/base/cluster"
)

// Rank is what a rank tells the others of itself.
type Rank struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	// Threads are those that compute, Cores are those that the rank may run on, and
	// Online those that its host has, 0 if unknown.
	Threads int `json:"threads"`
	Cores   int `json:"cores"`
	Online  int `json:"online_cores,omitempty"`
	// Broken names the parts of its machine that are broken. Problem is why it could
	// not look.
	Broken  []string `json:"broken,omitempty"`
	Problem string   `json:"problem,omitempty"`
}

// OnlineCores is how many cores a machine has, by its root folder, 0 if unknown.
func OnlineCores(root fs.FS) int {
	return count(Sources{Root: root}.text("sys/devices/system/cpu/online"))
}

// BrokenNames are those of the parts that are broken.
func (p Parts) BrokenNames() (out []string) {
	for _, part := range p {
		if part.State == Broken {
			out = append(out, part.Name)
		}
	}
	return out
}

// CheckRanks judges ranks that are to train together, and what exchanges between them reach.
func CheckRanks(all []Rank, r cluster.Rates) Parts {
	var out Parts
	for _, look := range []func([]Rank) []Part{placement, bindings, remoteProblems} {
		out = append(out, look(all)...)
	}
	out = append(out, one("all to all", OK, fmt.Sprintf("%.3g GB/s out of each rank, and as much into it", r.AllToAll/1e9))...)
	return append(out, one("all gather", OK, fmt.Sprintf("%.3g GB/s into each rank; a few bytes take %.3g µs", r.AllGather/1e9, 1e6*r.Latency))...)
}

// placement says where the ranks are.
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

// bindings says which ranks may run on one core only. Open MPI binds each to one unless
// it is told otherwise.
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

// remoteProblems says what is broken on the machines of other ranks than the first, whose
// own parts are shown.
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

// list is "rank 1" or "ranks 1, 2".
func list(what string, names []string) string {
	if len(names) > 1 {
		what += "s"
	}
	return what + " " + strings.Join(names, ", ")
}
