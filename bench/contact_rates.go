package bench

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mt/device"
	"mt/device/op"
	"mt/plan/rates"
)

// Learned holds the rates of a machine after the measured ones of a Contact were substituted.
type Learned struct {
	Machine *rates.Machine `json:"machine"`
	Base    string         `json:"base"`    // name of the rates that were changed
	Changes []Learning     `json:"changes"` // in the order of the rates file
	Kept    []string       `json:"kept"`    // fields without a measurement
}

// Learning is the change of one rate of a machine: its value before, and the measured value.
type Learning struct {
	Field  string  `json:"field"` // as in a rates file
	Unit   string  `json:"unit"`
	Before float64 `json:"before"` // 0: unknown
	After  float64 `json:"after"`
	Part   string  `json:"part"` // the part of bench/gpu.sh that measured the rate
}

// learner replaces rates of the machine m by those that a Contact has measured. A part is one
// measurement of bench/gpu.sh, such as copy.
type learner struct {
	*Contact
	base *rates.Machine // the rates before the measurement; not modified
	m    *rates.Machine
	out  *Learned
	part string // the part whose rates are read now
	file string // name of its file, for errors
	kind string // its command, for errors
	errs []error
}

// Found returns the GPU and host of c, as their drivers describe them. It returns an error if files could not be read,
// for a trial run, without a device, or with several devices.
func (c *Contact) Found() (rates.Found, error) {
	if err := errors.Join(c.Unread...); err != nil {
		return rates.Found{}, err
	}
	if c.Machine.Scale == small {
		return rates.Found{}, fmt.Errorf("%s: scale is small: a trial of the script, whose figures mean nothing; run bench/gpu.sh without --scale", c.files["machine.json"])
	}
	f := rates.Found{Cores: c.Machine.Cores, HostGiB: c.Machine.HostMemory / gib}
	if fields := strings.Split(c.Machine.GPU, ", "); len(fields) == 3 { // format of nvidia-smi: name, driver, 81559 MiB
		if mib, err := strconv.ParseFloat(strings.TrimSuffix(fields[2], " MiB"), 64); err == nil {
			f.DeviceGiB = mib / 1024
		}
	}
	from := ""
	for _, d := range c.devices() {
		_, name, several := strings.Cut(d.device, " × ")
		if !several {
			name = d.device
		}
		switch {
		case d.emulated:
			return f, fmt.Errorf("%s: emulated is true: an emulator's figures are no rates; measure on the GPU", d.file)
		case name == "":
			return f, fmt.Errorf("%s: device is empty: want the name of the GPU; measure again", d.file)
		case f.GPU != "" && f.GPU != name:
			return f, fmt.Errorf("%s: device is %q, and %q in %s: give the report of one machine", d.file, name, f.GPU, from)
		}
		f.GPU, from = name, d.file
		f.Cores = max(f.Cores, d.cores)
	}
	if f.GPU == "" {
		return f, fmt.Errorf("%s: no part of it measures rates: want the files of mt bench copy, matmul, attention or train, or of mt doctor --selftest (bench/gpu.sh --call 1 makes them)", c.Path)
	}
	return f, nil
}

// measuredOn is the description of the device in one file of a Contact.
type measuredOn struct {
	file, device string
	cores        int
	emulated     bool
}

// devices returns the device descriptions of all files with rates. Found returns an error if they name different
// devices.
func (c *Contact) devices() (out []measuredOn) {
	if r := c.Copy; r != nil {
		out = append(out, measuredOn{c.files[benchCopy], r.Device, r.Cores, r.Emulated})
	}
	if r := c.MatMul; r != nil {
		out = append(out, measuredOn{c.files[benchMatMul], r.Device, r.Cores, r.Emulated})
	}
	if r := c.Attention; r != nil {
		out = append(out, measuredOn{c.files[benchAttention], r.Device, r.Cores, r.Emulated})
	}
	if r := c.SelfTest; r != nil && len(r.Rates) > 0 {
		out = append(out, measuredOn{c.files["mt doctor --selftest"], r.Device, 0, c.Doctor.CUDA.Emulated})
	}
	if part, r := c.profiled(); r != nil && r.Details != nil {
		out = append(out, measuredOn{c.files[part], r.Details.Device, 0, c.Doctor.CUDA.Emulated})
	}
	return out
}

