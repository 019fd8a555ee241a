package selftest

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	// the same model, rows and seed, computed in dtype.
	Train func(kind string, dtype device.DType) ([]float64, error)
	// Cases, unless nil, accepts the cases of the table of operations that are run, by their names.
	Cases func(name string) bool
	// Repeat is how many times more the cases run beside copies, to compare their bits.
	Repeat int
	// Rates are what the rates are predicted with; nil: nothing is predicted.
	Rates *rates.Machine
	// Save, unless nil, is called with the report so far after every part; Error in it says why a part failed.
	Save func(r *Report) error
	// Progress, unless nil, is called with the name of each part as it begins.
	Progress func(what string)
}

// of accepts the cases of one operation, or of all where op is empty.
func (o *Options) of(op string) func(name string) bool {
	return func(name string) bool {
		return (op == "" || strings.HasPrefix(name, op+"/")) && (o.Cases == nil || o.Cases(name))
	}
}

// Run tests o.Device. An error means that something could not be tried at all; what
// was tried and does not hold is in the report. When ctx is cancelled, Run ends
// between two parts.
func Run(ctx context.Context, o Options) (*Report, error) {
	begin := time.Now()
	r := &Report{Device: o.Device.Name(), Kind: o.Device.Kind(), OK: true, machine: o.Rates}
	if o.Rates != nil {
		r.PredictedFor = o.Rates.Name
	}
	parts := []struct {
		what string
		run  func() error
	}{
		{"operations", func() error { r.operations(o.Device, o.CPU, o.of(""), ""); return nil }},
		{"repeated operations", func() error { return r.repeat(ctx, o) }},
		{"mt's own matrix products", func() error { r.ownProducts(o); return nil }},
		{"attention by the kernels for all GPUs", func() error { return r.portableAttention(o) }},
		{"sizes of training", func() error { return r.atSize(o) }},
		{"order of streams", func() error { return r.order(o.Device, orderElems) }},
		{"copies", func() error { return r.copies(o.Device) }},
		{"training", func() error { return r.training(o) }},
		{"rates", func() error { return r.rates(o.Device) }},
	}
	if o.Repeat == 0 {
		parts = slices.Delete(parts, 1, 2)
	}
	for _, part := range parts {
		if ctx.Err() != nil {
			return r, fmt.Errorf("self test: %w", context.Cause(ctx))
		}
		if o.Progress != nil {
			o.Progress(part.what)
		}
		err := part.run()
		if r.Lost != "" {
			err = fmt.Errorf("the device cannot be used after %s; its other checks are left out", r.Lost)
		}
		if err != nil {
			r.OK, r.Error = false, fmt.Sprintf("%s: %v", part.what, err)
		}
		if saved := r.save(o, begin); err == nil {
			err = saved
		}
		if err != nil {
			return r, fmt.Errorf("self test: %s: %w", part.what, err)
		}
	}
	r.products(o.Device)
	if err := r.save(o, begin); err != nil {
		return r, fmt.Errorf("self test: %w", err)
	}
	return r, nil
}

// save notes how long the test has run since begin, and hands the report so far to o.Save.
func (r *Report) save(o Options, begin time.Time) error {
	r.Seconds = time.Since(begin).Seconds()
	if o.Save == nil {
		return nil
	}
	return o.Save(r)
}

// ownProducts runs the products of the table by mt's own kernels, where a library has run them before.
func (r *Report) ownProducts(o Options) {
	if o.Own != nil {
		r.operations(o.Own, o.CPU, o.of("MatMul"), " by mt's own kernels")
	}
}

// portableAttention runs attention by the kernels that a run may ask for where there are newer ones, which have
// run before.
func (r *Report) portableAttention(o Options) error {
	d, ok := o.Device.(interface {
		RunsSM90a() bool
		UseAttention(kernels string) error
	})
	if !ok || !d.RunsSM90a() {
		return nil
	}
	if err := d.UseAttention("portable"); err != nil {
		return err
	}
	for _, name := range []string{"Attention", "AttentionBackward"} {
		r.operations(o.Device, o.CPU, o.of(name), " by the kernels for all GPUs")
	}
	return d.UseAttention("sm90a")
}

// products fails where the device's library did not compute a product that it should: the device
// then is right and slow, which no other check sees. It comes last, after all products of the others.
func (r *Report) products(dev device.Device) {
	d, ok := dev.(interface {
		Fallbacks() []string
		OwnProducts() int64
		CuBLASLt() int
	})
	if !ok {
		return
	}
	c := Check{Name: "cuBLASLt", OK: true, Detail: fmt.Sprintf("takes every aligned product; mt's own kernels computed %d others", d.OwnProducts())}
	if d.CuBLASLt() == 0 {
		c.Detail = fmt.Sprintf("is not used: mt's own kernels computed all %d products, slower", d.OwnProducts())
	}
	if shapes := d.Fallbacks(); len(shapes) > 0 {
		c.Detail = fmt.Sprintf("refused %d aligned shapes, which mt's own kernels computed", len(shapes))
		for _, s := range shapes {
			c.errorf("%s", s)
		}
	}
	r.add(c)
}

// rates measures the operations that computing time goes into.
func (r *Report) rates(dev device.Device) error {
	m, err := newMeter(dev)
	if err != nil {
		return err
	}
	defer m.close()
	for _, act := range []device.DType{device.BF16, device.F32} {
		if err := r.matMul(m, act); err != nil {
			return err
		}
	}
	return r.attention(m, device.BF16)
}
