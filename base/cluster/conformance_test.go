package cluster_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"mt/base/cluster"
)

// conform returns an error if w does not do what the interface cluster.World promises. All ranks
// call conform at once, with the same seed.
func conform(w cluster.World, seed uint64) error {
	if n := len(w.Hosts()); n != w.Size() || w.Rank() < 0 || w.Rank() >= w.Size() {
		return fmt.Errorf("rank %d of %d, and %d hosts", w.Rank(), w.Size(), n)
	}
	for _, check := range []struct {
		name string
		run  func(cluster.World, uint64) error
	}{{"values", values}, {"lengths", lengths}, {"mixed", mixed}, {"chained", chained}, {"refused", refused}} {
		if err := check.run(w, seed); err != nil {
			return fmt.Errorf("%s: %w", check.name, err)
		}
	}
	return nil
}

// values checks that AllGather returns the ranks' values in rank order.
func values(w cluster.World, _ uint64) error {
	c, err := w.NewComm("values")
	if err != nil {
		return err
	}
	for round := range 5 {
		got, err := cluster.Gather(c, binary.LittleEndian.AppendUint64(nil, uint64(1000*round+w.Rank())))
		if err != nil {
			return err
		}
		if len(got) != w.Size() {
			return fmt.Errorf("%d values", len(got))
		}
		for r, v := range got {
			if x := binary.LittleEndian.Uint64(v); x != uint64(1000*round+r) {
				return fmt.Errorf("round %d: rank %d told %d", round, r, x)
			}
		}
	}
	if got, err := cluster.Gather(c, nil); err != nil || len(got) != w.Size() {
		return fmt.Errorf("nothing at all: %d values, %w", len(got), err)
	}
	return cluster.Barrier(c)
}

// lengths checks that GatherAll accepts values of different lengths, including empty ones.
func lengths(w cluster.World, _ uint64) error {
	c, err := w.NewComm("lengths")
	if err != nil {
		return err
	}
	got, err := cluster.GatherAll(w, c, bytes.Repeat([]byte{byte(w.Rank())}, 3*w.Rank()))
	if err != nil || len(got) != w.Size() {
		return fmt.Errorf("%d values, %w", len(got), err)
	}
	for r, v := range got {
		if !bytes.Equal(v, bytes.Repeat([]byte{byte(r)}, 3*r)) {
			return fmt.Errorf("rank %d told %v", r, v)
		}
	}
	return nil
}

// operation is one collective operation that all ranks begin, with the expected data.
type operation struct {
	comm     int
	toAll    bool    // AllToAllV, else AllGatherV
	counts   [][]int // [from][to] bytes; of AllGatherV the columns are the same
	salt     byte
	original []byte
	sent     []byte
	got      []byte
}

// content returns byte i of the data that rank `from` sends to rank `to`. AllGatherV sends the same
// data to all ranks.
func (o *operation) content(from, to, i int) byte {
	if !o.toAll {
		to = 0
	}
	return o.salt + byte(31*from+7*to+i)
}

// column returns how many bytes each rank sends to rank `to`.
func (o *operation) column(to int) (out []int) {
	for _, row := range o.counts {
		out = append(out, row[to])
	}
	return out
}

// mixed checks many operations in flight on several communicators. Each rank begins them in its own
// order, but keeps the order within a communicator.
func mixed(w cluster.World, seed uint64) error {
	const comms, operations = 3, 24
	same := rand.New(rand.NewPCG(seed, 1)) // draws the same on all ranks
	var list []cluster.Comm
	for range comms {
		c, err := w.NewComm("mixed")
		if err != nil {
			return err
		}
		list = append(list, c)
	}
	queues := make([][]*operation, comms)
	for range operations {
		o := &operation{comm: same.IntN(comms), toAll: same.IntN(2) == 0, salt: byte(same.Uint32())}
		for range w.Size() {
			row := make([]int, w.Size())
			for to := range row {
				switch {
				case !o.toAll && to > 0:
					row[to] = row[0]
				case same.IntN(4) > 0: // else nothing
					row[to] = same.IntN(1 << (4 + same.IntN(10)))
				}
			}
			o.counts = append(o.counts, row)
		}
		queues[o.comm] = append(queues[o.comm], o)
	}
	own := rand.New(rand.NewPCG(seed, 100+uint64(w.Rank())))
	done := make(chan error, operations)
	for range operations {
		at := own.IntN(comms)
		for len(queues[at]) == 0 {
			at = (at + 1) % comms
		}
		o := queues[at][0]
		queues[at] = queues[at][1:]
		o.begin(w, list[at], func(err error) { done <- errors.Join(err, o.check(w)) })
	}
	var err error
	for range operations {
		err = errors.Join(err, <-done)
	}
	return err
}

