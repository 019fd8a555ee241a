package run

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestExpertsStream: experts whose weights are copied to the device one by one give the same bits
// as experts whose weights are used in place. This holds for copies ahead or on demand, and for few
// buffers or many.
func TestExpertsStream(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for name, recipe := range map[string]string{
		"on demand":           "experts\n", // 40 experts and at most 48 tokens a step
		"ahead":               "experts\nper_device_train_batch_size: 24\n",
		"bf16 and a cut head": "experts\ncompute_dtype: bf16\npipeline: {head_shards: 3}\n",
		"without clipping":    "experts\nmax_grad_norm: 0\n",
		"with an evaluation":  "experts\nval_size: 3\neval_steps: 2\n",
	} {
		t.Run(name, func(t *testing.T) {
			want := recipeScene(t, recipe)
			want.mustTrain(t)
			shards := ""
			if strings.Contains(recipe, "head_shards") {
				shards = ", head_shards: 3"
			}
			for _, depths := range []string{"weight_slots: 1, grad_buffers: 1, activation_slots: 3, batches_ahead: 1", "weight_slots: 7, grad_buffers: 3"} {
				got := want.in(t).with("binding: copy\npipeline: {" + depths + shards + "}\n")
				got.mustTrain(t)
				sameRun(t, got, want)
			}
		})
	}
}

// TestExpertTrafficIsShown: the plan shows when experts are fetched and how many bytes move, as text and as JSON.
// metrics.jsonl shows the bytes moved.
func TestExpertTrafficIsShown(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for recipe, fetched := range map[string]string{
		"experts\n":                "in place",
		"experts\nbinding: copy\n": "on demand",
		"experts\nbinding: copy\nper_device_train_batch_size: 24\n": "ahead",
		"binding: copy\n": "",
	} {
		s := recipeScene(t, recipe)
		var words, raw bytes.Buffer
		for out, asJSON := range map[*bytes.Buffer]bool{&words: false, &raw: true} {
			testkit.NoError(t, DryRun(t.Context(), s.config(t), settings.Options{Stdout: out, Stderr: &bytes.Buffer{}, JSON: asJSON}))
		}
		var shown struct {
			Experts *struct {
				Fetched       string
				AllBytes      int64 `json:"all_bytes"`
				ExpectedBytes int64 `json:"expected_bytes"`
			}
		}
		testkit.NoError(t, json.Unmarshal(raw.Bytes(), &shown))
		x := shown.Experts
		switch {
		case fetched == "":
			if x != nil || strings.Contains(words.String(), "experts") {
				t.Errorf("a model without experts shows %+v\n%s", x, words.String())
			}
			continue
		case x == nil || x.Fetched != fetched || !strings.Contains(words.String(), "experts: "+fetched+" (40 in each of 2 layers, 1 for each token)"):
			t.Fatalf("%q shows %+v, want %q\n%s", recipe, x, fetched, words.String())
		case fetched == "on demand" && x.ExpectedBytes >= x.AllBytes, fetched != "in place" && x.ExpectedBytes == 0:
			t.Errorf("%q: %+v", recipe, x)
		}
		checkFetched(t, s, fetched, x.AllBytes)
	}
}

// checkFetched trains s and compares the bytes of expert weights that a step copies with the plan.
// fetched says when the plan copies experts: in place (never), on demand or ahead. `all` is the number
// of bytes that a step copies if it copies every expert.
func checkFetched(t *testing.T, s scene, fetched string, all int64) {
	t.Helper()
	s.mustTrain(t)
	raw := testkit.Must(os.ReadFile(filepath.Join(s.out, settings.MetricsFile)))(t)
	var m struct {
		Fetched int64 `json:"experts_fetched"`
		Bytes   int64 `json:"expert_bytes"`
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	testkit.NoError(t, json.Unmarshal([]byte(first), &m))
	switch ok := m.Bytes == all && (m.Fetched > 0) == (all > 0); {
	case fetched == "on demand" && (m.Bytes == 0 || m.Bytes >= all), fetched != "on demand" && !ok:
		t.Errorf("%s: %d experts, %d bytes in the first step; the plan says %d of all", fetched, m.Fetched, m.Bytes, all)
	}
}
