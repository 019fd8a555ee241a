package testkit

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// RecordingsVariable is the environment variable that names a folder of recordings to use instead of the usual ones. It
// must have the format that make.py writes.
const RecordingsVariable = "MT_FIXTURES"

// families lists the cases in the folder "families" beside the repository whose models mt can train.
var families = []string{
	"afmoe",
	"apertus",
	"cohere2",
	"deepseekv3",
	"ernie4_5moe",
	"falconh1",
	"gemma4",
	"gemma4-e",
	"gemma4-moe",
	"glm4",
	"glm4moe",
	"glm4moelite",
	"gpt2",
	"gptoss",
	"granite",
	"granitehybrid",
	"hunyuandense",
	"glmmoedsa",
	"hyv3",
	"kimilinear",
	"lfm2",
	"ministral3",
	"mistral3",
	"mistral3-tied",
	"minimaxm2",
	"mixtral",
	"nemotronh",
	"olmo2",
	"olmo3",
	"pythia",
	"qwen25vl",
	"qwen2moe",
	"qwen2vl",
	"qwen3_5",
	"qwen3_5moe",
	"qwen3vl",
	"qwen3vlmoe",
	"qwen3vlmoe-out",
	"smollm3",
	"starcoder2",
}

// Recordings returns the folders of FoundRecordings. Unless MT_FIXTURES names a folder, it adds the complete recordings
// within the repository, which have logits. There is at least one.
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

// FoundRecordings returns the folders of all recorded cases whose models mt can train, in a fixed order. They are in
// the folder that MT_FIXTURES names, or else in the folders beside the repository, where there may be none.
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

// Recording returns the folder of one recorded case beside the repository. The test is skipped if it is missing.
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

// in returns the paths of the cases in a folder, sorted by name; none if the folder is missing.
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

// shared returns the folder beside the repository that has the recordings.
func shared(t testing.TB) string {
	t.Helper()
	return filepath.Join(filepath.Dir(repository(t)), "shared")
}

// repository returns the folder with go.mod. A test's working directory is its package's folder, below it.
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
