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

// mpiWorld is a World (the view of all ranks) whose ranks are processes connected by MPI.
type mpiWorld struct {
	engine     *engine
	rank, size int
	hosts      []string
	largest    int
}

// Options configures MPI.
type Options struct {
	// Largest is the maximum length of a message in bytes; 0 means 1 GiB. MPI's counts are C ints, so longer data is
	// split.
	Largest int
}

const largest = 1 << 30

// started has the World of this process; nil: MPI was not started. MPI can be started only once.
var started struct {
	sync.Mutex
	world *mpiWorld
}

// Start initializes the library that Find has found, and returns the World of the processes that launcher l has
// started. It waits for all ranks. If no library was found, the error is ErrMissing.
//
// The library must report the same rank and number of ranks as the launcher. A library that does not know the launcher
// would make a separate World of one rank in each process. If Start has failed, the caller must still end the process
// with Exit, so that other ranks do not wait for it.
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
	started.Unlock() // Exit must not wait for other ranks
	if err := w.engine.do(w.init); err != nil {
		return nil, err
	}
	if w.size != l.Size || w.rank != l.Rank {
		return nil, fmt.Errorf("%s started rank %d of %d, and %s (%s) is rank %d of %d: it does not go with what started it; %s=FILE names another library",
			l.By, l.Rank, l.Size, f.Version, f.Path, w.rank, w.size, Variable)
	}
	return w, nil
}

// init initializes MPI and reads rank, size and hosts. It runs on the goroutine that owns MPI.
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

// place is the message in which each rank tells the others about its host.
type place struct {
	first int64 // lowest rank with shared memory
	name  [256]byte
}

// findHosts finds out the host of each rank: ranks with shared memory are on one host.
func (w *mpiWorld) findHosts() error {
	e, k := w.engine, &w.engine.lib.constants
	if err := e.call(&e.lib.commSplitType, k.world, k.shared, 0, k.infoNull, e.lib.out(1)); err != nil {
		return err
	}
	neighbours := e.lib.communicator(1)
	places := make([]place, w.size+1) // the last element is this rank's own report
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

// hostNames returns the name of each rank's host. Two hosts may have the same name but share no memory, as containers
// do. Each name then gets a suffix: the lowest rank on that host.
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

// Close implements World. It finalizes MPI on this rank.
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

// These are the times for which end waits for events that it cannot observe.
const (
	// abortAfter is a pause before the abort. Without it, output written just before may be lost:
	// MPICH's mpirun ends the processes before reading the rest of their output.
	abortAfter = 300 * time.Millisecond
	// abortWithin is how long end waits for the MPI goroutine to abort. That goroutine may be
	// inside a call that waits for a vanished rank.
	abortWithin = 10 * time.Second
)

// Abort implements World.
func (w *mpiWorld) Abort(reason string) {
	fmt.Fprintf(os.Stderr, "mt: rank %d on %s: %s\n", w.rank, w.hosts[w.rank], reason)
	w.end(1)
}

// end ends the processes of all ranks, including this one, with the given exit code, which is not 0. It does not
// return. Completion callbacks must not call it: end waits for the goroutine that runs them.
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

// Exit ends this process with an exit code.
//
// If MPI was started, a process that ends without telling MPI makes the launcher or other ranks hang or complain. So
// with code 0, Exit finalizes MPI, unless Close has done so. With another code it ends all ranks, unless MPI was
// finalized.
//
// If MPI was not started, a code other than 0 also ends all ranks, because others may wait for this rank in Start.
func Exit(code int) {
	started.Lock() // never unlocked: the process ends
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
	// Exit leaves through C's exit function, so that C's exit handlers run. In a handler MPICH 5 signs off from mpirun,
	// which kills all ranks if one leaves without signing off.
	w.engine.lib.exit.status(uintptr(code))
}

// tellLauncher makes MPICH's mpirun end all ranks: it writes to mpirun the message that MPI_Abort would write. mpirun
// would wait forever for a rank that ended before MPI was started. Other launchers notice such an end themselves.
//
// The message goes to the file descriptor that mpirun names in PMI_FD. A program between mpirun and mt may have closed
// the descriptor, and its number may then belong to another file.
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
	_, _ = fmt.Fprintf(launcher, "cmd=abort exitcode=%d\n", code) // the launcher may be gone
}

