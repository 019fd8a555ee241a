package selftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mt/device"
	"mt/plan/rates"
)

// Options say what to test.
type Options struct {
	Device device.Device // the one in question
	CPU    device.Device // what it is compared with
	// Own is the same GPU with matrix products by mt's own kernels alone; nil where Device has no others.
	Own device.Device
	// Small has the checks at the sizes of training done at small ones: on an emulator, or a CPU.
	Small bool
	// Train runs a few steps on each of the two devices and returns the losses:
	// the same model, rows and seed, computed in dtype. It calls alive now and then.
	Train func(kind string, dtype device.DType, alive func()) ([]float64, error)
	// Choice says which parts and which cases of the table are run.
	Choice Choice
	// Cases, unless nil, accepts the cases of the table that are run, by their names.
	Cases func(name string) bool
	// Repeat is how many times more the cases run beside copies, to compare their bits.
	Repeat int
	// Rates are what the rates are predicted with; nil: nothing is predicted.
	Rates *rates.Machine
	// Save, unless nil, is called with the report so far before and after every unit.
	Save func(r *Report) error
	// Progress, unless nil, is called with the name of each part as it begins, and with each loss.
	Progress func(what string)
}

// Run tests o.Device in this process. A device that is lost ends the test. An error means that something could not be
// tried; what was tried and does not hold is in the report. When ctx is cancelled, Run ends between two units.
func Run(ctx context.Context, o Options) (*Report, error) {
	begin := time.Now()
	r := &Report{Device: o.Device.Name(), Kind: o.Device.Kind(), OK: true}
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

// run runs one unit. What goes wrong becomes a check that does not hold and, where the device cannot be used any more, a
// loss. hear, unless nil, is called with every case before it runs.
func (o *Options) run(ctx context.Context, u unit, hear func(what string)) *Report {
	r := &Report{OK: true, hear: hear, machine: o.Rates}
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

// tell calls o.Progress.
func (o *Options) tell(what string) {
	if o.Progress != nil {
		o.Progress(what)
	}
}

// save notes how long the test has run since begin, and hands the report so far to o.Save. A test that is running has not
// passed: a report that is cut off there must not say so.
func (r *Report) save(o Options, begin time.Time) error {
	r.Seconds = time.Since(begin).Seconds()
	if o.Save == nil {
		return nil
	}
	so := *r
	so.OK = r.OK && r.Running == ""
	return o.Save(&so)
}

// stop notes err, which ends the test before its end, and saves the report.
func (r *Report) stop(o Options, begin time.Time, err error) error {
	r.OK, r.Error = false, err.Error()
	return fmt.Errorf("self test: %w", errors.Join(err, r.save(o, begin)))
}

// notes returns what dev says about its work.
func notes(dev device.Device) []string {
	if n, ok := dev.(interface{ Notes() []string }); ok {
		return n.Notes()
	}
	return nil
}

// ownProducts runs the products of the table by mt's own kernels, where a library has run them before.
func (r *Report) ownProducts(o *Options) {
	if o.Own != nil {
		r.operations(o.Own, o.CPU, o.cases(partOwn, "MatMul/"), " by mt's own kernels")
	}
}

// choosesAttention is a device that has several kernels for attention.
type choosesAttention interface {
	RunsSM90a() bool
	UseAttention(kernels string) error
}

// withKernels calls f while dev computes attention by those kernels. It does nothing where a device has the kernels for all
// GPUs alone, since every check uses them.
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

// portableAttention runs the cases of an operation by the kernels that a run may ask for where there are newer ones, which
// have run before.
func (r *Report) portableAttention(o *Options, name string) error {
	return withKernels(o.Device, "portable", func() error {
		r.operations(o.Device, o.CPU, o.cases(partPortable, name+"/"), " by the kernels for all GPUs")
		return nil
	})
}

// products counts the matrix products of a device that has a library for them.
type products struct {
	Library int      `json:"library"` // the version of cuBLASLt, 0: not used
	Own     int64    `json:"own"`     // products by mt's own kernels
	Refused []string `json:"refused"` // aligned shapes that the library refused
}

// countProducts returns the counts of dev; nil: it has no such library.
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

// products fails where the device's library did not compute a product that it should: the device
// then is right and slow, which no other check sees. It comes last, after all products of the others.
func (r *Report) products(p products) {
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

// rates calls measure, which measures operations that computing time goes into.
func (r *Report) rates(dev device.Device, measure func(m *meter) error) error {
	m, err := newMeter(dev)
	if err != nil {
		return err
	}
	defer m.close()
	return measure(m)
}

// matMuls measures matrix products of each type.
func (r *Report) matMuls(m *meter) error {
	for _, act := range []device.DType{device.BF16, device.F32} {
		r.starts("rate of matrix products " + act.String())
		if err := r.matMul(m, act); err != nil {
			return err
		}
	}
	return nil
}
