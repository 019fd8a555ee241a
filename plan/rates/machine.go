package rates

import "slices"

// Machine is a device, the host that it belongs to, and the link between the two.
// The names of the fields in a file carry their units.
type Machine struct {
	Name   string `json:"name"`             // for people
	Source string `json:"source,omitempty"` // where the figures are from
	Device Device `json:"device"`
	Link   Link   `json:"link"` // not used where the device is unified
	Host   Host   `json:"host"`
	Disk   Disk   `json:"disk"`
	// Network is to the other hosts of a run of several ranks; nil: nothing is known of it.
	Network *Network `json:"network,omitempty"`
	// More are further devices of the host that Device and Link differ from; none: all are as these.
	More []Card `json:"more_devices,omitempty"`
}

// Card is a device with its link.
type Card struct {
	Device Device `json:"device"`
	Link   Link   `json:"link"`
}

// On is m as the host of device i alone, counted from 0. Where m knows of one device only, all
// are like that one.
func (m *Machine) On(i int) *Machine {
	out := *m
	if i > 0 && len(m.More) > 0 {
		out.Device, out.Link = m.More[i-1].Device, m.More[i-1].Link
		out.Link.PerSwitch = m.Link.PerSwitch // the host's switches are those of all its devices
	}
	out.More = nil
	return &out
}

// Changed is m after change has been made to each of its devices with its link. What change
// reaches through a map or a slice it must copy first: m keeps what it has.
func (m *Machine) Changed(change func(d *Device, l *Link)) *Machine {
	out := *m
	out.More = slices.Clone(out.More)
	change(&out.Device, &out.Link)
	for i := range out.More {
		change(&out.More[i].Device, &out.More[i].Link)
	}
	return &out
}

// WithoutPeers is m with devices that do not copy to each other.
func (m *Machine) WithoutPeers() *Machine {
	return m.Changed(func(_ *Device, l *Link) { l.Peer = 0 })
}

// Pace is what the device reaches in products of a dtype, in FLOPs a second, and its link, in
// bytes a second; 0 where there is no rate.
func (m *Machine) Pace(dtype string) (flops, link float64) {
	for _, p := range m.Device.Products[dtype] {
		flops = max(flops, p.Rate*1e12)
	}
	if m.Device.Unified {
		return flops, m.Host.Bandwidth * 1e9
	}
	return flops, m.Link.Up * 1e9
}

// Device is what layers are computed on.
type Device struct {
	Name   string  `json:"name"`
	Kind   string  `json:"kind"`       // cuda or cpu
	Memory float64 `json:"memory_gib"` // what a run may use of the device's memory; 0 for the CPU
	// Unified: the device reads host memory at its own rate, and nothing is copied.
	Unified bool `json:"unified,omitempty"`
	// Integrated: the GPU has no memory of its own. What it takes is the host's, also where it is copied to.
	Integrated bool `json:"integrated,omitempty"`
	// SM90a: the GPU runs kernels for sm_90a, which H100, H200 and GH200 alone do.
	SM90a bool `json:"sm90a,omitempty"`
	// Bandwidth is what operations read and write in device memory that Ops does not name.
	Bandwidth float64 `json:"memory_gb_per_s"`
	// HostMemory is the same for operations and products on pinned host memory in place, of an integrated GPU; 0: not measured.
	HostMemory float64 `json:"host_memory_gb_per_s,omitempty"`
	// Launch is what an operation takes on the stream beyond its work; Enqueue is what the host
	// takes to enqueue it.
	Launch  float64 `json:"launch_us"`
	Enqueue float64 `json:"enqueue_us"`
	// Restart is what operations lose in all after the device stood still for as long or longer: a
	// CPU's cores take a while until all of them are at work again.
	Restart float64 `json:"restart_us,omitempty"`
	// Products and Attention are by the dtype of the operands: bf16 or fp32. There is at least
	// one of each for a dtype that the device computes in.
	Products  map[string][]Product   `json:"products"`
	Attention map[string][]Attention `json:"attention"`
	// Ops are operations, by their names, that do not reach Bandwidth.
	Ops map[string]Op `json:"ops,omitempty"`
	// Sources says where figures are from, by the names of fields in the file.
	Sources map[string]string `json:"sources,omitempty"`
}

