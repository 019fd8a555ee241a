package cpu

import "time"

// link computes when copies over a rate-limited link begin and end, as a GPU's copy engine would
// make them. A copy begins once it is enqueued, its waits are complete and the previous copy has
// ended. That time counts even if the stream's goroutine wakes up later.
type link struct {
	free  time.Time // end of the last copy
	ready time.Time // completion of the latest mark that the stream waited for
}

// waited records that the stream has waited for m, so the next copy cannot begin before m was complete.
func (l *link) waited(m *mark) {
	if m.at.After(l.ready) {
		l.ready = m.at
	}
}

// copied returns the time when a copy of bytes ends on a link of limit bytes a second. The copy was
// enqueued at time enqueued. Copying the memory took the time took in reality, and the modelled
// copy takes at least as long.
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
