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

// patience is the time after the first signal in which further signals do not count. timeout(1) sends its signal to
// the process and also to its group, and a closing terminal may send two.
const patience = time.Second

// survivePipes makes a write to a closed pipe return an error instead of ending the process. In `mt train run.yaml
// 2>&1 | tee log`, Ctrl-C ends tee first, and the run still has to save.
func survivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// stopSignals returns the signals that stop the run. SIGHUP is one of them, unless nohup ignores it.
func stopSignals() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
}

// interruptible returns a context that the first stop signal cancels, so that the current step can end and be saved.
// A second signal, at least one second (the constant `patience`) after the first, ends the process. Hanging GPU work ends the process too, because the step would never
// end.
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

// heed calls cancel at the first signal and prints a message on w. After that it calls insist in two cases: a further
// signal comes later than patience, or hangs returns true at a tick of look. A blocked reader of w does not delay
// insist. heed returns when the message is written and either signals is closed or insist has returned.
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

// sayEnd prints on w that mt exits although work on the GPU does not end. It first waits until the channel said is
// closed, which means that an earlier message is written. The wait and the print together take at most patience.
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
