package host

import "sync/atomic"

// nodeQueues has one queue of work items for each NUMA node: the items whose memory is on the node.
// A queue is the range of indices from next to end−1, which no thread has taken yet.
type nodeQueues []struct {
	next atomic.Int64
	end  int64
	_    [48]byte // padding, so that each queue has a cache line of its own
}

// newNodeQueues puts the indices 0 … count-1 into the queues of their nodes. node(i) is the node of index i and must
// not decrease with i.
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

// take returns the index of an item that no call has returned before. It takes an item of node
// `first` if one is left, otherwise an item of another node. All calls together must take at most
// as many indices as there are.
func (q nodeQueues) take(first int) int {
	for j := range q {
		own := &q[(first+j)%len(q)]
		if own.next.Load() >= own.end {
			continue // this queue is empty; do not let next grow without bound
		}
		if i := own.next.Add(1) - 1; i < own.end {
			return int(i)
		}
	}
	panic("numa: more was taken than there is")
}
