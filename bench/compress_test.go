package bench

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/host"
	"mt/host/optim"
	"mt/internal/config"
	"mt/internal/long"
	"mt/internal/train"
	"mt/model"
)

// Every way gives back what it was given, for both sizes of elements and odd numbers of
// them, and a codec that does not is found out.
func names(all []codec) (out []string) {
	for _, c := range all {
		out = append(out, c.name)
	}
	return out
}

func TestWaysGiveBackWhatTheyGot(t *testing.T) {
	codecs, err := newCodecs()
	if err != nil {
		t.Fatal(err)
	}
	if names := fmt.Sprint(names(codecs)); names != "[s2 zstd 1 zstd 3 zstd 7 byteplane]" {
		t.Errorf("there are %s", names)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{2, 4} {
		data, prev := make([]byte, size*1001), make([]byte, size*1001)
		for i := range data {
			data[i], prev[i] = byte(r.Uint32()), byte(r.Uint32())
		}
		copy(data[100*size:], prev[100*size:800*size])
		for _, tr := range transforms {
			for _, c := range codecs {
				var s squeezed
				if err := s.squeeze(tr, c, data, prev, size, 256); err != nil || s.in != int64(len(data)) || s.out < 1 || s.there < 1 || s.not < 1 {
					t.Errorf("%d bytes, %s, %s: %+v, %v", size, tr.name, c.name, s, err)
				}
			}
		}
		broken := codec{"broken", func(dst, src []byte) []byte { return append(dst[:0], src...) }, func(dst, src []byte) ([]byte, error) {
			dst = append(dst[:0], src...)
			dst[len(dst)-1]++
			return dst, nil
		}}
		if err := new(squeezed).squeeze(transforms[0], broken, data, prev, size, 256); !errors.Is(err, errChanged) {
			t.Errorf("a codec that changes a byte: %v", err)
		}
	}
}

// Planes of what is like the step before are zeros: one step up is 2, one down is 1.
func TestDifference(t *testing.T) {
	var now, before, out [8]byte
	for i, v := range []uint16{5, 0, 7, 0xffff} {
		binary.LittleEndian.PutUint16(before[2*i:], v)
	}
	for i, v := range []uint16{6, 0xffff, 7, 0} {
		binary.LittleEndian.PutUint16(now[2*i:], v)
	}
	minusPlanes(out[:], now[:], before[:], 2)
	if want := [8]byte{2, 1, 0, 2}; out != want {
		t.Errorf("difference %v, want %v", out, want)
	}
	xorPlanes(out[:], now[:], before[:], 2)
	if want := [8]byte{3, 255, 0, 255, 0, 255, 0, 255}; out != want {
		t.Errorf("xor %v, want %v", out, want)
	}
}

// A fair coin in one byte and nothing in the other is one bit of sixteen.
func TestEntropy(t *testing.T) {
	if got := entropyRatio([]byte{0, 9, 1, 9, 0, 9, 1, 9}, 2); math.Abs(got-16) > 1e-9 {
		t.Errorf("ratio %v, want 16", got)
	}
}

// An update that is sampled is the same update, and the samples are what it read and
// wrote.
func TestSamplerChangesNothing(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		layout := model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{{Role: model.RoleDown, Rows: 300, Cols: 256, Dims: 2}, {Role: model.RoleMLPNorm, Rows: 256, Cols: 1, Dims: 1}, {Role: model.RoleO, Rows: 64, Cols: 256, Dims: 2}}}, bf16, model.Param{})
		recipe := optim.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1}
		plain, seen := newLayer(t, layout, recipe), newLayer(t, layout, recipe)
		stopped := 0
		s := newSampler(recipe, []int{2, 3}, 4, func() { stopped++ })
		r := rand.New(rand.NewPCG(3, 4))
		grad := optim.Grad{Data: make([]byte, 4*layout.Elems), Elems: layout.Elems}
		var grads [][]byte
		for step := range 4 {
			for i := range layout.Elems {
				binary.NativeEndian.PutUint32(grad.Data[4*i:], math.Float32bits(r.Float32()-0.5))
			}
			grads = append(grads, bytes.Clone(grad.Data))
			at := optim.Rate{LR: 1e-2, Step: int64(step + 11), Clip: 0.5} // a run that was resumed
			plain.Update(grad, recipe, at)
			seen.Update(grad, s, at)
		}
		if !bytes.Equal(plain.Tile, seen.Tile) || !slices.Equal(plain.Lo, seen.Lo) || !bytes.Equal(plain.Plane("m"), seen.Plane("m")) || !bytes.Equal(plain.Plane("v"), seen.Plane("v")) {
			t.Errorf("bf16 %v: a sampled update is another", bf16)
		}
		if s.last != 4 || stopped == 0 || len(s.got[2]) != 4 || len(s.got[3]) != 4 {
			t.Fatalf("bf16 %v: last %d, stopped %d times, %d and %d samples", bf16, s.last, stopped, len(s.got[2]), len(s.got[3]))
		}
		for at, x := range s.got[3] {
			from, n := 4*(layout.Tensors[at.tensor].Elem+at.at), int64(len(x.grad))
			if !bytes.Equal(x.grad, grads[2][from:from+n]) || !bytes.Equal(x.before, grads[1][from:from+n]) {
				t.Errorf("bf16 %v: the gradients of %+v are others", bf16, at)
			}
			if step4 := seen.Plane("m")[from : from+n]; bytes.Equal(x.m1, step4) || len(x.m1) != int(n) || distance(x.m1, step4) > 0.04 {
				t.Errorf("bf16 %v: the moments of %+v are another piece's", bf16, at)
			}
			if !bytes.Equal(x.w0, s.got[2][at].w1) || !bytes.Equal(x.m0, s.got[2][at].m1) || bytes.Equal(x.v0, x.v1) {
				t.Errorf("bf16 %v: what step 3 reads of %+v is not what step 2 wrote", bf16, at)
			}
		}
	}
}

