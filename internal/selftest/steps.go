package selftest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"mt/checkpoint"
	"mt/device"
	"mt/internal/config"
	"mt/internal/train"
)

// trainSteps is how many steps the two devices do.
const trainSteps = 10

// recipe is the run: small, but with grouped heads, q/k norm's absence made up
// for by biases, several micro-batches, chunks that do not divide them, clipping
// and recomputation.
const recipe = `
model: {hidden_size: 128, intermediate_size: 352, num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, attention_bias: true, initializer_range: 0.05}
dataset: %s
dataset_format: jsonl
packing: false
shuffle: false
max_seq_len: 96
per_device_train_batch_size: 6
max_steps: %d
learning_rate: 0.003
warmup_steps: 2
max_grad_norm: 1.0
logging_steps: 1
recompute: full
seed: 3
device: %s
compute_dtype: %s
output_dir: %s
cache_dir: %s
pipeline: {micro_batch_tokens: 200, chunk_tokens: 72}
`

// TrainSteps is the Train of Options: the whole program, from a data file to
// metrics.jsonl, in a temporary directory.
func TrainSteps(ctx context.Context) func(kind string, dtype device.DType) ([]float64, error) {
	return func(kind string, dtype device.DType) (losses []float64, err error) {
		dir, remove, err := tempDir(checkpoint.Lock)
		if err != nil {
			return nil, err
		}
		defer remove()
		rows, out := filepath.Join(dir, "rows.jsonl"), filepath.Join(dir, "out")
		if err := writeRows(rows); err != nil {
			return nil, err
		}
		text := fmt.Sprintf(recipe, rows, trainSteps, kind, dtype, out, filepath.Join(dir, "cache"))
		c, err := config.Parse("the self test's configuration", []byte(text), config.Args{})
		if err != nil {
			return nil, err
		}
		var log bytes.Buffer
		if err := train.Train(ctx, c, train.Options{Stdout: io.Discard, Stderr: &log}); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, log.String())
		}
		return readLosses(filepath.Join(out, "metrics.jsonl"))
	}
}

// tempName begins the names of our temporary directories.
const tempName = "mt-selftest-"

// tempDir makes a temporary directory, and removes those that killed tests left:
// those that lock, checkpoint.Lock, gives. Where it gives our own a second time
// there are no locks, and what is left may be in use.
func tempDir(lock func(path string) (unlock func(), err error)) (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", tempName); err != nil {
		return "", nil, err
	}
	unlock, err := lock(dir) // ours until the end of this process
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	remove = func() { _ = os.RemoveAll(dir); unlock() }
	if again, err := lock(dir); err == nil {
		again()
		return dir, remove, nil
	}
	left, _ := os.ReadDir(os.TempDir()) // where it cannot be listed, nothing is removed
	for _, e := range left {
		old := filepath.Join(os.TempDir(), e.Name())
		if _, err := os.Lstat(filepath.Join(old, "rows.jsonl")); err != nil || !strings.HasPrefix(e.Name(), tempName) {
			continue
		}
		if unlock, err := lock(old); err == nil {
			_ = os.RemoveAll(old) // another's may not be removed, and need not
			unlock()
		}
	}
	return dir, remove, nil
}

// writeRows writes rows of different lengths over a pattern that can be learnt.
func writeRows(name string) error {
	r := rand.New(rand.NewPCG(5, 6))
	var b bytes.Buffer
	for range 6 * trainSteps {
		ids := make([]int, 20+r.IntN(77))
		at := r.IntN(256)
		for i := range ids {
			ids[i] = at
			at = (at*5 + 17 + r.IntN(3)) % 256
		}
		raw, err := json.Marshal(map[string][]int{"input_ids": ids})
		if err != nil {
			return err
		}
		b.Write(append(raw, '\n'))
	}
	return os.WriteFile(name, b.Bytes(), 0o600)
}

func readLosses(name string) ([]float64, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []float64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var m struct {
			Step int     `json:"step"`
			Loss float64 `json:"loss"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if m.Step > len(out) {
			out = append(out, m.Loss)
		}
	}
	return out, lines.Err()
}
