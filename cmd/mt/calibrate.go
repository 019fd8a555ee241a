package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"mt/device"
	"mt/internal/doctor"
	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/plan/rates"
)

// saveRates measures the machine and writes its rates to file. dir is a folder on the disk to measure. kind is the
// kind of device: auto, cpu or cuda. devices is a number of GPUs, or auto for all of them. asJSON prints the rates as
// JSON too.
func (a *app) saveRates(ctx context.Context, file, dir, kind, devices string, asJSON bool) error {
	if err := checkTarget(file); err != nil {
		return err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return config.Usagef("doctor: --dir %s: not a folder to write to", dir)
	}
	devs, err := calibrated(kind, devices)
	if err != nil {
		return err
	}
	m, err := doctor.Calibrate(ctx, doctor.CalibrateOptions{Device: devs[0], More: devs[1:], Host: doctor.Processor(os.DirFS("/")), Dir: dir,
		Progress: func(what string, part, parts int) {
			fmt.Fprintf(a.stderr, "measuring %s (%d of %d)\n", what, part, parts)
		}})
	if err = errors.Join(err, machine.CloseAll(devs)); err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	if err := m.Save(file); err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	if m, err = rates.Load(file); err != nil { // as every other command will read it
		return fmt.Errorf("doctor: %w", err)
	}
	if asJSON {
		return a.json(m)
	}
	return writeRates(a.stdout, m, file)
}

// checkTarget returns an error if file cannot be written. It runs before the measurements.
func checkTarget(file string) error {
	dir := filepath.Dir(file)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return config.Usagef("doctor: --save %s: there is no folder %s; make it first", file, dir)
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return config.Usagef("doctor: --save %s: that is a folder; give the name of a file in it, such as %s", file, filepath.Join(file, "rates.json"))
	}
	return nil
}

// calibrated opens the devices whose rates are measured. kind is auto, cpu or cuda; auto means the GPUs or, without a
// usable one, the CPU. devices is a number of devices, or auto for all of them.
func calibrated(kind, devices string) ([]device.Device, error) {
	n := 0 // all
	if devices != "auto" {
		var err error
		if n, err = strconv.Atoi(devices); err != nil || n < 1 {
			return nil, config.Usagef("doctor: --devices %q: want auto or a number of devices, such as 2", devices)
		}
	}
	if kind != "cpu" && !machine.Emulated() {
		devs, err := machine.OpenAll(machine.Options{Device: "cuda"}, n)
		if err == nil || kind == "cuda" {
			return devs, err
		}
	}
	if kind == "cuda" {
		return nil, config.Usagef("doctor: --save: in this build device: cuda is an emulator, whose rates mean nothing; take --device cpu")
	}
	return machine.OpenAll(machine.Options{Device: "cpu", Unified: true}, n)
}

// showProfile prints the rates that name stands for (a profile of mt or a file), or writes them to file unless file is
// "".
func (a *app) showProfile(name, file string, asJSON bool) error {
	m, err := rates.Find(name)
	if err != nil {
		return config.Usagef("doctor: --profile: %w", err)
	}
	if file != "" {
		if err := checkTarget(file); err != nil {
			return err
		}
		if err := m.Save(file); err != nil {
			return fmt.Errorf("doctor: %w", err)
		}
	}
	if asJSON {
		return a.json(m)
	}
	if err := writeRates(a.stdout, m, file); err != nil {
		return err
	}
	for _, part := range []struct {
		what    string
		sources map[string]string
	}{{"device", m.Device.Sources}, {"link", m.Link.Sources}, {"host", m.Host.Sources}} {
		for _, field := range slices.Sorted(maps.Keys(part.sources)) {
			if _, err := fmt.Fprintf(a.stdout, "%s.%s: %s\n", part.what, field, part.sources[field]); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeRates prints a summary of the rates m for the user. If file is not "", it also names that
// file with all rates.
func writeRates(w io.Writer, m *rates.Machine, file string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range 1 + len(m.More) {
		writeCard(t, m.On(i))
	}
	fmt.Fprintf(t, "host\t%d cores, a copy %.4g GB/s, updates %.4g, norms %.4g, rows %.4g\n", m.Host.Cores, m.Host.Bandwidth, m.Host.Update.Rate, m.Host.Norm.Rate, m.Host.Gather.Rate)
	if len(m.Host.Updates) > 0 {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(m.Host.Updates)) {
			all = append(all, fmt.Sprintf("%s %.4g", name, m.Host.Updates[name].Rate))
		}
		fmt.Fprintf(t, "other updates\t%s GB/s\n", strings.Join(all, ", "))
	}
	fmt.Fprintf(t, "disk\t%.4g GB/s written, %.4g read\n", m.Disk.Write, m.Disk.Read)
	if file != "" {
		fmt.Fprintf(t, "saved\t%s\n", file)
	}
	return t.Flush()
}

// writeCard prints the rates of m's device and link, for writeRates.
func writeCard(w io.Writer, m *rates.Machine) {
	fmt.Fprintf(w, "device\t%s\n", m.Device.Name)
	for _, dtype := range []string{"bf16", "fp32"} {
		var product, forward, backward float64
		for _, p := range m.Device.Products[dtype] {
			product = max(product, p.Rate)
		}
		for _, r := range m.Device.Attention[dtype] {
			forward, backward = max(forward, r.Forward), max(backward, r.Backward)
		}
		fmt.Fprintf(w, "%s\tproducts up to %.4g TFLOP/s, attention up to %.4g and backward %.4g\n", dtype, product, forward, backward)
	}
	fmt.Fprintf(w, "device memory\t%.4g GB/s; an operation takes %.3g µs, and %.3g µs to enqueue\n", m.Device.Bandwidth, m.Device.Launch, m.Device.Enqueue)
	if m.Device.HostMemory > 0 {
		fmt.Fprintf(w, "host memory in place\t%.4g GB/s\n", m.Device.HostMemory)
	}
	fmt.Fprintf(w, "link\t%.4g GB/s up, %.4g down, %.4g both at once\n", m.Link.Up, m.Link.Down, m.Link.Both)
	if m.Link.Pin > 0 {
		fmt.Fprintf(w, "pinning\t%.4g GB/s of host memory\n", m.Link.Pin)
	}
	if m.Link.Peer > 0 {
		how := "over the link"
		if m.Link.Wires {
			how = "over wires of its own"
		}
		fmt.Fprintf(w, "to other devices\t%.4g GB/s, %s\n", m.Link.Peer, how)
	}
}
