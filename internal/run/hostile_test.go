package run

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// pipeAt returns a function that replaces the file name of the model directory m by a named pipe
// without a writer. Reading it would block.
func pipeAt(name string) func(t *testing.T, s, m string) {
	return func(t *testing.T, _, m string) {
		_ = os.Remove(filepath.Join(m, name)) // it may not be there
		testkit.NoError(t, syscall.Mkfifo(filepath.Join(m, name), 0o600))
	}
}

// linkAt returns a function that replaces the file name of the model directory by a symbolic link
// to the path `to`. In to, ROOT stands for the folder of the scene.
func linkAt(name, to string) func(t *testing.T, s, m string) {
	return func(t *testing.T, s, m string) {
		write(t, filepath.Join(s, "secret"), "secret")
		_ = os.Remove(filepath.Join(m, name)) // it may not be there
		testkit.NoError(t, os.Symlink(strings.ReplaceAll(to, "ROOT", s), filepath.Join(m, name)))
	}
}

// foreign returns a function that puts files into the folder mine, the run's output directory. They
// belong to no run.
func foreign(files ...string) func(t *testing.T, s, m string) {
	return func(t *testing.T, s, _ string) {
		for _, name := range files {
			write(t, filepath.Join(s, "mine", name), "not a run's")
		}
	}
}

// withText returns a function that applies spoil and also writes a text data set, which makes the
// run read the tokenizer.
func withText(spoil func(t *testing.T, s, m string)) func(t *testing.T, s, m string) {
	return func(t *testing.T, s, m string) {
		write(t, filepath.Join(s, "text.txt"), "words")
		spoil(t, s, m)
	}
}

