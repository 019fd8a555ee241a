package run

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// withTower adds a second weight file with one tensor to the model directory dir. mt does not train
// this tensor, like those of a vision tower.
func withTower(t *testing.T, dir, data string) {
	t.Helper()
	w := testkit.Must(checkpoint.OpenWeights(dir))(t)
	const weights, tower = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	where := map[string]string{"vision_tower.x": tower}
	for _, x := range w.Tensors() {
		where[x.Name] = weights
	}
	w.Close()
	testkit.NoError(t, os.Rename(filepath.Join(dir, "model.safetensors"), filepath.Join(dir, weights)))
	header := `{"vision_tower.x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`
	write(t, filepath.Join(dir, tower), string(binary.LittleEndian.AppendUint64(nil, uint64(len(header))))+header+data)
	index := testkit.Must(json.Marshal(map[string]any{"weight_map": where}))(t)
	write(t, filepath.Join(dir, "model.safetensors.index.json"), string(index))
}

// TestStaleNote: a run says which tensors it copies without training. It warns that those of
// multi-token prediction are stale afterwards, because they fit the old weights.
func TestStaleNote(t *testing.T) {
	testkit.NotShort(t)
	var out bytes.Buffer
	c := fixtureConfig(t, "testdata/recordings/qwen35vl", t.TempDir(), "")
	testkit.NoError(t, Train(t.Context(), c, settings.Options{Stdout: &out, Stderr: &out}))
	for _, want := range []string{"tensors that are not trained, such as model.visual.", "3 tensors of multi-token prediction, such as mtp.fc.weight: they are saved as they are, and are stale"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

// TestSourceDisappears: a run needs its model's directory only at the start. Models saved after the directory is gone
// still have the tensors that are not trained. A run that starts then reports what is missing.
func TestSourceDisappears(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	first := newScene(t, "max_steps: 1\n")
	first.mustTrain(t)
	const data = "not mine"
	withTower(t, first.out, data)
	s := newScene(t, "save_steps: 1\nmax_steps: 3\n").in(t)
	s.yaml = strings.Replace(s.yaml, tinyModel, "model_name_or_path: "+first.out+"\n", 1)
	out, err := s.train(t, t.Context(), settings.Hooks{Stepped: func(step int) {
		if step == 1 {
			if err := os.RemoveAll(first.out); err != nil {
				t.Error(err)
			}
		}
	}})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, dir := range []string{s.out, filepath.Join(s.out, settings.CheckpointName(3))} {
		w := testkit.Must(checkpoint.OpenWeights(dir))(t)
		x, ok := w.Tensor("vision_tower.x")
		w.Close()
		if raw, err := os.ReadFile(filepath.Join(dir, x.File)); !ok || err != nil || !strings.HasSuffix(string(raw), data) {
			t.Errorf("%s: %+v, %v", dir, x, err)
		}
	}
	_, err = s.with("max_steps: 4\n").train(t, t.Context(), settings.Hooks{})
	if err == nil || !strings.Contains(err.Error(), first.out+": no such directory") {
		t.Errorf("got %v", err)
	}
}
