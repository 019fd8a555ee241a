package mpi

import (
	"bytes"
	"fmt"
	"unsafe"
)

// Comm is a communicator of all ranks. On each rank the same operations of one
// communicator are begun in the same order; those of different ones are independent.
//
// Operations return at once. done is called when the operation is complete, or failed,
// on the goroutine that owns MPI: it must neither block nor take long, and may begin
// other operations. Until then the memory belongs to MPI. After MPI was finalized done
// is called at once, with an error.
type Comm struct {
	w      *World
	handle uintptr
	name   string
}

// tag is that of all messages: what is sent from one rank to another through one
// communicator arrives in the order in which it was sent.
const tag = 1

// AllGather sends value to all ranks; it has the same length on each. done gets what
// every rank sent, in rank order.
func (c *Comm) AllGather(value []byte, done func(values [][]byte, err error)) {
	n := len(value)
	all := make([]byte, n*c.w.size)
	copy(all[n*c.w.rank:], value)
	counts := make([]int, c.w.size)
	values := make([][]byte, c.w.size)
	for r := range counts {
		counts[r], values[r] = n, all[n*r:n*(r+1):n*(r+1)]
	}
	c.AllGatherV(all, counts, func(err error) {
		if err != nil {
			values = nil
		}
		done(values, err)
	})
}

// AllGatherV completes data on all ranks. It consists of one part for each rank, in
// rank order; counts are their lengths in bytes and are the same on each rank. A rank
// gives its own part and gets the others.
func (c *Comm) AllGatherV(data []byte, counts []int, done func(error)) {
	c.post("AllGatherV", done, func(done func(error)) {
		if err := checkCounts(data, counts, c.w.size); err != nil {
			done(err)
			return
		}
		e, k := c.w.engine, &c.w.engine.lib.constants
		f := newFlight((len(data)+c.w.largest-1)/c.w.largest, done)
		for at := 0; at < len(data); at += c.w.largest {
			// All windows begin now: those of one operation and the next one must not mix,
			// in an order that would differ between ranks.
			to := min(len(data), at+c.w.largest)
			lengths, places := window(counts, at, to)
			f.keep = append(f.keep, data, lengths, places)
			if err := e.begin(f, &e.lib.iallgatherv, k.inPlace, 0, k.byte, addressOf(data[at:to]),
				addressOfInts(lengths), addressOfInts(places), k.byte, c.handle); err != nil {
				e.fly(f, err)
				return
			}
		}
		e.fly(f, nil)
	})
}

// window says which part of each rank's bytes lies between two places of data that
// consists of counts[0] bytes of rank 0, counts[1] of rank 1 and so on: how many bytes
// of each, and where they begin in the window.
func window(counts []int, from, to int) (lengths, places []int32) {
	begin := 0
	for _, n := range counts {
		first, last := max(begin, from), min(begin+n, to)
		begin += n
		if first >= last {
			first, last = from, from
		}
		lengths, places = append(lengths, int32(last-first)), append(places, int32(first-from))
	}
	return lengths, places
}

// AllToAllV sends a part of send to each rank and receives one of each, in rank order.
// sendCounts and recvCounts are the lengths of the parts in bytes: what this rank sends
// to another is as long as what that one receives of it. The two must not overlap.
//
// It is made of messages between two ranks, which is how libraries do it too: the
// counts of a pair are known to both, so that both cut them alike where they are too
// large for a message.
func (c *Comm) AllToAllV(send []byte, sendCounts []int, recv []byte, recvCounts []int, done func(error)) {
	c.post("AllToAllV", done, func(done func(error)) {
		e, k, me := c.w.engine, &c.w.engine.lib.constants, c.w.rank
		for _, side := range []struct {
			data   []byte
			counts []int
		}{{send, sendCounts}, {recv, recvCounts}} {
			if err := checkCounts(side.data, side.counts, c.w.size); err != nil {
				done(err)
				return
			}
		}
		if sendCounts[me] != recvCounts[me] {
			done(fmt.Errorf("rank %d sends itself %d bytes and expects %d", me, sendCounts[me], recvCounts[me]))
			return
		}
		ins, outs := c.messages(recv, recvCounts), c.messages(send, sendCounts)
		f := newFlight(len(ins)+len(outs), done, send, recv)
		for _, m := range ins {
			if err := e.begin(f, &e.lib.irecv, addressOf(m.data), uintptr(len(m.data)), k.byte, uintptr(m.rank), tag, c.handle); err != nil {
				e.fly(f, err)
				return
			}
		}
		for _, m := range outs {
			if err := e.begin(f, &e.lib.isend, addressOf(m.data), uintptr(len(m.data)), k.byte, uintptr(m.rank), tag, c.handle); err != nil {
				e.fly(f, err)
				return
			}
		}
		copy(part(recv, recvCounts, me), part(send, sendCounts, me)) // while the others travel
		e.fly(f, nil)
	})
}

// message is a piece of what goes to, or comes from, another rank.
type message struct {
	rank int
	data []byte
}

// messages cuts data into messages from or to each other rank. It begins with the next
// one, so that not all ranks send to the same one first.
func (c *Comm) messages(data []byte, counts []int) (out []message) {
	for i := 1; i < c.w.size; i++ {
		r := (c.w.rank + i) % c.w.size
		rest := part(data, counts, r)
		for len(rest) > 0 {
			n := min(len(rest), c.w.largest)
			out = append(out, message{r, rest[:n]})
			rest = rest[n:]
		}
	}
	return out
}

// part is the part of data that belongs to a rank.
func part(data []byte, counts []int, rank int) []byte {
	at := 0
	for _, n := range counts[:rank] {
		at += n
	}
	return data[at : at+counts[rank]]
}

// checkCounts says what is wrong with the counts of data, if anything.
func checkCounts(data []byte, counts []int, size int) error {
	sum := 0
	for _, n := range counts {
		if n < 0 {
			return fmt.Errorf("a part of %d bytes", n)
		}
		sum += n
	}
	if len(counts) != size || sum != len(data) {
		return fmt.Errorf("%d parts of %d bytes in all, for %d ranks and %d bytes", len(counts), sum, size, len(data))
	}
	return nil
}

// post lets the owner of MPI begin an operation. Errors name it.
func (c *Comm) post(name string, done func(error), begin func(done func(error))) {
	named := func(err error) {
		if err != nil {
			err = fmt.Errorf("%s of %s: %w", name, c.name, err)
		}
		done(err)
	}
	posted := c.w.engine.post(func(err error) {
		if err != nil {
			named(err)
			return
		}
		begin(named)
	})
	if !posted {
		named(errEnded)
	}
}

// bytesOf is the memory of a record, for MPI to read and write.
func bytesOf[T any](records []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&records[0])), len(records)*int(unsafe.Sizeof(records[0])))
}

// untilNUL is the text at the start of b.
func untilNUL(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}
