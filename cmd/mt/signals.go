package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"mt/base/cluster"
	"mt/device/cuda"
	"mt/internal/run/settings"
)

// patience is how long after the first signal others are taken for the same one:
// timeout(1) sends its signal twice, to the process and to its group, and a
// terminal that closes may do so too.
const patience = time.Second

// survivePipes makes a write to a pipe that nobody reads return an error, where it
// would otherwise end the process: in `mt train run.yaml 2>&1 | tee log` Ctrl-C ends
// tee first, and the run still has to save.
func survivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// stopSignals are the signals that ask for an end. A closed terminal is one,
// unless the user said, with nohup, that it is not.
func stopSignals() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
}

// interruptible is a context that the first of stopSignals cancels, so that the
// step in progress can end and be saved. Another one, later than patience, ends
// the process. So does work on a GPU that does not end: the step would not either.
func interruptible(w io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, stopSignals()...)
	look := time.NewTicker(time.Second)
	go heed(signals, look.C, cuda.Hangs, w, time.Now, cancel, func() { cluster.Exit(exitInterrupted) })
	return ctx, func() {
		look.Stop()
		signal.Stop(signals)
		close(signals)
		cancel(nil)
	}
}

// heed cancels at the first of signals and says so on w. From then on it calls insist at a
// signal, once patience has passed, or at a tick of look if hangs says that work does not
// end. A reader of w that has stopped delays none of this. heed returns when signals is
// closed or insist has returned, and the message is written.
func heed(signals <-chan os.Signal, look <-chan time.Time, hangs func() bool, w io.Writer, now func() time.Time, cancel context.CancelCauseFunc, insist func()) {
	s, ok := <-signals
	if !ok {
		return
	}
	first := now()
	cancel(settings.ErrInterrupted)
	said, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case _, ok := <-signals:
				if !ok {
					return
				}
				if now().Sub(first) >= patience {
					insist()
					return
				}
			case <-look:
				if hangs() {
					sayEnd(w, said)
					insist()
					return
				}
			}
		}
	}()
	fmt.Fprintf(w, "\nmt: %s: finishing what is begun; once more to stop at once\n", s)
	close(said)
	<-done
}

// sayEnd says on w that mt ends without the GPU's work. It waits until said is closed, and for both together at most for patience.
func sayEnd(w io.Writer, said <-chan struct{}) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		<-said
		fmt.Fprintln(w, "mt: work on the GPU does not end: stopping without it; checkpoints stay as they are")
	}()
	select {
	case <-written:
	case <-time.After(patience):
	}
}
