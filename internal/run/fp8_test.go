package run

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// fp8Recording is the recording whose data and recipe train the models in testdata/fp8.
// checkpoint/testdata/fp8.py made these models by quantizing its model.
const fp8Recording = "testdata/recordings/qwen3moe-balanced"

// trainFrom trains the model in dir on the data of fp8Recording, and returns the run's output.
func trainFrom(t *testing.T, dir, out, compute, save string) string {
	t.Helper()
	c := fixtureConfig(t, fp8Recording, out, "compute_dtype: "+compute+"\nsave_strategy: 'no'\n")
	c.Model.Path, c.SaveDType = testkit.Must(filepath.Abs(dir))(t), save
	var said bytes.Buffer
	if err := Train(context.Background(), c, settings.Options{Stdout: &said, Stderr: &said, Hooks: settings.Hooks{FS: lazyFS{checkpoint.OS()}}}); err != nil {
		t.Fatalf("%s: %v\n%s", dir, err, said.String())
	}
	return said.String()
}

// twins trains a quantized model and its twin, an fp32 model with the same dequantized weights. It
// fails unless their losses are equal to the bit, and returns the output of the first run.
func twins(t *testing.T, quantized, twin, saved, fp32, compute string) string {
	t.Helper()
	said := trainFrom(t, quantized, saved, compute, "as_read")
	trainFrom(t, twin, fp32, compute, "fp32")
	got, want := lossesOf(t, saved), lossesOf(t, fp32)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%s in %s: losses %v, want %v", quantized, compute, got, want)
	}
	return said
}

// TestFP8Twin: a model with fp8 weights in blocks trains to the same bits as an fp32 model with the
// same values. The blocks at the edges of its matrices are cut off.
func TestFP8Twin(t *testing.T) {
	testkit.NotShort(t)
	const dir = "testdata/fp8/edge"
	for _, compute := range []string{"fp32", "bf16"} {
		out := t.TempDir()
		said := twins(t, dir, dir+"-twin", filepath.Join(out, "saved"), filepath.Join(out, "fp32"), compute)
		if want := "31 tensors are in fp8 (E4M3): master weights are value × scale, rounded once to fp32; the model is saved in the same format"; !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
		config := func(dir string) string {
			return string(testkit.Must(os.ReadFile(filepath.Join(dir, "config.json")))(t))
		}
		if got := config(filepath.Join(out, "saved")); got != config(dir) {
			t.Errorf("config.json is %s", got)
		}
		w := testkit.Must(checkpoint.OpenWeights(filepath.Join(out, "saved")))(t)
		was := testkit.Must(checkpoint.OpenWeights(dir))(t)
		for _, want := range was.Tensors() {
			if got, ok := w.Tensor(want.Name); !ok || got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) {
				t.Errorf("%s is %v, want %v", want.Name, got, want)
			}
		}
		if len(w.Tensors()) != len(was.Tensors()) {
			t.Errorf("%d tensors, want %d", len(w.Tensors()), len(was.Tensors()))
		}
		w.Close()
		was.Close()
		if said := trainFrom(t, dir, filepath.Join(out, "bf16"), compute, "bf16"); !strings.Contains(said, "the model is saved in bf16, and its config.json has no quantization_config") {
			t.Errorf("it does not say how the model is saved:\n%s", said)
		}
		if got := config(filepath.Join(out, "bf16")); strings.Contains(got, "quantization_config") || !strings.Contains(got, `"bfloat16"`) {
			t.Errorf("config.json is %s", got)
		}
	}
}

// TestFP8IsTransformers: a model that Transformers' code has quantized trains as its fp32 twin
// does. With save_dtype: as_read, mt saves the same bytes as Transformers' code makes of the
// trained weights, and Transformers loads them.
func TestFP8IsTransformers(t *testing.T) {
	testkit.NotShort(t)
	python := testkit.NeedPython(t, "torch", "transformers", "safetensors")
	const script = "../../checkpoint/testdata/fp8.py"
	top := t.TempDir()
	testkit.RunPython(t, python, script, "quantise", fp8Recording+"/model", top)
	for _, form := range []string{"block", "edge", "tensor", "channel"} {
		for _, compute := range []string{"bf16", "fp32"} {
			saved, fp32 := filepath.Join(top, form+"-saved"), filepath.Join(top, form+"-fp32")
			if compute == "bf16" {
				saved, fp32 = saved+compute, fp32+compute
			}
			said := twins(t, filepath.Join(top, form), filepath.Join(top, form+"-twin"), saved, fp32, compute)
			if scales := "31 scales of activations are not used"; strings.Contains(said, scales) != (form == "tensor") {
				t.Errorf("%s: %s", form, said)
			}
		}
	}
	got := string(testkit.RunPython(t, python, script, "check", top))
	if want := "block 31 of 31\nedge 31 of 31\ntensor 31 of 31\nchannel 31 of 31\n"; got != want {
		t.Errorf("got %swant %s", got, want)
	}
	python = testkit.NeedPython(t, "accelerate")
	testkit.RunPython(t, python, script, "load", filepath.Join(top, "block-saved"))
}
