package testkit

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// RecordingsVariable names the environment variable with another folder of cases to compare with, as
// make.py writes it.
const RecordingsVariable = "MT_FIXTURES"

// families lists the recorded cases of published families that mt trains, one a line.
var families = []string{
	"cohere2",
	"deepseekv3",
	"ernie4_5moe",
	"glm4",
	"glm4moe",
	"glm4moelite",
	"gpt2",
	"gptoss",
	"granite",
	"hunyuandense",
	"hyv3",
	"ministral3",
	"mistral3",
	"mistral3-tied",
	"mixtral",
	"olmo2",
	"olmo3",
	"pythia",
	"qwen25vl",
	"qwen2moe",
	"qwen2vl",
	"qwen3vl",
	"qwen3vlmoe",
	"qwen3vlmoe-out",
	"smollm3",
	"starcoder2",
}

// Recordings are those of FoundRecordings and, where MT_FIXTURES names no folder, those of the repository that have
// all that these have, logits too. There is at least one.
func Recordings(t testing.TB) []string {
	t.Helper()
	found := FoundRecordings(t)
	if os.Getenv(RecordingsVariable) != "" {
		return found
	}
	whole, err := filepath.Glob(filepath.Join(repository(t), "internal/run/testdata/recordings/*/logits.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range whole {
		found = append(found, filepath.Dir(f))
	}
	if len(found) == 0 {
		t.Fatal("no recordings in the repository, which has some")
	}
	return found
}

// FoundRecordings are the folders of all recorded cases whose models mt trains, in a fixed order: those of
// the folder that MT_FIXTURES names, or else those beside the repository, of which there may be none.
func FoundRecordings(t testing.TB) []string {
	t.Helper()
	if dir := os.Getenv(RecordingsVariable); dir != "" {
		found := in(t, dir)
		if len(found) == 0 {
			t.Fatalf("no recordings in %s, which %s names", dir, RecordingsVariable)
		}
		return found
	}
	found := in(t, filepath.Join(shared(t), "fixtures"))
	for _, folder := range []string{"families", "families2026"} {
		for _, dir := range in(t, filepath.Join(shared(t), folder)) {
			if slices.Contains(families, filepath.Base(dir)) {
				found = append(found, dir)
			}
		}
	}
	return found
}

// Recording is the folder of one recorded case beside the repository.
func Recording(t testing.TB, name string) string {
	t.Helper()
	for _, folder := range []string{"fixtures", "families", "families2026"} {
		dir := filepath.Join(shared(t), folder, name)
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
	}
	t.Skipf("the recording %s is not in %s", name, shared(t))
	return ""
}

// in lists the cases of a folder, which may be absent, by their names.
func in(t testing.TB, folder string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*", "recipe.json"))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range found {
		found[i] = filepath.Dir(f)
	}
	return found
}

// shared is the folder beside the repository that has the recordings.
func shared(t testing.TB) string {
	t.Helper()
	return filepath.Join(filepath.Dir(repository(t)), "shared")
}

// repository is the folder with go.mod. Tests run in the folder of their package, below it.
func repository(t testing.TB) string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		up := filepath.Dir(at)
		if up == at {
			t.Fatal("no go.mod above the test")
		}
		at = up
	}
}
