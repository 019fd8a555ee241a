package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"mt/host/optim"
)

// Row is one line of the memory table.
type Row struct {
	Where   string `json:"where"` // "host", "device", or with several devices "device 0", "device 1", …
	Purpose string `json:"purpose"`
	Bytes   int64  `json:"bytes"`
	Detail  string `json:"detail,omitempty"`
}

// Table has the memory that a run needs, in bytes.
type Table struct {
	Rows   []Row `json:"rows"`
	Host   int64 `json:"host_bytes"`   // sum of the rows on the host
	Device int64 `json:"device_bytes"` // sum of the rows on the device; with several devices, the largest such sum
	// Disk is the size of the files in state_dir and param_dir.
	Disk int64 `json:"disk_bytes,omitempty"`
	// AllDevices is the memory of all devices together: the sum of all rows that are not on the host.
	AllDevices int64 `json:"all_devices_bytes"`
	// OneMemory: host and devices share one memory and one budget for Host and AllDevices.
	OneMemory bool  `json:"one_memory,omitempty"`
	Params    int64 `json:"parameters"`
	// PerParam is the host memory of one parameter in bytes: its weight and its values in the planes.
	PerParam float64 `json:"host_bytes_per_parameter"`
	// Before lists memory that the run frees before it allocates the memory of this table.
	Before []Row `json:"before,omitempty"`
	// devices has the sum of rows for each device, if there are several.
	devices []int64
}

// Table lists the memory of r by purpose. It is exact to the byte, including alignment, except for
// two rows: "context" has the size that the request gives, and "program" a size that was measured
// once. On a unified device both sides are the same memory, and each byte is in one row only.
func (r *Run) Table() Table {
	t := Table{OneMemory: r.OneMemory}
	host := func(purpose string, bytes int64, detail string, args ...any) {
		t.Rows = append(t.Rows, Row{"host", purpose, bytes, fmt.Sprintf(detail, args...)})
		t.Host += bytes
	}
	var tiles, lo int64
	for i, l := range r.Layouts {
		t.Params += l.Layer.Elems()
		if !r.weightsOnDisk(i) {
			tiles += optim.Pages(l.TileBytes)
		}
		if r.onDisk(i) {
			continue
		}
		lo += optim.Pages(optim.LoBytes(l, r.Share(i)))
	}
	host("weights", tiles, "what streams to the device")
	if lo > 0 {
		host("lo planes", lo, "lower halves of fp32 master weights%s", r.ofAll())
	}
	r.planeRows(host)
	if r.StateOnDisk != nil {
		n := r.Depths.StateSlots
		host("state slots", int64(n)*r.StateSlotBytes(), "%d layers whose state is read, updated or written%s", n, also(r.GradOnDisk != nil, ", with their gradients"))
		if n := r.packMemory(r.WeightsOnDisk != nil); n > 0 {
			host("compression", n, "of what is written to disks, in chunks")
		}
		states, weights := r.DiskBytes()
		t.Disk = states + weights + r.GradDiskBytes()
		t.Rows = append(t.Rows, Row{"disk", "state", states, fmt.Sprintf("%s of %d of %d layers%s", r.stateWords(), count(r.StateOnDisk), len(r.StateOnDisk), r.ofAll())})
		if n := r.GradDiskBytes(); n > 0 {
			t.Rows = append(t.Rows, Row{"disk", "gradients", n, fmt.Sprintf("%s of %d of %d layers, which wait for the norm", r.gradType(), count(r.GradOnDisk), len(r.GradOnDisk))})
		}
		if weights > 0 {
			host("param buffers", r.paramBuffersBytes(), "of %d weight slots, where weights on disks are read to", r.Depths.WeightSlots)
			t.Rows = append(t.Rows, Row{"disk", "weights", weights, fmt.Sprintf("what streams to the device, of %d of %d layers", count(r.WeightsOnDisk), len(r.Layouts))})
		}
	}
	t.PerParam = float64(t.Host) / float64(t.Params)
	if !r.EvalOnly {
		r.slabRow(host)
	}
	r.stagingRows(host)
	for lane, v := range r.views() {
		where, sum := "device", int64(0)
		if r.Lane != nil {
			where = fmt.Sprintf("device %d", lane)
		}
		v.deviceRows(func(purpose string, bytes int64, detail string, args ...any) {
			t.Rows = append(t.Rows, Row{where, purpose, bytes, fmt.Sprintf(detail, args...)})
			sum += bytes
		})
		t.Device, t.AllDevices = max(t.Device, sum), t.AllDevices+sum
		if r.Lane != nil {
			t.devices = append(t.devices, sum)
		}
	}
	host("program", programBytes, "code, Go heap, packed matrices")
	return t
}

// OnHost returns the host memory of the run, including device memory if host and devices share one memory.
func (t Table) OnHost() int64 {
	if t.OneMemory {
		return t.Host + t.AllDevices
	}
	return t.Host
}

