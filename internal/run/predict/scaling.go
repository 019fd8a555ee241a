package predict

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"mt/actors"
	"mt/device/virtual"
	"mt/internal/run/resolve"
	"mt/plan"
	"mt/plan/rates"
)

// This file predicts the effect of more devices, what limits them, and what would help.

// scaling is the table over numbers of devices: 1, 2, 4, … up to the run's.
type scaling struct {
	Counts []scaled `json:"counts"`
	// HostFrom is the smallest number of devices at which the host limits the run; 0: the host never does.
	HostFrom int `json:"host_from,omitempty"`
	// Help lists the gains in tokens per second from possible changes, with the run's devices, largest first.
	Help []gain `json:"help"`
}

// scaled is the line of the table for one number of devices.
type scaled struct {
	Devices int `json:"devices"`
	Swept
	Speedup float64 `json:"speedup,omitempty"` // tokens per second over those of one device with the same order of micro-batches; 0: unknown
	Turns   float64 `json:"turns"`             // share of the devices' time spent waiting for each other
	Busiest string  `json:"busiest"`           // name of the resource that is busy for the largest share of the step
	Host    float64 `json:"gain_host"`         // gain from a host with twice as fast memory and cores
	Links   float64 `json:"gain_links"`        // gain from links twice as fast
	Limit   string  `json:"limit"`             // host memory, host cores, links, turns or devices
}

// gain is the effect of a change: 0.1 means 10 % more tokens per second.
type gain struct {
	What string  `json:"what"`
	Gain float64 `json:"gain"`
}

// limiting is a relative gain in tokens per second. A resource counts as the limit if doubling its rate gains more
// than this.
const limiting = 0.1

// scale predicts q with 1, 2, 4 and so on up to q's number of devices, and finds what limits each number. It
// returns nil for a single device.
func (f *forecaster) scale(q plan.Request) (*scaling, error) {
	m := f.machine
	if q.Devices <= 1 {
		return nil, nil
	}
	var counts []int
	for n := 1; n < q.Devices; n *= 2 {
		counts = append(counts, n)
	}
	counts = append(counts, q.Devices)
	var variants []variant
	for _, n := range counts {
		v := q
		v.Devices, v.Paces, v.LaneMemory = n, q.Paces[:min(n, len(q.Paces))], q.LaneMemory[:min(n, len(q.LaneMemory))]
		variants = append(variants, variant{fmt.Sprint(n), v})
	}
	on := map[string][]Swept{}
	for name, machine := range map[string]*rates.Machine{"": m, "host": fasterHost(m), "links": fasterLinks(m)} {
		tried, err := f.tryAll(variants, machine, 0, 0)
		if err != nil {
			return nil, err
		}
		on[name] = tried
	}
	out := &scaling{}
	for i, s := range on[""] {
		line := scaled{Devices: counts[i], Swept: s}
		if s.Predicted != nil {
			line.Host, line.Links = gainOf(on["host"][i], s), gainOf(on["links"][i], s)
			if first := on[""][0]; first.Predicted != nil {
				line.Speedup = 1 + gainOf(s, first)
			}
			line.judge()
		}
		if on := line.Limit; on == virtual.HostMemory.String() || on == virtual.Cores.String() {
			out.HostFrom = cmp.Or(out.HostFrom, line.Devices)
		} else {
			out.HostFrom = 0
		}
		out.Counts = append(out.Counts, line)
	}
	return out, f.advise(out, q)
}

// gainOf returns how many more tokens per second s has than base, as a part of base's. It returns 0 if s or base has
// no prediction.
func gainOf(s, base Swept) float64 {
	if s.Predicted == nil || base.Predicted == nil {
		return 0
	}
	return s.Predicted.TokensPerSecond/base.Predicted.TokensPerSecond - 1
}

// fasterHost returns m with host memory and cores twice as fast.
func fasterHost(m *rates.Machine) *rates.Machine {
	f := *m
	f.Host.Bandwidth *= 2
	for _, o := range []*rates.Op{&f.Host.Update, &f.Host.Norm, &f.Host.Gather} {
		o.Rate *= 2
	}
	f.Host.Updates = maps.Clone(f.Host.Updates)
	for name, o := range f.Host.Updates {
		o.Rate *= 2
		f.Host.Updates[name] = o
	}
	return &f
}

