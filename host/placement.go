package host

import (
	"os"
	"slices"
	"sync"

	"mt/base/parallel"
	"mt/host/optim"
)

// On more than one NUMA node every piece of an arena, such as the tile of a layer, is cut: each node has a part of it, and
// threads that run there first update what it has. So an update of one layer has the memory of all nodes to itself. A
// part is as large as the node's share of the processors, in bytes as in elements, so that what belongs to an element lies at
// the same node in all planes, but for some at the cuts.

var nodes = sync.OnceValue(func() *Nodes { return FindNodes(os.DirFS("/"), ThisNodeSystem()) })

// MachineNodes are the NUMA nodes over which arenas are laid out and updates are shared out; nil where there is one.
func MachineNodes() *Nodes { return nodes() }

// span is a range of an arena that lies at one node.
type span struct {
	b    []byte
	node int
}

// touch places the pages of b, which consists of pieces, at their nodes and touches each on the threads of pool.
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

// lay cuts pieces over the nodes, at whole pages, places the parts and returns them, those of the first node first, in spans of at most touchBytes.
func lay(b []byte, pieces []int64, n *Nodes, page int) (all []span) {
	var from, begin int64 // of a part, of a piece
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

// atNodes returns a function that calls f for each of the layer's units, on all cores: a thread takes first what lies at its node.
func (l *LayerState) atNodes(n *Nodes) func(units []optim.Unit, f func(i int)) {
	return func(units []optim.Unit, f func(i int)) {
		elems := l.Share.Elems()
		node := func(i int) int {
			return n.Part(elems, l.Layout.Tensors[units[i].Tensor].Elem+units[i].At-l.Share.From)
		}
		n.Run(l.pool, len(units), node, f)
	}
}
