package accounts

import "fmt"

// Purpose is a use of memory, such as weight slots. Memory is planned, counted and shown by purpose.
type Purpose uint8

// The purposes of device memory come first, then HostStaging, then the purposes of host arenas (large allocations of
// host memory).
const (
	WeightSlots     Purpose = iota // slots for weight tiles on the device
	GradientBuffers                // buffers on the device that accumulate gradients
	Activations                    // activation slots: layer inputs and their gradients
	Saved                          // forward results that stay on the device for the backward instead of being recomputed
	Workspace                      // scratch memory of one launch
	MatrixBuffers                  // matrices that the device orthogonalizes for the optimizer
	Batch                          // token ids, targets, positions, gathered embedding rows
	Tables                         // RoPE tables and other constants
	KVCache                        // key/value cache of generation
	Context                        // the CUDA context, kernels, library workspaces

	HostStaging // pinned host memory: gathered rows, losses, staging buffers of copies

	Weights       // weight tiles, which stream to the device
	LoPlanes      // lower halves of split weights
	Planes        // the optimizer's planes: its state beside the weights
	StateSlots    // buffers for lower halves and planes of layers whose state is on disk
	ParamBuffers  // buffers for weight tiles that are on disk
	GradientSlabs // slabs, where gradients arrive on the host
	Passage       // activations between two devices
	Spills        // activations without a slot on the device
	HiddenStates  // activation slots in host memory
	SavedOnHost   // forward results for the backward in host memory
	WaitingHeads  // data of the attention heads whose turn is still to come, while hidden states are in host memory
	Exchange      // gradients received from other ranks
	Collected     // other ranks' shards of a layer, gathered for a checkpoint

	NumPurposes
)

var names = [NumPurposes]string{"weight slots", "gradient buffers", "activations", "saved for backward", "workspace", "matrix buffers", "batch", "tables",
	"kv cache", "context", "host staging", "weights", "lo planes", "moments", "state slots", "param buffers", "gradient slabs", "passed activations", "spilled activations", "hidden states", "saved on host", "waiting heads", "exchange buffers", "collected for checkpoints"}

func (p Purpose) String() string {
	if p < NumPurposes {
		return names[p]
	}
	return fmt.Sprintf("Purpose(%d)", uint8(p))
}

// OfDevice reports whether p is a purpose of device memory.
func (p Purpose) OfDevice() bool { return p < HostStaging }

// OfArena reports whether p is a purpose of a host arena.
func (p Purpose) OfArena() bool { return HostStaging < p && p < NumPurposes }

// Used counts the bytes that are held now, and the most that were held at any time.
type Used struct {
	Now, Peak        [NumPurposes]int64 // by purpose
	Total, PeakTotal int64              // sums over purposes without HostStaging; PeakTotal is the peak of Total
}

// Count adds bytes to the memory held for purpose p. A negative number subtracts memory that was
// freed.
func (u *Used) Count(p Purpose, bytes int64) {
	u.Now[p] += bytes
	u.Peak[p] = max(u.Peak[p], u.Now[p])
	if p != HostStaging {
		u.Total += bytes
		u.PeakTotal = max(u.PeakTotal, u.Total)
	}
}
