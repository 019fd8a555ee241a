package host

import (
	"os"
	"slices"
	"sync"

	"mt/base/parallel"
	"mt/host/optim"
)

// With more than one NUMA node, each piece of an arena, such as the tile of a layer, is distributed: each node has a
// part of the piece. Threads on a node update this part first, so an update of one layer uses the memory of all nodes.
// The parts are proportional to the nodes' numbers of processors, in all planes alike. So the values of one element are
// on the same node in all planes, except for some elements at the boundaries.

var nodes = sync.OnceValue(func() *Nodes { return FindNodes(os.DirFS("/"), ThisNodeSystem()) })

// MachineNodes returns the NUMA nodes that arenas and updates are distributed over; nil for one node.
func MachineNodes() *Nodes { return nodes() }

// span is a range of an arena that is placed on one NUMA node; node is the node's index.
type span struct {
	b    []byte
	node int
}

// touch places the pages of b on their NUMA nodes, and then touches them on the threads of pool so that the pages are
// resident. The pieces of b have these sizes, in order. If n is nil, it places nothing.
func touch(b []byte, pieces []int64, n *Nodes, pool *parallel.Pool) {
	if n == nil {
		pieces = []int64{int64(len(b))}
	}
	spans := lay(b, pieces, n, os.Getpagesize())
	n.Run(pool, len(spans), func(i int) int { return spans[i].node }, func(i int) {
		for off, piece := 0, spans[i].b; off < len(piece); off += pageBytes {
			piece[off] = 0
		}
	})
}

// lay distributes each piece of b over the nodes in whole pages of page bytes, and asks the system to place each part
// on its node. It returns the parts, cut into spans of at most touchBytes and sorted by node.
func lay(b []byte, pieces []int64, n *Nodes, page int) (all []span) {
	var from, begin int64 // start of a part, start of a piece
	for _, bytes := range pieces {
		for k := range n.Count() {
			to := (begin + n.Cut(bytes, k+1)) &^ int64(page-1)
			if begin+bytes == int64(len(b)) && k == n.Count()-1 {
				to = int64(len(b))
			}
			place(n, b[from:to], k)
			for ; from < to; from = min(to, from+touchBytes) {
				all = append(all, span{b[from:min(to, from+touchBytes)], k})
			}
		}
		begin += bytes
	}
	slices.SortStableFunc(all, func(x, y span) int { return x.node - y.node })
	return all
}

// atNodes returns a function that calls f(i) for each index i of units, on all cores. A thread first takes units whose
// memory is on its own node.
func (l *LayerState) atNodes(n *Nodes) func(units []optim.Unit, f func(i int)) {
	return func(units []optim.Unit, f func(i int)) {
		elems := l.Share.Elems()
		node := func(i int) int {
			return n.Part(elems, l.Layout.Tensors[units[i].Tensor].Elem+units[i].At-l.Share.From)
		}
		n.Run(l.pool, len(units), node, f)
	}
}
