package local

import (
	"errors"
	"fmt"
	"slices"
)

// exchange is a communicator, which the ranks share.
type exchange struct {
	*job
	name   string
	begun  []int // how many operations each rank has begun
	rounds map[int]*round
}

// round is one operation, which is carried out when all ranks have begun it.
type round struct {
	calls []*call // by rank; nil before it has begun
	begun int
}

// call is what one rank began. AllGatherV has its data and counts in recv and
// recvCounts, AllGather is one.
type call struct {
	name                   string
	send, recv             []byte
	sendCounts, recvCounts []int
	done                   func(error)
}

// comm is one rank's view.
type comm struct {
	*exchange
	rank int
}

// AllGather implements ranks.Comm.
func (c *comm) AllGather(value []byte, done func([][]byte, error)) {
	n := len(value)
	all := make([]byte, n*c.size)
	copy(all[n*c.rank:], value)
	counts, values := make([]int, c.size), make([][]byte, c.size)
	for r := range counts {
		counts[r], values[r] = n, all[n*r:n*(r+1):n*(r+1)]
	}
	c.begin(&call{name: "AllGather", recv: all, recvCounts: counts, done: func(err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(values, nil)
	}})
}

// AllGatherV implements ranks.Comm.
func (c *comm) AllGatherV(data []byte, counts []int, done func(error)) {
	c.begin(&call{name: "AllGatherV", recv: data, recvCounts: counts, done: done})
}

// AllToAllV implements ranks.Comm.
func (c *comm) AllToAllV(send []byte, sendCounts []int, recv []byte, recvCounts []int, done func(error)) {
	c.begin(&call{name: "AllToAllV", send: send, sendCounts: sendCounts, recv: recv, recvCounts: recvCounts, done: done})
}

// begin takes a rank's next operation; the last rank to begin it carries it out.
func (c *comm) begin(one *call) {
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
		r = &round{calls: make([]*call, c.size)}
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

// end tells all ranks that have begun a round that it is over. The job is locked.
func (e *exchange) end(at int, err error) {
	for rank, one := range e.rounds[at].calls {
		if one != nil {
			e.inboxes[rank].add(func() { one.done(err) })
		}
	}
	delete(e.rounds, at)
}

// check says what is wrong with the counts of a call, if anything.
func (c *call) check(size int) error {
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

// agree says where the ranks have not begun the same operation, if they have not.
func (r *round) agree() error {
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

// copy carries out the round.
func (r *round) copy() {
	for to, one := range r.calls {
		for from, other := range r.calls {
			switch {
			case one.name == "AllToAllV":
				copy(part(one.recv, one.recvCounts, from), part(other.send, other.sendCounts, to))
			case from != to:
				copy(part(one.recv, one.recvCounts, from), part(other.recv, other.recvCounts, from))
			}
		}
	}
}

// part is the part of data that belongs to a rank.
func part(data []byte, counts []int, rank int) []byte {
	at := 0
	for _, n := range counts[:rank] {
		at += n
	}
	return data[at : at+counts[rank]]
}
