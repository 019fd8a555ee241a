package predict

import (
	"fmt"
	"io"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"mt/base/human"
	"mt/device/virtual"
	"mt/plan"
	"mt/plan/rates"
)

// This file predicts the effect of more hosts, each with one rank. It also finds the tokens per step from which
// computing hides the network.

// hosting is the table over numbers of hosts: 1, 2, 4, … up to the requested number, all with the same rows per step.
type hosting struct {
	Counts []hosted `json:"counts"`
	// HidesFrom is the least number of tokens per step and host, among those tried, from which computing hides the
	// network. Then an infinitely fast network would shorten the step by less than worthIt. 0: there is none.
	HidesFrom int64 `json:"hides_from_tokens,omitempty"`
	TriedTo   int64 `json:"tried_to_tokens"` // largest number of tokens per step and host that was tried
}

// hosted is the line of the table for one number of hosts.
type hosted struct {
	Hosts int `json:"hosts"`
	Swept
	Speedup  float64 `json:"speedup,omitempty"`    // tokens per second over those of one host; 0: unknown
	Network  float64 `json:"network_busy"`         // share of the step in which the network is fully used
	Infinite float64 `json:"gain_network"`         // gain from an infinitely fast network
	Sent     int64   `json:"network_bytes_a_step"` // sent per host; the host receives about as many
}

// unlimited is the factor by which the network's rate is multiplied to predict what an infinitely fast network would
// bring.
const unlimited = 1e3

// hosts predicts q with fewer hosts and finds when computing hides the network. It returns nil for a single
// host.
func (f *forecaster) hosts(q plan.Request) (*hosting, error) {
	m := f.machine
	if q.Ranks <= 1 {
		return nil, nil
	}
	endless := *m
	endless.Network = &rates.Network{Rate: m.Network.Rate * unlimited, Latency: m.Network.Latency}
	var counts []int
	for n := 1; n < q.Ranks; n *= 2 {
		counts = append(counts, n)
	}
	counts = append(counts, q.Ranks)
	var variants, grown []variant
	for _, n := range counts {
		v := q
		v.Ranks = n
		variants = append(variants, variant{fmt.Sprint(n), v})
	}
	for rows := 1; rows*q.RowTokens <= mostSweptTokens/4 && len(grown) < 2*mostSwept; rows *= 2 {
		v := q
		v.Rows = rows * q.Ranks
		grown = append(grown, variant{fmt.Sprintf("%d rows a host", rows), v})
	}
	var on [2][]Swept // [0]: with the network; [1]: with an infinitely fast network
	for i, machine := range []*rates.Machine{m, &endless} {
		tried, err := f.tryAll(append(variants, grown...), machine, 0, 0)
		if err != nil {
			return nil, err
		}
		on[i] = tried
	}
	out := &hosting{}
	for i, n := range counts {
		line := hosted{Hosts: n, Swept: on[0][i], Infinite: gainOf(on[1][i], on[0][i])}
		if p := line.Predicted; p != nil {
			line.Speedup, line.Network = 1+gainOf(on[0][i], on[0][0]), p.Busy[virtual.Network.String()]
			if r, err := plan.Resolve(variants[i].q); err == nil {
				line.Sent = r.WireBytes()
			}
			if on[0][0].Predicted == nil {
				line.Speedup = 0
			}
		}
		out.Counts = append(out.Counts, line)
	}
	for i := range grown {
		s := on[0][len(counts)+i]
		if s.Predicted == nil {
			break // this batch does not fit, and larger ones do not either
		}
		tokens := s.Predicted.Tokens / int64(q.Ranks)
		if out.TriedTo = tokens; gainOf(on[1][len(counts)+i], s) >= worthIt {
			out.HidesFrom = 0
		} else if out.HidesFrom == 0 {
			out.HidesFrom = tokens
		}
	}
	return out, nil
}

// write prints the table, and one line about when the network is hidden.
func (h *hosting) write(w io.Writer) error {
	cells := [][]string{{"hosts", "step s", "tokens/s", "speedup", "stall", "network", "network × ∞", "sent by each", "host memory"}}
	for _, c := range h.Counts {
		p := c.Predicted
		if p == nil {
			cells = append(cells, []string{c.What, "", "", "", "", "", "", "", c.Problem})
			continue
		}
		speedup := ""
		if c.Speedup > 0 {
			speedup = fmt.Sprintf("%.2f", c.Speedup)
		}
		cells = append(cells, []string{c.What, fmt.Sprintf("%.4g", p.Step), humanize.Comma(int64(p.TokensPerSecond)), speedup, percent(p.StallShare),
			percent(c.Network), change(c.Infinite), human.Bytes(c.Sent), human.Bytes(c.Host)})
	}
	if err := align(w, cells); err != nil {
		return err
	}
	n := h.Counts[len(h.Counts)-1].Hosts
	text := fmt.Sprintf("up to %s tokens a step and host, which is the most that was tried, the network does not hide behind the rest", humanize.Comma(h.TriedTo))
	if h.HidesFrom > 0 {
		text = fmt.Sprintf("from %s tokens a step and host on the network hides behind the rest", humanize.Comma(h.HidesFrom))
	}
	if h.TriedTo == 0 {
		text = "no step fits"
	}
	_, err := fmt.Fprintf(w, "with %s, %s\n", english.Plural(n, "host", ""), text)
	return err
}
