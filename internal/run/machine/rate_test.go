package machine

import (
	"errors"
	"testing"

	"mt/base/accounts"
	"mt/device"
	"mt/device/cpu"
	"mt/internal/testkit"
)

// lacking is a device on which no stream can be created, or only a limited number of events.
type lacking struct {
	device.Device
	noStream bool
	events   int
}

var errLacking = errors.New("there is no more")

func (l *lacking) NewStream(name string) (device.Stream, error) {
	if l.noStream {
		return nil, errLacking
	}
	return l.Device.NewStream(name)
}

func (l *lacking) NewEvent() (device.Event, error) {
	if l.events--; l.events < 0 {
		return nil, errLacking
	}
	return l.Device.NewEvent()
}

// TestMatMulRate: if matrices do not fit in memory, smaller ones are measured, down to an eighth of
// the rows. Errors are returned, and all memory is freed.
func TestMatMulRate(t *testing.T) {
	dev := testkit.Must(cpu.New(cpu.Options{Threads: 1, MemoryLimit: 3 * 4 * 32 * 32}))(t)
	for most, fits := range map[int]bool{32: true, 64: true, 256: true, 1024: false} {
		rate, err := MatMulRate(dev, device.F32, most)
		if err != nil || (rate > 0) != fits || rate > 32*32*32*1e9 { // no product takes as little as two nanoseconds
			t.Errorf("at most %d rows: %g FLOP/s, %v", most, rate, err)
		}
	}
	for _, l := range []lacking{{Device: dev, noStream: true, events: 2}, {Device: dev, events: 0}, {Device: dev, events: 1}} {
		if _, err := MatMulRate(&l, device.F32, 8); !errors.Is(err, errLacking) {
			t.Errorf("error %v", err)
		}
	}
	if used := dev.Usage().Now[accounts.Workspace]; used != 0 {
		t.Errorf("%d bytes are left", used)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
