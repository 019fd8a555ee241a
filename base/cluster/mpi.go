package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
	"unsafe"
)

// mpiWorld is a World whose ranks are processes.
type mpiWorld struct {
	engine     *engine
	rank, size int
	hosts      []string
	largest    int
}

// Options say how MPI is started.
type Options struct {
	// Largest is the length in bytes of the largest message; 0 means 1 GiB. The counts
	// of MPI are C ints, and what is longer is cut.
	Largest int
}

const largest = 1 << 30

// started is the World of this process. MPI can be started once.
var started struct {
	sync.Mutex
	world *mpiWorld
}

// Start is the World that MPI makes of the processes that l started: it initialises the library that was found in
// this one. It waits for all ranks. Where no library was found the error is ErrMissing.
//
// The library must have made a world of as many ranks as were started: one that does
// not know the launcher makes a world of its own for every process. A process for which
// Start failed ends by Exit as well.
func Start(f Found, l Launch, o Options) (World, error) {
	if f.library == nil {
		return nil, fmt.Errorf("%w: %s", ErrMissing, f.why())
	}
	if o.Largest == 0 {
		o.Largest = largest
	}
	w := &mpiWorld{largest: o.Largest}
	started.Lock()
	if started.world != nil {
		started.Unlock()
		return nil, errors.New("MPI was started before")
	}
	w.engine = newEngine(f.library)
	started.world = w
	started.Unlock() // Exit must not wait for the other ranks
	if err := w.engine.do(w.init); err != nil {
		return nil, err
	}
	if w.size != l.Size || w.rank != l.Rank {
		return nil, fmt.Errorf("%s started rank %d of %d, and %s (%s) is rank %d of %d: it does not go with what started it; %s=FILE names another library",
			l.By, l.Rank, l.Size, f.Version, f.Path, w.rank, w.size, Variable)
	}
	return w, nil
}

// init runs on the owner of MPI.
func (w *mpiWorld) init() error {
	e, k := w.engine, &w.engine.lib.constants
	restore := keepSignals()
	err := e.call(&e.lib.initThread, 0, 0, k.serialized, e.lib.out(0))
	restore()
	endAtAbort()
	if err != nil {
		return err
	}
	if got := e.lib.int(0); got < int(k.funneled) {
		return fmt.Errorf("MPI_Init_thread: the library allows no threads (level %d)", got)
	}
	if err := e.call(&e.lib.commSetErr, k.world, k.errorsReturn); err != nil {
		return err
	}
	if err := e.call(&e.lib.commRank, k.world, e.lib.out(0)); err != nil {
		return err
	}
	w.rank = e.lib.int(0)
	e.rank = w.rank
	if err := e.call(&e.lib.commSize, k.world, e.lib.out(0)); err != nil {
		return err
	}
	w.size = e.lib.int(0)
	return w.findHosts()
}

// place is what each rank tells of where it is.
type place struct {
	first int64 // the lowest rank with which it shares memory
	name  [256]byte
}

// findHosts names the host of each rank.
func (w *mpiWorld) findHosts() error {
	e, k := w.engine, &w.engine.lib.constants
	if err := e.call(&e.lib.commSplitType, k.world, k.shared, 0, k.infoNull, e.lib.out(1)); err != nil {
		return err
	}
	neighbours := e.lib.communicator(1)
	places := make([]place, w.size+1) // the last is what this rank tells
	mine := &places[w.size]
	mine.first = int64(w.rank)
	if err := e.call(&e.lib.bcast, addressOf(bytesOf(places[w.size:])), 8, k.byte, 0, neighbours); err != nil {
		return err
	}
	if err := e.call(&e.lib.processorName, e.lib.textAt(), e.lib.out(0)); err != nil {
		return err
	}
	copy(mine.name[:len(mine.name)-1], e.lib.text())
	all := bytesOf(places)
	n := uintptr(len(all) / len(places))
	if err := e.call(&e.lib.allgather, addressOf(bytesOf(places[w.size:])), n, k.byte, addressOf(all), n, k.byte, k.world); err != nil {
		return err
	}
	w.hosts = hostNames(places[:w.size])
	return nil
}

// hostNames names the host of each rank. Hosts that do not share memory and have one
// name, as containers may, are told apart by their lowest rank.
func hostNames(places []place) []string {
	firsts := map[string]map[int64]bool{}
	for _, p := range places {
		name := untilNUL(p.name[:])
		if firsts[name] == nil {
			firsts[name] = map[int64]bool{}
		}
		firsts[name][p.first] = true
	}
	out := make([]string, len(places))
	for i, p := range places {
		out[i] = untilNUL(p.name[:])
		if len(firsts[out[i]]) > 1 {
			out[i] = fmt.Sprintf("%s of rank %d", out[i], p.first)
		}
	}
	return out
}

