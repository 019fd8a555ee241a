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
	"mt/internal/run"
	"mt/internal/run/settings"
)

// trainSteps is how many steps the two devices do.
const trainSteps = 10

// recipe is the training run. It is small, and has grouped heads, biases, several
// micro-batches, chunks whose size does not divide them, clipping and
// recomputation. It has no q/k norm.
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

// TrainSteps makes the Train of Options. It runs the whole program in a temporary
// directory, from a data file to metrics.jsonl.
func TrainSteps(ctx context.Context) func(kind string, dtype device.DType, alive func()) ([]float64, error) {
	return func(kind string, dtype device.DType, alive func()) (losses []float64, err error) {
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
		log := steps{alive: alive}
		if err := run.Train(ctx, c, settings.Options{Stdout: io.Discard, Stderr: &log}); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, log.said.String())
		}
		return readLosses(filepath.Join(out, "metrics.jsonl"))
	}
}

// steps keeps what a run says. Each step is a sign of life.
type steps struct {
	said  bytes.Buffer
	alive func()
}

// Write implements io.Writer.
func (s *steps) Write(b []byte) (int, error) {
	s.alive()
	return s.said.Write(b)
}

// tempName is what the names of our temporary directories begin with.
const tempName = "mt-selftest-"

// tempDir makes a temporary directory, and removes those that killed self tests
// left behind: those whose lock it can take. lock is checkpoint.Lock. Where lock
// gives us our own directory a second time, this system has no locks, and what was
// left may still be in use.
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
			_ = os.RemoveAll(old) // that of another user may not be removable, which does no harm
			unlock()
		}
	}
	return dir, remove, nil
}

// writeRows writes rows of different lengths, with a pattern that can be learnt.
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