// hostileInputs are model directories made to do harm, and output directories that belong to
// somebody else.
var hostileInputs = map[string]badInput{
	"config.json a device":    {spoil: linkAt("config.json", "/dev/zero"), says: []string{"model/config.json: it is a device, not a file"}},
	"config.json a pipe":      {spoil: pipeAt("config.json"), says: []string{"model/config.json: it is a pipe, not a file"}},
	"config.json too long":    {spoil: func(t *testing.T, _, m string) { truncate(t, filepath.Join(m, "config.json"), 1<<40) }, says: []string{"model/config.json: 1.0 TiB long; at most 16 MiB is expected"}},
	"tokenizer.json a device": {extra: "dataset: ROOT/text.txt\n", spoil: withText(linkAt("tokenizer.json", "/dev/zero")), says: []string{"model/tokenizer.json: it is a device, not a file"}},
	"tokenizer.json a pipe":   {extra: "dataset: ROOT/text.txt\n", spoil: withText(pipeAt("tokenizer.json")), says: []string{"model/tokenizer.json: it is a pipe, not a file"}},
	"weights a pipe":          {spoil: pipeAt("model.safetensors"), says: []string{"model/model.safetensors: it is a pipe, not a file"}},
	"weights a device":        {spoil: linkAt("model.safetensors", "/dev/zero"), says: []string{"model/model.safetensors: it is a device, not a file"}},
	"index a pipe": {spoil: func(t *testing.T, s, m string) {
		remove(t, filepath.Join(m, "model.safetensors"))
		pipeAt("model.safetensors.index.json")(t, s, m)
	}, says: []string{"model.safetensors.index.json: it is a pipe, not a file"}},
	"licence a link out":           {spoil: linkAt("LICENSE", "ROOT/secret"), says: []string{"model/LICENSE: a link to ", "/secret, outside of the model directory", "put the file itself there"}},
	"licence a link out, relative": {spoil: linkAt("LICENSE", "../secret"), says: []string{"model/LICENSE: a link to ", "/secret, outside of the model directory"}},
	"code a link out":              {spoil: linkAt("modeling_x.py", "/etc/passwd"), says: []string{"model/modeling_x.py: a link to /etc/passwd, outside of the model directory"}},
	"templates a link out": {spoil: func(t *testing.T, s, m string) {
		write(t, filepath.Join(s, "others", "rag.jinja"), "{{ 1 }}")
		linkAt("additional_chat_templates", "ROOT/others")(t, s, m)
	}, says: []string{"model/additional_chat_templates: a link to ", "/others, outside of the model directory"}},
	"a template a link out": {spoil: func(t *testing.T, s, m string) {
		write(t, filepath.Join(m, "additional_chat_templates", "rag.jinja"), "{{ 1 }}")
		linkAt("additional_chat_templates/tool_use.jinja", "ROOT/secret")(t, s, m)
	}, says: []string{"tool_use.jinja: a link to ", "/secret, outside of the model directory"}},
	"config.json a link out": {spoil: func(t *testing.T, s, m string) {
		move(t, filepath.Join(m, "config.json"), filepath.Join(s, "c.json"))
		linkAt("config.json", "../c.json")(t, s, m)
	}, says: []string{"model/config.json: a link to ", "/c.json, outside of the model directory"}},
	"output is a model":          {extra: "output_dir: ROOT/mine\n", spoil: foreign("config.json", "model.safetensors"), usage: true, says: []string{"run.yaml:", "output_dir", "/mine holds config.json, which no run of mt made", "overwrite_output_dir: true"}},
	"output has a foreign shard": {extra: "output_dir: ROOT/mine\n", spoil: foreign("model-00001-of-00002.safetensors"), usage: true, says: []string{"holds model-00001-of-00002.safetensors", "overwrite_output_dir: true"}},
	"output has an ema":          {extra: "output_dir: ROOT/mine\n", spoil: foreign("ema/model.safetensors"), usage: true, says: []string{"holds ema", "overwrite_output_dir: true"}},
	"output has a config.yaml":   {extra: "output_dir: ROOT/mine\n", spoil: foreign("config.yaml"), usage: true, says: []string{"holds config.yaml", "overwrite_output_dir: true"}},
	"output of Transformers":     {extra: "output_dir: ROOT/mine\n", spoil: foreign("checkpoint-500/trainer_state.json"), usage: true, says: []string{"holds checkpoint-500", "overwrite_output_dir: true"}},
	"output has templates":       {extra: "output_dir: ROOT/mine\n", spoil: foreign("additional_chat_templates/rag.jinja"), usage: true, says: []string{"holds additional_chat_templates", "overwrite_output_dir: true"}},
	"output, a companion": {extra: "output_dir: ROOT/mine\n", spoil: func(t *testing.T, s, m string) {
		write(t, filepath.Join(m, "vocab.json"), "{}")
		foreign("vocab.json")(t, s, m)
	}, usage: true, says: []string{"holds vocab.json", "overwrite_output_dir: true"}},
}

func move(t *testing.T, from, to string) {
	t.Helper()
	testkit.NoError(t, os.Rename(from, to))
}

