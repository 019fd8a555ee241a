package open

import (
	"fmt"

	"mt/host/numa"
)

// NodeNotes says over which NUMA nodes the memory of a run is laid out, and what the system refused; nothing where there is one node.
func NodeNotes(n *numa.Nodes) []string {
	if n == nil {
		return nil
	}
	notes := []string{fmt.Sprintf("each layer is laid out over %s; threads update first what lies at theirs", n)}
	if refused := n.Note(); refused != "" {
		notes = append(notes, refused)
	}
	return notes
}