// begin fills the operation's send buffer and begins the operation on this rank.
func (o *operation) begin(w cluster.World, c cluster.Comm, done func(error)) {
	me := w.Rank()
	expected := o.column(me)
	if o.toAll {
		for to, n := range o.counts[me] {
			for i := range n {
				o.sent = append(o.sent, o.content(me, to, i))
			}
		}
		o.original = bytes.Clone(o.sent)
		o.got = make([]byte, sum(expected))
		c.AllToAllV(o.sent, o.counts[me], o.got, expected, done)
		return
	}
	o.got = make([]byte, sum(expected))
	for i := range expected[me] {
		o.got[sum(expected[:me])+i] = o.content(me, me, i)
	}
	c.AllGatherV(o.got, expected, done)
}

// check compares the received bytes with the bytes that the other ranks sent, and checks that this
// rank's own data is unchanged.
func (o *operation) check(w cluster.World) error {
	at := 0
	for from, n := range o.column(w.Rank()) {
		for i := range n {
			if got, want := o.got[at], o.content(from, w.Rank(), i); got != want {
				return fmt.Errorf("rank %d, to all %t: byte %d of %d from rank %d is %d, want %d", w.Rank(), o.toAll, i, n, from, got, want)
			}
			at++
		}
	}
	if !bytes.Equal(o.sent, o.original) {
		return fmt.Errorf("rank %d: what was sent has changed", w.Rank())
	}
	return nil
}

func sum(v []int) (s int) {
	for _, n := range v {
		s += n
	}
	return s
}

// chained checks that the completion callback of an operation may begin the next operation.
func chained(w cluster.World, _ uint64) error {
	c, err := w.NewComm("chained")
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	var next func(round int)
	next = func(round int) {
		if round == 10 {
			done <- nil
			return
		}
		c.AllGather([]byte{byte(round), byte(w.Rank())}, func(values [][]byte, err error) {
			for r, v := range values {
				if v[0] != byte(round) || v[1] != byte(r) {
					err = fmt.Errorf("round %d: %v of rank %d", round, v, r)
				}
			}
			if err != nil {
				done <- err
				return
			}
			next(round + 1)
		})
	}
	next(0)
	return <-done
}

// refused checks that an operation with wrong counts fails, and that later operations still work.
func refused(w cluster.World, _ uint64) error {
	c, err := w.NewComm("refused")
	if err != nil {
		return err
	}
	n := w.Size()
	for what, begin := range map[string]func(func(error)){
		"a count too few":      func(done func(error)) { c.AllGatherV(nil, make([]int, n-1), done) },
		"bytes without counts": func(done func(error)) { c.AllGatherV(make([]byte, 3), make([]int, n), done) },
		"less than nothing": func(done func(error)) {
			counts := make([]int, n)
			counts[0], counts[1] = 1, -1
			c.AllToAllV(nil, counts, nil, make([]int, n), done)
		},
		"sent too little": func(done func(error)) {
			counts := make([]int, n)
			counts[0] = 2
			c.AllToAllV(make([]byte, 1), counts, nil, make([]int, n), done)
		},
		"received too much": func(done func(error)) {
			c.AllToAllV(nil, make([]int, n), make([]byte, 1), make([]int, n), done)
		},
	} {
		if err := cluster.Wait(begin); err == nil || !strings.Contains(err.Error(), "of refused: ") {
			return fmt.Errorf("%s: error %v", what, err)
		}
	}
	return cluster.Barrier(c)
}