// TestForeignFilesStay: a run trains into a directory with unrelated files and keeps them. If the
// directory holds a model, the run needs overwrite_output_dir.
func TestForeignFilesStay(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "")
	stay := []string{"LICENSE", "checkpoint-9.tmp-mine/x", "model.tmp-mine/x", "model.tmp-5", "notes.txt", "vocab.json"}
	for _, name := range stay {
		write(t, filepath.Join(s.out, name), "mine")
	}
	check := func() {
		t.Helper()
		for _, name := range stay {
			if got, err := os.ReadFile(filepath.Join(s.out, name)); err != nil || string(got) != "mine" {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
	s.mustTrain(t)
	check()
	s.with("seed: 2\nresume_from_checkpoint: false\n").mustTrain(t) // the mark is enough
	check()

	model := s.in(t)
	write(t, filepath.Join(model.out, "config.json"), "mine")
	if _, err := model.train(t, t.Context(), settings.Hooks{}); err == nil {
		t.Error("somebody's model is overwritten")
	}
	model.with("overwrite_output_dir: true\n").mustTrain(t)
}

// TestRunsAreRecognised: mt recognises a directory as a run's output in every state in which a run
// can leave it, also a run of an older version.
func TestRunsAreRecognised(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "save_steps: 4\n")
	s.mustTrain(t)
	for name, tc := range map[string]struct {
		keep []string // of what the run left
		run  bool
	}{
		"all":                  {[]string{"config.yaml", "metrics.jsonl", "config.json", "model.safetensors", "checkpoint-4", "checkpoint-8"}, true},
		"the model and a mark": {[]string{"config.yaml", "config.json", "model.safetensors"}, true},
		"checkpoints alone":    {[]string{"checkpoint-4", "metrics.jsonl"}, true},
		"the model alone":      {[]string{"config.json", "model.safetensors"}, false},
		"metrics of something": {[]string{"metrics.jsonl"}, false},
		"nothing":              {nil, true},
	} {
		got := s.in(t)
		for _, keep := range tc.keep {
			from := filepath.Join(s.out, keep)
			if st, err := os.Stat(from); err == nil && st.IsDir() {
				copyTree(t, from, filepath.Join(got.out, keep))
				continue
			}
			raw := testkit.Must(os.ReadFile(from))(t)
			write(t, filepath.Join(got.out, keep), string(raw))
		}
		if err := got.opens(t); (err == nil) != tc.run {
			t.Errorf("%s: %v", name, err)
		}
		if slices.Contains(tc.keep, "checkpoint-4") { // one of the two marks of a checkpoint is enough
			for _, gone := range []string{"manifest.json", "config.yaml"} {
				half := got.in(t)
				copyTree(t, filepath.Join(s.out, "checkpoint-4"), filepath.Join(half.out, "checkpoint-4"))
				remove(t, filepath.Join(half.out, "checkpoint-4", gone))
				if err := half.opens(t); err != nil {
					t.Errorf("without %s: %v", gone, err)
				}
			}
		}
	}
}

// TestHubCache: a snapshot of the Hugging Face cache, whose files link to blobs, is a model like any other. The files
// beside its weights are saved with the run.
func TestHubCache(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := withModel(t)
	repo := filepath.Join(s.root, "hub", "models--a--b")
	snapshot := filepath.Join(repo, "snapshots", "1234")
	write(t, filepath.Join(repo, "blobs", "ffff"), "a licence")
	testkit.NoError(t, os.MkdirAll(snapshot, 0o755))
	for name, blob := range map[string]string{"config.json": "aaaa", "model.safetensors": "bbbb"} {
		move(t, filepath.Join(s.root, "model", name), filepath.Join(repo, "blobs", blob))
		linkAt(name, "../../blobs/"+blob)(t, s.root, snapshot)
	}
	linkAt("LICENSE", "../../blobs/ffff")(t, s.root, snapshot)
	linkAt("NOTICE", "LICENSE")(t, s.root, snapshot) // inside
	want := map[string]string{"LICENSE": "a licence", "NOTICE": "a licence"}
	write(t, filepath.Join(repo, "blobs", "eeee"), "{{ tools }}")
	write(t, filepath.Join(snapshot, "additional_chat_templates", "rag.jinja"), "{{ documents }}")
	linkAt("additional_chat_templates/tool_use.jinja", "../../../blobs/eeee")(t, s.root, snapshot)
	want["additional_chat_templates/rag.jinja"], want["additional_chat_templates/tool_use.jinja"] = "{{ documents }}", "{{ tools }}"
	for _, name := range []string{"processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"} { // of a model that sees
		want[name] = `{"what": "` + name + `"}`
		write(t, filepath.Join(snapshot, name), want[name])
	}
	s.with("model_name_or_path: " + snapshot + "\nsave_steps: 4\n").mustTrain(t)
	saved := filepath.Join(s.out, "checkpoint-4")
	for name, text := range want {
		for _, dir := range []string{s.out, saved} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
				t.Errorf("%s in %s: %q, %v", name, filepath.Base(dir), got, err)
			}
		}
	}
	if err := checkpoint.Verify(saved); err != nil {
		t.Error(err)
	}
}
