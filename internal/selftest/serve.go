package selftest

import (
	"context"
	"encoding/json"
	"io"
)

// message is one line that a child process writes to its parent.
type message struct {
	// Device and Kind name the device that was opened. They are in the first message.
	Device string `json:"device,omitempty"`
	Kind   string `json:"kind,omitempty"`
	// Unit counts the unit that Running and Done are of.
	Unit int `json:"unit"`
	// Running names the case that begins.
	Running string `json:"running,omitempty"`
	// Done is what a unit found. Notes and Products are those of the process so far.
	Done     *Report   `json:"done,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	Products *products `json:"products,omitempty"`
	// End is in the last message, with the error of opening or closing the device.
	End   bool   `json:"end,omitempty"`
	Error string `json:"error,omitempty"`
}

// Serve is the child's side of Supervise: it opens what is tested, runs the units from the given one on, and writes
// messages to w. Each case is written before it begins. Serve returns after a loss; closing the device might hang then.
// The error is that of writing.
func Serve(ctx context.Context, w io.Writer, from int, open func() (Options, func() error, error)) error {
	out := json.NewEncoder(w)
	o, closing, err := open()
	if err != nil {
		return out.Encode(message{End: true, Error: err.Error()})
	}
	if err := out.Encode(message{Device: o.Device.Name(), Kind: o.Device.Kind()}); err != nil {
		return err
	}
	units := o.units()
	for i := from; i < len(units); i++ {
		var failed error
		done := o.run(ctx, units[i], func(what string) {
			if err := out.Encode(message{Unit: i, Running: what}); failed == nil {
				failed = err
			}
		})
		if failed != nil {
			return failed
		}
		if err := out.Encode(message{Unit: i, Done: done, Notes: notes(o.Device), Products: countProducts(o.Device)}); err != nil || len(done.Losses) > 0 {
			return err
		}
	}
	end := message{End: true}
	if err := closing(); err != nil {
		end.Error = err.Error()
	}
	return out.Encode(end)
}
