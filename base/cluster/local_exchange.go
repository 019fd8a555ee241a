package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// localExchange is a communicator between ranks in one process. All ranks share it.
type localExchange struct {
	*localJob
	name   string
	begun  []int // by rank: number of operations begun
	rounds map[int]*localRound
}

// localRound is one collective operation. It is executed when all ranks have begun it.
type localRound struct {
	calls []*localCall // by rank; nil: not begun
	begun int
}

// localCall is one rank's call of a collective operation. AllGatherV has its data in recv and its counts in recvCounts.
// AllGather runs as an AllGatherV.
type localCall struct {
	name                   string
	send, recv             []byte
	sendCounts, recvCounts []int
	done                   func(error)
}

// localComm is the Comm of one rank: a communicator that all ranks of the process share, as this rank sees it.
type localComm struct {
	*localExchange
	rank int
}

// AllGather implements Comm.
func (c *localComm) AllGather(value []byte, done func([][]byte, error)) {
	n := len(value)
	all := make([]byte, n*c.size)
	copy(all[n*c.rank:], value)
	counts, values := make([]int, c.size), make([][]byte, c.size)
	for r := range counts {
		counts[r], values[r] = n, all[n*r:n*(r+1):n*(r+1)]
	}
	c.begin(&localCall{name: "AllGather", recv: all, recvCounts: counts, done: func(err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(values, nil)
	}})
}

// AllGatherV implements Comm.
func (c *localComm) AllGatherV(data []byte, counts []int, done func(error)) {
	c.begin(&localCall{name: "AllGatherV", recv: data, recvCounts: counts, done: done})
}

// AllToAllV implements Comm.
func (c *localComm) AllToAllV(send []byte, sendCounts []int, recv []byte, recvCounts []int, done func(error)) {
	c.begin(&localCall{name: "AllToAllV", send: send, sendCounts: sendCounts, recv: recv, recvCounts: recvCounts, done: done})
}

// begin registers the call one as this rank's next operation on the communicator. The last rank
// that begins an operation executes it for all.
func (c *localComm) begin(one *localCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := one.done
	one.done = func(err error) {
		if err != nil {
			err = fmt.Errorf("%s of %s: %w", one.name, c.name, err)
		}
		done(err)
	}
	if err := errors.Join(c.aborted, one.check(c.size)); err != nil {
		c.inboxes[c.rank].add(func() { one.done(err) })
		return
	}
	at := c.begun[c.rank]
	c.begun[c.rank]++
	r := c.rounds[at]
	if r == nil {
		r = &localRound{calls: make([]*localCall, c.size)}
		c.rounds[at] = r
	}
	r.calls[c.rank] = one
	if r.begun++; r.begun == c.size {
		err := r.agree()
		if err == nil {
			r.copy()
		}
		c.end(at, err)
	}
}

// end calls the completion callbacks of operation number at with err, on all ranks that have begun it. The caller holds
// the job's lock.
func (e *localExchange) end(at int, err error) {
	for rank, one := range e.rounds[at].calls {
		if one != nil {
			e.inboxes[rank].add(func() { one.done(err) })
		}
	}
	delete(e.rounds, at)
}

// check returns an error for wrong counts: a negative one, more or fewer than the size ranks, or a
// sum that is not the length of the data.
func (c *localCall) check(size int) error {
	for _, side := range []struct {
		data   []byte
		counts []int
		used   bool
	}{{c.send, c.sendCounts, c.name == "AllToAllV"}, {c.recv, c.recvCounts, true}} {
		sum := 0
		for _, n := range side.counts {
			if n < 0 {
				return fmt.Errorf("a part of %d bytes", n)
			}
			sum += n
		}
		if side.used && (len(side.counts) != size || sum != len(side.data)) {
			return fmt.Errorf("%d parts of %d bytes in all, for %d ranks and %d bytes", len(side.counts), sum, size, len(side.data))
		}
	}
	return nil
}

// agree returns an error unless all ranks have begun the same operation, with counts that match between each sender and
// receiver.
func (r *localRound) agree() error {
	first := r.calls[0]
	for rank, one := range r.calls {
		switch {
		case one.name != first.name:
			return fmt.Errorf("rank 0 began %s and rank %d %s", first.name, rank, one.name)
		case one.name != "AllToAllV" && !slices.Equal(one.recvCounts, first.recvCounts):
			return fmt.Errorf("counts are %v on rank 0 and %v on rank %d", first.recvCounts, one.recvCounts, rank)
		case one.name == "AllToAllV":
			for to, n := range one.sendCounts {
				if want := r.calls[to].recvCounts[rank]; n != want {
					return fmt.Errorf("rank %d sends %d bytes to rank %d, which expects %d", rank, n, to, want)
				}
			}
		}
	}
	return nil
}

// copy does the exchange. Every rank's part is copied into the memory of the ranks that receive it.
func (r *localRound) copy() {
	for to, one := range r.calls {
		for from, other := range r.calls {
			switch {
			case one.name == "AllToAllV":
				copy(localPart(one.recv, one.recvCounts, from), localPart(other.send, other.sendCounts, to))
			case from != to:
				copy(localPart(one.recv, one.recvCounts, from), localPart(other.recv, other.recvCounts, from))
			}
		}
	}
}

// localPart returns a rank's part of data, which has one part of counts[r] bytes for each rank r, in rank order.
func localPart(data []byte, counts []int, rank int) []byte {
	at := 0
	for _, n := range counts[:rank] {
		at += n
	}
	return data[at : at+counts[rank]]
}