// Product is the rate of one shape of matrix products: D (M, N) = A (M, K) · B (K, N).
// Without a shape (zeros) it is the rate that large products reach.
type Product struct {
	M      int     `json:"m,omitempty"`
	N      int     `json:"n,omitempty"`
	K      int     `json:"k,omitempty"`
	TransA bool    `json:"trans_a,omitempty"`
	TransB bool    `json:"trans_b,omitempty"`
	Rate   float64 `json:"tflops"`
}

// Attention is the rate of causal attention over sequences of Length tokens, heads of Dim
// elements. Masked pairs do not count; a forward counts two products, a backward five.
type Attention struct {
	Length   int     `json:"length"`
	Dim      int     `json:"dim"`
	Forward  float64 `json:"forward_tflops"`
	Backward float64 `json:"backward_tflops"`
}

// Op is what one kind of operation reaches, counted in the bytes that it must read and
// write.
type Op struct {
	Fixed float64 `json:"fixed_us"` // what it takes however small it is, with its launch
	Rate  float64 `json:"gb_per_s"`
	Cores float64 `json:"cores,omitempty"` // of the CPU: how many it keeps busy; 0: all
}

// Link is between the host's memory and the device's, and between devices.
type Link struct {
	Up      float64 `json:"h2d_gb_per_s"`  // while nothing goes down
	Down    float64 `json:"d2h_gb_per_s"`  // while nothing goes up
	Both    float64 `json:"both_gb_per_s"` // up and down together, while both are busy
	Latency float64 `json:"latency_us"`    // of a copy, however small
	// Cores is how many cores of the host a copy keeps busy: 0 where the device's copy engines
	// do it, 1 on the CPU device.
	Cores float64 `json:"cores,omitempty"`
	// Pin is what host memory is pinned at, by as many threads as a run takes; 0: nobody has measured it.
	Pin float64 `json:"pin_gb_per_s,omitempty"`
	// Peer is what one of several devices copies to another at, without the host; 0: they do not,
	// and what passes between them goes through the host.
	Peer float64 `json:"peer_gb_per_s,omitempty"`
	// Wires: such copies have wires of their own (NVLink). Else they go over the devices' links.
	Wires bool `json:"peer_wires,omitempty"`
	// PerSwitch is how many devices share one link to the host, as fast as that of one, behind a
	// switch of PCI Express; 0 or 1: each has its own.
	PerSwitch int               `json:"devices_per_switch,omitempty"`
	Sources   map[string]string `json:"sources,omitempty"`
}

// Host is the memory and the cores on the host's side. Rates are those of all cores
// together, when nothing else runs.
type Host struct {
	Name   string  `json:"name"`
	Cores  int     `json:"cores"`
	Memory float64 `json:"memory_gib"`
	// Bandwidth is what a copy by all cores reads and writes.
	Bandwidth float64 `json:"memory_gb_per_s"`
	// Update is what an AdamW update reads and writes; Norm what the sum of squares of a
	// gradient reads; Gather what collecting the batch's rows reads and writes.
	Update Op `json:"update"`
	// Updates is the same of other optimizers, by the name that they have in a config. That of muon is of what the
	// host does with matrices: their momentum and their weights. An optimizer that is missing is as fast as AdamW.
	Updates map[string]Op `json:"updates,omitempty"`
	Norm    Op            `json:"norm"`
	Gather  Op            `json:"gather"`
	// Pack is what packing a batch takes for a million tokens.
	Pack float64 `json:"pack_s_per_mtoken"`
	// Message is what a message between two actors takes.
	Message float64           `json:"message_us"`
	Sources map[string]string `json:"sources,omitempty"`
}

// UpdateBy is what an update by an optimizer reads and writes.
func (h *Host) UpdateBy(optimizer string) Op {
	if o, ok := h.Updates[optimizer]; ok {
		return o
	}
	return h.Update
}

// Network is what a host sends to others at, and at the same time receives from them at.
type Network struct {
	Rate    float64 `json:"gb_per_s"`
	Latency float64 `json:"latency_us"` // of an exchange, however small
}

// Disk is where checkpoints go.
type Disk struct {
	Write float64 `json:"write_gb_per_s"`
	Read  float64 `json:"read_gb_per_s"`
}
