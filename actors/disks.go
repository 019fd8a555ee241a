package actors

import (
	"sync"
	"sync/atomic"
	"time"
)

// disks counts what a run reads from and writes to disks, but for checkpoints.
type disks struct {
	read, written atomic.Int64 // bytes, as they are in memory

	mu    sync.Mutex
	works int           // that are under way
	since time.Duration // when the first of these began
	busy  time.Duration // during which some were, until then
}

// begin notes at time now that a work begins, or with n −1 that one ends.
func (d *disks) begin(n int, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.works > 0 {
		d.busy += now - d.since
	}
	d.works, d.since = d.works+n, now
}

// busyUntil is for how long, until now, some work has been under way.
func (d *disks) busyUntil(now time.Duration) time.Duration {
	d.begin(0, now)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy
}

// onDisk does a work of actor id, which reads so many bytes from disks or writes them there, on a goroutine of its own. They are counted
// in moved when it is done, as those that compression spares are (host.Home.Spared).
func (r *run) onDisk(id address, w work, moved *atomic.Int64, bytes int64, f func() error) {
	r.hub.async(id, w, func() (any, error) {
		r.disks.begin(1, r.hub.now())
		defer func() { r.disks.begin(-1, r.hub.now()) }()
		err := f()
		if err == nil {
			moved.Add(bytes)
		}
		return nil, err
	})
}
