package plan

import (
	"testing"

	"mt/model"
	"mt/schedule"
)

// TestFrozenRun: what is frozen takes two bytes a parameter of the host, in bf16, has no backward and keeps nothing; the
// inputs of layers below the lowest that is trained need no slots.
func TestFrozenRun(t *testing.T) {
	q := tiered(t, 8, true)
	q.StateDir, q.Recompute = false, "none"
	whole, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Config.SetFreeze(model.Freeze{Names: []string{"embed_tokens", `layers\.[0-4]\.`, `layers\.6\.mlp`, `layers\.7\.`}}); err != nil {
		t.Fatal(err)
	}
	r, err := Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	if model.LowestTrained(r.Layouts) != 6 || r.Spec.NoBackward != 5 {
		t.Errorf("layer %d is the lowest that is trained, %d blocks have no backward", model.LowestTrained(r.Layouts), r.Spec.NoBackward)
	}
	for l := range r.Layouts {
		frozen := l < 6 || l == 8
		if r.Frozen(l) != frozen || (r.FrozenLayers()[l]) != frozen {
			t.Errorf("layer %d is frozen %t", l, r.Frozen(l))
		}
		if frozen && (r.ExtentBytes(l) != 0 || r.GradElems(l) != 0) || (r.SavedBytes(l) == 0) != (l < 6 || l == 9) {
			t.Errorf("layer %d takes %d bytes of state, %d elements of gradient, keeps %d bytes", l, r.ExtentBytes(l), r.GradElems(l), r.SavedBytes(l))
		}
	}
	spec := r.Schedule()
	spec.ActivationSlots = 99
	program, err := schedule.New(spec, []int{32, 32})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range program.Visits {
		if v.Phase == schedule.Backward && v.Layer < 6 {
			t.Errorf("layer %d has a backward", v.Layer)
		}
	}
	if v := spec.Layers[8].Backward[0]; v.Grad() || !v.Uses.Has(schedule.Turns) {
		t.Errorf("the backward of a frozen block sums up a gradient: %t", v.Grad())
	}
	backward := spec.Layers[7].Backward[0] // its MLP is frozen, its attention is not
	if !backward.Grad() {
		t.Error("block 6 sums up no gradient")
	}
	if got, want := r.allActivations(), whole.allActivations()-4*r.Limits.MicroBatches; got != want {
		t.Errorf("%d slots for all activations, want %d", got, want)
	}
	was, is := whole.Table(), r.Table()
	frozen := is.Params - q.Config.TrainedParams()
	// Lower halves, moments and gradients, of which the table's are of the rows of a batch: 2 + 8 + 4 bytes a parameter.
	want := 14*frozen - 4*int64(4096-r.Limits.UniqueIDs)*128
	if saved := was.Host - is.Host; saved < want || saved > want+want/50 {
		t.Errorf("%d parameters are frozen, which saves %d bytes of the host, want %d", frozen, saved, want)
	}
	if forward, backward := r.flops(); backward >= 2*forward {
		t.Errorf("%g FLOPs forward and %g backward", forward, backward)
	}
}
