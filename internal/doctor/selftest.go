package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"mt/device"
	"mt/device/conformance"
	"mt/internal/doctor/measure"
	"mt/plan/rates"
)

// SelfTestOptions selects what to test.
type SelfTestOptions struct {
	Device device.Device // the device under test
	CPU    device.Device // the reference
	// Own is the same GPU as Device, but computes all matrix products with mt's own kernels. nil means that Device
	// uses no other kernels.
	Own device.Device
	// Small makes the checks with large tensors smaller, for an emulator or a CPU.
	Small bool
	// Train runs a few steps on the given kind of device and returns the losses. Model, rows and seed are the same for
	// each kind; dtype is the compute dtype. It calls alive now and then.
	Train func(kind string, dtype device.DType, alive func()) ([]float64, error)
	// Choice selects the parts and the table cases to run.
	Choice Choice
	// Cases reports whether a case of the operation table, given by its name, is to run; nil: all run.
	Cases func(name string) bool
	// Repeat is how often operations are repeated while copies run beside them. Their outputs must keep the same bits.
	Repeat int
	// Rates are the rates for predictions; nil: no predictions.
	Rates *rates.Machine
	// Save is called with the report so far before and after every unit. It may be nil.
	Save func(r *SelfTestReport) error
	// Progress is called with the name of each part at its start, and with each loss. It may be nil.
	Progress func(what string)
}

// SelfTest tests o.Device in this process. It ends when the device is lost. Failed checks are in the report; an error
// means that something could not be tested. When ctx is cancelled, SelfTest ends between two units.
func SelfTest(ctx context.Context, o SelfTestOptions) (*SelfTestReport, error) {
	begin := time.Now()
	r := &SelfTestReport{Device: o.Device.Name(), Kind: o.Device.Kind(), OK: true}
	part := ""
	for _, u := range o.units() {
		if u.part != part {
			part = u.part
			o.tell(part)
		}
		r.Running = u.name
		if err := r.save(o, begin); err != nil {
			return r, fmt.Errorf("self test: %w", err)
		}
		r.merge(o.run(ctx, u, nil))
		r.Notes = notes(o.Device)
		if ctx.Err() != nil {
			return r, r.stop(o, begin, fmt.Errorf("stopped while %s ran: %w", u.name, context.Cause(ctx)))
		}
		if r.Lost != "" {
			return r, r.stop(o, begin, fmt.Errorf("%s: the device cannot be used after %s; its other checks are left out", part, r.Lost))
		}
	}
	r.Running = ""
	if p := countProducts(o.Device); p != nil {
		r.products(*p)
	}
	if err := r.save(o, begin); err != nil {
		return r, fmt.Errorf("self test: %w", err)
	}
	return r, nil
}

// run runs the unit u and returns its report. An error of the unit becomes a failed check. If the device then no
// longer works, the report also has a loss. run calls hear, unless hear is nil, with the name of every case at its
// start.
func (o *SelfTestOptions) run(ctx context.Context, u unit, hear func(what string)) *SelfTestReport {
	r := &SelfTestReport{OK: true, hear: hear, machine: o.Rates}
	if o.Rates != nil {
		r.PredictedFor = o.Rates.Name
	}
	r.starts(u.name)
	if err := u.run(ctx, r); err != nil && ctx.Err() == nil {
		r.fail(u.name, err.Error())
		if len(r.Losses) == 0 && usable(o.Device) != nil {
			r.lose(faulted, err.Error())
		}
	}
	return r
}

// tell calls o.Progress, if it is set.
func (o *SelfTestOptions) tell(what string) {
	if o.Progress != nil {
		o.Progress(what)
	}
}

// save sets the report's run time, counted from begin, and passes the report so far to o.Save. A report that is saved
// while a case runs is not OK, because the case has not passed yet.
func (r *SelfTestReport) save(o SelfTestOptions, begin time.Time) error {
	r.Seconds = time.Since(begin).Seconds()
	if o.Save == nil {
		return nil
	}
	so := *r
	so.OK = r.OK && r.Running == ""
	return o.Save(&so)
}

// stop records err, which ends the test early, in the report and saves the report. It returns err, joined with an
// error of saving.
func (r *SelfTestReport) stop(o SelfTestOptions, begin time.Time, err error) error {
	r.OK, r.Error = false, err.Error()
	return fmt.Errorf("self test: %w", errors.Join(err, r.save(o, begin)))
}

// notes returns the remarks of a device about its work.
func notes(dev device.Device) []string {
	if n, ok := dev.(interface{ Notes() []string }); ok {
		return n.Notes()
	}
	return nil
}

