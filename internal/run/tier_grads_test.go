package run

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// deep gives a model so many blocks that sharing gradient slabs saves memory. sameSums fixes the
// settings on which the bits of sums depend.
const (
	deep     = "num_hidden_layers: 8"
	sameSums = "micro_batch_tokens: 24, head_shards: 1, activation_slots: 40"
)

// TestGradientsOnDisks: with clipping and the least host memory, gradients wait on disks until the
// norm is known. The run has the same bits as a run in memory, also when resumed. It says what is
// kept where, and leaves no file. A budget one byte smaller is refused, and so are gradient files
// of another run. Without long tests one checkpoint is drawn.
func TestGradientsOnDisks(t *testing.T) {
	testkit.NotShort(t)
	for name, extra := range map[string]string{"in place": "", "copied": "compute_dtype: bf16\nbinding: copy\n", "bf16": "compute_dtype: bf16\ngrad_dtype: bf16\n",
		"muon": "optim: muon\nbinding: copy\n", "8-bit": "compute_dtype: bf16\noptim: adamw_8bit\nmaster_dtype: bf16\nbinding: copy\n"} {
		t.Run(name, func(t *testing.T) {
			want := newScene(t, strings.Replace(tinyModel, "num_hidden_layers: 3", deep, 1)+"save_steps: 3\nrecompute: full\nsave_dtype: fp32\npipeline: {"+sameSums+"}\n").with("grad_dtype: fp32\n").with(extra)
			want.mustTrain(t)
			got := want.in(t).onDisks(t).with(extra + "pipeline: {state_slots: 1, grad_slabs: 1, grad_buffers: 1, " + sameSums + "}\n")
			least := leastMemory(t, got)
			got = got.with(fmt.Sprintf("host_memory: %d\n", least))
			out := got.mustTrain(t)
			if !regexp.MustCompile(`disk +gradients +\S+ \S+ +(fp32|bf16) of [78] of 10 layers, which wait for the norm`).MatchString(out) {
				t.Errorf("no gradients are said to be on disks:\n%s", out)
			}
			endsAlike(t, got, want, "a", "b")
			refused := got.in(t).with(fmt.Sprintf("host_memory: %d\n", least-1))
			if _, err := refused.train(t, t.Context(), settings.Hooks{}); err == nil || !strings.Contains(err.Error(), "plan: the run needs") {
				t.Errorf("with a byte less: %v", err)
			}
			write(t, filepath.Join(got.root, "a", "mt-grads-0.bin"), "{\"format\":\"mt state, version 1\",\"run\":\"/elsewhere\"}")
			if _, err := got.in(t).train(t, t.Context(), settings.Hooks{}); err == nil || !strings.Contains(err.Error(), "state_dir: ") || !strings.Contains(err.Error(), "was left by the run in /elsewhere") {
				t.Errorf("with the gradients of another run: %v", err)
			}
		})
	}
}
