package resolve

import (
	"errors"
	"fmt"

	"mt/internal/human"
	"mt/plan"
)

// CheckRoom refuses a run that needs more host memory than there is. It does so before
// anything is allocated: arenas are filled one after the other, so the lack could show
// late. what is how the error calls the run or pass.
func (r *Resolved) CheckRoom(what string) error {
	t, room := r.Plan.Table(), r.Room()
	need, key := t.Host, "host_memory"
	if r.Config.Device == "cpu" || r.Integrated {
		need += t.AllDevices
	}
	if r.Config.Device == "cpu" && !r.Config.Given(key) {
		key = "device_memory"
	}
	if !room.Known || need <= room.Bytes {
		return nil
	}
	return r.Config.Errorf(key, "%s: %s needs %s of this machine's memory, and %s, %s too little: lower %s to what there is, and the plan names what needs less",
		key, what, human.Bytes(need), room, human.Bytes(need-room.Bytes), key)
}

// PlanError names the key that err is about: the one that set the budget into which the
// run does not fit, or a depth that is wrong.
func (r *Resolved) PlanError(err error) error {
	var lacking *plan.NotFitting
	var depth *plan.BadDepth
	key := ""
	switch {
	case errors.As(err, &lacking):
		key = lacking.Where + "_memory"
	case errors.As(err, &depth):
		key = depth.Key
	}
	if r.Config.Given(key) {
		return r.Config.Errorf(key, "plan: %w", err)
	}
	return fmt.Errorf("plan: %w", err)
}

// WithPlan is the run with another plan.
func (r *Resolved) WithPlan(p *plan.Run) *Resolved {
	out := *r
	out.Plan = p
	return &out
}
