package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"mt/internal/run/resolve"
	"mt/internal/run/team"
)

// agreeOnRun has all ranks compare what their runs are made of and where they go on from, before
// anything takes long.
func agreeOnRun(r *resolve.Resolved, version string) (done bool, err error) {
	from := r.From
	if from.Over || from.Ended || from.State.Step >= r.Config.MaxSteps { // else there is more to train, whatever is written
		done = r.Team.First() && r.Finished()
	}
	if r.Team.Size() == 1 {
		return done, nil
	}
	state, err := json.Marshal(from.State)
	if err != nil {
		return false, err
	}
	var facts []team.Fact
	add := func(name, value, way string) { facts = append(facts, team.Fact{Name: name, Value: value, Way: way}) }
	add("mt", version, team.SameProgram)
	values := r.Config.Deciding()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		way := team.SameConfig
		if !r.Config.Given(key) {
			way = team.GiveIt
		}
		add(key, values[key], way)
	}
	add("reset_data", fmt.Sprint(r.Config.ResetData), team.SameConfig)
	add("reset_optimizer", fmt.Sprint(r.Config.ResetOptimizer), team.SameConfig)
	digests := r.Digests()
	digests["eval_dataset"] = "that of none"
	if r.EvalData != nil {
		digests["eval_dataset"] = r.EvalData.ID()
	}
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		add("the digest of "+name, digests[name], team.AlikeFiles)
	}
	where := "the start"
	if from.Dir != "" {
		where = fmt.Sprintf("step %d of %s", from.State.Step, from.Dir)
	}
	sum := sha256.Sum256(state)
	add("the point to go on from", where, team.SameConfig)
	add("the digest of the state there", hex.EncodeToString(sum[:8]), team.SameConfig)
	add("max_steps", fmt.Sprint(r.Config.MaxSteps), team.SameConfig)
	all, err := team.Tell(r.Team, "the start", done, facts...)
	if err != nil {
		return false, err
	}
	return all[0], nil
}
