package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestPackedRecordings: a packed row of two documents gives the loss and gradient of two rows with
// one document each. So attention, convolutions and recurrent states start anew in each document.
func TestPackedRecordings(t *testing.T) {
	testkit.NotShort(t)
	for _, dir := range testkit.Recordings(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			testkit.DrawnInRace(t, 5)
			raw := testkit.Must(os.ReadFile(filepath.Join(dir, "train.jsonl")))(t)
			two := bytes.Join(bytes.SplitAfterN(raw, []byte("\n"), 3)[:2], nil)
			rows := filepath.Join(t.TempDir(), "two.jsonl")
			testkit.NoError(t, os.WriteFile(rows, two, 0o600))
			type figures struct {
				Loss     float64
				GradNorm float64 `json:"grad_norm"`
				Tokens   int64
			}
			var got [2]figures
			for i, how := range []string{"packing: true\nmax_length: 200\nper_device_train_batch_size: 1\n", "packing: false\nper_device_train_batch_size: 2\n"} {
				out := t.TempDir()
				source := fmt.Sprintf("model_name_or_path: %s/model\ndataset: %s\noutput_dir: %s\ncache_dir: %s/cache\nmax_steps: 1\nshuffle: false\ncompute_dtype: fp32\n"+
					"logging_steps: 1\n%s", testkit.Must(filepath.Abs(dir))(t), rows, out, out, how)
				runTrain(t, testkit.Must(config.Parse("run.yaml", []byte(source), config.Args{}))(t), settings.Hooks{})
				line, _, _ := bytes.Cut(testkit.Must(os.ReadFile(filepath.Join(out, settings.MetricsFile)))(t), []byte("\n"))
				testkit.NoError(t, json.Unmarshal(line, &got[i]))
			}
			// Both runs sum about a hundred tokens in fp32 in different orders. The up to 100
			// roundings of 2^-24 relative make 6e-6 together, and the bound is nearly twice that.
			const most = 1e-5
			a, b := got[0], got[1]
			if a.Tokens != b.Tokens || b.Tokens == 0 || !(math.Abs(a.Loss-b.Loss) <= most*b.Loss) || !(math.Abs(a.GradNorm-b.GradNorm) <= most*b.GradNorm) {
				t.Errorf("packed %+v, one by one %+v", a, b)
			}
		})
	}
}
