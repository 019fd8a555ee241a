package accounts

import "fmt"

// Purpose says what memory is for, so that usage can be shown and planned.
type Purpose uint8

// The purposes: those of device memory, of the host memory that a device stages its
// copies in, and of the arenas of host memory.
const (
	WeightSlots     Purpose = iota // tiles of weights, while the device has them
	GradientBuffers                // where gradients are summed on the device
	Activations                    // activation slots: layer inputs and their gradients
	Saved                          // what recompute keeps from the forward for the backward
	Workspace                      // what one launch needs and forgets
	MatrixBuffers                  // matrices of the optimizer, on which the device works
	Batch                          // ids, targets, positions, gathered rows
	Tables                         // RoPE tables and other constants
	KVCache                        // keys and values of generation
	Context                        // the driver's context, kernels, library workspaces

	HostStaging // pinned host memory: gathered rows, losses, slabs that copies are staged in

	Weights       // tiles: what streams to the device
	LoPlanes      // lower halves of split weights
	Planes        // what an optimizer keeps beside the weights
	StateSlots    // lower halves and planes of layers whose state is on a disk, while it is in memory
	ParamBuffers  // tiles that are on a disk, while the device needs them
	GradientSlabs // where gradients land
	Passage       // activations on their way from one device to another
	Spills        // activations that have no slot on the device
	HiddenStates  // activation slots that lie on the host
	WaitingHeads  // what attention's heads need that are not at work, where hidden states lie on the host
	Exchange      // gradients that other ranks have sent
	Collected     // what other ranks keep of a layer, on its way into a checkpoint

	NumPurposes
)

var names = [NumPurposes]string{"weight slots", "gradient buffers", "activations", "saved for backward", "workspace", "matrix buffers", "batch", "tables",
	"kv cache", "context", "host staging", "weights", "lo planes", "moments", "state slots", "param buffers", "gradient slabs", "passed activations", "spilled activations", "hidden states", "waiting heads", "exchange buffers", "collected for checkpoints"}

func (p Purpose) String() string {
	if p < NumPurposes {
		return names[p]
	}
	return fmt.Sprintf("Purpose(%d)", uint8(p))
}

// OfDevice says whether p is a purpose of device memory.
func (p Purpose) OfDevice() bool { return p < HostStaging }

// OfArena says whether p is a purpose of an arena of host memory.
func (p Purpose) OfArena() bool { return HostStaging < p && p < NumPurposes }

// Used is how many bytes are held now, and were held at most.
type Used struct {
	Now, Peak        [NumPurposes]int64 // by purpose
	Total, PeakTotal int64              // HostStaging not counted; PeakTotal is the largest Total has been
}

// Count adds bytes, which may be negative, to what is held for p.
func (u *Used) Count(p Purpose, bytes int64) {
	u.Now[p] += bytes
	u.Peak[p] = max(u.Peak[p], u.Now[p])
	if p != HostStaging {
		u.Total += bytes
		u.PeakTotal = max(u.PeakTotal, u.Total)
	}
}
