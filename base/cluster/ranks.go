package cluster

// World is all ranks of a run, as one of them sees it. Its methods may be called from
// any goroutine, but not by the functions that operations call when they are done.
type World interface {
	// Rank is this one's, from 0 on, and Size how many there are.
	Rank() int
	Size() int
	// Hosts are the hosts of all ranks, in rank order. Ranks whose hosts have the same
	// name share memory.
	Hosts() []string
	// NewComm makes a communicator. All ranks make the same ones in the same order,
	// each waits for the others, and no operation is under way meanwhile. name is for
	// errors.
	NewComm(name string) (Comm, error)
	// Abort ends the run on all ranks and tells why. With MPI all processes end, and
	// it does not return; in one process all operations fail, on every rank, with an
	// error that has the rank and the reason.
	Abort(reason string)
	// Close ends this rank's part; it may wait for the others. Nothing may be under
	// way. It is not called after Abort.
	Close() error
}

// Comm carries one kind of exchange, such as gradients. On each rank the same
// operations of one Comm are begun in the same order; those of different ones are
// independent and may overtake each other.
//
// Operations return at once. done is called when the operation is complete on this
// rank, or failed; the calls on one rank come one at a time. It must neither block nor
// take long, and may begin other operations. Until then the memory must not be touched,
// but for what is sent, which may be read.
type Comm interface {
	// AllGather sends value to all ranks; it has the same length on each. done gets
	// what every rank sent, in rank order, and may keep it.
	AllGather(value []byte, done func(values [][]byte, err error))
	// AllGatherV completes data on all ranks. It consists of one part for each rank,
	// in rank order; counts are their lengths in bytes and are the same on each rank. A
	// rank gives its own part and gets the others.
	AllGatherV(data []byte, counts []int, done func(error))
	// AllToAllV sends a part of send to each rank and receives one of each, in rank
	// order. The counts are the lengths of the parts in bytes: what this rank sends to
	// another is as long as what that one receives of it. The two must not overlap.
	AllToAllV(send []byte, sendCounts []int, recv []byte, recvCounts []int, done func(error))
}

// Gather is AllGather for those who can wait.
func Gather(c Comm, value []byte) (values [][]byte, err error) {
	done := make(chan struct{})
	c.AllGather(value, func(v [][]byte, e error) {
		values, err = v, e
		close(done)
	})
	<-done
	return values, err
}

// Barrier waits until all ranks have called it.
func Barrier(c Comm) error {
	_, err := Gather(c, []byte{1}) // none has a byte of every rank before each has sent it
	return err
}

// Wait begins an operation and waits until it is done.
func Wait(begin func(done func(error))) error {
	done := make(chan error, 1)
	begin(func(err error) { done <- err })
	return <-done
}
