package train

import (
	"errors"
	"fmt"

	"mt/internal/human"
	"mt/plan"
)

// checkRoom refuses a run that needs more host memory than there is. It does so before
// anything is allocated: arenas are filled one after the other, so the lack could show
// late. what is how the error calls the run or pass.
func (j *Resolved) checkRoom(what string) error {
	t, room := j.plan.Table(), j.room()
	need, key := t.Host, "host_memory"
	if j.c.Device == "cpu" || j.integrated {
		need += t.AllDevices
	}
	if j.c.Device == "cpu" && !j.c.Given(key) {
		key = "device_memory"
	}
	if !room.Known || need <= room.Bytes {
		return nil
	}
	return j.c.Errorf(key, "%s: %s needs %s of this machine's memory, and %s, %s too little: lower %s to what there is, and the plan names what needs less",
		key, what, human.Bytes(need), room, human.Bytes(need-room.Bytes), key)
}

// planError names the key that err is about: the one that set the budget into which the
// run does not fit, or a depth that is wrong.
func (j *Resolved) planError(err error) error {
	var lacking *plan.NotFitting
	var depth *plan.BadDepth
	key := ""
	switch {
	case errors.As(err, &lacking):
		key = lacking.Where + "_memory"
	case errors.As(err, &depth):
		key = depth.Key
	}
	if j.c.Given(key) {
		return j.c.Errorf(key, "plan: %w", err)
	}
	return fmt.Errorf("plan: %w", err)
}

// planned is the run with a plan; err is what came of planning it.
func (j *Resolved) planned(p *plan.Run, err error) (*Resolved, error) {
	if err != nil {
		return nil, j.planError(err)
	}
	out := *j
	out.plan = p
	return &out, nil
}
