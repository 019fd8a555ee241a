package open

import (
	"errors"
	"fmt"
	"slices"

	"mt/base/human"
	"mt/device"
	"mt/device/cuda"
	"mt/internal/doctor/measure"
	"mt/internal/run/config"
	"mt/internal/run/report"
	"mt/internal/run/settings"
	"mt/plan"
)

// inPlacer is a GPU that can use host memory in place.
type inPlacer interface {
	device.Device
	InPlace(on bool) error
}

// settleBinding resolves the key binding (copy weights to the device, or use them in place) and sets open GPUs
// accordingly. The CPU uses them in place. So does a GPU without memory of its own, if it reads host memory as fast as
// memory that it allocates.
func (p *choosing) settleBinding() error {
	c := p.Config
	inPlace, note, err := c.Binding == "unified", "", error(nil)
	switch {
	case c.Device == "cpu":
		inPlace = c.Binding != "copy"
	case c.Binding == "copy":
	case p.Devices == nil:
		inPlace, note, err = p.bindOnPaper()
	default:
		inPlace, note, err = BindInPlace(p.Devices, inPlace, p.ReadRates)
	}
	if err != nil {
		return c.Errorf("binding", "binding: %s: %w; leave binding out or set copy", c.Binding, err)
	}
	if note != "" {
		p.note("%s", note)
	}
	p.Unified, c.Binding = inPlace, "copy"
	if inPlace {
		c.Binding = "unified"
	}
	return nil
}

// bindOnPaper resolves the setting `binding` for a GPU that this machine does not have, from the rates of its profile.
// inPlace says that the GPU computes on weights where they lie in host memory; otherwise weights are copied to the GPU.
// note tells the user the choice; "" means no note.
func (p *choosing) bindOnPaper() (inPlace bool, note string, err error) {
	must := p.Config.Binding == "unified"
	switch {
	case p.Profile == nil && must:
		return false, "", errors.New("a GPU uses host memory in place where it has no memory of its own, and there is none to ask")
	case p.Profile == nil:
		return false, "", nil
	}
	d := p.Profile.Device
	switch {
	case !d.Integrated && must:
		return false, "", fmt.Errorf("the %s has memory of its own, so weights are copied to it", d.Name)
	case !d.Integrated || must:
		return must, "", nil
	case d.HostMemory == 0:
		return false, fmt.Sprintf("weights are copied: the rates of the %s do not say how fast it reads host memory (mt doctor --save measures; binding)", d.Name), nil
	}
	inPlace = plan.InPlacePays(d.Bandwidth, d.HostMemory)
	return inPlace, bindingNote(inPlace, d.Name, 1e9*d.Bandwidth, 1e9*d.HostMemory), nil
}

// BindInPlace makes GPUs use host memory in place in two cases. Either must is true, or all GPUs are integrated and
// read host memory as fast as memory that they allocate. The function rates returns the speeds at which a GPU reads
// memory that it allocates (own) and host memory (host), in bytes per second; 0 means unknown.
func BindInPlace(devs []device.Device, must bool, rates func(device.Device) (own, host float64, err error)) (inPlace bool, note string, err error) {
	if !must && slices.ContainsFunc(devs, func(d device.Device) bool { return !d.Usage().Integrated }) {
		return false, "", nil
	}
	undo := func() error {
		var errs []error
		for _, dev := range devs {
			if d, ok := dev.(inPlacer); ok {
				errs = append(errs, d.InPlace(false))
			}
		}
		return errors.Join(errs...)
	}
	for _, dev := range devs {
		d, ok := dev.(inPlacer)
		if !ok {
			return false, "", errors.Join(fmt.Errorf("the %s does not use host memory in place", dev.Name()), undo())
		}
		switch err := d.InPlace(true); {
		case err != nil && must:
			return false, "", errors.Join(err, undo())
		case err != nil:
			return false, fmt.Sprintf("weights are copied: %v", err), undo()
		}
	}
	if must {
		return true, "", nil
	}
	own, host, err := rates(devs[0])
	if errors.Is(err, cuda.ErrNotPinned) {
		return false, fmt.Sprintf("weights are copied: %v", err), undo()
	}
	if err != nil {
		return false, "", errors.Join(err, undo())
	}
	if inPlace = plan.InPlacePays(own, host); !inPlace {
		err = undo()
	}
	if own > 0 {
		note = bindingNote(inPlace, devs[0].Name(), own, host)
	}
	return inPlace, note, err
}

// OrCopied calls f with c. The system may refuse to pin memory that a GPU would use in place, and only trying shows
// it. If binding is auto, OrCopied then prints a note and calls f again with binding: copy.
func OrCopied(c *config.Config, o settings.Options, f func(*config.Config) error) error {
	err := f(c)
	if c.Binding != "auto" || !errors.Is(err, cuda.ErrNotPinned) {
		return err
	}
	report.ShowAll(o.Stderr, []string{fmt.Sprintf("begun again with weights copied (binding): %v", err)})
	c = c.Clone()
	c.Binding = "copy"
	return f(c)
}

// bindingNote tells the user whether weights are used in place or copied, and the two read rates behind the choice, in
// bytes per second. name is the GPU's.
func bindingNote(inPlace bool, name string, own, host float64) string {
	how := "copied"
	if inPlace {
		how = "used in place"
	}
	return fmt.Sprintf("weights are %s: the %s reads host memory at %s/s and its own at %s/s (binding)", how, name, human.Bytes(int64(host)), human.Bytes(int64(own)))
}

// ReadRates measures at which rate a unified GPU reads and writes memory that it has allocated (own) and pinned host
// memory (host), in bytes per second. host assumes that all operations slow down as matrix products do. Both are 0 if
// memory is short, and for an emulator, whose rates mean nothing.
func (in *Inputs) ReadRates(dev device.Device) (own, host float64, err error) {
	if in.emulated() {
		if f := in.Hooks.ReadRates; f != nil {
			own, host = f()
		}
		return own, host, nil
	}
	return readRates(dev, readElems)
}

// readElems is the number of fp32 values that the measurement of read rates reads. They exceed every cache.
const readElems = 32 << 20

func readRates(dev device.Device, elems int64) (own, host float64, err error) {
	m, err := measure.New(dev, measure.Options{})
	if err != nil {
		return 0, 0, err
	}
	took, share, err := m.InPlace(elems)
	err = errors.Join(err, m.Close())
	if lacking := (*device.OutOfMemory)(nil); errors.As(err, &lacking) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	own = 6 * float64(elems) / took.Median // 4 bytes read and 2 written
	return own, share * own, nil
}