// Learn returns the rates base with those replaced that c has measured. Learned.Kept lists the others.
func (c *Contact) Learn(base *rates.Machine) (*Learned, error) {
	f, err := c.Found()
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	l := &learner{Contact: c, base: base, m: cloned(base), out: &Learned{Base: base.Name}}
	l.m.Name, l.m.Device.Name = f.GPU, f.GPU
	date, _, _ := strings.Cut(c.Machine.Date, "T")
	l.m.Source = strings.Join(strings.Fields(fmt.Sprintf("measured by mt bench and mt doctor --selftest %s; what they do not measure is of %s", date, base.Name)), " ")
	l.copies()
	l.selfTest() // the calls below override the self test's rates
	l.products()
	l.attention()
	l.operations()
	l.sizes(f)
	if err := errors.Join(l.errs...); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if len(l.out.Changes) == 0 {
		return nil, fmt.Errorf("report: %s: no part of it measures a rate of %s: run bench/gpu.sh --only selftest,profile,attention,copy,matmul", c.Path, base.Name)
	}
	if err := l.m.Check(); err != nil {
		return nil, fmt.Errorf("report: %s: what it measured cannot be: %s", c.Path, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	l.out.Machine = l.m
	slices.SortStableFunc(l.out.Changes, func(a, b Learning) int { return place(a.Field) - place(b.Field) })
	l.out.Kept = l.kept()
	return l.out, nil
}

// cloned returns a copy of m with maps and slices of its own.
func cloned(m *rates.Machine) *rates.Machine {
	out := m.Changed(func(d *rates.Device, l *rates.Link) {
		d.Products, d.Attention, d.Ops, d.Sources, l.Sources = maps.Clone(d.Products), maps.Clone(d.Attention), maps.Clone(d.Ops), copied(d.Sources), copied(l.Sources)
		if d.Ops == nil {
			d.Ops = map[string]rates.Op{}
		}
	})
	h := &out.Host
	h.Updates, h.Sources = maps.Clone(h.Updates), copied(h.Sources)
	if h.Updates == nil {
		h.Updates = map[string]rates.Op{}
	}
	return out
}

// copied returns a copy of m that can be written to, also if m is nil.
func copied(m map[string]string) map[string]string {
	if m = maps.Clone(m); m == nil {
		return map[string]string{}
	}
	return m
}

// from sets the part whose rates are read next: its name, its command (kind) and its file.
func (l *learner) from(part, kind, file string) { l.part, l.kind, l.file = part, kind, file }

// value returns v, the number at field of the current file. Unless v is a positive finite number, it returns 0 and
// records an error.
func (l *learner) value(field, unit string, v float64) float64 {
	if !(v > 0) || math.IsInf(v, 0) {
		l.errs = append(l.errs, fmt.Errorf("%s: %s is %g: want a positive number of %s; measure again with %s, or take the file out of the report", l.file, field, v, unit, l.kind))
		return 0
	}
	return v
}

// set replaces the rate that to points to by after, and records the change. field is the rate's name in a rates file.
func (l *learner) set(to *float64, field, unit string, after float64) {
	after = rates.Round(after)
	l.out.Changes = append(l.out.Changes, Learning{field, unit, *to, after, l.part})
	*to = after
	l.source(field)
}

// source records in the rates' Sources that field was measured by the current part.
func (l *learner) source(field string) {
	side, key, _ := strings.Cut(field, ".")
	switch key, _, _ = strings.Cut(key, " "); {
	case strings.HasPrefix(key, "products.") || strings.HasPrefix(key, "attention."):
	default:
		key, _, _ = strings.Cut(key, ".")
	}
	sources := map[string]map[string]string{"device": l.m.Device.Sources, "link": l.m.Link.Sources, "host": l.m.Host.Sources}[side]
	sources[key] = "measured: part " + l.part + " of " + filepath.Base(l.Path)
}

// op replaces the rate and the fixed cost of the operation that to points to.
func (l *learner) op(to *rates.Op, field string, after rates.Op) {
	before := *to
	l.set(&to.Rate, field, "GB/s", after.Rate)
	to.Fixed, to.Cores = after.Fixed, before.Cores
}

// products substitutes the rates of matrix products that mt bench matmul has measured.
func (l *learner) products() {
	if l.MatMul == nil {
		return
	}
	l.from("matmul", benchMatMul, l.files[benchMatMul])
	// A model may have several weights of the same shape, each measured once. The median of their rates counts.
	type shape struct {
		m, n, k        int
		transA, transB bool
		dtype          string
	}
	reached, first := map[shape][]float64{}, map[shape]int{}
	shapeOf := func(r MatMulRow) shape { return shape{r.M, r.N, r.K, r.TransA, r.TransB, r.DType} }
	for i, r := range l.MatMul.Rows {
		s := shapeOf(r)
		if reached[s] == nil {
			first[s] = i
		}
		reached[s] = append(reached[s], l.value(fmt.Sprintf("rows[%d].tflops.median", i), "TFLOP/s", r.TFLOPS.Median))
	}
	for i, r := range l.MatMul.Rows {
		if s := shapeOf(r); first[s] == i && Median(reached[s]) > 0 {
			l.product(fmt.Sprintf("rows[%d]", i), r.DType, rates.Product{M: r.M, N: r.N, K: r.K, TransA: r.TransA, TransB: r.TransB, Rate: Median(reached[s])}, ".tflops.median")
		}
	}
}

// product adds a measured shape of matrix product to the rates of a dtype. It replaces an older rate of the same shape,
// and drops a rate for all shapes, as profiles have. Errors name the row at of the current file, and the rate field in
// this row.
func (l *learner) product(at, dtype string, p rates.Product, field string) {
	dt, ok := dtypeOf(dtype)
	if !ok || min(p.M, p.N, p.K) < 1 {
		l.errs = append(l.errs, fmt.Errorf("%s: %s is a product of %d × %d × %d in %q: want positive extents, and bf16 or fp32; measure again with %s", l.file, at, p.M, p.N, p.K, dtype, l.kind))
		return
	}
	if l.value(at+field, "TFLOP/s", p.Rate) == 0 {
		return
	}
	flops := 2 * float64(p.M) * float64(p.N) * float64(p.K) / 1e12
	before := perSecond(flops, l.base.ProductSeconds(p, dt, p.TransA))
	var kept []rates.Product
	for _, old := range l.m.Device.Products[dtype] {
		if (old.M != p.M || old.N != p.N || old.K != p.K || old.TransA != p.TransA || old.TransB != p.TransB) && old.M > 0 {
			kept = append(kept, old)
		}
	}
	to := 0.0
	l.set(&to, fmt.Sprintf("device.products.%s %d×%d×%d %s", dtype, p.M, p.N, p.K, SGEMMShape{TransA: p.TransA, TransB: p.TransB}.operands()), "TFLOP/s", p.Rate)
	l.out.Changes[len(l.out.Changes)-1].Before = rates.Round(before)
	p.Rate = to
	l.m.Device.Products[dtype] = append(kept, p)
}

// attention substitutes the rates that mt bench attention has measured. It takes only shapes that
// have both a forward and a backward rate.
func (l *learner) attention() {
	if l.Attention == nil {
		return
	}
	l.from("attention", benchAttention, l.files[benchAttention])
	for i, f := range l.Attention.Rows {
		for k, b := range l.Attention.Rows {
			if f.Way == "forward" && b.Way == "backward" && f.DType == b.DType && f.Length == b.Length && f.Dim == b.Dim {
				l.attends(fmt.Sprintf("rows[%d].tflops.median", i), fmt.Sprintf("rows[%d].tflops.median", k), f.DType,
					rates.Attention{Length: f.Length, Dim: f.Dim, Forward: f.TFLOPS.Median, Backward: b.TFLOPS.Median})
			}
		}
	}
}

// attends adds the rates of attention at a measured shape to the rates of a dtype. forward and backward are the fields
// of these rates in the current file, for errors.
func (l *learner) attends(forward, backward, dtype string, a rates.Attention) {
	dt, ok := dtypeOf(dtype)
	if !ok || min(a.Length, a.Dim) < 1 {
		l.errs = append(l.errs, fmt.Errorf("%s: %s is attention over %d tokens, heads of %d in %q: want positive numbers, and bf16 or fp32; measure again with %s", l.file, forward, a.Length, a.Dim, dtype, l.kind))
		return
	}
	if l.value(forward, "TFLOP/s", a.Forward) == 0 || l.value(backward, "TFLOP/s", a.Backward) == 0 {
		return
	}
	pairs := float64(a.Length) * float64(a.Length+1) * float64(a.Dim) / 1e12 // TFLOPs of one product of one head: 2·Dim for each of the Length·(Length+1)/2 attended pairs
	for _, way := range []struct {
		name     string
		products float64
		rate     *float64
	}{{"forward", 2, &a.Forward}, {"backward", 5, &a.Backward}} {
		const heads = 64 // enough heads to make the launch negligible
		before := perSecond(way.products*pairs*heads, l.base.AttentionSeconds(a.Length, a.Length, heads, heads, a.Dim, dt, way.name == "backward"))
		l.set(way.rate, fmt.Sprintf("device.attention.%s %d tokens, heads of %d, %s", dtype, a.Length, a.Dim, way.name), "TFLOP/s", *way.rate)
		l.out.Changes[len(l.out.Changes)-1].Before = rates.Round(before)
	}
	all := slices.DeleteFunc(slices.Clone(l.m.Device.Attention[dtype]), func(old rates.Attention) bool { return old.Length == a.Length && old.Dim == a.Dim })
	l.m.Device.Attention[dtype] = append(all, a)
}

// dtypeOf returns the dtype with the given name in a report. ok is false for any name but bf16 and fp32.
func dtypeOf(name string) (dt device.DType, ok bool) {
	switch name {
	case "bf16":
		return device.BF16, true
	case "fp32":
		return device.F32, true
	}
	return device.F32, false
}

// selfTest substitutes the rates that `mt doctor --selftest` has measured. Rates of other parts for
// the same fields replace them later.
func (l *learner) selfTest() {
	r := l.SelfTest
	if r == nil {
		return
	}
	l.from("selftest", "mt doctor --selftest", l.files["mt doctor --selftest"])
	rate := func(name string) float64 {
		for i, rate := range r.Rates {
			if rate.Name == name {
				return l.value(fmt.Sprintf("rates[%d].value", i), rate.Unit, rate.Value)
			}
		}
		return 0
	}
	if l.Copy == nil {
		link := &l.m.Link
		for _, to := range []struct {
			at          *float64
			field, name string
		}{{&link.Up, "link.h2d_gb_per_s", "host to device"}, {&link.Down, "link.d2h_gb_per_s", "device to host"}, {&l.m.Device.Bandwidth, "device.memory_gb_per_s", "device memory"}} {
			if v := rate(to.name); v > 0 {
				l.set(to.at, to.field, "GB/s", v)
			}
		}
		if up, down := rate("host to device, both ways"), rate("device to host, both ways"); up > 0 && down > 0 {
			l.set(&link.Both, "link.both_gb_per_s", "GB/s", up+down)
		}
	}
	forward, at := map[[2]int]float64{}, map[[2]int]int{}
	for i, rate := range r.Rates {
		var m, n, k, length, heads, dim int
		_, dtype, _ := strings.Cut(rate.Name, "matrix product ")
		if _, err := fmt.Sscanf(rate.Detail, "%d×%d×%d", &m, &n, &k); err == nil && dtype != "" && rate.Detail == fmt.Sprintf("%d×%d×%d", m, n, k) && !l.has(benchMatMul, dtype) {
			l.product(fmt.Sprintf("rates[%d]", i), dtype, rates.Product{M: m, N: n, K: k, TransB: true, Rate: rate.Value}, ".value")
		}
		if _, err := fmt.Sscanf(rate.Detail, "%d tokens, %d heads of %d,", &length, &heads, &dim); err == nil && !l.has(benchAttention, "bf16") {
			switch shape := [2]int{length, dim}; rate.Name {
			case "attention forward bf16":
				forward[shape], at[shape] = rate.Value, i
			case "attention backward bf16":
				if first, ok := forward[shape]; ok {
					l.attends(fmt.Sprintf("rates[%d].value", at[shape]), fmt.Sprintf("rates[%d].value", i), "bf16", rates.Attention{Length: length, Dim: dim, Forward: first, Backward: rate.Value})
				}
			}
		}
	}
}

// has reports whether the contact has the report of the given command (benchMatMul or benchAttention), with rates in a
// dtype.
func (l *learner) has(kind, dtype string) bool {
	switch {
	case kind == benchMatMul && l.MatMul != nil:
		return slices.ContainsFunc(l.MatMul.Rows, func(r MatMulRow) bool { return r.DType == dtype })
	case kind == benchAttention && l.Attention != nil:
		return slices.ContainsFunc(l.Attention.Rows, func(r AttentionRow) bool { return r.DType == dtype })
	}
	return false
}

// operations substitutes the rates of all other operations, which come from a training run with
// each operation timed. It splits the time of a call into a fixed launch time and a time
// proportional to the bytes that the operation reads and writes.
func (l *learner) operations() {
	part, r := l.profiled()
	if r == nil {
		return
	}
	l.from(part, benchTrain+" --profile", l.files[part])
	type sum struct {
		seconds, bytes float64
		calls          int
	}
	sums := map[string]sum{}
	for i, t := range r.Profile {
		if t.Op == (&op.MatMul{}).Name() || t.Op == (&op.Attention{}).Name() || t.Op == (&op.AttentionBackward{}).Name() || t.Bytes == 0 {
			continue
		}
		if t.Bytes < 0 || t.Calls < 1 || t.Total <= 0 {
			l.errs = append(l.errs, fmt.Errorf("%s: profile[%d] has %d calls, %d bytes and %d ns: want positive numbers; measure again with %s", l.file, i, t.Calls, t.Bytes, t.Total, l.kind))
			return
		}
		s := sums[t.Op]
		sums[t.Op] = sum{s.seconds + t.Total.Seconds(), s.bytes + float64(t.Bytes), s.calls + t.Calls}
	}
	d := &l.m.Device
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s, o := sums[name], d.Ops[name]
		fixed := d.Launch
		if o.Rate > 0 {
			fixed = o.Fixed
		} else {
			o.Rate = l.base.Device.Bandwidth
		}
		fixed = min(fixed, s.seconds*1e6/float64(s.calls)/2) // at least half of the time is proportional to the bytes
		l.op(&o, "device.ops."+name, rates.Op{Fixed: rates.Round(fixed), Rate: s.bytes / (s.seconds - fixed/1e6*float64(s.calls)) / 1e9})
		d.Ops[name] = o
	}
}

// sizes substitutes the number of cores and the sizes of memory. f describes the machine.
func (l *learner) sizes(f rates.Found) {
	h, d := &l.m.Host, &l.m.Device
	l.from("machine", "bench/gpu.sh", l.files["machine.json"])
	if f.HostGiB > 0 {
		l.set(&h.Memory, "host.memory_gib", "GiB", f.HostGiB)
	}
	if f.Cores > 0 {
		cores := float64(h.Cores)
		l.set(&cores, "host.cores", "cores", float64(f.Cores))
		h.Cores = f.Cores
	}
	if memory := l.Doctor.CUDA.Memory; memory > 0 && d.Kind == "cuda" {
		l.from("doctor", "mt doctor --json", l.files["mt doctor"])
		l.set(&d.Memory, "device.memory_gib", "GiB", float64(memory)/gib)
	}
}

// rateFields lists the fields of a rates file in their order there. A name that ends in a dot stands for all fields
// that begin with it.
var rateFields = []string{"device.memory_gib", "device.memory_gb_per_s", "device.launch_us", "device.enqueue_us", "device.products.bf16", "device.products.fp32", "device.attention.bf16", "device.attention.fp32",
	"device.ops.", "link.h2d_gb_per_s", "link.d2h_gb_per_s", "link.both_gb_per_s", "link.latency_us", "link.pin_gb_per_s", "link.peer_gb_per_s",
	"host.cores", "host.memory_gib", "host.memory_gb_per_s", "host.update", "host.updates.", "host.norm", "host.gather", "host.pack_s_per_mtoken", "host.message_us",
	"disk.write_gb_per_s", "disk.read_gb_per_s", "network."}

// place returns the index in rateFields of the entry that covers field; −1: none.
func place(field string) int {
	return slices.IndexFunc(rateFields, func(f string) bool { return of(field, f) })
}

// of reports whether the entry f of rateFields covers field.
func of(field, f string) bool {
	return field == f || strings.HasPrefix(field, f+" ") || strings.HasSuffix(f, ".") && strings.HasPrefix(field, f)
}

// kept returns the entries of rateFields for which nothing was measured.
func (l *learner) kept() (out []string) {
	for _, f := range rateFields {
		if !slices.ContainsFunc(l.out.Changes, func(c Learning) bool { return of(c.Field, f) }) {
			out = append(out, strings.TrimSuffix(f, "."))
		}
	}
	return out
}

// WriteTable prints the changed rates as a table, and the names of the others.
func (l *Learned) WriteTable(w io.Writer) error {
	rows := [][]string{{"rate", "before", "after", "unit", "after / before", "part"}}
	for _, c := range l.Changes {
		before, ratio := "", ""
		if c.Before > 0 {
			before, ratio = strconv.FormatFloat(rates.Round(c.Before), 'f', -1, 64), fmt.Sprintf("%.2f", c.After/c.Before)
		}
		rows = append(rows, []string{c.Field, before, strconv.FormatFloat(c.After, 'f', -1, 64), c.Unit, ratio, c.Part})
	}
	if err := writeTable(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "not measured, as in %s: %s\n", l.Base, strings.Join(l.Kept, ", "))
	return err
}