// planeRows adds the table's rows for the planes beside the weights. Planes with the same kind, owner and type share a
// row of the table.
func (r *Run) planeRows(host addRow) {
	type group struct {
		names []string
		bytes int64
	}
	var order []optim.Plane // without names
	groups := map[optim.Plane]*group{}
	for i, l := range r.Layouts {
		if r.onDisk(i) {
			continue
		}
		for _, p := range r.placed(i) {
			key := p.Plane
			key.Name = ""
			g := groups[key]
			if g == nil {
				g = &group{}
				groups[key], order = g, append(order, key)
			}
			if !slices.Contains(g.names, p.Name) {
				g.names = append(g.names, p.Name)
			}
			g.bytes += optim.Pages(p.ShareBytes(l, r.Share(i)))
		}
	}
	for _, key := range order {
		g := groups[key]
		each := ""
		if key.Block > 1 {
			each = fmt.Sprintf(" for %d elements", key.Block)
		}
		host(key.Kind, g.bytes, "%s of %s, %s%s%s", series(g.names), key.Of, key.DType, each, r.ofAll())
	}
}

// series joins words for a text: "a, b and c".
func series(words []string) string {
	last := len(words) - 1
	if last <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// programBytes is the host memory of a process besides its buffers. It is 96 MiB, as measured: 33
// MiB of code, up to 30 of Go heap, and up to 32 of matrix panels that the CPU's products pack.
const programBytes = 96 << 20

type addRow func(purpose string, bytes int64, detail string, args ...any)

func (r *Run) slabRow(host addRow) {
	var slabs, pool int64
	for i, n := range r.SlabBytes() {
		if slabs += n; i >= r.OwnSlabs() {
			pool += n
		}
	}
	kind := r.gradType()
	switch {
	case r.SlabsAreCredits():
		host("gradient slabs", slabs, "%s × %d", kind, r.Depths.GradSlabs*r.Lanes())
	case r.GradOnDisk == nil:
		host("gradient slabs", slabs, "%s, all layers wait for the norm", kind)
	default:
		host("gradient slabs", slabs-pool, "%s, %d layers wait for the norm in memory", kind, len(r.GradOnDisk)-count(r.GradOnDisk))
		host("gradient slabs", pool, "%s × %d, for layers that wait on disks", kind, r.Depths.GradSlabs*r.Lanes())
	}
	if r.Ranks <= 1 {
		return
	}
	host("exchange buffers", int64(r.Depths.ExchangeBuffers)*r.ExchangeBytes(), "%s × %d, what other ranks send", kind, r.Depths.ExchangeBuffers)
	slabs = 0
	for _, n := range r.ShareSlabBytes() {
		slabs += n
	}
	if waits := "sums over all ranks"; r.Clip {
		host("gradient shares", slabs, "%s, %s, which wait for the norm", kind, waits)
	} else {
		host("gradient shares", slabs, "%s, %s", kind, waits)
	}
	if n := r.CollectBytes(); n > 0 {
		host("collected layer", n, "put together from all ranks for a checkpoint")
	}
}

// gradType names the dtype of a landed gradient in the table's details.
func (r *Run) gradType() string {
	if r.GradBF16 {
		return "bf16"
	}
	return "fp32"
}

// ofAll returns words for a row's details: which fraction of the planes this rank keeps; "" for a
// single rank.
func (r *Run) ofAll() string {
	if r.Ranks <= 1 {
		return ""
	}
	return fmt.Sprintf(", of 1 in %d ranks", r.Ranks)
}

// stagingRows adds the table's rows for staging buffers on the host, through which copies to and from devices go.
func (r *Run) stagingRows(host addRow) {
	var staging, spills, matrices int64
	for _, v := range r.views() {
		staging += held(v.BatchBytes()) + held(v.LossBytes()) + v.RoutingBytes()
		if n := v.SpillBytes(); n > 0 {
			spills += n
		}
		if n := v.MatrixBytes(); n > 0 {
			matrices += int64(r.Depths.MatrixBuffers) * held(n)
		}
	}
	host("staging", staging, "ids, gathered rows and losses of a batch")
	if matrices > 0 {
		host("matrix buffers", matrices, "%s × %d, what host and device hand over", r.Spec.Act, r.Depths.MatrixBuffers)
	}
	if n := r.PassageBytes(); n > 0 {
		host("passed activations", n, "on their way between devices")
	}
	if _, slot := r.ActivationSlotBytes(); slot > 0 {
		n := r.Depths.ActivationSlots * r.Lanes()
		host("hidden states", int64(n)*slot, "%d of %s tokens: the device has chunks of them", n, humanize.Comma(int64(r.Limits.MicroBatchTokens)))
		host("waiting heads", r.ScratchBytes()*int64(r.Lanes()), "what attention reads and writes of the groups of heads that are not at work")
	}
	saved := int64(0)
	for l := range r.Layouts {
		if r.SavedOnHost(l) {
			saved += r.SavedBytes(l)
		}
	}
	if saved > 0 {
		host("saved on host", saved, "%s", cmp.Or(r.TravelWords(), "sums of experts"))
	}
	if spills > 0 {
		host("spilled activations", spills, "layer inputs that do not fit in the slots")
	}
}

// deviceRows adds the table's rows for the memory of one device.
func (r *Run) deviceRows(dev addRow) {
	if r.Context > 0 {
		dev("context", r.Context, "driver, kernels, library workspaces")
	}
	if !r.EvalOnly && r.BufferBytes() > 0 { // otherwise gradients accumulate in the slabs
		buffers := int64(r.Depths.GradBuffers) * held(r.BufferBytes())
		if r.GradBF16 {
			buffers += held(2 * r.BufferElems())
		}
		dev("gradient buffers", buffers, "fp32 × %d", r.Depths.GradBuffers)
	}
	if n := r.slotBytes(); n > 0 {
		dev("weight slots", n, "%s", r.slots())
	}
	if !r.Spec.OnHost {
		dev("activations", int64(r.Depths.ActivationSlots)*held(r.ActivationBytes(r.Limits.MicroBatchTokens)),
			"%d slots of %s tokens", r.Depths.ActivationSlots, humanize.Comma(int64(r.Limits.MicroBatchTokens)))
	}
	if n := r.ExpertStateBytes(); n > 0 {
		dev("activations", held(n), "%s tokens at the experts of a layer", humanize.Comma(int64(r.Limits.Tokens)))
	}
	if n := r.savedBytes(); n > 0 {
		dev("saved for backward", n, "%s", r.keptHere())
	}
	dev("workspace", held(r.WorkspaceBytes()), "of one launch")
	if n := r.MatrixBytes(); n > 0 {
		if !r.Unified {
			dev("matrix buffers", int64(r.Depths.MatrixBuffers)*held(n), "%s × %d, the largest matrix", r.Spec.Act, r.Depths.MatrixBuffers)
		}
		dev("workspace", held(r.MatrixWorkspaceBytes()), "of the iterations on one matrix")
	}
	losses := held(r.LossBytes())
	if n := r.LSEBytes(); n > 0 {
		losses += held(n)
	}
	if r.Unified {
		dev("batch", losses, "losses; the rest is bound in the staging")
	} else {
		dev("batch", held(r.BatchBytes())+losses, "ids, gathered rows and losses")
	}
	dev("tables", r.tableBytes(), "rotary embedding")
}

// slots returns words for the table's row of weight slots: how many there are and what one holds.
func (r *Run) slots() string {
	one, more := "a block", "blocks"
	if r.Experts > 0 {
		one, more = "an expert", "experts"
	}
	if n := r.Spec.Shards(); n > 1 {
		return fmt.Sprintf("%d of %s or one of %d parts of the head", r.Depths.WeightSlots, one, n)
	}
	return fmt.Sprintf("%d %s and the head", r.Depths.WeightSlots, more)
}

func (r *Run) tableBytes() int64 { return 2 * held(4*r.Spec.Config.RopeElems(r.Spec.Positions)) }

// SpillBytes returns the host memory for activations without a slot; 0 if all activations of a step have a slot.
// Otherwise there is room for the inputs of all layers and the gradient of a head in parts, because an activation in a
// slot may also have a copy on the host. An evaluation needs room for one layer's input, which the layer's output then
// overwrites.
func (r *Run) SpillBytes() int64 {
	if r.allActivations() <= r.Depths.ActivationSlots {
		return 0
	}
	if r.EvalOnly {
		return r.ActivationBytes(r.roundTokens())
	}
	return int64(r.activations()) * r.ActivationBytes(r.roundTokens())
}

// Write prints the table for people.
func (t Table) Write(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows := func(list []Row) {
		for _, r := range list {
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\n", r.Where, r.Purpose, humanize.IBytes(uint64(r.Bytes)), r.Detail)
		}
	}
	rows(t.Rows)
	fmt.Fprintf(tw, "  host\ttotal\t%s\t%.2f bytes a parameter for weights and moments\n", humanize.IBytes(uint64(t.Host)), t.PerParam)
	if t.devices == nil {
		fmt.Fprintf(tw, "  device\ttotal\t%s\t\n", humanize.IBytes(uint64(t.Device)))
	}
	for i, n := range t.devices {
		fmt.Fprintf(tw, "  device %d\ttotal\t%s\t\n", i, humanize.IBytes(uint64(n)))
	}
	if t.OneMemory {
		fmt.Fprintf(tw, "  both\ttotal\t%s\thost and device share one memory\n", humanize.IBytes(uint64(t.OnHost())))
	}
	rows(t.Before)
	tw.Flush()
}

// also returns text if holds is true, else "". Details of rows use it for optional parts.
func also(holds bool, text string) string {
	if !holds {
		return ""
	}
	return text
}
