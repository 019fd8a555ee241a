package host

import "sync/atomic"

// nodeQueues has the items not yet taken of each node: the indices from next to end−1.
type nodeQueues []struct {
	next atomic.Int64
	end  int64
	_    [48]byte // a cache line for each queue
}

// newNodeQueues distributes indices 0 … count-1 to nodes by node(i), which must not decrease.
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

// take returns an index that no call has returned: one of node first if there is one left, otherwise one of another
// node. It must be called at most once for each index.
func (q nodeQueues) take(first int) int {
	for j := range q {
		own := &q[(first+j)%len(q)]
		if own.next.Load() >= own.end {
			continue // do not increase next any further
		}
		if i := own.next.Add(1) - 1; i < own.end {
			return int(i)
		}
	}
	panic("numa: more was taken than there is")
}
