package cluster

import (
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSignalsStay: loading a library leaves the signal actions of this process unchanged, and a nil dereference still
// raises a panic.
func TestSignalsStay(t *testing.T) {
	t.Setenv(Variable, "")
	before := signalActions()
	none := true
	for _, family := range []Family{OfMPICH, OfOpenMPI} {
		f := Find(ThisMachine(), Launch{Size: 1, Family: family})
		none = none && f.Path == ""
		for i, now := range signalActions() {
			if now != before[i] {
				t.Errorf("signal %d: %x before %s was loaded, %x after", i, before[i], f, now)
			}
		}
	}
	if none {
		t.Skip("no MPI library: apt install mpich, or pip install mpich")
	}
	if t.Failed() {
		return // what follows would end the process
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() == nil {
			t.Error("a nil dereference does not panic")
		}
	}()
	var nowhere *[1 << 20]int
	_ = nowhere[1<<19]
}

// TestAbortEndsAtOnce: endAtAbort gives SIGABRT the system's default action, which ends the
// process. It changes no other signal.
func TestAbortEndsAtOnce(t *testing.T) {
	defer keepSignals()()
	before := signalActions()
	endAtAbort()
	for i, now := range signalActions() {
		if want := before[i]; i == int(unix.SIGABRT) && now[0] != 0 || i != int(unix.SIGABRT) && now != want {
			t.Errorf("signal %d: %x, before it was %x", i, now, want)
		}
	}
}

// TestKeepSignals: the function that keepSignals returns restores a signal's action that was
// changed meanwhile.
func TestKeepSignals(t *testing.T) {
	const signal = 64 // Go and libc leave it alone
	before := signalActions()
	restore := keepSignals()
	setAction(signal, &sigaction{1}) // ignored
	if signalActions() == before {
		t.Error("the action was not changed")
	}
	restore()
	if signalActions() != before {
		t.Error("the action is not what it was")
	}
}
