package run

import (
	"sync"
	"testing"

	"mt/base/accounts"
	"mt/host"
	"mt/internal/run/config"
	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestMemoryOfRanks: the host memory that a run of several ranks allocates is within 1 % of its
// plans. Each rank holds all weights that stream and its share of everything else; rank 0 also
// holds the layer that it collects for a checkpoint. All ranks of this test are in one process, so
// their memory is counted together.
func TestMemoryOfRanks(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	of := map[string]string{"weights": "weights", "lo planes": "lo planes", "moments": "moments", "averages": "moments", "gradient slabs": "gradient slabs",
		"gradient shares": "gradient slabs", "exchange buffers": "exchange buffers", "collected layer": "collected for checkpoints"}
	for _, extra := range []string{"compute_dtype: bf16\n", "max_grad_norm: 0\n", "compute_dtype: bf16\nema_decay: 0.9\n"} {
		for n := 2; n <= 4; n++ {
			s := newScene(t, "max_steps: 8\nval_size: 0\n"+extra) // no rank has ended when another reports step 2
			planned, held := map[string]int64{}, map[string]int64{}
			var mu sync.Mutex
			for r, run := range trainRanks(t, n, t.Context(), func(rank int) (*config.Config, settings.Hooks) {
				h := settings.Hooks{Planned: func(run any) {
					j := run.(*save.Output)
					mu.Lock()
					defer mu.Unlock()
					for _, row := range j.Plan.Table().Rows {
						if name := of[row.Purpose]; row.Where == "host" && name != "" {
							planned[name] += row.Bytes
						}
					}
				}}
				if rank == 0 {
					h.Stepped = func(step int) {
						for p, bytes := range host.Usage().Now {
							if step == 2 && bytes != 0 {
								held[accounts.Purpose(p).String()] = bytes
							}
						}
					}
				}
				return s.config(t), h
			}) {
				if run.err != nil {
					t.Fatalf("rank %d: %v", r, run.err)
				}
			}
			for name := range planned {
				if over := float64(held[name])/float64(planned[name]) - 1; over > 0.01 || over < -0.01 {
					t.Errorf("%q, %d ranks: %s: %d bytes are held, %d planned", extra, n, name, held[name], planned[name])
				}
			}
			if len(held) != len(planned) {
				t.Errorf("%q, %d ranks: held are %v, planned %v", extra, n, held, planned)
			}
		}
	}
}
