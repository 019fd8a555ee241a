package open

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"mt/host"
)

// refusing fakes the system calls for NUMA. It has four processors and refuses every request to
// place memory on a node.
type refusing struct{}

func (refusing) Affinity() ([]int, error) { return []int{0, 1, 2, 3}, nil }
func (refusing) CPU() (int, error)        { return 0, nil }
func (refusing) Prefer([]byte, int) error { return errors.New("operation not permitted") }

func TestNodeNotes(t *testing.T) {
	if notes := NodeNotes(nil); notes != nil {
		t.Errorf("one node: %q", notes)
	}
	n := host.FindNodes(fstest.MapFS{
		"sys/devices/system/node/has_memory":    {Data: []byte("0-1")},
		"sys/devices/system/node/node0/cpulist": {Data: []byte("0-1")},
		"sys/devices/system/node/node1/cpulist": {Data: []byte("2-3")},
	}, refusing{})
	notes := NodeNotes(n)
	if len(notes) != 1 || !strings.Contains(notes[0], "2 NUMA nodes (node 0: 2 processors, node 1: 2 processors)") {
		t.Errorf("before anything is placed: %q", notes)
	}
	n.Place(make([]byte, 1), 0)
	if notes := NodeNotes(n); len(notes) != 2 || !strings.Contains(notes[1], "operation not permitted") {
		t.Errorf("after a refusal: %q", notes)
	}
}
