package bench

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed peers/*.py
var peerScripts embed.FS

// commonScript is the Python module that the scripts of all peers import.
const commonScript = "common.py"

// trainPeers maps each name for --peer to a training system to compare with mt. Each system has a script in peers/, and
// requirements for the Python that runs the script.
var trainPeers = map[string]peerSystem{
	"torch": {title: "PyTorch, eager", script: "torch_plain.py", devices: "cpu cuda", modules: []string{"torch"}, onCPU: []string{"transformers"},
		needs: "torch, and on the CPU transformers (pip install torch transformers)"},
	"torch-compile": {title: "PyTorch, torch.compile", script: "torch_plain.py", flags: []string{"--compile"}, devices: "cpu",
		modules: []string{"torch", "transformers"}, needs: "torch and transformers (pip install torch transformers), and a C++ compiler"},
	"fsdp2": {title: "PyTorch FSDP2 with CPU offload", script: "fsdp2_offload.py", devices: "cpu cuda", modules: []string{"torch"}, needs: "torch (pip install torch)"},
	"zero3": {title: "DeepSpeed ZeRO-3 with CPU offload", script: "zero3_offload.py", devices: "cpu cuda",
		modules: []string{"torch", "deepspeed"}, needs: "torch and deepspeed (pip install torch deepspeed ninja), and a C++ compiler for its CPUAdam"},
	"megatrain": {title: "MegaTrain", script: "megatrain.py", devices: "cuda",
		modules: []string{"torch", "transformers", "deepspeed", "infinity"}, needs: "MegaTrain (git clone https://github.com/DLYuanGod/MegaTrain && pip install ./MegaTrain transformers deepspeed ninja flash-attn)"},
}

type peerSystem struct {
	title, script string
	flags         []string
	devices       string   // supported devices
	modules       []string // required Python modules
	onCPU         []string // further modules required on the CPU
	needs         string   // the requirements in words, and how to install them
}

// TrainPeers lists the names of systems that TrainPeer accepts.
func TrainPeers() []string { return slices.Sorted(maps.Keys(trainPeers)) }

// TrainPeer returns a constructor for the named system on a device (cpu or cuda), and the system's title. For an
// unknown name or device, the error lists the valid choices.
func TrainPeer(name, device string) (NewRunner, string, error) {
	s, ok := trainPeers[name]
	if !ok {
		return nil, "", fmt.Errorf("--peer %q: want %s", name, strings.Join(TrainPeers(), ", "))
	}
	if !slices.Contains(strings.Fields(s.devices), device) {
		return nil, "", fmt.Errorf("--peer %s runs with --device %s, not with %s", name, s.devices, device)
	}
	var chosen map[string]any // settings that the first process found fastest; processes of later rounds get them
	return func(ctx context.Context, setup TrainSetup) (TrainRunner, error) {
		p, err := s.start(ctx, python(), setup, chosen)
		if err != nil {
			return nil, err
		}
		chosen = map[string]any{"setting": p.about["setting"], "micro_rows": p.about["micro_rows"]}
		return p, nil
	}, s.title, nil
}

// CheckTrainPeer returns an error if the Python interpreter lacks modules that the named system needs on a device (cpu
// or cuda). Callers check this before long work.
func CheckTrainPeer(ctx context.Context, name, device string) error {
	s := trainPeers[name]
	modules := slices.Clone(s.modules)
	if device == "cpu" {
		modules = append(modules, s.onCPU...)
	}
	const probe = "import sys, importlib.util as u; print(*(m for m in sys.argv[1:] if not u.find_spec(m)))"
	out, err := exec.CommandContext(ctx, python(), append([]string{"-c", probe}, modules...)...).Output()
	missing := strings.TrimSpace(string(out))
	switch {
	case err != nil:
		return fmt.Errorf("--peer %s: %s: %w; set %s to an interpreter with %s", name, python(), err, PythonVariable, s.needs)
	case missing != "":
		return fmt.Errorf("--peer %s: %s has no %s; it needs %s (%s names another interpreter)", name, python(), missing, s.needs, PythonVariable)
	}
	return nil
}

// trainPeer is a system that trains on a Handover in a process of its own. It speaks the protocol described in
// peers/common.py.
type trainPeer struct {
	*peer
	records []StepRecord
	dir     string // folder of the handover files
}

// start starts the system and returns after its warm-up steps. Ending ctx kills the process. chosen has the setting and
// the number of rows to process at once, as an earlier process found them; nil: the system searches for the fastest.
func (s peerSystem) start(ctx context.Context, python string, setup TrainSetup, chosen map[string]any) (_ *trainPeer, err error) {
	dir, err := os.MkdirTemp("", "mt-bench-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	given := setup.Given
	if given == nil {
		given = newHandover(setup.Shape)
	}
	if err := errors.Join(given.write(dir, setup, chosen), copyScript(dir, commonScript), copyScript(dir, s.script)); err != nil {
		return nil, err
	}
	p, err := startPeer(ctx, python, s.needs, append([]string{filepath.Join(dir, s.script), dir}, s.flags...)...)
	if err != nil {
		return nil, err
	}
	t := &trainPeer{peer: p, dir: dir}
	t.record(numbers(p.about["loss"]), numbers(p.about["grad_norm"])) // the results of the warm-up steps
	return t, nil
}

// RunSteps implements TrainRunner. It runs and counts the same steps as ours does.
func (t *trainPeer) RunSteps(k int) (seconds []float64, tokens int64, err error) {
	a, err := t.ask(k + untimed)
	if err != nil {
		return nil, 0, err
	}
	if n := k + untimed; len(a.Seconds) != n || a.Tokens%int64(n) != 0 {
		return nil, 0, fmt.Errorf("asked for %d steps, it reports %d of %d tokens", n, len(a.Seconds), a.Tokens)
	}
	t.record(a.Loss, a.GradNorm)
	return middle(a.Seconds), a.Tokens / int64(k+untimed) * int64(k), nil
}

func (t *trainPeer) record(losses, norms []float64) {
	for i := range min(len(losses), len(norms)) {
		t.records = append(t.records, StepRecord{losses[i], norms[i]})
	}
}

// Records implements recorder.
func (t *trainPeer) Records() []StepRecord { return t.records }

// Parameters returns the parameter count that the system reports.
func (t *trainPeer) Parameters() int64 {
	n, _ := t.about["parameters"].(float64)
	return int64(n)
}

// Close ends the process and removes the handover files.
func (t *trainPeer) Close() error { return errors.Join(t.peer.Close(), os.RemoveAll(t.dir)) }

// copyScript writes a script of peers/ into dir.
func copyScript(dir, name string) error {
	text, err := peerScripts.ReadFile("peers/" + name)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), text, 0o644)
}

// numbers returns the numbers of v, a decoded JSON array; none if v is anything else.
func numbers(v any) []float64 {
	list, _ := v.([]any)
	out := make([]float64, 0, len(list))
	for _, x := range list {
		if f, ok := x.(float64); ok {
			out = append(out, f)
		}
	}
	return out
}
