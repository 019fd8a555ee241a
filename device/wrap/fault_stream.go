package wrap

import (
	"sync"

	"mt/device"
)

// failingStream is a stream of a Failing device. After the fault it drops copies and operations.
// Records, waits and notifications continue, so nobody waits forever.
type failingStream struct {
	device.Stream
	dev  *Failing
	name string

	mu  sync.Mutex
	err error
}

// do counts the call that name describes, and makes it unless the stream has failed.
func (s *failingStream) do(name string, call func()) {
	if s.fails(name) {
		return
	}
	call()
}

// fails counts the call that name describes. If it is the call that is to fail, the stream keeps the fault as its
// error. fails reports whether the stream has failed, now or earlier.
func (s *failingStream) fails(name string) bool {
	fault := s.dev.call(name, "on stream", s.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && fault != nil {
		if s.err = s.Stream.Err(); s.err == nil {
			s.err = fault
			if s.dev.late {
				s.dev.misread(s.Stream)
			}
		}
	}
	return s.err != nil
}

// told returns the error that the stream reports. err is the wrapped stream's own error. Once a
// late fault has happened, every stream that fails for any reason reports that fault, as on a GPU.
func (s *failingStream) told(err error) error {
	if fault := s.dev.fault.Load(); s.dev.late && fault != nil && err != nil {
		return fault
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && !s.dev.late {
		return s.err
	}
	return err
}

func (s *failingStream) CopyH2D(dst device.Mem, src []byte) {
	s.do("CopyH2D", func() { s.Stream.CopyH2D(dst, src) })
}

func (s *failingStream) CopyD2H(dst []byte, src device.Mem) {
	s.do("CopyD2H", func() { s.Stream.CopyD2H(dst, src) })
}

func (s *failingStream) CopyD2D(dst, src device.Mem) {
	s.do("CopyD2D", func() { s.Stream.CopyD2D(dst, src) })
}

func (s *failingStream) CopyPeer(to device.Device, dst, src device.Mem) {
	s.do("CopyPeer", func() { s.Stream.CopyPeer(to, dst, src) })
}

func (s *failingStream) Zero(dst device.Mem) {
	s.do("Zero", func() { s.Stream.Zero(dst) })
}

func (s *failingStream) Record(e device.Event) {
	s.fails("Record")
	s.Stream.Record(e)
}

func (s *failingStream) Wait(e device.Event) {
	s.fails("Wait")
	s.Stream.Wait(e)
}

func (s *failingStream) Notify(f func(err error)) {
	s.Stream.Notify(func(err error) { f(s.told(err)) })
}

func (s *failingStream) Sync() error {
	s.fails("Sync")
	return s.told(s.Stream.Sync())
}

func (s *failingStream) Err() error { return s.told(s.Stream.Err()) }

func (s *failingStream) Close() error { return s.told(s.Stream.Close()) }