// mpiComm is a communicator of all ranks. Each rank must begin the operations of one communicator in the same order.
// Operations of different communicators are independent.
//
// Operations return at once. When an operation is complete or has failed, the MPI goroutine calls done. The callback
// must neither block nor take long, and may begin other operations. Until then the memory belongs to MPI. After MPI is
// finalized, done is called at once with an error.
type mpiComm struct {
	w      *mpiWorld
	handle uintptr
	name   string
}

// tag is the tag of all messages. Messages between two ranks through one communicator arrive in sending order, so one
// tag suffices.
const tag = 1

// AllGather sends value to all ranks. All values have the same length. done receives the values of all ranks in rank
// order.
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

// AllGatherV completes data on all ranks. data has one part for each rank, in rank order. counts has the lengths of the
// parts in bytes, and is the same on each rank. A rank provides its own part and receives the others.
func (c *mpiComm) AllGatherV(data []byte, counts []int, done func(error)) {
	c.post("AllGatherV", done, func(done func(error)) {
		if err := checkCounts(data, counts, c.w.size); err != nil {
			done(err)
			return
		}
		e, k := c.w.engine, &c.w.engine.lib.constants
		f := newFlight((len(data)+c.w.largest-1)/c.w.largest, done)
		for at := 0; at < len(data); at += c.w.largest {
			// AllGatherV is split into windows of at most largest bytes. All windows begin now, so
			// that every rank begins them before the windows of its next AllGatherV. MPI requires
			// the same order on all ranks.
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

// window returns which part of each rank's bytes lies in the bytes [from, to) of data. AllGatherV
// is split into such windows. Slice data has counts[r] bytes of each rank r, in rank order. The
// results have one value for each rank: the length of its part, and the part's offset within the
// window.
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

// AllToAllV sends one part of send to each rank and receives one part from each rank into recv, both in rank order.
// sendCounts and recvCounts have the lengths of the parts in bytes. The number of bytes that one rank sends to another
// must match on both. send and recv must not overlap.
//
// AllToAllV consists of point-to-point messages, as in MPI libraries. Both ranks of a pair know the count, so both
// split large parts the same way.
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

// message is a piece of data that this rank sends to another rank or receives from it.
type message struct {
	rank int
	data []byte
}

// messages splits data, which this rank sends or receives, into messages for each other rank.
// counts has the number of bytes for each rank. The messages begin with the next rank, so that
// ranks do not all send to the same rank at once.
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

// part returns a rank's part of data, which has one part of counts[r] bytes for each rank r, in rank order.
func part(data []byte, counts []int, rank int) []byte {
	at := 0
	for _, n := range counts[:rank] {
		at += n
	}
	return data[at : at+counts[rank]]
}

// checkCounts returns an error unless there is one count for each of size ranks, no count is negative, and the counts
// add up to the length of data.
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

// post has the goroutine that owns MPI call begin, which begins an operation. begin must call its argument done when
// the operation is over. The caller's done then gets the error, with the operation's name in it.
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

// bytesOf returns the memory of records as bytes, so that MPI can read and write it.
func bytesOf[T any](records []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&records[0])), len(records)*int(unsafe.Sizeof(records[0])))
}

// untilNUL returns the text before the first NUL in b.
func untilNUL(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

// engine owns MPI: only its goroutine calls MPI functions.
type engine struct {
	lib  *library
	rank int // -1: not known yet

	mu    sync.Mutex
	todo  []func(error) // run in order by the goroutine
	ended bool          // the goroutine has finalized MPI; nothing more is accepted
	wake  chan struct{}

	flying []*flight // in flight; only the goroutine accesses it
	lost   []*flight // failed; MPI may still use their memory
}

// flight is an operation in flight: begun and not complete. It keeps the memory given to MPI alive.
type flight struct {
	handles []uint64 // request handles, a word each
	open    []int    // indices in handles of incomplete requests
	calls   []string // the functions that made the requests
	keep    []any
	done    func(error)
}

// errEnded is the error of an operation that begins, or is still waiting, after MPI was finalized.
var errEnded = errors.New("MPI was finalized")

// The engine's goroutine polls operations in flight. It first polls eagerTests times without pause,
// because a small message takes some microseconds. Then it pauses for restMicros between polls, to
// leave the core to others.
const (
	eagerTests = 200
	restMicros = 50
)

func newEngine(l *library) *engine {
	e := &engine{lib: l, rank: -1, wake: make(chan struct{}, 1)}
	go e.run()
	return e
}

// post schedules f to run on the engine's goroutine, after earlier posts, and never blocks. If MPI is finalized, post
// returns false and does not run f. If MPI is finalized before f's turn comes, f receives errEnded and must not call
// MPI.
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
	default: // already awake
	}
	return true
}