// distance is the largest difference of fp32 elements.
func distance(a, b []byte) (most float32) {
	for i := range len(a) / 4 {
		most = max(most, float(a, i)-float(b, i), float(b, i)-float(a, i))
	}
	return most
}

func newLayer(t *testing.T, l model.Layout, o optim.Optimizer) *host.LayerState {
	t.Helper()
	s, err := host.NewStore([]model.Layout{l}, o.Planes, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.Layers[0]
}

// A run is sampled end to end, nothing of it stays, and the report has every kind.
func TestCompress(t *testing.T) {
	long.NotShort(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("Some words to learn from, again and again.\n", 400)), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	c, err := config.Parse("test", []byte("model: tiny\ndataset: "+text+"\nmax_seq_len: 32\nper_device_train_batch_size: 2\nmax_steps: 3\ndevice: cpu\noutput_dir: "+out+"\ncache_dir: "+filepath.Join(dir, "cache")+"\n"), config.Args{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Compress(t.Context(), CompressOptions{Config: c, Steps: 5, Sample: 64 << 10, Block: 32 << 10, Train: train.Options{Stdout: io.Discard, Stderr: io.Discard}})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds[:len(kinds)-1] { // moments are fp32, and no codes
		if !slices.ContainsFunc(r.Sums, func(x CompressRow) bool { return x.Kind == kind && x.Ratio > 0.9 && x.Compress > 0 && x.Decompress > 0 }) {
			t.Errorf("nothing of %s", kind)
		}
	}
	if len(r.Sums) != (8*4-2)*5 || !slices.Equal(r.Points, []int{2, 5}) {
		t.Errorf("%d sums at steps %v", len(r.Sums), r.Points)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("output_dir: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "mt-bench-*")); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	checkReport(t, r)
	c.MaxSteps, c.NumTrainEpochs = 0, 0.0001 // one step
	if _, err := Compress(t.Context(), CompressOptions{Config: c, Steps: 5, Train: train.Options{Stdout: io.Discard, Stderr: io.Discard}}); err == nil || !strings.Contains(err.Error(), "the run ended after 1 of 5 steps") {
		t.Errorf("a run that is too short: %v", err)
	}
}

// checkReport checks that a report prints itself in every form.
func checkReport(t *testing.T, r Report) {
	t.Helper()
	var table, picture bytes.Buffer
	if err := r.WriteTable(&table); err != nil || table.Len() < 100 {
		t.Errorf("table: %v\n%s", err, table.String())
	}
	if err := r.Chart().WriteSVG(&picture); err != nil || !strings.Contains(picture.String(), "<circle") && !strings.Contains(picture.String(), "<path") && !strings.Contains(picture.String(), "<polyline") {
		t.Errorf("picture: %v\n%s", err, picture.String())
	}
	if _, err := json.Marshal(r); err != nil {
		t.Errorf("JSON: %v", err)
	}
	if strings.Contains(table.String(), "NaN") || strings.Contains(table.String(), "Inf") {
		t.Errorf("a figure is no number:\n%s", table.String())
	}
}

// Compression pays where the link is slower than the host's codec, and gains at most the
// ratio; ways that need the step before do not count.
func TestWorth(t *testing.T) {
	rows := []CompressRow{
		{Kind: "weight hi", Transform: transforms[0].name, Codec: "fast", Ratio: 1.01, Compress: 50},
		{Kind: "weight hi", Transform: transforms[1].name, Codec: "good", Ratio: 1.5, Compress: 2, Decompress: 9},
		{Kind: "weight hi", Transform: transforms[2].name, Codec: "good", Ratio: 8, Compress: 30},
		{Kind: "gradient bf16", Transform: transforms[1].name, Codec: "good", Ratio: 1.5, Compress: 2, Decompress: 9},
	}
	got := worth(rows, 8)
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	down, up, disk := got[0], got[1], got[2]
	if up.PaysBelowGBps != 16 || up.Ratio != 1.5 || up.Gains[0].Gain != 16.0/12 || up.Gains[1].Gain != 1 {
		t.Errorf("weights up: %+v", up)
	}
	if down.PaysBelowGBps != 72 || down.Gains[2].Gain != 72.0/55 || down.Gains[0].Gain != 1.5 {
		t.Errorf("gradients down: %+v", down)
	}
	if disk.Gains[0].Gain != 1.5 {
		t.Errorf("disk: %+v", disk)
	}
}
