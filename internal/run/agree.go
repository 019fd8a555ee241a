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
func agreeOnRun(j *resolve.Resolved, version string) (done bool, err error) {
	from := j.From
	if j.Team.Size() == 1 {
		return j.Finished(), nil
	}
	state, err := json.Marshal(from.State)
	if err != nil {
		return false, err
	}
	var facts []team.Fact
	add := func(name, value, way string) { facts = append(facts, team.Fact{Name: name, Value: value, Way: way}) }
	add("mt", version, team.SameProgram)
	values := j.Config.Deciding()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		way := team.SameConfig
		if !j.Config.Given(key) {
			way = team.GiveIt
		}
		add(key, values[key], way)
	}
	add("reset_data", fmt.Sprint(j.Config.ResetData), team.SameConfig)
	add("reset_optimizer", fmt.Sprint(j.Config.ResetOptimizer), team.SameConfig)
	digests := j.Digests()
	digests["eval_dataset"] = "that of none"
	if j.EvalData != nil {
		digests["eval_dataset"] = j.EvalData.ID()
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
	add("max_steps", fmt.Sprint(j.Config.MaxSteps), team.SameConfig)
	all, err := team.Tell(j.Team, "the start", j.Team.First() && j.Finished(), facts...)
	if err != nil {
		return false, err
	}
	return all[0], nil
}
