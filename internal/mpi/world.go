package mpi

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// World is all ranks of a run, of which this process is one.
type World struct {
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
	world *World
}

// Start initialises MPI, with the library that was found, in a process that l started.
// It waits for all ranks. Where no library was found the error is ErrMissing.
//
// The library must have made a world of as many ranks as were started: one that does
// not know the launcher makes a world of its own for every process. A process for which
// Start failed ends by Exit as well.
func Start(f Found, l Launch, o Options) (*World, error) {
	if f.library == nil {
		return nil, fmt.Errorf("%w: %s", ErrMissing, f.why())
	}
	if o.Largest == 0 {
		o.Largest = largest
	}
	w := &World{largest: o.Largest}
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
func (w *World) init() error {
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
func (w *World) findHosts() error {
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

// Rank is this process's, from 0 on.
func (w *World) Rank() int { return w.rank }

// Size is how many ranks there are.
func (w *World) Size() int { return w.size }

// Hosts are the hosts of all ranks, in rank order. Ranks whose hosts have the same
// name share memory.
func (w *World) Hosts() []string { return w.hosts }

// NewComm makes a communicator. All ranks make the same ones in the same order, each
// waits for the others, and no operation is under way meanwhile. name is for errors.
func (w *World) NewComm(name string) (*Comm, error) {
	c := &Comm{w: w, name: name}
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

// Finalize ends MPI on this rank; it may wait for the others. Nothing may be under way.
func (w *World) Finalize() error {
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

// How Abort waits, in both cases for what it cannot see.
const (
	// What was written just before may be lost otherwise: MPICH's mpirun ends the
	// processes before it reads what is left of their output.
	abortAfter = 300 * time.Millisecond
	// The owner of MPI may be inside a call that waits for a rank which is no more.
	abortWithin = 10 * time.Second
)

// Abort ends the processes of all ranks, this one too, with an exit code that is not
// 0. It does not return. Functions that wait for operations must not call it.
func (w *World) Abort(code int) {
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
		if err := w.Finalize(); err != nil {
			fmt.Fprintf(os.Stderr, "mt: %v\n", err)
			code = 1
		}
	}
	if !w.engine.isEnded() {
		w.Abort(code)
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
