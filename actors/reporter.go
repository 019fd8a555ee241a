package actors

import "time"

// The Reporter passes the report of every step and evaluation to the caller, in order. It adds
// measurements: times, copied bytes and stalls.

// reporterCore is the pure part of the Reporter.
type reporterCore struct{}

func (reporterCore) step(msg message) []effect {
	switch m := msg.(type) {
	case flushReports:
		return []effect{send{conductorID, reported{}}}
	case StepReport:
		return []effect{work{do: m, done: []send{{checkpointerID, StepReported{m.Step}}}}}
	case EvalReport:
		return []effect{work{do: m}}
	}
	panic(unexpected(reporterID, msg))
}

func (m StepReport) start(r *lane, w work) error {
	r.report(m)
	r.hub.done(w, nil)
	return nil
}

// report adds to m what was measured since the previous report, such as times and copied bytes, and calls OnStep.
func (r *run) report(m StepReport) {
	now := r.hub.now()
	m.Elapsed = now - r.lastStep
	r.lastStep = now
	moved := r.moved()
	m.H2D, m.D2H, m.Peer, m.Sent = moved.h2d-r.lastMoved.h2d, moved.d2h-r.lastMoved.d2h, moved.peer-r.lastMoved.peer, moved.sent-r.lastMoved.sent
	m.DiskRead, m.DiskWritten = moved.read-r.lastMoved.read, moved.written-r.lastMoved.written
	r.lastMoved = moved
	disks := r.disks.busyUntil(now)
	m.DiskBusy, r.lastBusy = disks-r.lastBusy, disks
	for _, l := range r.lanes {
		busy, stall := l.stalls.read(m.Prog)
		m.Compute = max(m.Compute, busy)
		for cause, d := range stall {
			m.Stall[cause] += d / time.Duration(len(r.lanes))
		}
		experts := l.expertTraffic.read(m.Prog)
		m.Experts, m.ExpertBytes = m.Experts+experts.tiles, m.ExpertBytes+experts.bytes
	}
	if r.o.OnStep != nil {
		r.o.OnStep(m)
	}
}

func (m EvalReport) start(r *lane, w work) error {
	r.lastStep = r.hub.now()
	r.lastMoved, r.lastBusy = r.moved(), r.disks.busyUntil(r.lastStep)
	if r.o.OnEval != nil {
		r.o.OnEval(m)
	}
	r.hub.done(w, nil)
	return nil
}

// linkBytes counts bytes copied to devices, to the host and between devices, sent to other ranks, and read from and
// written to disks.
type linkBytes struct{ h2d, d2h, peer, sent, read, written int64 }

// moved returns the bytes that the whole run has moved so far, in all lanes.
func (r *run) moved() (out linkBytes) {
	for _, l := range r.lanes {
		out.h2d += l.h2d.bytes.Load()
		out.d2h += l.d2h.bytes.Load()
		if l.in != nil {
			out.h2d += l.in.bytes.Load()
			out.d2h += l.out.bytes.Load()
		}
		if m := l.matrices; m != nil {
			out.h2d += m.up.bytes.Load()
			out.d2h += m.down.bytes.Load()
		}
		if l.peer != nil {
			out.peer += l.peer.bytes.Load()
		}
	}
	if r.comm != nil {
		out.sent = r.comm.sent.Load()
	}
	read, written := r.o.Home.Spared()
	out.read, out.written = r.disks.read.Load()-read, r.disks.written.Load()-written
	return out
}
