package host

import "sync/atomic"

// nodeQueues are what is left of each node's work: indices from next on, and before end.
type nodeQueues []struct {
	next atomic.Int64
	end  int64
	_    [48]byte // each on a cache line of its own
}

// newNodeQueues shares out indices 0 … count-1 to nodes, as node says, which does not fall.
func newNodeQueues(nodes, count int, node func(i int) int) nodeQueues {
	q := make(nodeQueues, nodes)
	i := 0
	for k := range q {
		q[k].next.Store(int64(i))
		for i < count && node(i) <= k {
			i++
		}
		q[k].end = int64(i)
	}
	return q
}

// take returns an index that nobody has taken yet, of node first while there is one. It is called as often as there are
// indices.
func (q nodeQueues) take(first int) int {
	for j := range q {
		own := &q[(first+j)%len(q)]
		if own.next.Load() >= own.end {
			continue // so that next does not grow for ever
		}
		if i := own.next.Add(1) - 1; i < own.end {
			return int(i)
		}
	}
	panic("numa: more was taken than there is")
}
