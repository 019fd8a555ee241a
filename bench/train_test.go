package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// scripted is a runner whose steps take the times it was given, one after the
// other.
type scripted struct {
	name   string
	log    *[]string
	times  []float64
	tokens int64
	err    error // of the step after the last time
	closed error
}

func (s *scripted) RunSteps(k int) ([]float64, int64, error) {
	*s.log = append(*s.log, fmt.Sprintf("%s %d", s.name, k))
	if len(s.times) < k {
		return nil, 0, s.err
	}
	times := s.times[:k]
	s.times = s.times[k:]
	return times, int64(k) * s.tokens, nil
}

func (s *scripted) Close() error {
	*s.log = append(*s.log, s.name+" closed")
	return s.closed
}

// ready makes a NewRunner that returns r and err.
func ready(r TrainRunner, err error) NewRunner {
	return func(context.Context, TrainSetup) (TrainRunner, error) { return r, err }
}

func TestTrainAlternates(t *testing.T) {
	var log []string
	ours := &scripted{name: "a", log: &log, tokens: 10, times: []float64{1, 1, 2, 2, 1, 3}}
	peer := &scripted{name: "b", log: &log, tokens: 10, times: []float64{2, 2, 2, 2, 3, 3}}
	r, err := Train(t.Context(), TrainOptions{
		Rounds: 3, Steps: 2, Rest: time.Nanosecond, PeerName: "b", Ours: ready(ours, nil), Peer: ready(peer, nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a 2", "b 2", "b 2", "a 2", "a 2", "b 2", "a closed", "b closed"}; !reflect.DeepEqual(log, want) {
		t.Errorf("order is %q, want %q", log, want)
	}
	// Rates by round: ours 10, 5, 5; the peer's 5, 5, 10/3.
	if want := (Sample{Median: 5, Min: 5, Max: 10}); r.Ours != want {
		t.Errorf("ours %v, want %v", r.Ours, want)
	}
	if r.Ratio == nil || r.Ratio.Median != 1.5 || r.Ratio.Min != 1 || r.Ratio.Max != 2 {
		t.Errorf("ratio %v, want 1.5 (1 to 2)", r.Ratio)
	}
	if want := []float64{2, 2, 2, 2, 3, 3}; !reflect.DeepEqual(r.StepSeconds.Peer, want) {
		t.Errorf("the peer's steps took %v, want %v", r.StepSeconds.Peer, want)
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "1.50 [1.00–2.00]") {
		t.Errorf("error %v, table:\n%s", err, &table)
	}
}

func TestTrainAlone(t *testing.T) {
	var log []string
	r, err := Train(t.Context(), TrainOptions{
		Rounds: 1, Steps: 1, Rest: time.Nanosecond, Ours: ready(&scripted{name: "a", log: &log, tokens: 4, times: []float64{2}}, nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Ours.Median != 2 || r.Peer != nil || r.Ratio != nil {
		t.Errorf("ours %v, peer %v, ratio %v; want 2, none, none", r.Ours, r.Peer, r.Ratio)
	}
}

func TestTrainErrors(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name           string
		ours, peer     *scripted
		oursNo, peerNo error // of making the sides
		want           string
		closed         int
	}{
		{"ours is not made", nil, nil, boom, nil, "bench train: mt: boom", 0},
		{"the peer is not made", &scripted{name: "a"}, nil, nil, boom, "bench train: b: boom", 1},
		{"a step fails", &scripted{name: "a", tokens: 1, times: []float64{1}, err: boom}, &scripted{name: "b", tokens: 1, times: []float64{1, 1}}, nil, nil, "bench train: mt: boom", 2},
		{"no tokens", &scripted{name: "a", times: []float64{1}}, &scripted{name: "b"}, nil, nil, "of 0 tokens", 2},
		{"a close fails", &scripted{name: "a", tokens: 1, times: []float64{1, 1}}, &scripted{name: "b", tokens: 1, times: []float64{1, 1}, closed: boom}, nil, nil, "bench train: b: boom", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log []string
			for _, s := range []*scripted{tt.ours, tt.peer} {
				if s != nil {
					s.log = &log
				}
			}
			_, err := Train(t.Context(), TrainOptions{
				Rounds: 2, Steps: 1, Rest: time.Nanosecond, PeerName: "b", Ours: ready(tt.ours, tt.oursNo), Peer: ready(tt.peer, tt.peerNo),
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if got := strings.Count(strings.Join(log, ","), "closed"); got != tt.closed {
				t.Errorf("%d sides closed, want %d: %q", got, tt.closed, log)
			}
		})
	}
}

func TestTrainStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("interrupted")
	cancel(stop)
	var log []string
	_, err := Train(ctx, TrainOptions{Ours: ready(&scripted{name: "a", log: &log}, nil)})
	if !errors.Is(err, stop) {
		t.Errorf("error %v, want %v", err, stop)
	}
}

// fakePython writes a program that stands for the interpreter. It is a shell
// script that ignores its arguments.
func fakePython(t *testing.T, script string) string {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh to stand for python")
	}
	path := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(path, []byte("#!"+sh+"\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTorchProtocol(t *testing.T) {
	python := fakePython(t, `
echo '{"ready": true, "torch": "9.9"}'
while read word k; do
  case "$word $k" in
    "run 2") echo '{"seconds": [0.5, 0.25], "tokens": 64, "loss": [2, 1]}' ;;
    *) echo '{"error": "what is '$word'"}' ;;
  esac
done
`)
	p, err := startTorch(t.Context(), python, TrainSetup{DType: "fp32", Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	if p.About()["torch"] != "9.9" {
		t.Errorf("about is %v", p.About())
	}
	seconds, tokens, err := p.RunSteps(2)
	if err != nil || tokens != 64 || !reflect.DeepEqual(seconds, []float64{0.5, 0.25}) {
		t.Errorf("steps took %v, %d tokens, error %v", seconds, tokens, err)
	}
	if _, _, err := p.RunSteps(3); err == nil || err.Error() != "what is run" {
		t.Errorf("error %v, want what the process answers", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestTorchFailures(t *testing.T) {
	tests := []struct {
		name, script string
		want         string
	}{
		{"not installed", "echo \"No module named 'torch'\" >&2; exit 1", "exit status 1: No module named 'torch'"},
		{"no greeting", "echo '{}'; cat >&2", `it begins with "{}"`},
		{"not JSON", "echo hello; cat >&2", `it wrote "hello"`},
		{"silent end", "exit 0", "its output ended"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := startTorch(t.Context(), fakePython(t, tt.script), TrainSetup{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("ends between rounds", func(t *testing.T) {
		p, err := startTorch(t.Context(), fakePython(t, "echo '{\"ready\": true}'; read x; echo killed >&2; exit 7"), TrainSetup{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.RunSteps(1); err == nil || err.Error() != "exit status 7: killed" {
			t.Errorf("error %v, want that of the process", err)
		}
	})
	t.Run("no interpreter", func(t *testing.T) {
		t.Setenv(PythonVariable, filepath.Join(t.TempDir(), "none"))
		_, err := StartTorch(t.Context(), TrainSetup{})
		if err == nil || !strings.Contains(err.Error(), PythonVariable) {
			t.Errorf("error %v does not name %s", err, PythonVariable)
		}
	})
}

func TestTorchArgumentsNameTheShape(t *testing.T) {
	got := strings.Join(torchArguments(TrainSetup{Shape: TrainShapes()["hidden1024"], DType: "bf16", Threads: 3, Warmup: 1}), " ")
	const want = "--serve --dtype bf16 --threads 3 --warmup 1 --hidden-size 1024 --intermediate-size 2816 --num-hidden-layers 4 " +
		"--num-attention-heads 16 --num-key-value-heads 8 --vocab-size 4096 --rows 4 --seq-len 512"
	if got != want {
		t.Errorf("arguments are %s\nwant %s", got, want)
	}
	shape := TrainShape{Heads: 2, HeadDim: 24, AttentionBias: true}
	if got := strings.Join(torchArguments(TrainSetup{Shape: shape}), " "); !strings.HasSuffix(got, " --head-dim 24 --attention-bias 1") {
		t.Errorf("arguments are %s: no head dimension or no bias", got)
	}
}

func TestGeomean(t *testing.T) {
	if got := geomean([]float64{0.5, 2, 8}); math.Abs(got-2) > 1e-12 {
		t.Errorf("geometric mean is %g, want 2", got)
	}
	if got := geomean(nil); got != 1 {
		t.Errorf("geometric mean of nothing is %g, want 1", got)
	}
}

func TestBusy(t *testing.T) {
	if got := busy(0); got != "" {
		t.Errorf("a machine at rest: %q", got)
	}
	if got := busy(1000); !strings.Contains(got, "load 1000.0") {
		t.Errorf("a busy machine: %q", got)
	}
	if load := loadNow(); load < 0 || math.IsNaN(load) {
		t.Errorf("load is %g", load)
	}
}

func TestTail(t *testing.T) {
	var s tail
	fmt.Fprint(&s, strings.Repeat("x", 3*tailBytes), "\nlast\n\n")
	if s.last() != "last" || len(s.kept) != tailBytes {
		t.Errorf("last line %q, %d bytes kept", s.last(), len(s.kept))
	}
	for i := range tailBytes {
		fmt.Fprintln(&s, "line", i)
	}
	if want := fmt.Sprint("line ", tailBytes-1); s.last() != want || len(s.kept) != tailBytes {
		t.Errorf("last line %q, %d bytes kept of many small writes; want %q", s.last(), len(s.kept), want)
	}
}
