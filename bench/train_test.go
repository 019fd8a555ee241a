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

	"mt/internal/testkit"
)

// scripted is a runner whose steps take the given times, one after the other.
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

// ready returns a NewRunner that returns r and err.
func ready(r TrainRunner, err error) NewRunner {
	return func(context.Context, TrainSetup) (TrainRunner, error) { return r, err }
}

func TestTrainAlternates(t *testing.T) {
	var log []string
	ours := &scripted{name: "a", log: &log, tokens: 10, times: []float64{1, 1, 2, 2, 1, 3}}
	peer := &scripted{name: "b", log: &log, tokens: 10, times: []float64{2, 2, 2, 2, 3, 3}}
	r := testkit.Must(Train(t.Context(), TrainOptions{
		Rounds: 3, Steps: 2, Rest: time.Nanosecond, PeerName: "b", Ours: ready(ours, nil), Peer: ready(peer, nil),
	}))(t)
	if want := []string{"a 2", "b 2", "b 2", "a 2", "a 2", "b 2", "a closed", "b closed"}; !reflect.DeepEqual(log, want) {
		t.Errorf("order is %q, want %q", log, want)
	}
	// The rates by round are 10, 5, 5 tokens/s for mt and 5, 5, 10/3 for the peer.
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

// TestTrainFresh: with Fresh, each side is made before its turn and closed after it. This serves a
// device that cannot hold both.
func TestTrainFresh(t *testing.T) {
	var log []string
	side := func(name string) NewRunner {
		return func(context.Context, TrainSetup) (TrainRunner, error) {
			log = append(log, name+" made")
			return &recorded{scripted{name: name, log: &log, tokens: 10, times: []float64{1}}, []StepRecord{{2, 3}}}, nil
		}
	}
	r := testkit.Must(Train(t.Context(), TrainOptions{Rounds: 2, Steps: 1, Rest: time.Nanosecond, Fresh: true, PeerName: "b", Ours: side("a"), Peer: side("b")}))(t)
	want := "a made,a 1,a closed,b made,b 1,b closed,b made,b 1,b closed,a made,a 1,a closed"
	if got := strings.Join(log, ","); got != want {
		t.Errorf("order is %s\nwant     %s", got, want)
	}
	if len(r.StepSeconds.Ours) != 2 || r.Agreement == nil || r.Agreement.Steps != 1 {
		t.Errorf("steps %v, agreement %v", r.StepSeconds.Ours, r.Agreement)
	}
}

// recorded is a runner that returns the results of its steps.
type recorded struct {
	scripted
	records []StepRecord
}

func (r *recorded) Records() []StepRecord { return r.records }

// TestTrainWantsTheSameTraining: if the losses of the two sides differ, Train returns an error.
func TestTrainWantsTheSameTraining(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		var log []string
		side := func(name string, loss float64) NewRunner {
			return ready(&recorded{scripted{name: name, log: &log, tokens: 1, times: []float64{1}}, []StepRecord{{loss, 1}}}, nil)
		}
		r, err := Train(t.Context(), TrainOptions{Rounds: 1, Steps: 1, Rest: time.Nanosecond, Fresh: fresh, PeerName: "b", Ours: side("a", 2), Peer: side("b", 2.1)})
		if (r != nil) != fresh || fresh && (r.Ratio == nil || r.Error != err.Error()) { // if not fresh, the warm-up already shows it
			t.Errorf("fresh %v: %+v", fresh, r)
		}
		if err == nil || !strings.Contains(err.Error(), "step 1: the loss is 2 in mt and 2.1 in b") {
			t.Errorf("fresh %v: %v", fresh, err)
		}
	}
}