// ownProducts repeats the matrix products of the operation table with mt's own kernels. It does nothing if they
// computed the products before, because the device has no cuBLASLt.
func (r *SelfTestReport) ownProducts(o *SelfTestOptions) {
	if o.Own != nil {
		r.operations(o.Own, o.CPU, o.cases(partOwn, "MatMul/"), " by mt's own kernels")
	}
}

// choosesAttention is a device with several attention kernels.
type choosesAttention interface {
	RunsSM90a() bool
	UseAttention(kernels string) error
}

// withKernels calls f while dev uses the named attention kernels. If dev has only the portable kernels, it does not
// call f, because every other check uses them already.
func withKernels(dev device.Device, kernels string, f func() error) error {
	d, ok := dev.(choosesAttention)
	if !ok || !d.RunsSM90a() {
		return nil
	}
	if err := d.UseAttention(kernels); err != nil {
		return err
	}
	return errors.Join(f(), d.UseAttention("sm90a"))
}

// portableAttention runs the cases of the attention operation called name once more, with the portable kernels. It
// does so only on a device whose default kernels are for sm_90a.
func (r *SelfTestReport) portableAttention(o *SelfTestOptions, name string) error {
	return withKernels(o.Device, "portable", func() error {
		r.operations(o.Device, o.CPU, o.cases(partPortable, name+"/"), " by the kernels for all GPUs")
		return nil
	})
}

// products counts the matrix products of a device with a library for them.
type products struct {
	Library int      `json:"library"` // version of cuBLASLt; 0: not used
	Own     int64    `json:"own"`     // products by mt's own kernels
	Refused []string `json:"refused"` // aligned shapes that the library rejected
}

// countProducts returns how many matrix products dev's library and mt's own kernels have computed. It returns nil if
// dev has no such library.
func countProducts(dev device.Device) *products {
	d, ok := dev.(interface {
		Fallbacks() []string
		OwnProducts() int64
		CuBLASLt() int
	})
	if !ok {
		return nil
	}
	return &products{d.CuBLASLt(), d.OwnProducts(), d.Fallbacks()}
}

// products fails if cuBLASLt refused a product that it should compute. The device is then correct but slow, which no
// other check detects. This check runs last, after all products of the other checks.
func (r *SelfTestReport) products(p products) {
	c := Check{Name: "cuBLASLt", OK: true, Detail: fmt.Sprintf("takes every aligned product; mt's own kernels computed %d others", p.Own)}
	if p.Library == 0 {
		c.Detail = fmt.Sprintf("is not used: mt's own kernels computed all %d products, slower", p.Own)
	}
	if len(p.Refused) > 0 {
		c.Detail = fmt.Sprintf("refused %d aligned shapes, which mt's own kernels computed", len(p.Refused))
		for _, s := range p.Refused {
			c.errorf("%s", s)
		}
	}
	r.add(c)
}

// The parts of a self test in order. Choose accepts these names except partRepeat, which SelfTestOptions.Repeat
// controls.
const (
	partTable     = "operations"
	partRepeat    = "repeat"
	partOwn       = "own-products"
	partPortable  = "portable-attention"
	partAttention = "attention-at-size"
	partProducts  = "products-at-size"
	partLong      = "long-tensor"
	partStreams   = "streams"
	partCopies    = "copies"
	partTraining  = "training"
	partRates     = "rates"
)

// SelfTestParts returns the part names that Choose accepts.
func SelfTestParts() []string {
	return []string{partTable, partOwn, partPortable, partAttention, partProducts, partLong, partStreams, partCopies, partTraining, partRates}
}

// caseNames returns the names of all cases of the operation table (conformance.SomeOperations), in the form
// OPERATION/TYPE/CASE.
var caseNames = sync.OnceValue(func() (names []string) {
	conformance.SomeOperations(&tester{}, nil, func(name string) bool {
		names = append(names, name)
		return false
	})
	return names
})

// Choice selects parts and table cases. The zero value selects all.
type Choice struct{ names []string }

// Choose parses a comma-separated list of parts, operations and operations of one type, such as Attention/bf16. It
// also accepts the name of a single case, which may contain commas. An operation selects its cases for all kernels
// that compute it. "" selects all. The error for an unknown name lists the valid names.
func Choose(text string) (Choice, error) {
	if text == "" {
		return Choice{}, nil
	}
	if slices.Contains(caseNames(), text) {
		return Choice{[]string{text}}, nil
	}
	names := strings.Split(text, ",")
	for _, n := range names {
		of, dt, typed := strings.Cut(n, "/")
		switch {
		case slices.Contains(SelfTestParts(), n):
		case slices.Contains(conformance.OperationNames(), of) && (!typed || dt == device.F32.String() || dt == device.BF16.String()):
		default:
			return Choice{}, fmt.Errorf("neither an operation nor a part is called %q (operations, alone or with /fp32 or /bf16: %s; parts: %s; or one case, as Scale/fp32/CASE)",
				n, strings.Join(conformance.OperationNames(), ", "), strings.Join(SelfTestParts(), ", "))
		}
	}
	return Choice{names}, nil
}

