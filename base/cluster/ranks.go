package cluster

// World is one rank's view of all ranks of a run. Any goroutine may call its methods, except from the completion
// callbacks of operations.
type World interface {
	// Rank returns this rank, from 0 on, and Size the number of ranks.
	Rank() int
	Size() int
	// Hosts returns the hosts of all ranks, in rank order. Ranks with equal host names share memory.
	Hosts() []string
	// NewComm makes a communicator. All ranks must make the same communicators in the same order. The call waits for
	// the other ranks. No operation may be in flight. name appears in errors.
	NewComm(name string) (Comm, error)
	// Abort ends the run on all ranks and reports the reason. With MPI all processes end, and Abort does not return.
	// With local ranks all operations fail on every rank; the error has the rank and the reason.
	Abort(reason string)
	// Close ends this rank's part and may wait for the others. No operation may be in flight. Close is not called after
	// Abort.
	Close() error
}

// Comm carries one kind of exchange, such as gradients. Each rank must begin the operations of a Comm in the same
// order. Operations of different Comms are independent and may overtake each other.
//
// Operations return at once. When an operation is complete on this rank, or has failed, done is called; callbacks of
// one rank do not run concurrently. A callback must neither block nor take long, and may begin other operations. Until
// the callback runs, the memory must not be touched; data being sent may be read.
type Comm interface {
	// AllGather sends value to all ranks. All values have the same length. done receives the values of all ranks in
	// rank order and may keep them.
	AllGather(value []byte, done func(values [][]byte, err error))
	// AllGatherV completes data on all ranks. data has one part for each rank, in rank order. counts has the lengths of
	// the parts in bytes, and is the same on each rank. A rank provides its own part and receives the others.
	AllGatherV(data []byte, counts []int, done func(error))
	// AllToAllV sends one part of send to each rank and receives one part from each rank into recv, both in rank order.
	// The counts are the lengths of the parts in bytes. The number of bytes that one rank sends to another must match
	// on both. send and recv must not overlap.
	AllToAllV(send []byte, sendCounts []int, recv []byte, recvCounts []int, done func(error))
}

// Gather is AllGather, but it waits for the values and returns them.
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
	_, err := Gather(c, []byte{1}) // complete only when every rank has sent its byte
	return err
}

// Wait calls begin, which begins an operation and is given the callback done. It returns the operation's error when
// done is called.
func Wait(begin func(done func(error))) error {
	done := make(chan error, 1)
	begin(func(err error) { done <- err })
	return <-done
}
