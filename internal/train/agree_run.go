package train

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// agreeOnRun has all ranks compare what their runs are made of and where they go on from, before
// anything takes long.
func agreeOnRun(j *Resolved, version string) (done bool, err error) {
	from := j.from
	if j.team.Size() == 1 {
		return j.finished(), nil
	}
	state, err := json.Marshal(from.state)
	if err != nil {
		return false, err
	}
	facts := []fact{{"mt", version, sameProgram}}
	values := j.c.Deciding()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		way := sameConfig
		if !j.c.Given(key) {
			way = giveIt
		}
		facts = append(facts, fact{key, values[key], way})
	}
	facts = append(facts, fact{"reset_data", fmt.Sprint(j.c.ResetData), sameConfig}, fact{"reset_optimizer", fmt.Sprint(j.c.ResetOptimizer), sameConfig})
	digests := j.digests()
	digests["eval_dataset"] = "that of none"
	if j.evalSet != nil {
		digests["eval_dataset"] = j.evalSet.ID()
	}
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		facts = append(facts, fact{"the digest of " + name, digests[name], alikeFiles})
	}
	where := "the start"
	if from.dir != "" {
		where = fmt.Sprintf("step %d of %s", from.state.Step, from.dir)
	}
	sum := sha256.Sum256(state)
	facts = append(facts, fact{"the point to go on from", where, sameConfig},
		fact{"the digest of the state there", hex.EncodeToString(sum[:8]), sameConfig},
		fact{"max_steps", fmt.Sprint(j.c.MaxSteps), sameConfig})
	all, err := tell(j.team, "the start", j.team.first() && j.finished(), facts...)
	if err != nil {
		return false, err
	}
	return all[0], nil
}
