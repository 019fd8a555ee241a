package selftest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"mt/device"
	"mt/device/conformance/operations"
)

// The parts of a self test, in their order. Choose knows them by these names, except partRepeat: it repeats the chosen
// operations where Options.Repeat asks for that.
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

// Parts returns the names of the parts that Choose takes.
func Parts() []string {
	return []string{partTable, partOwn, partPortable, partAttention, partProducts, partLong, partStreams, partCopies, partTraining, partRates}
}

// caseNames returns the names of all cases of the table of operations, as OPERATION/TYPE/CASE.
var caseNames = sync.OnceValue(func() (names []string) {
	operations.RunSome(&tester{}, nil, func(name string) bool {
		names = append(names, name)
		return false
	})
	return names
})

// Choice says which parts and which cases of the table are tested. The zero value takes all.
type Choice struct{ names []string }

// Choose reads a list with commas of parts, operations and operations in one type, such as Attention/bf16. The name of one
// case, which may hold commas, is taken as well. An operation stands for its cases by all kernels that compute it. An
// empty text takes all. The error of an unknown name lists what there is.
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
		case slices.Contains(Parts(), n):
		case slices.Contains(operations.Names(), of) && (!typed || dt == device.F32.String() || dt == device.BF16.String()):
		default:
			return Choice{}, fmt.Errorf("neither an operation nor a part is called %q (operations, alone or with /fp32 or /bf16: %s; parts: %s; or one case, as Scale/fp32/CASE)",
				n, strings.Join(operations.Names(), ", "), strings.Join(Parts(), ", "))
		}
	}
	return Choice{names}, nil
}

// takes says whether a part is chosen or, of a part that runs cases of the table, the case of that name.
func (c Choice) takes(part, name string) bool {
	return c.names == nil || slices.ContainsFunc(c.names, func(n string) bool {
		return n == part || name != "" && (n == partTable || n == name || strings.HasPrefix(name, n+"/"))
	})
}

// unit is the smallest piece of a self test that is run or left out.
type unit struct {
	part string
	name string // of the unit's check where the unit fails as a whole
	run  func(ctx context.Context, r *Report) error
}

// cases accepts the cases whose names begin with prefix and that a part is to run.
func (o *Options) cases(part, prefix string) func(name string) bool {
	return func(name string) bool {
		return strings.HasPrefix(name, prefix) && o.Choice.takes(part, name) && (o.Cases == nil || o.Cases(name))
	}
}

// units lists what o asks for. The list depends on Choice, Cases and Repeat alone, so that two processes number units alike.
func (o *Options) units() (out []unit) {
	for _, op := range operations.Names() {
		for _, dt := range []device.DType{device.F32, device.BF16} {
			if want := o.cases(partTable, op+"/"+dt.String()+"/"); slices.ContainsFunc(caseNames(), want) {
				out = append(out, unit{partTable, op + " " + dt.String(), func(_ context.Context, r *Report) error { r.operations(o.Device, o.CPU, want, ""); return nil }})
			}
		}
	}
	if o.Repeat > 0 && len(out) > 0 {
		out = append(out, unit{partRepeat, "repeated operations", func(ctx context.Context, r *Report) error { return r.repeat(ctx, o) }})
	}
	if slices.ContainsFunc(caseNames(), o.cases(partOwn, "MatMul/")) {
		out = append(out, unit{partOwn, "mt's own matrix products", func(_ context.Context, r *Report) error { r.ownProducts(o); return nil }})
	}
	for _, op := range []string{"Attention", "AttentionBackward"} {
		if slices.ContainsFunc(caseNames(), o.cases(partPortable, op+"/")) {
			out = append(out, unit{partPortable, op + " by the kernels for all GPUs", func(_ context.Context, r *Report) error { return r.portableAttention(o, op) }})
		}
	}
	for _, u := range o.others() {
		if o.Choice.takes(u.part, "") {
			out = append(out, u)
		}
	}
	return out
}

// others lists the units that run no cases of the table.
func (o *Options) others() (out []unit) {
	for i, name := range []string{"attention of several rows", "attention of one long row"} {
		for _, fused := range []bool{false, true} {
			if fused {
				name += " by the fused kernels"
			}
			out = append(out, unit{partAttention, name + " at the sizes of training", func(_ context.Context, r *Report) error { return r.atSize(o, r.attentionBy(i, fused)) }})
		}
	}
	return append(out,
		unit{partProducts, "matrix products at the sizes of training", func(_ context.Context, r *Report) error { return r.atSize(o, r.productsOf(o.Own)) }},
		unit{partLong, "a long tensor", func(_ context.Context, r *Report) error { return r.atSize(o, r.longTensor) }},
		unit{partStreams, "order of streams", func(_ context.Context, r *Report) error { return r.order(o.Device, orderElems) }},
		unit{partCopies, "copies", func(_ context.Context, r *Report) error { return r.copies(o.Device) }},
		unit{partTraining, "training", func(_ context.Context, r *Report) error { return r.training(o) }},
		unit{partRates, "rates of matrix products", func(_ context.Context, r *Report) error { return r.rates(o.Device, r.matMuls) }},
		unit{partRates, "rates of attention", func(_ context.Context, r *Report) error {
			return r.rates(o.Device, func(m *meter) error { return r.attention(m, device.BF16) })
		}},
	)
}

// NeedsOwn says whether a test looks at Own.
func (o *Options) NeedsOwn() bool {
	return slices.ContainsFunc(o.units(), func(u unit) bool { return u.part == partOwn || u.part == partProducts })
}
