package doctor

import (
	"strings"
	"testing"

	"mt/base/cluster"
)

// TestCheckRanks: the report says which hosts the ranks are on, which ranks may use a single core
// only, and what is broken on the machines of other ranks.
func TestCheckRanks(t *testing.T) {
	rates := cluster.Rates{AllToAll: 2e9, AllGather: 3e9, Latency: 25e-6}
	good := func(rank int, host string) Rank { return Rank{Rank: rank, Host: host, Threads: 8, Cores: 8, Online: 8} }
	bound, alone, sick, blind := good(1, "b"), good(1, "b"), good(1, "b"), good(1, "b")
	bound.Cores, alone.Cores, alone.Online, sick.Broken, blind.Problem = 1, 1, 1, []string{"disk", "driver"}, "no memory"
	first := good(0, "a")
	first.Broken = []string{"disk"} // shown among the first rank's own parts
	for what, tt := range map[string]struct {
		all  []Rank
		want string // names and states
		says string
	}{
		"apart":          {[]Rank{good(0, "a"), good(1, "b")}, "ranks ok", "2 on a (rank 0; threads of each: 8), b (rank 1; threads of each: 8)"},
		"on one host":    {[]Rank{good(0, "a"), good(1, "b"), good(2, "b")}, "ranks slow", "b (ranks 1, 2; threads of each: 8); those of b share"},
		"on one core":    {[]Rank{good(0, "a"), bound}, "ranks ok, binding slow", "rank 1 may run on one core only"},
		"of one core":    {[]Rank{good(0, "a"), alone}, "ranks ok", ""},
		"something":      {[]Rank{first, sick}, "ranks ok, rank 1 broken", "on b: disk, driver"},
		"could not look": {[]Rank{first, blind}, "ranks ok, rank 1 broken", "on b: no memory"},
	} {
		var names []string
		says := ""
		parts := CheckRanks(tt.all, rates)
		for _, p := range parts {
			names = append(names, p.Name+" "+string(p.State))
			says += p.Found + "\n"
			if (p.State == OK) != (len(p.Remedy) == 0) && what != "could not look" {
				t.Errorf("%s: %s is %s and has %d remedies", what, p.Name, p.State, len(p.Remedy))
			}
		}
		if got, want := strings.Join(names, ", "), tt.want+", all to all ok, all gather ok"; got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		for _, want := range []string{tt.says, "2 GB/s out of each rank", "3 GB/s into each rank; a few bytes take 25 µs"} {
			if !strings.Contains(says, want) {
				t.Errorf("%s: says\n%swant %q", what, says, want)
			}
		}
	}
	if n := OnlineCores(tree{"sys/devices/system/cpu/online": "0-3,8\n"}.root(t)); n != 5 {
		t.Errorf("%d cores are online, want 5", n)
	}
	parts := Parts{{Name: "a", State: Broken}, {Name: "b", State: Slow}, {Name: "c", State: Broken}}
	if got := strings.Join(parts.BrokenNames(), " "); got != "a c" {
		t.Errorf("broken are %s, want a c", got)
	}
}
