package doctor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"mt/checkpoint"
	"mt/device"
	"mt/internal/run"
	"mt/internal/run/config"
	"mt/internal/run/settings"
)

// trainBounds limits the relative difference between a loss of the device and the loss of the CPU device, over ten
// steps. In fp32 the two devices sum products in different orders, which changes logits by about 1e-6 and grows a
// little each step. In bf16 activations are rounded to 2^-9 at different places. Recorded bf16 losses stay within a
// percent of fp32 losses.
var trainBounds = map[device.DType]float64{device.F32: 1e-4, device.BF16: 2e-2}

// training makes a short training run on the device and on the CPU device, and compares the losses.
func (r *SelfTestReport) training(o *SelfTestOptions) error {
	if o.Train == nil {
		return nil
	}
	for _, act := range []device.DType{device.F32, device.BF16} {
		on := func(kind string) ([]float64, error) {
			begins := func() { r.starts(fmt.Sprintf("training %s on %s", act, kind)) }
			begins()
			return o.Train(kind, act, begins)
		}
		got, err := on(o.Device.Kind())
		if err != nil {
			return fmt.Errorf("training %s on %s: %w", act, o.Device.Kind(), err)
		}
		want, err := on(o.CPU.Kind())
		if err != nil {
			return fmt.Errorf("training %s on %s: %w", act, o.CPU.Kind(), err)
		}
		c := Check{Name: "training " + act.String(), OK: true}
		if len(got) != len(want) || len(want) == 0 {
			c.errorf("%d steps, the %s device did %d", len(got), o.CPU.Kind(), len(want))
			r.add(c)
			continue
		}
		worst := 0.0
		for i, v := range want {
			e := math.Abs(got[i]-v) / v
			if !(e <= trainBounds[act]) {
				c.errorf("step %d: loss %v, on the %s device %v", i+1, got[i], o.CPU.Kind(), v)
			}
			worst = max(worst, e)
		}
		c.Detail = fmt.Sprintf("%d steps, loss %.4f → %.4f, at most %.2g from the %s device's (allowed %.2g)", len(want), got[0], got[len(got)-1],
			worst, o.CPU.Kind(), trainBounds[act])
		r.add(c)
	}
	return nil
}

// trainSteps is the number of steps on each device.
const trainSteps = 10

// recipe is the config of the training run. It is small, and covers grouped key/value heads, biases, several
// micro-batches, chunks that do not divide them evenly, clipping and recomputation. It has no q/k norm.
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

// TrainSteps returns the Train function for SelfTestOptions. It runs the whole program in a temporary directory, from
// a data file to metrics.jsonl.
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

// steps receives the output of a training run. Each write shows progress, so steps calls alive.
// Otherwise the parent would kill this process.
type steps struct {
	said  bytes.Buffer
	alive func()
}

// Write implements io.Writer.
func (s *steps) Write(b []byte) (int, error) {
	s.alive()
	return s.said.Write(b)
}

// tempName begins the names of the temporary directories that self tests make.
const tempName = "mt-selftest-"

// tempDir creates a temporary directory. It also removes the directories of killed self tests, which it recognises
// because it can lock them. lock is checkpoint.Lock. If lock succeeds twice on our own directory, the system has no
// locks. tempDir then removes nothing, because a directory may still be in use.
func tempDir(lock func(path string) (unlock func(), err error)) (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", tempName); err != nil {
		return "", nil, err
	}
	unlock, err := lock(dir) // held until this process exits
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	remove = func() { _ = os.RemoveAll(dir); unlock() }
	if again, err := lock(dir); err == nil {
		again()
		return dir, remove, nil
	}
	left, _ := os.ReadDir(os.TempDir()) // if it cannot be listed, nothing is removed
	for _, e := range left {
		old := filepath.Join(os.TempDir(), e.Name())
		if _, err := os.Lstat(filepath.Join(old, "rows.jsonl")); err != nil || !strings.HasPrefix(e.Name(), tempName) {
			continue
		}
		if unlock, err := lock(old); err == nil {
			_ = os.RemoveAll(old) // harmless if another user owns it
			unlock()
		}
	}
	return dir, remove, nil
}

// writeRows writes a data set to the file name: rows of different lengths with a pattern that a model can learn.
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
