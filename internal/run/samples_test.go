package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/report"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// textScene returns a run of 8 steps on a text whose tokens are its bytes.
func textScene(t *testing.T, extra string) scene {
	t.Helper()
	s := newScene(t, "")
	text := filepath.Join(s.root, "text.txt")
	write(t, text, strings.Repeat("to be or not to be, that is the question. ", 40))
	return s.with("dataset: " + text + "\nval_size: 2\nmodel:\n  hidden_size: 16\n  intermediate_size: 24\n  num_hidden_layers: 2\n  num_attention_heads: 2\n" +
		"  num_key_value_heads: 1\n  vocab_size: 512\n  max_position_embeddings: 64\n" + extra)
}

// samples returns the lines of samples.jsonl.
func (s scene) samples(t *testing.T) (out []report.SampleLine) {
	t.Helper()
	raw := testkit.Must(os.ReadFile(filepath.Join(s.out, settings.SamplesFile)))(t)
	for line := range bytes.Lines(raw) {
		var l report.SampleLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, l)
	}
	return out
}

const sampling = "sample_steps: 3\nsample_prompts: [\"to be, \", not]\nsample_max_new_tokens: 5\nlogging_steps: 2\neval_steps: 3\n"

// TestSamples: a run generates samples at the steps that sample_steps gives. They change no bit of
// its weights and losses, with weights in place and copied.
func TestSamples(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for _, keys := range []string{"", "binding: copy\npipeline: {weight_slots: 1}\nmax_grad_norm: 0\n"} {
		with := textScene(t, sampling).with(keys)
		out := with.mustTrain(t)
		got := with.samples(t)
		var at []int
		for _, l := range got {
			at = append(at, l.Step)
			if l.Text == "" || !strings.Contains(out, l.Text) {
				t.Errorf("%+v is not printed", l)
			}
		}
		if !slices.Equal(at, []int{3, 3, 6, 6}) || got[0].Prompt != "to be, " || got[1].Prompt != "not" {
			t.Errorf("samples %+v", got)
		}
		if got[0].Text == got[2].Text && got[1].Text == got[3].Text {
			t.Error("the model says the same after three more steps")
		}
		without := with.in(t).with("sample_steps: 0\n")
		without.mustTrain(t)
		testkit.NoError(t, os.Remove(filepath.Join(with.out, settings.SamplesFile)))
		sameRun(t, with, without)
	}
}

// TestSamplesAreResumed: a run that is interrupted at any point, also while it generates samples,
// has after its resume the same samples as an uninterrupted run, each once.
func TestSamplesAreResumed(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := textScene(t, sampling+"save_steps: 3\nsave_total_limit: 3\n")
	want.mustTrain(t)
	for name, h := range map[string]func(cancel func()) settings.Hooks{
		"in samples": func(cancel func()) settings.Hooks {
			return settings.Hooks{Sampling: func(int) { cancel() }}
		},
		"after samples": func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(5, false, cancel)} },
		"in the second samples": func(cancel func()) settings.Hooks {
			return settings.Hooks{Sampling: func(step int) {
				if step == 6 {
					cancel()
				}
			}}
		},
	} {
		for _, keys := range []string{"", "save_steps: 100\n"} { // samples are cut off at a step that is not saved
			if keys != "" && name != "in samples" {
				continue
			}
			got := want.in(t)
			got = got.with("cache_dir: " + filepath.Dir(got.out) + "/cache\n" + keys)
			out, err := got.interrupted(t, h)
			if !errors.Is(err, settings.ErrResumable) {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			if cut := strings.Contains(out, "were cut off and come first when the run goes on"); cut != strings.HasPrefix(name, "in ") {
				t.Errorf("%s: %s", name, out)
			}
			// A killed run may leave half a line, and lines of steps that the resumed run makes
			// again.
			f, err := os.OpenFile(filepath.Join(got.out, settings.SamplesFile), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("{\"step\":7,\"prompt\":\"\",\"text\":\"\"}\n{\"step\":3,\"pro")
				f.Close()
			}
			testkit.NoError(t, err)
			if out := got.mustTrain(t); !strings.Contains(out, "resuming from") {
				t.Errorf("%s: begun again\n%s", name, out)
			}
			if keys != "" {
				if a, b := got.samples(t), want.samples(t); !slices.Equal(a, b) {
					t.Errorf("%s: samples %+v, want %+v", name, a, b)
				}
				continue
			}
			sameRun(t, got, want)
		}
	}
}

// TestSamplesNobodyCanWrite: if samples.jsonl can no longer be written, the run prints one note and
// continues.
func TestSamplesNobodyCanWrite(t *testing.T) {
	testkit.NotShort(t)
	s := textScene(t, sampling).with("sample_steps: 1\n")
	out, err := s.train(t, t.Context(), settings.Hooks{FS: noSamplesFS{lazyFS{checkpoint.OS()}}})
	if err != nil || strings.Count(out, "training goes on, and samples are only printed") != 1 || strings.Count(out, "sample of \"not\"") != 8 {
		t.Errorf("%v\n%s", err, out)
	}
}

// noSamplesFS is a disk that is full for SamplesFile alone.
type noSamplesFS struct{ lazyFS }

func (f noSamplesFS) Append(path string) (checkpoint.Log, error) {
	l, err := f.lazyFS.Append(path)
	if filepath.Base(path) == settings.SamplesFile && err == nil {
		return fullLog{l}, nil
	}
	return l, err
}

type fullLog struct{ checkpoint.Log }

func (fullLog) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestSamplesAsked: prompts that the model cannot continue, such as one as long as a row, are
// refused before the run begins.
func TestSamplesAsked(t *testing.T) {
	_, err := newScene(t, sampling).train(t, t.Context(), settings.Hooks{})
	checkError(t, err, true, "sample_steps: there is no tokenizer for sample_prompts")
	_, err = textScene(t, sampling).with("sample_prompts: "+strings.Repeat("x", 64)+"\n").train(t, t.Context(), settings.Hooks{})
	checkError(t, err, true, "it has 64 tokens and the model has 64 positions (max_position_embeddings)")
}

// TestChatSamples: if the data is chats, a sample prompt is formatted by the chat template.
func TestChatSamples(t *testing.T) {
	s := textScene(t, "")
	chats := filepath.Join(s.root, "chats.jsonl")
	write(t, chats, strings.Repeat(`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]}`+"\n", 9))
	j := openScene(t, s.with("dataset: "+chats+"\ntemplate: chatml\nnew_special_tokens: [\"<|im_start|>\", \"<|im_end|>\"]\nmax_seq_len: 64\n"+sampling))
	prompts := j.Prompts
	want := "user\nnot\nassistant\n" // decoded without special tokens
	if got := j.Tokenizer.Decode(prompts[1].IDs); string(got) != want || len(prompts[1].Ends) == 0 {
		t.Errorf("%q ends with %v, want %q", got, prompts[1].Ends, want)
	}
}