// do runs f on the goroutine that owns MPI and waits for its end. f may block in MPI. Functions that run on this
// goroutine must not call do, because do would wait for itself.
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

// end records that MPI is finalized, so no later function is accepted. It runs on the engine's goroutine. Functions
// posted while MPI was being finalized receive errEnded.
func (e *engine) end() {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
}

// run is the loop of the engine's goroutine. It stays on one thread, which MPI_Init_thread makes MPI's main thread.
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

// runTodo runs the functions that post has scheduled. It reports whether there were any.
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

// test asks MPI about all requests in flight, and calls the callbacks of flights that are complete. It reports whether
// any flight was.
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
	e.flying = still // operations begun by the callbacks are in todo
	return any
}

// testOne asks MPI which open requests of the operation f are complete, and removes these from
// f.open.
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

// call calls an MPI function. If the error is an *Error, call adds this process's rank to it.
func (e *engine) call(f *function, args ...uintptr) error {
	err := e.lib.call(f, args...)
	var failed *Error
	if errors.As(err, &failed) {
		failed.Rank = e.rank
	}
	return err
}

// newFlight returns a flight with room for n requests. done is called at its end. `keep` lists the memory given to MPI,
// so that the garbage collector keeps it.
func newFlight(n int, done func(error), keep ...any) *flight {
	return &flight{handles: make([]uint64, n), keep: keep, done: done}
}

// begin calls an MPI function that begins a request of flight f. args lacks the function's last argument, the address
// for the request's handle; begin adds it.
func (e *engine) begin(f *flight, call *function, args ...uintptr) error {
	at := len(f.calls)
	if err := e.call(call, append(args, addressOfHandle(&f.handles[at]))...); err != nil {
		return err
	}
	f.calls, f.open = append(f.calls, call.name), append(f.open, at)
	return nil
}

// fly puts flight f among those in flight, after its requests have begun. err is the error of begin; an error ends the
// flight at once.
func (e *engine) fly(f *flight, err error) {
	if err != nil || len(f.open) == 0 {
		e.land(f, err)
		return
	}
	e.flying = append(e.flying, f)
}

// land ends flight f and calls its callback with err. After an error MPI may still use the flight's memory, so the
// flight is kept forever.
func (e *engine) land(f *flight, err error) {
	if err != nil {
		e.lost = append(e.lost, f)
	}
	f.done(err)
}

// Family is a group of MPI libraries that work together: the launcher of one can start processes that use another.
type Family string

// Families of MPI libraries. Descendants of MPICH, such as the MPI libraries of Intel and Cray and MVAPICH, belong to
// its family.
const (
	OfAny     Family = ""
	OfMPICH   Family = "MPICH"
	OfOpenMPI Family = "Open MPI"
)

// Launch describes the launcher of this process, and the process's rank.
type Launch struct {
	// By names the launcher for people; "": the process was started alone, with Rank 0 and Size 1.
	By         string
	Rank, Size int
	// Family is the family of libraries that can talk to the launcher.
	Family Family
}

// ErrNoMPI is the error of LaunchOf if a launcher without MPI has started several processes.
var ErrNoMPI = errors.New("mt's ranks are started by MPI")

// launchers lists the environment variables by which launchers tell a process its rank and the number of ranks, in
// search order. An MPI launcher comes before programs that may have started it, such as Slurm's.
var launchers = []struct {
	by         string
	rank, size string // environment variables
	family     Family
	wrong      func(size int) string // the command to use instead; nil for an MPI
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

// LaunchOf reads the launcher from the environment. If a launcher without MPI started several processes, the error is
// ErrNoMPI and names the command to use instead. Rank and Size are correct even then.
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
			continue // a single process needs no MPI
		case getenv("SLURM_STEP_ID") != "" && l.family == OfMPICH:
			out.By, out.Family = "srun --mpi=pmi2", OfAny // Open MPI may support pmi2 too
		}
		return out, nil
	}
	return Launch{Size: 1}, nil
}