// takes reports whether the user has selected the part as a whole, or in it the case called name.
func (c Choice) takes(part, name string) bool {
	return c.names == nil || slices.ContainsFunc(c.names, func(n string) bool {
		return n == part || name != "" && (n == partTable || n == name || strings.HasPrefix(name, n+"/"))
	})
}

// unit is the smallest piece of a self test that runs or is skipped as a whole, such as one operation in one dtype.
type unit struct {
	part string
	name string // name of the check if the unit fails as a whole
	run  func(ctx context.Context, r *SelfTestReport) error
}

// cases returns a function that reports whether a case is to run in the part: it is selected, and its name begins with
// prefix.
func (o *SelfTestOptions) cases(part, prefix string) func(name string) bool {
	return func(name string) bool {
		return strings.HasPrefix(name, prefix) && o.Choice.takes(part, name) && (o.Cases == nil || o.Cases(name))
	}
}

// units lists the units that o selects. The list depends only on Choice, Cases and Repeat, so that a parent and a
// child process give units the same numbers.
func (o *SelfTestOptions) units() (out []unit) {
	for _, op := range conformance.OperationNames() {
		for _, dt := range []device.DType{device.F32, device.BF16} {
			if want := o.cases(partTable, op+"/"+dt.String()+"/"); slices.ContainsFunc(caseNames(), want) {
				out = append(out, unit{partTable, op + " " + dt.String(), func(_ context.Context, r *SelfTestReport) error { r.operations(o.Device, o.CPU, want, ""); return nil }})
			}
		}
	}
	if o.Repeat > 0 && len(out) > 0 {
		out = append(out, unit{partRepeat, "repeated operations", func(ctx context.Context, r *SelfTestReport) error { return r.repeat(ctx, o) }})
	}
	if slices.ContainsFunc(caseNames(), o.cases(partOwn, "MatMul/")) {
		out = append(out, unit{partOwn, "mt's own matrix products", func(_ context.Context, r *SelfTestReport) error { r.ownProducts(o); return nil }})
	}
	for _, op := range []string{"Attention", "AttentionBackward"} {
		if slices.ContainsFunc(caseNames(), o.cases(partPortable, op+"/")) {
			out = append(out, unit{partPortable, op + " by the kernels for all GPUs", func(_ context.Context, r *SelfTestReport) error { return r.portableAttention(o, op) }})
		}
	}
	for _, u := range o.others() {
		if o.Choice.takes(u.part, "") {
			out = append(out, u)
		}
	}
	return out
}

// others lists the units that are not cases of the operation table.
func (o *SelfTestOptions) others() (out []unit) {
	for i, name := range []string{"attention of several rows", "attention of one long row"} {
		for _, fused := range []bool{false, true} {
			if fused {
				name += " by the fused kernels"
			}
			out = append(out, unit{partAttention, name + " at the sizes of training", func(_ context.Context, r *SelfTestReport) error { return r.atSize(o, r.attentionBy(i, fused)) }})
		}
	}
	return append(out,
		unit{partProducts, "matrix products at the sizes of training", func(_ context.Context, r *SelfTestReport) error { return r.atSize(o, r.productsOf(o.Own)) }},
		unit{partLong, "a long tensor", func(_ context.Context, r *SelfTestReport) error { return r.atSize(o, r.longTensor) }},
		unit{partStreams, "order of streams", func(_ context.Context, r *SelfTestReport) error { return r.order(o.Device, orderElems) }},
		unit{partCopies, "copies", func(_ context.Context, r *SelfTestReport) error { return r.copies(o.Device) }},
		unit{partTraining, "training", func(_ context.Context, r *SelfTestReport) error { return r.training(o) }},
		unit{partRates, "rates of matrix products", func(_ context.Context, r *SelfTestReport) error { return r.matMuls(o.Device) }},
		unit{partRates, "rates of attention", func(_ context.Context, r *SelfTestReport) error {
			return withMeter(o.Device, func(m *measure.Meter) error { return r.attention(m, device.BF16) })
		}},
	)
}

// NeedsOwn reports whether a chosen part needs the device Own, which uses mt's own kernels for matrix products.
func (o *SelfTestOptions) NeedsOwn() bool {
	return slices.ContainsFunc(o.units(), func(u unit) bool { return u.part == partOwn || u.part == partProducts })
}
