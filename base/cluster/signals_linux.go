package cluster

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is what the kernel keeps of one signal: a handler, flags and a mask, in a layout
// that depends on the architecture and takes at most 64 bytes. It is only kept and given
// back. Words align it.
type sigaction [8]uint64

// actions are those of all signals, by number.
type actions [65]sigaction

// kept says whether a signal's action is looked at. Those of SIGKILL and SIGSTOP cannot be
// changed. Three signals are libc's own: it sets them when it first needs them, and once.
func kept(signal int) bool {
	return signal != int(unix.SIGKILL) && signal != int(unix.SIGSTOP) && (signal < 32 || signal > 34)
}

// signalActions are the actions of this process. It asks the kernel, because an MPI library
// may put functions of its own in place of libc's.
func signalActions() (all actions) {
	for i := 1; i < len(all); i++ {
		if kept(i) {
			// The calls fail for numbers that this system lacks, and then leave all as it is.
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(i), 0, uintptr(unsafe.Pointer(&all[i])), maskBytes, 0, 0)
		}
	}
	return all
}

// setAction lets a signal have an action.
func setAction(signal int, a *sigaction) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(a)), 0, maskBytes, 0, 0)
}

// maskBytes is the length of the kernel's set of signals.
const maskBytes = 8

// keepSignals notes what this process does at each signal. The function that it returns
// makes it so again. MPI libraries, and those that they load, catch signals to print
// a trace, some of them (UCX) as soon as they are loaded: a nil dereference or a cut-off
// mapping would end the process where Go makes it a panic, and a closed terminal would not
// be heard. Whoever calls signal.Notify or signal.Stop in between calls it in vain.
func keepSignals() (restore func()) {
	before := signalActions()
	return func() {
		now := signalActions()
		for i := range before {
			if now[i] != before[i] {
				setAction(i, &before[i])
			}
		}
	}
}

// endAtAbort lets SIGABRT end the process at once. Libraries call abort when another rank is gone,
// after they have said so: Go would print some hundred lines of its own behind that, of goroutines
// that have nothing to do with it. What Go itself finds broken it prints before it ends.
func endAtAbort() { setAction(int(unix.SIGABRT), &sigaction{}) }