// fasterLinks returns m with links twice as fast.
func fasterLinks(m *rates.Machine) *rates.Machine {
	return m.Changed(func(_ *rates.Device, l *rates.Link) {
		l.Up, l.Down, l.Both = 2*l.Up, 2*l.Down, 2*l.Both
		if !l.Wires { // copies between devices use the same links
			l.Peer *= 2
		}
	})
}

// judge sets the busiest resource of s and what limits it. s must have a prediction.
func (s *scaled) judge() {
	busy := s.Predicted.Busy
	for r := range virtual.NumResources {
		if name := r.String(); busy[name] > busy[s.Busiest] {
			s.Busiest = name
		}
	}
	s.Turns = s.Predicted.Stall[actors.StallPassage.String()] / s.Predicted.Step
	switch {
	case s.Host >= limiting && s.Host >= s.Links && busy[virtual.Cores.String()] > busy[virtual.HostMemory.String()]:
		s.Limit = virtual.Cores.String()
	case s.Host >= limiting && s.Host >= s.Links:
		s.Limit = virtual.HostMemory.String()
	case s.Links >= limiting:
		s.Limit = "links"
	case s.Turns >= resolve.IdleEnough:
		s.Limit = "turns"
	default:
		s.Limit = "devices"
	}
}

// advise predicts the run with each of several changes, such as a faster host, and lists those that help in s.Help.
func (f *forecaster) advise(s *scaling, q plan.Request) error {
	last := s.Counts[len(s.Counts)-1]
	if last.Predicted == nil {
		return nil
	}
	rows, halves := q, q
	rows.Rows *= 2
	r, err := plan.Resolve(q)
	if err != nil {
		return err
	}
	variants := []variant{{"twice the rows a step", rows}}
	if halves.MicroBatchTokens = max(q.RowTokens, r.Limits.MicroBatchTokens/2); halves.MicroBatchTokens < r.Limits.MicroBatchTokens {
		variants = append(variants, variant{fmt.Sprintf("pipeline.micro_batch_tokens: %d", halves.MicroBatchTokens), halves})
	}
	tried, err := f.tryAll(variants, f.machine, 0, 0)
	if err != nil {
		return err
	}
	host := "twice the memory channels"
	if last.Limit == virtual.Cores.String() {
		host = "twice the cores on the host"
	}
	s.Help = []gain{{host, last.Host}, {"links twice as fast", last.Links}}
	for _, t := range tried {
		s.Help = append(s.Help, gain{t.What, gainOf(t, last.Swept)})
	}
	slices.SortStableFunc(s.Help, func(a, b gain) int { return cmp.Compare(b.Gain, a.Gain) })
	return nil
}

// write prints the table, and one line about the limit and what would help.
func (s *scaling) write(w io.Writer) error {
	cells := [][]string{{"devices", "step s", "tokens/s", "speedup", "stall", "turns", "busiest", "host × 2", "links × 2", "limit"}}
	for _, c := range s.Counts {
		if p := c.Predicted; p == nil {
			cells = append(cells, []string{c.What, "", "", "", "", "", "", "", "", c.Problem})
		} else {
			speedup := ""
			if c.Speedup > 0 {
				speedup = fmt.Sprintf("%.2f", c.Speedup)
			}
			cells = append(cells, []string{c.What, fmt.Sprintf("%.4g", p.Step), humanize.Comma(int64(p.TokensPerSecond)), speedup, percent(p.StallShare), percent(c.Turns),
				fmt.Sprintf("%s %s", c.Busiest, percent(p.Busy[c.Busiest])), change(c.Host), change(c.Links), c.Limit})
		}
	}
	if err := align(w, cells); err != nil {
		return err
	}
	last := s.Counts[len(s.Counts)-1]
	if last.Predicted == nil {
		return nil
	}
	from := fmt.Sprintf("with %d devices the host is not the limit", last.Devices)
	if s.HostFrom > 0 {
		from = fmt.Sprintf("from %s on the host is the limit (%s)", english.Plural(s.HostFrom, "device", ""), last.Limit)
	}
	var help []string
	for _, g := range s.Help {
		if g.Gain >= worthIt {
			help = append(help, g.What+" "+change(g.Gain))
		}
	}
	if help == nil {
		help = []string{"nothing that mt tried"}
	}
	_, err := fmt.Fprintf(w, "%s; with %d devices tokens a second would rise by: %s\n", from, last.Devices, strings.Join(help, ", "))
	return err
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

// change formats part, a relative gain or loss, in percent with its sign. Values that round to zero print as +0 %.
func change(part float64) string {
	return fmt.Sprintf("%+.0f %%", math.Round(100*part)+0) // −0 + 0 is +0
}