// TestTrainKeepsOurs: if the peer does not start, the report still has mt's measurements.
func TestTrainKeepsOurs(t *testing.T) {
	var log []string
	r, err := Train(t.Context(), TrainOptions{Rounds: 1, Steps: 1, Rest: time.Nanosecond, Fresh: true, PeerName: "b",
		Ours: ready(&scripted{name: "a", log: &log, tokens: 1, times: []float64{1}}, nil), Peer: ready(nil, errors.New("no GPU"))})
	if err == nil || r == nil || r.Error != err.Error() || !strings.Contains(r.Error, "no GPU") || r.Ours.Median != 1 || r.Peer != nil || r.Ratio != nil {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestCompare(t *testing.T) {
	a := []StepRecord{{2, 1}, {4, 1}}
	for _, tt := range []struct {
		name, dtype string
		b           []StepRecord
		most        Agreement
		want        string
	}{
		{"the same", "fp32", a, Agreement{Steps: 2}, ""},
		{"roundings", "bf16", []StepRecord{{2, 1.0078125}, {4.00390625, 1}}, Agreement{2, 0.0009765625, 0.0078125}, ""},
		{"roundings of fp32", "fp32", []StepRecord{{2, 1.00006103515625}, {4, 1}}, Agreement{2, 0, 0.00006103515625}, ""},
		{"too much for fp32", "fp32", []StepRecord{{2, 1}, {4.00390625, 1}}, Agreement{}, "step 2: the loss is 4 in a and 4.00391 in b"},
		{"the norm", "bf16", []StepRecord{{2, 1}, {4, 0.9}}, Agreement{}, "step 2: the norm of the gradients is 1 in a and 0.9 in b"},
		{"not a number", "bf16", []StepRecord{{2, 1}, {math.NaN(), 1}}, Agreement{}, "step 2: the loss"},
		{"other steps", "bf16", a[:1], Agreement{}, "a did 2 steps and b 1"},
	} {
		most, err := compare("a", "b", tt.dtype, a, tt.b)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if err == nil && most != tt.most {
			t.Errorf("%s: %+v, want %+v", tt.name, most, tt.most)
		}
	}
}

func TestTrainAlone(t *testing.T) {
	var log []string
	r := testkit.Must(Train(t.Context(), TrainOptions{
		Rounds: 1, Steps: 1, Rest: time.Nanosecond, Ours: ready(&scripted{name: "a", log: &log, tokens: 4, times: []float64{2}}, nil),
	}))(t)
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

// fakePython writes a shell script that serves as the Python interpreter and ignores its arguments.
// It returns the script's path.
func fakePython(t *testing.T, script string) string {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh to stand for python")
	}
	path := filepath.Join(t.TempDir(), "python")
	testkit.NoError(t, os.WriteFile(path, []byte("#!"+sh+"\n"+script), 0o755))
	return path
}

// plain is the peer system with which the tests check the protocol between mt and a peer. A fake
// Python runs in place of its script.
var plain = trainPeers["torch"]

// tinySetup returns the smallest setup of a comparison.
func tinySetup() TrainSetup {
	return TrainSetup{Shape: TrainShapes()["tiny"].With(TrainShape{Layers: 1, Rows: 2, SeqLen: 16}), DType: "fp32", Threads: 1, Warmup: 1, Device: "cpu"}
}

func TestPeerProtocol(t *testing.T) {
	python := fakePython(t, `
for f in "$1" "$2/common.py" "$2/handover.json" "$2/weights.f32" "$2/batches.i32"; do
  test -s "$f" || { echo "there is no $f" >&2; exit 1; }
done
echo '{"ready": true, "torch": "9.9", "parameters": 12, "loss": [3], "grad_norm": [0.5]}'
while read word k; do
  case "$word $k" in
    "run 4") echo '{"seconds": [9, 0.5, 0.25, 7], "tokens": 128, "loss": [2, 1, 4, 6], "grad_norm": [1, 2, 3, 5]}' ;;
    "run 5") echo '{"seconds": [1], "tokens": 128}' ;;
    *) echo '{"error": "what is '$word'"}' ;;
  esac
done
`)
	p, err := plain.start(t.Context(), python, tinySetup(), nil)
	testkit.NoError(t, err)
	if p.About()["torch"] != "9.9" || p.Parameters() != 12 {
		t.Errorf("about is %v", p.About())
	}
	seconds, tokens, err := p.RunSteps(2)
	if err != nil || tokens != 64 || !reflect.DeepEqual(seconds, []float64{0.5, 0.25}) {
		t.Errorf("steps took %v, %d tokens, error %v; want those in the middle", seconds, tokens, err)
	}
	if want := []StepRecord{{3, 0.5}, {2, 1}, {1, 2}, {4, 3}, {6, 5}}; !reflect.DeepEqual(p.Records(), want) {
		t.Errorf("records are %v, want %v", p.Records(), want)
	}
	if _, _, err := p.RunSteps(3); err == nil || !strings.Contains(err.Error(), "asked for 5 steps, it reports 1") {
		t.Errorf("error %v of too few steps", err)
	}
	if _, _, err := p.RunSteps(4); err == nil || err.Error() != "what is run" {
		t.Errorf("error %v, want what the process answers", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left behind: %v", p.dir, err)
	}
}

func TestPeerFailures(t *testing.T) {
	testkit.NotShort(t)
	tests := []struct {
		name, script string
		want         string
	}{
		{"not installed", "echo \"No module named 'torch'\" >&2; exit 1", "exit status 1: No module named 'torch'"},
		{"how to install", "exit 1", "pip install torch transformers"},
		{"no greeting", "echo '{}'; cat >&2", `it begins with "{}"`},
		{"not JSON", "echo hello; cat >&2", `it wrote "hello"`},
		{"silent end", "exit 0", "its output ended"},
	}
	t.Setenv("TMPDIR", t.TempDir())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := plain.start(t.Context(), fakePython(t, tt.script), tinySetup(), nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if left, err := filepath.Glob(filepath.Join(os.TempDir(), "mt-bench-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
	t.Run("ends between rounds", func(t *testing.T) {
		p := testkit.Must(plain.start(t.Context(), fakePython(t, "echo '{\"ready\": true}'; read x; echo killed >&2; exit 7"), tinySetup(), nil))(t)
		if _, _, err := p.RunSteps(1); err == nil || err.Error() != "exit status 7: killed" {
			t.Errorf("error %v, want that of the process", err)
		}
		if err := os.RemoveAll(p.dir); err != nil {
			t.Error(err)
		}
	})
	for name, s := range trainPeers {
		if _, err := peerScripts.ReadFile("peers/" + s.script); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(s.needs, "pip install") {
			t.Errorf("%s: %q does not say how to install it", name, s.needs)
		}
	}
	t.Run("no interpreter", func(t *testing.T) {
		t.Setenv(PythonVariable, filepath.Join(t.TempDir(), "none"))
		start, _, err := TrainPeer("torch", "cpu")
		testkit.NoError(t, err)
		if _, err := start(t.Context(), tinySetup()); err == nil || !strings.Contains(err.Error(), PythonVariable) {
			t.Errorf("error %v does not name %s", err, PythonVariable)
		}
	})
}

// TestTurnsTakeWhatWasChosen: the first process of a peer searches for its fastest setting, and the
// processes of later rounds are told this setting.
func TestTurnsTakeWhatWasChosen(t *testing.T) {
	t.Setenv(PythonVariable, fakePython(t, `
if grep -q '"chosen"' "$2/handover.json"; then grep -A9 '"chosen"' "$2/handover.json" | tr -d ' \n' >&2; exit 1; fi
echo '{"ready": true, "setting": {"stay": true}, "micro_rows": 8}'
read x || true
`))
	start, title, err := TrainPeer("fsdp2", "cuda")
	if err != nil || !strings.Contains(title, "FSDP2") {
		t.Fatal(title, err)
	}
	first, err := start(t.Context(), tinySetup())
	testkit.NoError(t, err)
	if err := first.(*trainPeer).Close(); err != nil {
		t.Error(err)
	}
	_, err = start(t.Context(), tinySetup())
	if err == nil || !strings.Contains(err.Error(), `"micro_rows":8`) || !strings.Contains(err.Error(), `"stay":true`) {
		t.Errorf("the second process is told %v", err)
	}
}

// TestWhatIsNotInstalled: before any run, the error names a missing Python module and how to
// install it.
func TestWhatIsNotInstalled(t *testing.T) {
	for script, want := range map[string]string{
		"echo":                                 "",
		"shift 2; echo $2":                     "has no deepspeed; it needs torch and deepspeed (pip install torch deepspeed",
		"exit 3":                               "exit status 3; set MT_PYTHON to an interpreter with torch and deepspeed",
		`test "$1 $3" = "-c torch" || echo $*`: "",
	} {
		t.Setenv(PythonVariable, fakePython(t, script))
		err := CheckTrainPeer(t.Context(), "zero3", "cuda")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	t.Setenv(PythonVariable, fakePython(t, `for m; do test "$m" != transformers || echo $m; done`))
	if err := CheckTrainPeer(t.Context(), "torch", "cuda"); err != nil {
		t.Errorf("plain PyTorch on a GPU: %v", err)
	}
	if err := CheckTrainPeer(t.Context(), "torch", "cpu"); err == nil || !strings.Contains(err.Error(), "has no transformers; it needs torch, and on the CPU transformers") {
		t.Errorf("plain PyTorch on the CPU: %v", err)
	}
}

func TestTrainPeerNames(t *testing.T) {
	for _, tt := range []struct{ name, device, want string }{
		{"nobody", "cpu", "want fsdp2, megatrain, torch, torch-compile, zero3"},
		{"megatrain", "cpu", "--peer megatrain runs with --device cuda, not with cpu"},
		{"torch-compile", "cuda", "--device cpu, not with cuda"},
		{"zero3", "cuda", ""},
	} {
		_, _, err := TrainPeer(tt.name, tt.device)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s on %s: %v, want %q", tt.name, tt.device, err, tt.want)
		}
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
