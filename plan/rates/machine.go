package rates

import "slices"

// Machine has the rates of a device, of its host and of the link between the two. Field names in a rates file include
// the units.
type Machine struct {
	Name   string `json:"name"`             // for people
	Source string `json:"source,omitempty"` // source of the figures
	Device Device `json:"device"`
	Link   Link   `json:"link"` // unused if the device is unified
	Host   Host   `json:"host"`
	Disk   Disk   `json:"disk"`
	// Network connects the hosts of a run with several ranks; nil: unknown.
	Network *Network `json:"network,omitempty"`
	// More has the other devices of the host, if they differ from Device and Link; nil: all devices of the host are
	// equal.
	More []Card `json:"more_devices,omitempty"`
}

// Card is a device with its link.
type Card struct {
	Device Device `json:"device"`
	Link   Link   `json:"link"`
}

// On returns m with device i (from 0) as its only device. If m describes one device only, all devices equal it.
func (m *Machine) On(i int) *Machine {
	out := *m
	if i > 0 && len(m.More) > 0 {
		out.Device, out.Link = m.More[i-1].Device, m.More[i-1].Link
		out.Link.PerSwitch = m.Link.PerSwitch // the devices of a host share its PCIe switches
	}
	out.More = nil
	return &out
}

// Changed returns a copy of m in which change was applied to each device and its link. The copies share their maps and
// slices with m, so change must clone the maps and slices that it modifies.
func (m *Machine) Changed(change func(d *Device, l *Link)) *Machine {
	out := *m
	out.More = slices.Clone(out.More)
	change(&out.Device, &out.Link)
	for i := range out.More {
		change(&out.More[i].Device, &out.More[i].Link)
	}
	return &out
}

// WithoutPeers returns a copy of m whose devices copy to each other only through the host.
func (m *Machine) WithoutPeers() *Machine {
	return m.Changed(func(_ *Device, l *Link) { l.Peer = 0 })
}

// Pace returns the rate of the device's fastest matrix product in a dtype, in FLOPs a second, and the link's rate in
// bytes a second; 0: unknown. For a unified device, which has no link, it returns the rate of host memory instead.
func (m *Machine) Pace(dtype string) (flops, link float64) {
	for _, p := range m.Device.Products[dtype] {
		flops = max(flops, p.Rate*1e12)
	}
	if m.Device.Unified {
		return flops, m.Host.Bandwidth * 1e9
	}
	return flops, m.Link.Up * 1e9
}

// Device is the processor that computes layers.
type Device struct {
	Name   string  `json:"name"`
	Kind   string  `json:"kind"`       // cuda or cpu
	Memory float64 `json:"memory_gib"` // memory available to a run; 0 for the CPU
	// Unified: the device computes on host memory at its own rate, without copies.
	Unified bool `json:"unified,omitempty"`
	// Integrated: the GPU uses the host's memory, also for copies of host data.
	Integrated bool `json:"integrated,omitempty"`
	// SM90a: the GPU runs kernels for sm_90a, NVIDIA's instruction set of H100, H200 and GH200 only.
	SM90a bool `json:"sm90a,omitempty"`
	// Bandwidth is the rate of device memory, bytes read and written, for all operations that Ops does not list.
	Bandwidth float64 `json:"memory_gb_per_s"`
	// HostMemory is the same rate when an integrated GPU computes on pinned host memory without a copy; 0: not
	// measured.
	HostMemory float64 `json:"host_memory_gb_per_s,omitempty"`
	// Launch is the fixed time that an operation takes on the stream, whatever its size. Enqueue is the host's time to
	// enqueue an operation.
	Launch  float64 `json:"launch_us"`
	Enqueue float64 `json:"enqueue_us"`
	// Restart is how much an idle device is delayed when it gets work again: a CPU's cores take a
	// while until all are at work. After a shorter idle time the delay is at most that time.
	Restart float64 `json:"restart_us,omitempty"`
	// Products and Attention are keyed by the dtype of the operands: bf16 or fp32. Each dtype that the device computes
	// in has at least one entry in both.
	Products  map[string][]Product   `json:"products"`
	Attention map[string][]Attention `json:"attention"`
	// Ops has the costs, by name, of operations that do not reach Bandwidth.
	Ops map[string]Op `json:"ops,omitempty"`
	// Sources has the sources of the figures, by field name in the file.
	Sources map[string]string `json:"sources,omitempty"`
}

