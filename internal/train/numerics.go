package train

import (
	"fmt"
	"strings"

	"mt/plan"
)

// noteNumerics compares the plan with that of a host with room for everything, if state_dir is given. A small host_memory can
// mean smaller micro-batches or bf16 gradients, which change the last bits of sums. A note names each such setting.
func (j *resolving) noteNumerics(q plan.Request) {
	if !q.StateDir || q.EvalOnly {
		return
	}
	q.HostMemory, q.StateDir, q.ParamDir = 1<<60, false, false
	roomy, err := plan.Resolve(q)
	if err != nil {
		return // it does not fit on the device in another way; the run's own plan did
	}
	var differ []string
	add := func(key string, small, large any) {
		if small != large {
			differ = append(differ, fmt.Sprintf("%s: %v (%v)", key, large, small))
		}
	}
	add("pipeline.micro_batch_tokens", j.plan.Limits.MicroBatchTokens, roomy.Limits.MicroBatchTokens)
	add("pipeline.chunk_tokens", j.plan.Spec.ChunkTokens, roomy.Spec.ChunkTokens)
	add("pipeline.head_shards", j.plan.Spec.Shards(), roomy.Spec.Shards())
	add("grad_dtype", gradType(j.plan), gradType(roomy))
	if len(differ) > 0 {
		j.note("this host_memory decides settings that the last bits of sums depend on; a run with room for everything has %s; give these keys to both runs for the same bits", strings.Join(differ, ", "))
	}
}

// gradType is what gradients are on the link and on the host.
func gradType(p *plan.Run) string {
	if p.GradBF16 {
		return "bf16"
	}
	return "fp32"
}
