package host

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"mt/base/parallel"
)

// fakeSystem implements NodeSystem with the processors that a test gives it. It records the nodes
// that Prefer asks for.
type fakeSystem struct {
	affinity []int
	cpu      func() int
	refuse   error

	mu        sync.Mutex
	preferred []int // nodes, in the order they were asked for
}

func (g *fakeSystem) Affinity() ([]int, error) {
	if g.affinity == nil {
		return nil, errors.New("no affinity")
	}
	return g.affinity, nil
}

func (g *fakeSystem) CPU() (int, error) {
	if g.cpu == nil {
		return 0, errors.New("no processor")
	}
	return g.cpu(), nil
}

func (g *fakeSystem) Prefer(_ []byte, node int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.preferred = append(g.preferred, node)
	return g.refuse
}

// nodeTree returns a file system like Linux's /sys, with the nodes that have memory, each node's
// processors, and more files.
func nodeTree(hasMemory string, cpulists map[int]string, more map[string]string) fstest.MapFS {
	root := fstest.MapFS{"sys/devices/system/node/has_memory": {Data: []byte(hasMemory + "\n")}}
	for id, cpus := range cpulists {
		root[fmt.Sprintf("sys/devices/system/node/node%d/cpulist", id)] = &fstest.MapFile{Data: []byte(cpus + "\n")}
	}
	for name, text := range more {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

// upTo returns 0 … n−1.
func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

var (
	two  = map[int]string{0: "0-3", 1: "4-7"}
	four = map[int]string{0: "0-1,8-9", 1: "2-3,10-11", 2: "4-5,12-13", 3: "6-7,14-15"}
)

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name     string
		root     fstest.MapFS
		affinity []int
		want     []Node // nil: FindNodes finds none
	}{
		{"two", nodeTree("0-1", two, nil), upTo(8), []Node{{0, []int{0, 1, 2, 3}}, {1, []int{4, 5, 6, 7}}}},
		{"four, whose processors are apart", nodeTree("0-3", four, nil), upTo(16),
			[]Node{{0, []int{0, 1, 8, 9}}, {1, []int{2, 3, 10, 11}}, {2, []int{4, 5, 12, 13}}, {3, []int{6, 7, 14, 15}}}},
		{"one", nodeTree("0", map[int]string{0: "0-7"}, nil), upTo(8), nil},
		{"no files", fstest.MapFS{}, upTo(8), nil},
		{"a node without memory", nodeTree("0,2", map[int]string{0: "0-1", 1: "2-3", 2: "4-5"}, nil), upTo(6), []Node{{0, []int{0, 1}}, {2, []int{4, 5}}}},
		{"memory without processors", nodeTree("0-2", map[int]string{0: "0-3", 1: "4-7", 2: ""}, nil), upTo(8), []Node{{0, []int{0, 1, 2, 3}}, {1, []int{4, 5, 6, 7}}}},
		{"an affinity that excludes a node", nodeTree("0-1", two, nil), upTo(4), nil},
		{"an affinity that has a part of a node", nodeTree("0-1", two, nil), []int{0, 1, 2, 3, 7}, []Node{{0, []int{0, 1, 2, 3}}, {1, []int{7}}}},
		{"a cpuset without a node's memory", nodeTree("0-3", four, map[string]string{"proc/self/status": "Name:\tmt\nMems_allowed_list:\t0,2-3\n"}), upTo(16),
			[]Node{{0, []int{0, 1, 8, 9}}, {2, []int{4, 5, 12, 13}}, {3, []int{6, 7, 14, 15}}}},
		{"a cpuset with one node's memory", nodeTree("0-1", two, map[string]string{"proc/self/status": "Mems_allowed_list:\t1\n"}), upTo(8), nil},
		{"numactl --interleave", nodeTree("0-1", two, map[string]string{"proc/self/numa_maps": "5628 interleave:0-1 file=/x\n"}), upTo(8), nil},
		{"no policy of the user's", nodeTree("0-1", two, map[string]string{"proc/self/numa_maps": "5628 default file=/x\n"}), upTo(8), []Node{{0, []int{0, 1, 2, 3}}, {1, []int{4, 5, 6, 7}}}},
		{"lists out of order", nodeTree("1,0", map[int]string{0: "2-3,0-1", 1: "5,4"}, nil), upTo(6), []Node{{0, []int{0, 1, 2, 3}}, {1, []int{4, 5}}}},
		{"no affinity is known", nodeTree("0-1", two, nil), nil, nil},
		{"nonsense", nodeTree("0-1,x,3-,-4,99999999-", map[int]string{0: "0", 1: "1,,1-0,1-1"}, nil), upTo(2), []Node{{0, []int{0}}, {1, []int{1}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := FindNodes(c.root, &fakeSystem{affinity: c.affinity})
			if got := n.List(); !reflect.DeepEqual(got, c.want) {
				t.Errorf("nodes %v, want %v", got, c.want)
			}
			if (n == nil) != (c.want == nil) {
				t.Errorf("nodes are %v", n)
			}
		})
	}
}

func TestWithoutProcessors(t *testing.T) {
	if got := WithoutProcessors(nodeTree("0-3", map[int]string{0: "0-3", 1: "", 2: "4-7", 4: ""}, nil)); !slices.Equal(got, []int{1}) {
		t.Errorf("nodes %v, want 1: node 3 says nothing of its processors, and node 4 has no memory", got)
	}
}

func TestCutFollowsProcessors(t *testing.T) {
	n := FindNodes(nodeTree("0-2", map[int]string{0: "0-3", 1: "4-5", 2: "6-7"}, nil), &fakeSystem{affinity: upTo(8)})
	for _, total := range []int64{0, 1, 7, 8, 1001, 1 << 62} {
		if n.Cut(total, 0) != 0 || n.Cut(total, 3) != total {
			t.Errorf("%d is cut from %d to %d", total, n.Cut(total, 0), n.Cut(total, 3))
		}
		if half := n.Cut(total, 1); half != total/2 {
			t.Errorf("of %d, node 0 with half of the processors has %d", total, half)
		}
		for k := range 3 {
			from, to := n.Cut(total, k), n.Cut(total, k+1)
			if from > to {
				t.Errorf("part %d of %d is from %d to %d", k, total, from, to)
			}
			for _, at := range []int64{from, to - 1} {
				if from < to && n.Part(total, at) != k {
					t.Errorf("%d of %d is in part %d, want %d", at, total, n.Part(total, at), k)
				}
			}
		}
	}
	var one *Nodes
	if one.Cut(10, 0) != 0 || one.Cut(10, 1) != 10 || one.Part(10, 9) != 0 || one.Count() != 1 || one.Note() != "" {
		t.Error("one node has not all")
	}
	if got, want := n.String(), "3 NUMA nodes (node 0: 4 processors, node 1: 2 processors, node 2: 2 processors)"; got != want {
		t.Errorf("they are %q, want %q", got, want)
	}
}

func TestRefusalIsANote(t *testing.T) {
	sys := &fakeSystem{affinity: upTo(8), refuse: errors.New("operation not permitted")}
	n := FindNodes(nodeTree("0-1", map[int]string{0: "0-3", 1: "4-7"}, nil), sys)
	if n.Note() != "" {
		t.Fatalf("a note before anything was refused: %s", n.Note())
	}
	n.Place(nil, 1)
	n.Place(make([]byte, 4096), 1)
	if !slices.Equal(sys.preferred, []int{1}) {
		t.Errorf("asked for nodes %v, want 1 alone", sys.preferred)
	}
	if note := n.Note(); !strings.Contains(note, "mbind: operation not permitted") || !strings.Contains(note, "SYS_NICE") {
		t.Errorf("the note is %q", note)
	}
	sys.refuse = nil
	n.Place(make([]byte, 4096), 0)
	if n.Note() == "" {
		t.Error("the note is gone")
	}
}

// TestRunTakesItsOwnFirst: Nodes.Run lets a thread take all items of its own node before others.
// Whatever nodes the threads run on, every item is done exactly once.
func TestRunTakesItsOwnFirst(t *testing.T) {
	const count = 40
	node := func(i int) int { return i / 10 } // four nodes with ten each
	for _, c := range []struct {
		name string
		cpu  func() int
		want int // the node whose items are taken first
	}{
		{"at node 2", func() int { return 13 }, 2},
		{"at a processor of none", func() int { return 77 }, 0},
		{"at none that is known", nil, 0},
	} {
		n := FindNodes(nodeTree("0-3", four, nil), &fakeSystem{affinity: upTo(16), cpu: c.cpu})
		var order []int
		n.Run(nil, count, node, func(i int) { order = append(order, i) })
		for at, i := range order {
			if at < 10 && node(i) != c.want {
				t.Errorf("%s: the %d-th is %d, of node %d", c.name, at, i, node(i))
			}
		}
		slices.Sort(order)
		if !slices.Equal(order, upTo(count)) {
			t.Errorf("%s: done were %v", c.name, order)
		}
	}
}

func TestRunDoesEverythingOnce(t *testing.T) {
	pool := parallel.New(4)
	defer pool.Close()
	var mu sync.Mutex
	turn := 0
	sys := &fakeSystem{affinity: upTo(16), cpu: func() int {
		mu.Lock()
		defer mu.Unlock()
		turn++
		return turn * 7 % 16
	}}
	n := FindNodes(nodeTree("0-3", four, nil), sys)
	for count := range 60 {
		for _, node := range []func(int) int{func(i int) int { return 4 * i / max(count, 1) }, func(int) int { return 3 }, func(int) int { return 0 }} {
			done := make([]int32, count)
			n.Run(pool, count, node, func(i int) { // each index is one call's alone
				done[i]++
			})
			for i, times := range done {
				if times != 1 {
					t.Fatalf("of %d, %d was done %d times", count, i, times)
				}
			}
		}
	}
}

// TestThisSystem: on the machine of the test, the system reports processors and rejects a node that
// cannot exist. A system that reports none is skipped.
func TestThisSystem(t *testing.T) {
	sys := ThisNodeSystem()
	cpus, err := sys.Affinity()
	if err != nil {
		t.Skipf("this system tells no affinity: %v", err)
	}
	if len(cpus) == 0 || !slices.IsSorted(cpus) {
		t.Errorf("processors %v", cpus)
	}
	if cpu, err := sys.CPU(); err != nil || cpu < 0 {
		t.Errorf("processor %d, %v", cpu, err)
	}
	if err := sys.Prefer(make([]byte, 1), 1<<20); err == nil {
		t.Error("a node that cannot be is taken")
	}
}
