package run

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// chatScene returns a run on a mixture of two data sets of chats, which a chat template turns into
// tokens.
func chatScene(t *testing.T, extra string) scene {
	t.Helper()
	s := newScene(t, "")
	var rows strings.Builder
	for _, word := range []string{"one", "two", "three", "four", "five", "six"} {
		rows.WriteString(`{"messages":[{"role":"user","content":"say ` + word + `"},{"role":"assistant","content":"` + word + `"}]}` + "\n")
	}
	write(t, filepath.Join(s.root, "a.jsonl"), rows.String())
	write(t, filepath.Join(s.root, "b.json"), `[{"instruction":"say","input":"it","output":"it"},{"instruction":7}]`)
	write(t, filepath.Join(s.root, "chat.jinja"),
		`{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}`)
	return s.with("dataset: a.jsonl,b.json\ndataset_dir: " + s.root + "\ntemplate: " + s.root + "/chat.jinja\nmax_seq_len: 64\n" +
		"mix_strategy: interleave_over\ninterleave_probs: [0.7, 0.3]\nskip_bad_rows: true\nsave_steps: 4\n" + extra).bytes()
}

// bytes returns the scene with a vocabulary of 256 tokens, one per byte, which text needs.
func (s scene) bytes() scene {
	s.yaml = strings.Replace(s.yaml, "vocab_size: 48", "vocab_size: 256", 1)
	return s
}

// TestChats: a run on mixed chats that is interrupted and resumed gives the same bits as an
// uninterrupted run. It saves the chat template beside the model.
func TestChats(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := chatScene(t, "")
	out := want.mustTrain(t)
	if !strings.Contains(out, "skipped 1 bad row(s)") || !strings.Contains(out, "b.json: row 2: ") {
		t.Errorf("the bad row is not told:\n%s", out)
	}
	template, err := os.ReadFile(filepath.Join(want.out, "chat_template.jinja"))
	if err != nil || !strings.HasPrefix(string(template), "{% for m in messages %}") {
		t.Errorf("the saved chat template is %q, %v", template, err)
	}
	got := want.in(t)
	if _, err := got.interrupted(t, func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(5, false, cancel)} }); err == nil {
		t.Fatal("the run is not interrupted")
	}
	got.mustTrain(t)
	sameRun(t, got, want)
}

// TestPackingChangesNoLoss: if a step takes all chats, its loss and gradient do not depend on
// packing or on the division of rows into micro-batches. Chats in one row do not attend to each
// other, and every supervised token has the same weight.
func TestPackingChangesNoLoss(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	whole := "max_steps: 3\nmix_strategy: concat\ninterleave_probs: []\nper_device_train_batch_size: 16\ncompute_dtype: fp32\nsave_steps: 0\n"
	type figures struct {
		Loss     float64
		GradNorm float64 `json:"grad_norm"`
		Tokens   int64
	}
	var want []figures
	for _, how := range []string{"packing: false\n", "packing: true\n", "packing: true\npipeline:\n  micro_batch_tokens: 64\n", "packing: false\npipeline:\n  micro_batch_tokens: 64\n"} {
		s := chatScene(t, "").with(whole + how)
		s.mustTrain(t)
		raw := testkit.Must(os.ReadFile(filepath.Join(s.out, settings.MetricsFile)))(t)
		var got []figures
		for line := range strings.Lines(string(raw)) {
			var f figures
			testkit.NoError(t, json.Unmarshal([]byte(line), &f))
			if f.Tokens > 0 {
				got = append(got, f)
			}
		}
		if want == nil {
			want = got
		}
		if len(got) != 3 || len(want) != 3 {
			t.Fatalf("%s: %d steps, want 3", how, len(got))
		}
		for i, g := range got {
			// The two runs sum about a hundred tokens in different orders in fp32, which makes up
			// to 100 roundings of 2^-24 relative. The factor 2 covers the differences that earlier
			// updates carry on.
			const most = 2 * 100.0 / (1 << 24)
			w := want[i]
			if g.Tokens != w.Tokens || math.Abs(g.Loss-w.Loss) > most*w.Loss || math.Abs(g.GradNorm-w.GradNorm) > most*w.GradNorm {
				t.Errorf("%sstep %d: %+v, want %+v", how, i+1, g, w)
			}
		}
	}
}

// TestSavedTemplates: a run saves the chat templates that its data used beside the model. If the
// template is a directory, all templates in it are saved. Templates of the original model are not.
func TestSavedTemplates(t *testing.T) {
	testkit.NotShort(t)
	first := chatScene(t, "max_steps: 1\n")
	first.mustTrain(t)
	write(t, filepath.Join(first.out, "additional_chat_templates", "rag.jinja"), "{{ documents }}")
	write(t, filepath.Join(first.out, "LICENSE"), "a licence")
	text := testkit.Must(os.ReadFile(filepath.Join(first.out, "chat_template.jinja")))(t)
	folder := filepath.Join(first.root, "templates")
	write(t, filepath.Join(folder, "chat_template.jinja"), string(text))
	write(t, filepath.Join(folder, "additional_chat_templates", "tool_use.jinja"), string(text)+"{# tools #}")
	saved := func(template string) (names string) {
		s := chatScene(t, "max_steps: 1\n").without("model").with("model_name_or_path: " + first.out + "\n" + template)
		s.mustTrain(t)
		for _, name := range []string{"LICENSE", "chat_template.jinja", "additional_chat_templates/rag.jinja", "additional_chat_templates/tool_use.jinja"} {
			if _, err := os.Stat(filepath.Join(s.out, name)); err == nil {
				names += " " + filepath.Base(name)
			}
		}
		return names
	}
	for template, want := range map[string]string{
		"template: null\n": " LICENSE chat_template.jinja rag.jinja",
		"template: " + folder + "/chat_template.jinja\n": " LICENSE chat_template.jinja",
		"template: " + folder + "\n":                     " LICENSE chat_template.jinja tool_use.jinja",
	} {
		if got := saved(template); got != want {
			t.Errorf("%s: the model has%s, want%s", template, got, want)
		}
	}
}
