package plan

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/dustin/go-humanize"
)

// TestOneMemory: where the device takes the host's memory and tiles are copied all the same, one budget covers both sides,
// what fits into it is found, and the table has the sum.
func TestOneMemory(t *testing.T) {
	q := request()
	q.OneMemory = true
	full := resolve(t, q)
	table := full.Table()
	if full.Binding() != Copied || !table.OneMemory || table.OnHost() != table.Host+table.AllDevices || table.Device == 0 {
		t.Fatalf("binding %d, %+v", full.Binding(), table)
	}
	var text strings.Builder
	table.Write(&text)
	if want := humanize.IBytes(uint64(table.OnHost())); !regexp.MustCompile(`both +total +` + want + ` +host and device share one memory`).MatchString(text.String()) {
		t.Errorf("no sum of %s in\n%s", want, text.String())
	}
	small := least(q)
	need := resolve(t, small).Table().OnHost()
	for _, budget := range []int64{table.OnHost(), (table.OnHost() + need) / 2, need} {
		q.HostMemory = budget
		if why := beyond(resolve(t, q), q); why != "" {
			t.Errorf("with %d bytes: %s", budget, why)
		}
	}
	small.HostMemory = need - 1
	var lack *NotFitting
	if _, err := Resolve(small); !errors.As(err, &lack) || lack.Where != "host" || lack.Need != need {
		t.Errorf("with a byte less than %d: %v", need, err)
	}
	q.OneMemory, q.HostMemory = false, 0
	if got := resolve(t, q); got.Table().OneMemory || got.Table().OnHost() != got.Table().Host {
		t.Errorf("two memories: %+v", got.Table())
	}
}

// TestWaysOutOfOneMemory: where a device takes the host's memory, what spares the device's memory is a way out of a lack of the
// host's; else it is none.
func TestWaysOutOfOneMemory(t *testing.T) {
	for _, one := range []bool{true, false} {
		q := request()
		q.Config.VocabSize = 1 << 20
		q.OneMemory, q.Recompute, q.HeadShards, q.Depths.ActivationSlots, q.HostMemory = one, "none", 1, 9, 1<<20
		_, err := Resolve(q)
		var lack *NotFitting
		if !errors.As(err, &lack) || lack.Where != "host" {
			t.Fatalf("one memory %t: %v", one, err)
		}
		for _, way := range []string{"set recompute: full", "set pipeline.head_shards: ", "set pipeline.activation_slots: 3"} {
			if strings.Contains(lack.Keys, way) != one {
				t.Errorf("one memory %t, %q: %s", one, way, lack.Keys)
			}
		}
	}
}

// TestHeadOfOneMemory: where a head does not fit beside the host's share of one memory, it is cut.
func TestHeadOfOneMemory(t *testing.T) {
	q := least(request())
	q.Config.VocabSize = 1 << 17
	q.OneMemory, q.HeadShards = true, 1
	q.HostMemory = resolve(t, q).Table().OnHost() - 1
	q.HeadShards = 0
	if n := resolve(t, q).Spec.Shards(); n < 2 {
		t.Errorf("the head is in %d shards", n)
	}
}
