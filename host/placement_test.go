package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/fstest"
	"unsafe"

	"mt/host/optim"
	"mt/internal/testkit"
)

// given is a NodeSystem with one to four nodes of two processors each.
type given struct {
	nodes  int
	cpu    int
	refuse error

	mu     sync.Mutex
	placed []span
}

func (g *given) Affinity() ([]int, error) {
	var all []int
	for c := range 2 * g.nodes {
		all = append(all, c)
	}
	return all, nil
}

func (g *given) CPU() (int, error) { return g.cpu, nil }

func (g *given) Prefer(b []byte, node int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.placed = append(g.placed, span{b, node})
	return g.refuse
}

// find returns the Nodes that mt finds on this system.
func (g *given) find() *Nodes {
	lists := []string{"0-1", "2-3", "4-5", "6-7"}
	root := fstest.MapFS{"sys/devices/system/node/has_memory": {Data: []byte("0-" + string(rune('0'+g.nodes-1)))}}
	for id, cpus := range lists[:g.nodes] {
		root["sys/devices/system/node/node"+string(rune('0'+id))+"/cpulist"] = &fstest.MapFile{Data: []byte(cpus)}
	}
	return FindNodes(root, g)
}

// useNodes makes g's nodes the machine's nodes until the test ends.
func useNodes(t *testing.T, g *given) *Nodes {
	t.Helper()
	before, n := nodes, g.find()
	nodes = func() *Nodes { return n }
	t.Cleanup(func() { nodes = before })
	return n
}

// TestLay: lay puts every byte of an arena into exactly one span and sorts the spans by node. Each
// node gets its part of each piece (such as a layer's tile), up to rounding to pages.
func TestLay(t *testing.T) {
	testkit.NotShort(t)
	for _, page := range []int{4 << 10, 64 << 10} {
		for _, count := range []int{2, 4} {
			g := &given{nodes: count}
			n := g.find()
			pieces := []int64{4096, 0, 3 << 20, 96 << 20, 12 << 10, 1 << 20, 5 << 10}
			var all int64
			for _, p := range pieces {
				all += p
			}
			arena := make([]byte, all)
			start := uintptr(unsafe.Pointer(&arena[0]))
			offset := func(b []byte) int64 { return int64(uintptr(unsafe.Pointer(&b[0])) - start) }

			spans := lay(arena, pieces, n, page)
			if !slices.IsSortedFunc(spans, func(x, y span) int { return x.node - y.node }) {
				t.Errorf("%d nodes: spans are not by node", count)
			}
			slices.SortFunc(spans, func(x, y span) int { return int(offset(x.b) - offset(y.b)) })
			nodeOf := func(at int64) int {
				i, _ := slices.BinarySearchFunc(spans, at, func(s span, at int64) int { return int(offset(s.b) + int64(len(s.b)) - 1 - at) })
				return spans[i].node
			}
			var end int64
			for _, s := range spans {
				if offset(s.b) != end || len(s.b) > touchBytes || len(s.b) == 0 {
					t.Fatalf("%d nodes, pages of %d: a span of %d bytes at %d, after one that ends at %d", count, page, len(s.b), offset(s.b), end)
				}
				if end += int64(len(s.b)); offset(s.b)%int64(page) != 0 {
					t.Errorf("a span begins inside a page, at %d", offset(s.b))
				}
			}
			if end != all {
				t.Errorf("spans end at %d of %d", end, all)
			}
			var begin int64
			for _, bytes := range pieces {
				for k := range count {
					from, to := begin+n.Cut(bytes, k), begin+n.Cut(bytes, k+1)
					if to-from < int64(2*page) {
						continue
					}
					if got, last := nodeOf(from+int64(page)), nodeOf(to-int64(page)); got != k || last != k {
						t.Errorf("part %d of %d bytes at %d is at nodes %d and %d", k, bytes, begin, got, last)
					}
				}
				begin += bytes
			}
			if testkit.Race {
				continue // memory of the runtime is not placed
			}
			var placed int64
			for _, p := range g.placed {
				placed += int64(len(p.b))
				if got := nodeOf(offset(p.b)); got != p.node {
					t.Errorf("bytes from %d on are placed at node %d, and touched for %d", offset(p.b), p.node, got)
				}
			}
			if placed != all {
				t.Errorf("%d bytes of %d are placed", placed, all)
			}
		}
	}
}

// TestUpdateBitsDoNotDependOnNodes: updates give the same bits with and without NUMA placement, even if the system
// refuses it.
func TestUpdateBitsDoNotDependOnNodes(t *testing.T) {
	for _, g := range []*given{{nodes: 2, cpu: 3}, {nodes: 4}, {nodes: 2, refuse: errors.New("operation not permitted")}} {
		for _, bf16 := range []bool{false, true} {
			want := updated(t, optim.Level(), 1, bf16, false)
			t.Run(fmt.Sprintf("%d nodes, bf16 %t, refused: %v", g.nodes, bf16, g.refuse), func(t *testing.T) {
				n := useNodes(t, g)
				sameBits(t, want, updated(t, optim.Level(), 3, bf16, false))
				if refused := n.Note() != ""; refused != (g.refuse != nil && !testkit.Race) {
					t.Errorf("the note is %q", n.Note())
				}
			})
		}
	}
}

// TestUpdatesBeginAtTheirNode: a thread first updates the elements whose memory is on its own NUMA
// node.
func TestUpdatesBeginAtTheirNode(t *testing.T) {
	for cpu, want := range map[int]int{0: 0, 2: 1, 5: 2, 7: 3} {
		n := useNodes(t, &given{nodes: 4, cpu: cpu})
		l := newStore(t, layouts(true), nil).Layers[1]
		var units []optim.Unit
		for i, tl := range l.Layout.Tensors {
			for at := int64(0); at < tl.Elems(); at += 1000 {
				units = append(units, optim.Unit{Tensor: i, At: at, N: min(1000, tl.Elems()-at)})
			}
		}
		var order []int
		l.onCores(units, func(i int) { order = append(order, i) })
		for at, i := range order {
			first := l.Layout.Tensors[units[i].Tensor].Elem + units[i].At
			mine := n.Cut(l.Layout.Elems, want) <= first && first < n.Cut(l.Layout.Elems, want+1)
			if at < len(units)/5 && !mine {
				t.Errorf("on processor %d the %d-th update is of elements from %d on, which are not at node %d", cpu, at, first, want)
			}
		}
		if slices.Sort(order); len(order) != len(units) || order[0] != 0 || order[len(order)-1] != len(units)-1 {
			t.Errorf("on processor %d, of %d updates %d were made", cpu, len(units), len(order))
		}
	}
}

// TestOneNode: with one NUMA node, an arena is one span and is not distributed.
func TestOneNode(t *testing.T) {
	b := make([]byte, 3<<20)
	if got := lay(b, []int64{int64(len(b))}, nil, os.Getpagesize()); len(got) != 1 || len(got[0].b) != len(b) {
		t.Errorf("%d spans", len(got))
	}
}

// TestMachineTellsNodes: MachineMemory reports the number of NUMA nodes if there are several; 0 if
// there is one.
func TestMachineTellsNodes(t *testing.T) {
	useNodes(t, &given{nodes: 4})
	if got := MachineMemory().Nodes; got != 4 {
		t.Errorf("%d nodes, want 4", got)
	}
	useNodes(t, &given{nodes: 1})
	if got := MachineMemory().Nodes; got != 0 {
		t.Errorf("one node counts as %d", got)
	}
}
