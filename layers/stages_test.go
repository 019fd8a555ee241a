package layers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/model"
)

// stages returns the visits of layers whose kinds are the words in kinds. MoE layers have the given
// number of experts, and the head the given number of parts.
func stages(experts, shards int, kinds string) (out []schedule.Layer) {
	for _, name := range strings.Fields(kinds) {
		kind := model.Embedding
		for kind.String() != name {
			kind++
		}
		layer := model.Layer{Kind: kind, Params: []model.Param{{Part: experts}}}
		out = append(out, KindOf(kind).Stages(Spec{Config: &model.Config{}, HeadShards: shards}, model.Layout{Layer: layer}))
	}
	return out
}

// program plans a training step for layers l, whose micro-batches have the given numbers of tokens.
// eval: it plans a pass of an evaluation, which another pass follows.
func program(t *testing.T, eval bool, l []schedule.Layer, tokens ...int) *schedule.Program {
	t.Helper()
	p := testkit.Must(schedule.New(schedule.Spec{Layers: l, WeightSlots: 2, ActivationSlots: 12, Eval: eval, Again: eval}, tokens))(t)
	return p
}

// TestVisits: a training step visits all layers in order, the head once, and then the layers in
// reverse. An evaluation has no backward.
func TestVisits(t *testing.T) {
	p := program(t, false, stages(0, 1, "embedding block block head"), 1)
	var got []string
	for _, v := range p.Visits {
		got = append(got, fmt.Sprintf("%d %s %s", v.Layer, v.Stage, v.Phase))
	}
	want := []string{"0 embed forward", "1 block forward", "2 block forward", "3 head backward", "2 block backward", "1 block backward", "0 embed backward"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestVisitsOfParts: a head in parts has one sweep over its parts for the losses and one in reverse
// for the gradient. An evaluation has only the first sweep.
func TestVisitsOfParts(t *testing.T) {
	for eval, want := range map[bool][]string{
		false: {"0.0 forward", "1.0 forward", "2.0 forward", "2.1 forward", "2.2 forward loss", "2.2 backward", "2.1 backward", "2.0 backward",
			"1.0 backward", "0.0 backward"},
		true: {"0.0 evaluate", "1.0 evaluate", "2.0 evaluate", "2.1 evaluate", "2.2 evaluate loss"},
	} {
		p := program(t, eval, stages(0, 3, "embedding block head"), 1, 1)
		var got []string
		for _, v := range p.Visits {
			s := fmt.Sprintf("%d.%d %s", v.Layer, v.Part, v.Phase)
			if v.Loss {
				s += " loss"
			}
			got = append(got, s)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
		// In the second sweep every part reads the head's input. The first part of that sweep
		// writes the gradient, and all later parts update it in place.
		for _, l := range p.Launches {
			v, x, grad := p.Visits[l.Visit], 2+l.MicroBatch, 4+l.MicroBatch
			switch {
			case v.Stage == schedule.HeadPart && v.Phase != schedule.Backward && (l.In != x || l.Out >= 0 || l.Grad >= 0),
				v.Stage == schedule.HeadPart && v.Phase == schedule.Backward && v.Part == 2 && (l.In != x || l.Out != grad || l.Grad >= 0),
				v.Stage == schedule.HeadPart && v.Phase == schedule.Backward && v.Part < 2 && (l.In != x || l.Out >= 0 || l.Grad != grad),
				v.Stage != schedule.HeadPart && v.Phase == schedule.Backward && l.Grad != grad:
				t.Errorf("eval %t: layer %d part %d %s: %+v", eval, v.Layer, v.Part, v.Phase, l)
			}
		}
	}
}

// TestVisitsOfExperts: in the forward a layer with experts is visited in this order: router,
// experts, and the router's tile again. The backward visits the experts in reverse. Tiles are
// numbered on after the layer's experts, and sweeps of the micro-batches on after the layer's two
// sweeps.
func TestVisitsOfExperts(t *testing.T) {
	for eval, want := range map[bool]string{
		false: `0.0 embed forward tile 0 turn 0
1.0 attention forward tile 1 turn 1
2.0 route forward tile 2 turn 2
2.1 expert forward tile 3 turn 2
2.2 expert forward tile 4 turn 2
2.0 combine forward tile 2 turn 3
3.0 head part forward tile 5 turn 4
3.1 head part forward tile 6 turn 5
3.1 head part backward tile 6 turn 5
3.0 head part backward tile 5 turn 4
2.0 route backward tile 2 turn 3
2.2 expert backward tile 4 turn 2
2.1 expert backward tile 3 turn 2
2.0 combine backward tile 2 turn 2
1.0 attention backward tile 1 turn 1
0.0 embed backward tile 0 turn 0`,
		true: `0.0 embed evaluate tile 0 turn 0
1.0 attention evaluate tile 1 turn 1
2.0 route evaluate tile 2 turn 2
2.1 expert evaluate tile 3 turn 2
2.2 expert evaluate tile 4 turn 2
2.0 combine evaluate tile 2 turn 3
3.0 head part evaluate tile 5 turn 4
3.1 head part evaluate tile 6 turn 5`,
	} {
		p := program(t, eval, stages(2, 2, "embedding attention moe head"), 1, 1)
		var got []string
		for _, v := range p.Visits {
			got = append(got, fmt.Sprintf("%d.%d %s %s tile %d turn %d", v.Layer, v.Part, v.Stage, v.Phase, v.Tile, v.Turn))
		}
		if s := strings.Join(got, "\n"); s != want {
			t.Errorf("eval %t:\n%s\nwant\n%s", eval, s, want)
		}
	}
}

// TestLaunchesOfExperts: at its first visit the router reads the layer's input; the second visit to
// its tile writes the output. In the backward the first visit reads input and gradient, and the
// second updates the gradient in place. An expert has one launch without activations, and computing
// the routing again makes no gradient.
func TestLaunchesOfExperts(t *testing.T) {
	const n = 2 // micro-batches; object k·n+mb is the input of layer k+1
	p := program(t, false, stages(3, 1, "embedding attention moe head"), 3, 2)
	experts := 0
	for i, l := range p.Launches {
		v := p.Visits[l.Visit]
		if v.Stage < schedule.Route || v.Stage > schedule.Combine {
			continue
		}
		in, out, grad := n+l.MicroBatch, 2*n+l.MicroBatch, 2*n+l.MicroBatch // the gradient begins as the head's input
		want := schedule.Launch{Visit: l.Visit, MicroBatch: l.MicroBatch, Tokens: l.Tokens, In: -1, Out: -1, Grad: -1, Kept: -1, Releases: l.Releases}
		switch {
		case v.Stage == schedule.Expert:
			experts++
			want.MicroBatch, want.Tokens = -1, 0
		case v.Phase == schedule.Backward:
			want.In, want.Grad = in, grad
		case v.Stage == schedule.Route:
			want.In = in
		default:
			want.Out = out
		}
		if fmt.Sprint(l) != fmt.Sprint(want) {
			t.Errorf("launch %d, %s %s of part %d: %+v, want %+v", i, v.Phase, v.Stage, v.Part, l, want)
		}
		if v.Grad() != (v.Phase == schedule.Backward && v.Stage != schedule.Route) {
			t.Errorf("%s %s: gradient %t", v.Phase, v.Stage, v.Grad())
		}
	}
	if experts != 2*3 {
		t.Errorf("%d launches of experts, want 6", experts)
	}
}
