package cpu

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"mt/internal/testkit"
)

// TestSelectLargest: among equal scores the choice is that of torch.topk, which testdata/topk.py recorded.
// testdata/killer.cc has cases in which every division is bad.
func TestSelectLargest(t *testing.T) {
	type recorded []struct {
		K      int
		Scores []*float32
		Chosen []int32
	}
	var cases, bad recorded
	testkit.NoError(t, json.Unmarshal(testkit.Must(os.ReadFile("testdata/topk.json"))(t), &cases))
	testkit.NoError(t, json.Unmarshal(testkit.Must(os.ReadFile("testdata/killer.json"))(t), &bad))
	cases = append(cases, bad...)
	ties := 0
	for _, c := range cases {
		all := make([]candidate, len(c.Scores))
		for i, score := range c.Scores {
			all[i] = candidate{float32(math.Inf(-1)), int32(i)}
			if score != nil {
				all[i].score = *score
			}
		}
		selectLargest(all, c.K)
		var got []int32
		for _, x := range all[:c.K] {
			got = append(got, x.key)
		}
		for _, x := range all[c.K:] {
			if x.score == slices.MinFunc(all[:c.K], func(a, b candidate) int { return compareScores(a.score, b.score) }).score {
				ties++
				break
			}
		}
		if slices.Sort(got); !slices.Equal(got, c.Chosen) {
			t.Errorf("%d of %d: %v, torch.topk chooses %v", c.K, len(all), got, c.Chosen)
		}
	}
	if ties < len(cases)/3 {
		t.Errorf("only %d of %d cases have equal scores at the limit", ties, len(cases))
	}
}

func compareScores(a, b float32) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
