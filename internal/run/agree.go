package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"mt/internal/run/ranks"
	"mt/internal/run/resolve"
)

// agreeOnRun compares the configurations, inputs and starting points of all ranks before any slow work. version is the
// program's version, which all ranks must share. done says that the run is finished already and its model is written.
func agreeOnRun(r *resolve.Resolved, version string) (done bool, err error) {
	from := r.From
	if from.Over || from.Ended || from.State.Step >= r.Config.MaxSteps { // otherwise steps remain, whatever is written
		done = r.Ranks.First() && r.Finished()
	}
	if r.Ranks.Size() == 1 {
		return done, nil
	}
	state, err := json.Marshal(from.State)
	if err != nil {
		return false, err
	}
	var facts []ranks.Fact
	add := func(name, value, way string) { facts = append(facts, ranks.Fact{Name: name, Value: value, Way: way}) }
	add("mt", version, ranks.SameProgram)
	values := r.Config.Deciding()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		way := ranks.SameConfig
		if !r.Config.Given(key) {
			way = ranks.GiveIt
		}
		add(key, values[key], way)
	}
	add("reset_data", fmt.Sprint(r.Config.ResetData), ranks.SameConfig)
	add("reset_optimizer", fmt.Sprint(r.Config.ResetOptimizer), ranks.SameConfig)
	digests := r.Digests()
	digests["eval_dataset"] = "that of none"
	if r.EvalData != nil {
		digests["eval_dataset"] = r.EvalData.ID()
	}
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		add("the digest of "+name, digests[name], ranks.AlikeFiles)
	}
	where := "the start"
	if from.Dir != "" {
		where = fmt.Sprintf("step %d of %s", from.State.Step, from.Dir)
	}
	sum := sha256.Sum256(state)
	add("the point to go on from", where, ranks.SameConfig)
	add("the digest of the state there", hex.EncodeToString(sum[:8]), ranks.SameConfig)
	add("max_steps", fmt.Sprint(r.Config.MaxSteps), ranks.SameConfig)
	all, err := ranks.Tell(r.Ranks, "the start", done, facts...)
	if err != nil {
		return false, err
	}
	return all[0], nil
}
