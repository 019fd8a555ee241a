package cluster

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's record of one signal's action: handler, flags and mask. Package cluster
// saves and restores the record unread, so its layout may depend on the architecture. It takes at
// most 64 bytes and must be aligned like words.
type sigaction [8]uint64

// actions has the actions of all signals, by number.
type actions [65]sigaction

// kept reports whether keepSignals saves the action of a signal. It saves all but five: the actions of SIGKILL and
// SIGSTOP cannot change, and libc reserves three signals and sets their actions once, at first use.
func kept(signal int) bool {
	return signal != int(unix.SIGKILL) && signal != int(unix.SIGSTOP) && (signal < 32 || signal > 34)
}

// signalActions returns the actions of all signals in this process. It asks the kernel directly, because an MPI library
// may override libc's functions.
func signalActions() (all actions) {
	for i := 1; i < len(all); i++ {
		if kept(i) {
			// The call fails for signals that this system lacks, and then changes nothing.
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(i), 0, uintptr(unsafe.Pointer(&all[i])), maskBytes, 0, 0)
		}
	}
	return all
}

// setAction sets the action of a signal.
func setAction(signal int, a *sigaction) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(a)), 0, maskBytes, 0, 0)
}

// maskBytes is the size of the kernel's set of signals, an argument of its calls.
const maskBytes = 8

// keepSignals saves the actions of all signals and returns a function that restores them. MPI
// libraries, and libraries that they load, catch signals to print a trace; some (UCX) do so when
// loaded. Go relies on its own signal handlers. Without them a nil dereference or a truncated
// mapping would end the process instead of raising a panic, and a closed terminal would go
// unnoticed. Calls of signal.Notify or signal.Stop before the restore have no effect.
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

// endAtAbort lets SIGABRT end the process at once. Libraries print a message and call abort when another rank is gone.
// Go would add hundreds of lines about unrelated goroutines. Go prints its own fatal errors before it aborts, so these
// are not lost.
func endAtAbort() { setAction(int(unix.SIGABRT), &sigaction{}) }
