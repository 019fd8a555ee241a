package rates

import (
	"maps"
	"slices"
)

// Slower returns a copy of m whose devices, links and host are slower by the factor times. A factor below 1 makes them
// faster. The disk does not change.
func (m *Machine) Slower(times float64) *Machine {
	out := m.Changed(func(d *Device, l *Link) {
		d.slow(times)
		l.Up /= times
		l.Down /= times
		l.Both /= times
		l.Peer /= times
		l.Pin /= times
		l.Latency *= times
	})
	h := &out.Host
	h.Bandwidth /= times
	h.Update, h.Norm, h.Gather = h.Update.slower(times), h.Norm.slower(times), h.Gather.slower(times)
	h.Updates = maps.Clone(h.Updates)
	for name, op := range h.Updates {
		h.Updates[name] = op.slower(times)
	}
	h.Pack *= times
	h.Message *= times
	return out
}

// slow makes device d slower by the factor times: it divides d's rates and multiplies its fixed times. It clones maps
// and slices first, because other machines share them.
func (d *Device) slow(times float64) {
	d.Products, d.Attention, d.Ops = maps.Clone(d.Products), maps.Clone(d.Attention), maps.Clone(d.Ops)
	for dtype, all := range d.Products {
		all = slices.Clone(all)
		for i := range all {
			all[i].Rate /= times
		}
		d.Products[dtype] = all
	}
	for dtype, all := range d.Attention {
		all = slices.Clone(all)
		for i := range all {
			all[i].Forward /= times
			all[i].Backward /= times
		}
		d.Attention[dtype] = all
	}
	for name, op := range d.Ops {
		d.Ops[name] = op.slower(times)
	}
	d.Bandwidth /= times
	d.HostMemory /= times
	d.Launch *= times
	d.Enqueue *= times
	d.Restart *= times
}

func (o Op) slower(times float64) Op {
	return Op{Fixed: o.Fixed * times, Rate: o.Rate / times, Cores: o.Cores}
}