// Rank implements World.
func (w *mpiWorld) Rank() int { return w.rank }

// Size implements World.
func (w *mpiWorld) Size() int { return w.size }

// Hosts implements World.
func (w *mpiWorld) Hosts() []string { return w.hosts }

// NewComm implements World.
func (w *mpiWorld) NewComm(name string) (Comm, error) {
	c := &mpiComm{w: w, name: name}
	err := w.engine.do(func() error {
		e := w.engine
		if err := e.call(&e.lib.commDup, e.lib.constants.world, e.lib.out(1)); err != nil {
			return err
		}
		c.handle = e.lib.communicator(1)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close implements World: it ends MPI on this rank.
func (w *mpiWorld) Close() error {
	e := w.engine
	return e.do(func() error {
		if n := len(e.flying) + len(e.lost); n > 0 {
			return fmt.Errorf("rank %d: MPI_Finalize: %d operations are not complete", w.rank, n)
		}
		if err := e.call(&e.lib.finalize); err != nil {
			return err
		}
		e.end()
		return nil
	})
}

// How end waits, in both cases for what it cannot see.
const (
	// What was written just before may be lost otherwise: MPICH's mpirun ends the
	// processes before it reads what is left of their output.
	abortAfter = 300 * time.Millisecond
	// The owner of MPI may be inside a call that waits for a rank which is no more.
	abortWithin = 10 * time.Second
)

// Abort implements World.
func (w *mpiWorld) Abort(reason string) {
	fmt.Fprintf(os.Stderr, "mt: rank %d on %s: %s\n", w.rank, w.hosts[w.rank], reason)
	w.end(1)
}

// end ends the processes of all ranks, this one too, with an exit code that is not
// 0. It does not return. Functions that wait for operations must not call it.
func (w *mpiWorld) end(code int) {
	time.Sleep(abortAfter)
	e := w.engine
	posted := e.post(func(err error) {
		if err == nil {
			e.lib.abort.status(e.lib.constants.world, uintptr(code))
		}
		os.Exit(code)
	})
	if posted {
		time.Sleep(abortWithin)
	}
	os.Exit(code)
}

// Exit ends this process. Where MPI was started, leaving without its knowledge would
// let the launcher, and the other ranks, wait or complain: so with code 0 MPI is
// finalized if it was not before, and with another code all ranks are ended unless it
// was. Where MPI was not started, a code other than 0 ends all ranks as well: the others
// may wait in Start for this one.
func Exit(code int) {
	started.Lock() // it stays locked: the process ends
	w := started.world
	if w == nil {
		if l, err := LaunchOf(os.Getenv); err == nil && code != 0 {
			tellLauncher(l, code)
		}
		os.Exit(code)
	}
	if code == 0 && !w.engine.isEnded() {
		if err := w.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "mt: %v\n", err)
			code = 1
		}
	}
	if !w.engine.isEnded() {
		w.end(code)
	}
	// What C runs at its exit must run: MPICH 5 takes its leave of mpirun there, which
	// kills all ranks when one is gone without.
	w.engine.lib.exit.status(uintptr(code))
}

// tellLauncher lets MPICH's mpirun, which waits for ever for a rank that ended before MPI
// was started, end all ranks: it writes what MPI_Abort writes to it. Other launchers see it
// by themselves. The number that the variable has may be another file's here, where
// something between the launcher and this program has closed its own.
func tellLauncher(l Launch, code int) {
	fd, err := strconv.Atoi(os.Getenv("PMI_FD"))
	if err != nil || l.Size == 1 || l.Family != OfMPICH {
		return
	}
	launcher := os.NewFile(uintptr(fd), "PMI_FD")
	if info, err := launcher.Stat(); err != nil || info.Mode()&os.ModeSocket == 0 {
		return
	}
	time.Sleep(abortAfter)
	_, _ = fmt.Fprintf(launcher, "cmd=abort exitcode=%d\n", code) // it may be gone
}

// mpiComm is a communicator of all ranks. On each rank the same operations of one
// communicator are begun in the same order; those of different ones are independent.
//
// Operations return at once. done is called when the operation is complete, or failed,
// on the goroutine that owns MPI: it must neither block nor take long, and may begin
// other operations. Until then the memory belongs to MPI. After MPI was finalized done
// is called at once, with an error.
type mpiComm struct {
	w      *mpiWorld
	handle uintptr
	name   string
}

// tag is that of all messages: what is sent from one rank to another through one
// communicator arrives in the order in which it was sent.
const tag = 1

// AllGather sends value to all ranks; it has the same length on each. done gets what
// every rank sent, in rank order.
func (c *mpiComm) AllGather(value []byte, done func(values [][]byte, err error)) {
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
func (c *mpiComm) AllGatherV(data []byte, counts []int, done func(error)) {
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
func (c *mpiComm) AllToAllV(send []byte, sendCounts []int, recv []byte, recvCounts []int, done func(error)) {
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
func (c *mpiComm) messages(data []byte, counts []int) (out []message) {
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
func (c *mpiComm) post(name string, done func(error), begin func(done func(error))) {
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

// engine owns MPI: its goroutine calls it, and nobody else does.
type engine struct {
	lib  *library
	rank int // -1 until it is known

	mu    sync.Mutex
	todo  []func(error) // run by the goroutine, in order
	ended bool          // MPI was finalized, by the goroutine: nothing is taken any more
	wake  chan struct{}

	flying []*flight // begun and not done; only the goroutine touches it
	lost   []*flight // failed: MPI may still use their memory
}

// flight is an operation that was begun. It keeps the memory that MPI has.
type flight struct {
	handles []uint64 // of the requests, a word for each
	open    []int    // the requests that are not complete, by their places in handles
	calls   []string // the functions that made the requests
	keep    []any
	done    func(error)
}

// errEnded is the error of operations that come after MPI was finalized.
var errEnded = errors.New("MPI was finalized")

// How the goroutine waits for what is under way: it tests without a rest at first,
// since a small message takes some microseconds, and then with rests in between, to
// leave the core to others. While it rests a network may fill its buffers.
const (
	eagerTests = 200
	restMicros = 50
)

func newEngine(l *library) *engine {
	e := &engine{lib: l, rank: -1, wake: make(chan struct{}, 1)}
	go e.run()
	return e
}

// post lets the goroutine run f, after what was posted before. It never blocks. It
// returns false, and f is not run, where MPI was finalized. Where that has come between, f
// gets errEnded and must not call MPI.
func (e *engine) post(f func(error)) bool {
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return false
	}
	e.todo = append(e.todo, f)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default: // it is awake
	}
	return true
}

// do lets the goroutine run f, which may block in MPI, and waits for it. It must not
// be called from functions that the goroutine runs.
func (e *engine) do(f func() error) error {
	done := make(chan error, 1)
	posted := e.post(func(err error) {
		if err == nil {
			err = f()
		}
		done <- err
	})
	if !posted {
		return errEnded
	}
	return <-done
}

// end notes, on the goroutine, that MPI was finalized. What others have posted while
// MPI_Finalize ran is told so.
func (e *engine) end() {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
}

// run is the goroutine. It never leaves its thread, which MPI_Init_thread makes the
// main thread of MPI.
func (e *engine) run() {
	runtime.LockOSThread()
	for idle := 0; ; {
		switch {
		case e.runTodo() || e.test():
			idle = 0
		case e.isEnded():
			return
		case len(e.flying) == 0:
			<-e.wake
		case idle < eagerTests:
			idle++
			runtime.Gosched()
		default:
			nap(restMicros)
		}
	}
}

func (e *engine) isEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// runTodo runs what was posted, and says whether there was anything.
func (e *engine) runTodo() bool {
	e.mu.Lock()
	todo := e.todo
	e.todo = nil
	e.mu.Unlock()
	for _, f := range todo {
		if e.ended {
			f(errEnded)
		} else {
			f(nil)
		}
	}
	return len(todo) > 0
}

// test asks for every request that is under way whether it is complete, calls the
// functions of flights that are, and says whether any was.
func (e *engine) test() (any bool) {
	var still []*flight
	for _, f := range e.flying {
		err := e.testOne(f)
		if err == nil && len(f.open) > 0 {
			still = append(still, f)
			continue
		}
		any = true
		e.land(f, err)
	}
	e.flying = still // what the functions have begun is in todo
	return any
}

// testOne takes out of f.open what is complete.
func (e *engine) testOne(f *flight) error {
	open := f.open[:0]
	for _, at := range f.open {
		err := e.call(&e.lib.test, addressOfHandle(&f.handles[at]), e.lib.out(0), e.lib.constants.statusIgnore)
		if err != nil {
			return fmt.Errorf("%s: %w", f.calls[at], err)
		}
		if e.lib.int(0) == 0 {
			open = append(open, at)
		}
	}
	f.open = open
	return nil
}

// call calls one of MPI's functions; its error knows the rank.
func (e *engine) call(f *function, args ...uintptr) error {
	err := e.lib.call(f, args...)
	var failed *Error
	if errors.As(err, &failed) {
		failed.Rank = e.rank
	}
	return err
}

// newFlight has room for n requests. keep is the memory that MPI is given.
func newFlight(n int, done func(error), keep ...any) *flight {
	return &flight{handles: make([]uint64, n), keep: keep, done: done}
}

// begin calls a function that makes a request; its last argument, the address for the
// request's handle, is added here.
func (e *engine) begin(f *flight, call *function, args ...uintptr) error {
	at := len(f.calls)
	if err := e.call(call, append(args, addressOfHandle(&f.handles[at]))...); err != nil {
		return err
	}
	f.calls, f.open = append(f.calls, call.name), append(f.open, at)
	return nil
}

// fly takes over a flight whose requests were begun. err is that of begin.
func (e *engine) fly(f *flight, err error) {
	if err != nil || len(f.open) == 0 {
		e.land(f, err)
		return
	}
	e.flying = append(e.flying, f)
}

// land ends a flight.
func (e *engine) land(f *flight, err error) {
	if err != nil {
		e.lost = append(e.lost, f)
	}
	f.done(err)
}

// Family is a group of MPI libraries whose launchers start each other's processes.
type Family string

// The families. Implementations that descend from MPICH, such as Intel's, Cray's and
// MVAPICH, are of its family.
const (
	OfAny     Family = ""
	OfMPICH   Family = "MPICH"
	OfOpenMPI Family = "Open MPI"
)

// Launch says who started this process, and as which of how many ranks.
type Launch struct {
	// By names the launcher for people; it is empty where the process was started
	// alone, and then Rank is 0 and Size is 1.
	By         string
	Rank, Size int
	// Family is that of the library which can talk to the launcher.
	Family Family
}

// ErrNoMPI is the error of LaunchOf where several processes were started together by
// something that is no MPI.
var ErrNoMPI = errors.New("mt's ranks are started by MPI")

// launchers are the marks that launchers leave in the environment, in the order in
// which they are looked for: a mark of MPI's counts before one of a program that may
// have started it.
var launchers = []struct {
	by         string
	rank, size string // names of variables
	family     Family
	wrong      func(size int) string // what to start instead; nil for an MPI
}{
	{by: "Open MPI's mpirun", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", family: OfOpenMPI},
	{by: "MPICH's mpirun", rank: "PMI_RANK", size: "PMI_SIZE", family: OfMPICH},
	{by: "srun --mpi=pmix", rank: "PMIX_RANK", size: "SLURM_STEP_NUM_TASKS"},
	{by: "srun without an MPI", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS", wrong: func(int) string {
		return "srun --mpi=pmix with Open MPI, srun --mpi=pmi2 with MPICH (srun --mpi=list shows what there is)"
	}},
	{by: "torchrun, or something that sets its variables,", rank: "RANK", size: "WORLD_SIZE", wrong: func(size int) string {
		return fmt.Sprintf("mpirun -n %d mt …, one rank on each host", size)
	}},
}

// LaunchOf reads the environment. Where something else than an MPI started several
// processes the error is ErrNoMPI and says what to start instead; Rank and Size are
// right all the same.
func LaunchOf(getenv func(string) string) (Launch, error) {
	for _, l := range launchers {
		rank, err := strconv.Atoi(getenv(l.rank))
		if err != nil {
			continue
		}
		size, err := strconv.Atoi(getenv(l.size))
		if err != nil || rank < 0 || rank >= size {
			continue
		}
		out := Launch{By: l.by, Rank: rank, Size: size, Family: l.family}
		switch {
		case l.wrong != nil && size > 1:
			return out, fmt.Errorf("%s has started %d processes (%s=%d, %s=%d): %w: %s", l.by, size, l.rank, rank, l.size, size, ErrNoMPI, l.wrong(size))
		case l.wrong != nil:
			continue // one process, which needs no MPI
		case getenv("SLURM_STEP_ID") != "" && l.family == OfMPICH:
			out.By, out.Family = "srun --mpi=pmi2", OfAny // Open MPI may know it too
		}
		return out, nil
	}
	return Launch{Size: 1}, nil
}
