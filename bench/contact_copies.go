package bench

import (
	"fmt"
	"maps"
	"slices"

	"mt/internal/doctor/measure"
	"mt/plan/rates"
)

// row returns the index of the largest copy of the kind what in host memory of the kind memory.
// With least it returns the smallest copy instead; −1: there is none.
func (r *CopyReport) row(what, memory string, least bool) int {
	at := -1
	for i, row := range r.Rows {
		if row.What == what && row.Memory == memory && (at < 0 || (row.Bytes < r.Rows[at].Bytes) == least && row.Bytes != r.Rows[at].Bytes) {
			at = i
		}
	}
	return at
}

// copies substitutes the rates of the link, of device memory and of host memory that mt bench copy
// has measured.
func (l *learner) copies() {
	r := l.Copy
	if r == nil {
		return
	}
	l.from("copy", benchCopy, l.files[benchCopy])
	largest := func(what, memory string) float64 {
		if i := r.row(what, memory, false); i >= 0 {
			return l.value(fmt.Sprintf("rows[%d].gb_per_s.median", i), "GB/s", r.Rows[i].GBps.Median)
		}
		return 0
	}
	link, d := &l.m.Link, &l.m.Device
	put := func(to *float64, field, unit string, after float64) {
		if after > 0 {
			l.set(to, field, unit, after)
		}
	}
	put(&link.Up, "link.h2d_gb_per_s", "GB/s", largest("h2d", "registered"))
	put(&link.Down, "link.d2h_gb_per_s", "GB/s", largest("d2h", "registered"))
	if up, down := largest("h2d, both ways", "registered"), largest("d2h, both ways", "registered"); up > 0 && down > 0 {
		l.set(&link.Both, "link.both_gb_per_s", "GB/s", up+down)
	}
	if i := r.row("h2d", "registered", true); i >= 0 && r.Rows[i].Bytes <= 1<<20 {
		if rate := l.value(fmt.Sprintf("rows[%d].gb_per_s.median", i), "GB/s", r.Rows[i].GBps.Median); rate > 0 {
			bytes := float64(r.Rows[i].Bytes)
			l.set(&link.Latency, "link.latency_us", "µs", 1e6*max(0, bytes/(rate*1e9)-bytes/(link.Up*1e9)))
		}
	}
	put(&link.Pin, "link.pin_gb_per_s", "GB/s", largest(fmt.Sprintf("register, %d at a time", measure.PinThreads), "pageable"))
	put(&d.Bandwidth, "device.memory_gb_per_s", "GB/s", largest("d2d", ""))
	put(&d.Launch, "device.launch_us", "µs", l.value("launch_us.stream.median", "µs", r.LaunchUS.Stream.Median))
	put(&d.Enqueue, "device.enqueue_us", "µs", l.value("launch_us.enqueue.median", "µs", r.LaunchUS.Enqueue.Median))
	l.host(put, largest)
}

// host substitutes the rates of host memory. It computes a fixed cost and a rate from the times of
// the smallest and the largest size. The functions put and largest come from copies: put sets a
// rate unless it is 0, and largest returns the rate of the largest copy.
func (l *learner) host(put func(to *float64, field, unit string, after float64), largest func(what, memory string) float64) {
	h := &l.m.Host
	put(&h.Bandwidth, "host.memory_gb_per_s", "GB/s", largest("host copy", ""))
	take := func(to *rates.Op, field, what string, moved func(u measure.Update) int64, u measure.Update) bool {
		small, large := l.Copy.row(what, "", true), l.Copy.row(what, "", false)
		if small < 0 {
			return false
		}
		var seconds, bytes []float64
		for _, i := range []int{small, large} {
			row := l.Copy.Rows[i]
			rate := l.value(fmt.Sprintf("rows[%d].gb_per_s.median", i), "GB/s", row.GBps.Median)
			u.Params = l.params(i, row.Bytes)
			if rate == 0 || u.Params == 0 {
				return false
			}
			bytes = append(bytes, float64(moved(u)))
			seconds = append(seconds, bytes[len(bytes)-1]/(rate*1e9))
		}
		after := rates.Line(seconds, bytes)
		if small == large {
			after = rates.Op{Fixed: to.Fixed, Rate: rates.Round(bytes[0] / seconds[0] / 1e9)}
		}
		l.op(to, field, after)
		return true
	}
	update, grad := measure.Update.Bytes, measure.Update.GradBytes
	take(&h.Update, "host.update", "host AdamW, split, fp32 gradient", update, measure.Update{Split: true})
	take(&h.Norm, "host.norm", "host norm of a fp32 gradient, split", grad, measure.Update{Split: true})
	for _, name := range slices.Sorted(maps.Keys(measure.Optimizers)) {
		o := h.Updates[name]
		if take(&o, "host.updates."+name, fmt.Sprintf("host %s, split, fp32 gradient", name), update, measure.Update{Split: true, By: measure.Optimizers[name]}) {
			h.Updates[name] = o
		}
	}
}

// params returns the number of parameters that row i of the copy report updates, from the row's size in bytes. For an
// impossible size it returns 0 and records an error.
func (l *learner) params(i int, bytes int64) int64 {
	if bytes < 12 || bytes > 1<<46 {
		l.errs = append(l.errs, fmt.Errorf("%s: rows[%d].bytes is %d: want a size between 12 bytes and 64 TiB; measure again with %s", l.file, i, bytes, l.kind))
		return 0
	}
	return bytes / 12
}