// Product is the rate of matrix products of one shape: D (M, N) = A (M, K) · B (K, N). If M, N and K are 0, it is the
// rate of all large products.
type Product struct {
	M      int     `json:"m,omitempty"`
	N      int     `json:"n,omitempty"`
	K      int     `json:"k,omitempty"`
	TransA bool    `json:"trans_a,omitempty"`
	TransB bool    `json:"trans_b,omitempty"`
	Rate   float64 `json:"tflops"`
}

// Attention is the rate of causal attention over sequences of Length tokens with heads of Dim elements. FLOPs of masked
// pairs do not count. The forward counts two matrix products, the backward five.
type Attention struct {
	Length   int     `json:"length"`
	Dim      int     `json:"dim"`
	Forward  float64 `json:"forward_tflops"`
	Backward float64 `json:"backward_tflops"`
}

// Op is the cost of one kind of operation: a fixed time, and a time for the bytes that it must read and write.
type Op struct {
	Fixed float64 `json:"fixed_us"` // time of an operation of any size, including the launch
	Rate  float64 `json:"gb_per_s"`
	Cores float64 `json:"cores,omitempty"` // cores of the CPU kept busy; 0: all
}

// Link has the rates between host memory and device memory, and between devices.
type Link struct {
	Up      float64 `json:"h2d_gb_per_s"`  // host to device, while nothing is copied to the host
	Down    float64 `json:"d2h_gb_per_s"`  // device to host, while nothing is copied to the device
	Both    float64 `json:"both_gb_per_s"` // sum of both directions while both are busy
	Latency float64 `json:"latency_us"`    // fixed time of a copy of any size
	// Cores is the number of host cores that a copy keeps busy: 0 if the device's copy engines do it, 1 on the CPU
	// device.
	Cores float64 `json:"cores,omitempty"`
	// Pin is the rate of pinning host memory with the number of threads that a run uses; 0: not measured.
	Pin float64 `json:"pin_gb_per_s,omitempty"`
	// Peer is the rate of copies between devices that do not go through the host; 0: no such copies are possible, so
	// the data go through the host.
	Peer float64 `json:"peer_gb_per_s,omitempty"`
	// Wires: copies between devices use wires of their own (NVLink). Otherwise they use the devices' links to the host.
	Wires bool `json:"peer_wires,omitempty"`
	// PerSwitch is the number of devices that share one link to the host behind a PCIe switch. The shared link is as
	// fast as one device's link. 0 or 1: each device has its own link.
	PerSwitch int               `json:"devices_per_switch,omitempty"`
	Sources   map[string]string `json:"sources,omitempty"`
}

// Host describes host memory and cores. Rates are for all cores together, with nothing else running.
type Host struct {
	Name   string  `json:"name"`
	Cores  int     `json:"cores"`
	Memory float64 `json:"memory_gib"`
	// Bandwidth is the rate of a copy by all cores, read and written.
	Bandwidth float64 `json:"memory_gb_per_s"`
	// Update is the cost of an AdamW update, by bytes read and written. Norm is the cost of summing the squares of a
	// gradient, by bytes read. Gather is the cost of collecting the batch's rows of the embedding, by bytes read and
	// written.
	Update Op `json:"update"`
	// Updates has the costs of other optimizers' updates, by the optimizer's name in a config. The entry for muon
	// covers the host's work on matrices: their momentum and their weights. An optimizer without an entry costs as much
	// as AdamW.
	Updates map[string]Op `json:"updates,omitempty"`
	Norm    Op            `json:"norm"`
	Gather  Op            `json:"gather"`
	// Pack is the time for packing a million tokens into a batch.
	Pack float64 `json:"pack_s_per_mtoken"`
	// Message is the time of a message between two actors.
	Message float64           `json:"message_us"`
	Sources map[string]string `json:"sources,omitempty"`
}

// UpdateBy returns the cost of an update by the named optimizer.
func (h *Host) UpdateBy(optimizer string) Op {
	if o, ok := h.Updates[optimizer]; ok {
		return o
	}
	return h.Update
}

// Network has the rate at which a host sends to other hosts while it receives at the same rate.
type Network struct {
	Rate    float64 `json:"gb_per_s"`
	Latency float64 `json:"latency_us"` // fixed time of an exchange of any size
}

// Disk has the rates of the disk on which checkpoints are.
type Disk struct {
	Write float64 `json:"write_gb_per_s"`
	Read  float64 `json:"read_gb_per_s"`
}
