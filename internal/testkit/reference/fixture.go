package reference

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"

	"mt/model"
)

// Fixture is a recorded training run of Transformers: its model, its data and the results of its first step.
type Fixture struct {
	Config  *model.Config
	Weights Weights    // before training
	Plain   Weights    // Weights under the names that type Weights documents
	Rows    []Sequence // in file order
	PerStep int        // rows per step
	// Loss and GradNorm are from step 1, before clipping. LossBound and NormBound are the relative deviations allowed
	// in an fp32 run.
	Loss, GradNorm, LossBound, NormBound float64
	Logits                               [2][]float64 // (T, V) of the first two rows
}

// LoadFixture reads the recorded run in the folder dir.
func LoadFixture(dir string) (*Fixture, error) {
	f := &Fixture{}
	for _, read := range []func(string) error{f.readModel, f.readRows, f.readExpected, f.readLogits} {
		if err := read(dir); err != nil {
			return nil, fmt.Errorf("fixture %s: %w", dir, err)
		}
	}
	return f, nil
}

func (f *Fixture) readModel(dir string) (err error) {
	f.Config, f.Weights, f.Plain, err = LoadModel(filepath.Join(dir, "model"))
	return err
}

// LoadModel reads a model directory in fp32. w has the tensors under the directory's names, plain under the names that
// type Weights documents.
func LoadModel(dir string) (c *model.Config, w, plain Weights, err error) {
	if c, err = model.LoadDir(dir); err != nil {
		return nil, nil, nil, err
	}
	shards, err := filepath.Glob(filepath.Join(dir, "model*.safetensors"))
	if err != nil {
		return nil, nil, nil, err
	}
	w = Weights{}
	for _, s := range shards {
		if err := readTensors(s, w); err != nil {
			return nil, nil, nil, err
		}
	}
	w.separate(c)
	return c, w, w.plain(c), nil
}

// plain returns the same weights under Llama's tensor names, which this package uses for all families. w has the names
// of c's family.
func (w Weights) plain(c *model.Config) Weights {
	var plain model.Config
	out := Weights{}
	from, to := reflect.ValueOf(c).Elem(), reflect.ValueOf(&plain).Elem()
	for i := range from.NumField() {
		if from.Type().Field(i).IsExported() {
			to.Field(i).Set(from.Field(i))
		}
	}
	layers := c.Layers()
	for i, l := range plain.Layers() {
		for k, p := range l.Params {
			var all []float64
			for _, s := range layers[i].Params[k].Stored {
				all = append(all, w[s.Name]...)
			}
			for _, s := range p.Stored {
				out[s.Name] = all[s.Row*p.Cols : (s.Row+s.Rows)*p.Cols]
			}
		}
	}
	return out
}

// separate adds tensors to w for rows that the checkpoint keeps inside a larger tensor, or transposed: each under its
// own name, as (rows, columns).
func (w Weights) separate(c *model.Config) {
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			for i, s := range p.Stored {
				if in := w[s.Place.Tensor]; in != nil {
					out := make([]float64, s.Rows*p.Cols)
					for k := range out {
						out[k] = in[p.ElemAt(i, k/p.Cols, k%p.Cols)]
					}
					w[s.Name] = out
				}
			}
		}
	}
}

func (f *Fixture) readLogits(dir string) error {
	w := Weights{}
	err := readTensors(filepath.Join(dir, "logits.safetensors"), w)
	f.Logits = [2][]float64{w["row0"], w["row1"]}
	return err
}

// readTensors adds the F32 tensors of a safetensors file to w.
func readTensors(file string, w Weights) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if len(raw) < 8 {
		return fmt.Errorf("%s: %d bytes are no safetensors file", file, len(raw))
	}
	n := binary.LittleEndian.Uint64(raw)
	header := map[string]struct {
		DType   string   `json:"dtype"`
		Offsets [2]int64 `json:"data_offsets"`
	}{}
	if err := json.Unmarshal(raw[8:8+n], &header); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for name, h := range header {
		if h.DType != "F32" {
			continue // __metadata__
		}
		data := raw[8+n:][h.Offsets[0]:h.Offsets[1]]
		v := make([]float64, len(data)/4)
		for i := range v {
			v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
		}
		w[name] = v
	}
	return nil
}

func (f *Fixture) readRows(dir string) error {
	file, err := os.Open(filepath.Join(dir, "train.jsonl"))
	if err != nil {
		return err
	}
	defer file.Close()
	for in := json.NewDecoder(file); ; {
		var row struct {
			IDs    []int32 `json:"input_ids"`
			Labels []int32 `json:"labels"`
		}
		if err := in.Decode(&row); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		targets := make([]int32, len(row.IDs))
		copy(targets, row.Labels[1:])
		targets[len(targets)-1] = -100
		f.Rows = append(f.Rows, Sequence{IDs: row.IDs, Targets: targets})
	}
}

func (f *Fixture) readExpected(dir string) error {
	var recipe struct {
		Rows int `json:"rows_per_step"`
	}
	var e struct {
		Bounds struct {
			FP32 struct {
				Loss     float64 `json:"loss"`
				GradNorm float64 `json:"grad_norm"`
			} `json:"fp32"`
		} `json:"bounds"`
		Steps []struct {
			Loss     float64 `json:"loss"`
			GradNorm float64 `json:"grad_norm"`
		} `json:"steps"`
	}
	for name, into := range map[string]any{"recipe.json": &recipe, "expected.json": &e} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	f.PerStep = recipe.Rows
	f.Loss, f.GradNorm = e.Steps[0].Loss, e.Steps[0].GradNorm
	f.LossBound, f.NormBound = e.Bounds.FP32.Loss, e.Bounds.FP32.GradNorm
	return nil
}
