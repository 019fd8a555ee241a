package plan

import (
	"fmt"

	"mt/layers"
	"mt/layers/schedule"
)

// fetch is a tile that a step copies to the device.
type fetch struct {
	bytes  int64
	expert bool // an expert's tile, which tokens may or may not need
}

// fetches lists the tiles that a step fetches, in order: forward until the visit that computes the losses, and backward
// after it. It plans a program with a single micro-batch, because the number of micro-batches does not change when
// weights are fetched.
func (r *Run) fetches() (forward, backward []fetch) {
	s := r.Schedule()
	s.Eval, s.ActivationSlots = r.EvalOnly, len(s.Layers)+2 // nothing spills
	p, err := schedule.New(s, []int{1})
	if err != nil {
		panic(fmt.Sprintf("plan: the schedule of a run that is resolved: %v", err))
	}
	tiles, list := layers.Tiles(r.Layouts, r.Spec), &forward
	takes := p.WeightTakes
	for v, visit := range p.Visits {
		if len(takes) > 0 && takes[0] == v {
			*list = append(*list, fetch{bytes: tiles[visit.Tile].Bytes(), expert: visit.Stage == schedule.Expert && visit.Part <= r.Experts})
			takes = takes[1:]
		}
		if visit.Loss {
			list = &backward
		}
	}
	return forward, backward
}

// streamedTiles returns how many tiles of the view r's layers take turns in the shared weight
// slots.
func (r *Run) streamedTiles() (n int) {
	for i := range r.Layouts {
		if r.Kind(i).Class(r.Spec) == schedule.Streamed {
			n += r.tilesOf(i)
		}
	}
	return n
}
