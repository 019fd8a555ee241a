package cpu

import "time"

// link is the clock of copies over a link that has a limit. A copy engine needs no core: it
// begins a copy when that was enqueued, what it waits for was complete and the copy before it
// had ended, even if the stream's goroutine, which stands for it here, wakes up later.
type link struct {
	free  time.Time // when the last copy ended
	ready time.Time // when what the stream has waited for last was complete
}

// waited notes that the stream has waited for a mark.
func (l *link) waited(m *mark) {
	if m.at.After(l.ready) {
		l.ready = m.at
	}
}

// copied is told that the bytes of a copy that was enqueued at a time were copied in so much
// time, and returns when the copy ends at so many bytes a second.
func (l *link) copied(bytes int64, enqueued time.Time, took time.Duration, limit float64) time.Time {
	begins := l.free
	for _, t := range []time.Time{l.ready, enqueued} {
		if t.After(begins) {
			begins = t
		}
	}
	l.free = begins.Add(max(took, time.Duration(float64(bytes)/limit*1e9)))
	return l.free
}
