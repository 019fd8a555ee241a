package host

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mt/base/parallel"
)

// NodeSystem is what is asked of the operating system. Tests have one of their own.
type NodeSystem interface {
	// Affinity lists the processors that this process may run on.
	Affinity() ([]int, error)
	// CPU is the processor that the calling thread runs on at the moment.
	CPU() (int, error)
	// Prefer has those pages of b which nobody has touched yet come from the memory of a node, and from others
	// when that is full. b begins and ends with a page.
	Prefer(b []byte, node int) error
}

// Node is a node that has memory and processors, both of which this process may use.
type Node struct {
	ID   int   // as the system counts
	CPUs []int // its processors, ascending
}

// Nodes are the nodes over which memory is laid out: each has a share as large as its share of the processors. A nil
// *Nodes is a machine with one node, where nothing is laid out.
type Nodes struct {
	all    []Node
	before []int       // by node, and once more: how many processors the nodes before it have
	of     map[int]int // by processor, which of all it belongs to
	sys    NodeSystem

	mu   sync.Mutex
	note string // see Note
}

// FindNodes reads from the file system with that root which nodes there are, and returns nil where there is nothing to lay out: on one node, where
// nothing is known, and where the user has chosen a memory policy, as with numactl. Source:
// https://docs.kernel.org/admin-guide/mm/numaperf.html, proc_pid_status(5), proc_pid_numa_maps(5).
func FindNodes(root fs.FS, sys NodeSystem) *Nodes {
	allowed, err := sys.Affinity()
	if err != nil || memoryPolicy(root) != "default" {
		return nil
	}
	memory := nodeList(nodeText(root, "sys/devices/system/node/has_memory"))
	if mine, ok := memsAllowed(root); ok {
		memory = slices.DeleteFunc(memory, func(id int) bool { return !slices.Contains(mine, id) })
	}
	n := &Nodes{before: []int{0}, of: map[int]int{}, sys: sys}
	for _, id := range memory {
		cpus := nodeList(nodeText(root, fmt.Sprintf("sys/devices/system/node/node%d/cpulist", id)))
		cpus = slices.DeleteFunc(cpus, func(c int) bool { return !slices.Contains(allowed, c) })
		if len(cpus) == 0 {
			continue // memory without processors, such as a GPU's, or those of others
		}
		for _, c := range cpus {
			n.of[c] = len(n.all)
		}
		n.all = append(n.all, Node{id, cpus})
		n.before = append(n.before, n.before[len(n.before)-1]+len(cpus))
	}
	if len(n.all) < 2 {
		return nil
	}
	return n
}

// WithoutProcessors lists the nodes that have memory and no processors, in ascending order. A GH200 shows its GPU's memory
// as such a node. root is as in Find.
func WithoutProcessors(root fs.FS) []int {
	return slices.DeleteFunc(nodeList(nodeText(root, "sys/devices/system/node/has_memory")), func(id int) bool {
		cpus, err := fs.ReadFile(root, fmt.Sprintf("sys/devices/system/node/node%d/cpulist", id))
		return err != nil || len(nodeList(string(cpus))) > 0
	})
}

// memoryPolicy is the memory policy of the process, "default" where nobody has set one or none is known.
func memoryPolicy(root fs.FS) string {
	if words := strings.Fields(nodeText(root, "proc/self/numa_maps")); len(words) > 1 {
		return words[1]
	}
	return "default"
}

// memsAllowed lists the nodes whose memory the process's cpuset allows, if that is known.
func memsAllowed(root fs.FS) ([]int, bool) {
	for line := range strings.Lines(nodeText(root, "proc/self/status")) {
		if nodes, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
			return nodeList(nodes), true
		}
	}
	return nil, false
}

// nodeText is a file's content without the space around it, "" where it cannot be read.
func nodeText(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// mostListed is how many numbers a list has at most: more than Linux can be built for.
const mostListed = 1 << 16

// nodeList reads numbers such as 0-3,8. What is no number is left out.
func nodeList(text string) (out []int) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := strconv.Atoi(first)
		to := from
		if isRange && err == nil {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from < 0 || to >= mostListed {
			continue
		}
		for i := from; i <= to; i++ {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Count is how many nodes there are, 1 of nil.
func (n *Nodes) Count() int {
	if n == nil {
		return 1
	}
	return len(n.all)
}

// List is a copy of the nodes; none of nil.
func (n *Nodes) List() []Node {
	if n == nil {
		return nil
	}
	return slices.Clone(n.all)
}

// String is like "2 NUMA nodes (node 0: 16 processors, node 1: 16 processors)".
func (n *Nodes) String() string {
	if n == nil {
		return "one NUMA node"
	}
	var each []string
	for _, o := range n.all {
		each = append(each, fmt.Sprintf("node %d: %d processors", o.ID, len(o.CPUs)))
	}
	return fmt.Sprintf("%d NUMA nodes (%s)", len(n.all), strings.Join(each, ", "))
}

// Cut is where the k-th node's part of total begins, be they bytes or elements; k of Count is the end.
func (n *Nodes) Cut(total int64, k int) int64 {
	if n == nil {
		return total * int64(k)
	}
	all := int64(n.before[len(n.all)])
	at := int64(n.before[k])
	return total/all*at + total%all*at/all
}

// Part is the node in whose part of total the element at lies: k with Cut(k) ≤ at < Cut(k+1).
func (n *Nodes) Part(total, at int64) int {
	k := 0
	for k+1 < n.Count() && n.Cut(total, k+1) <= at {
		k++
	}
	return k
}

// Place has the pages of b, which nobody has touched, come from the k-th node. What the system refuses is noted.
func (n *Nodes) Place(b []byte, k int) {
	if n == nil || len(b) == 0 {
		return
	}
	if err := n.sys.Prefer(b, n.all[k].ID); err != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.note == "" {
			n.note = fmt.Sprintf("the system does not let mt choose the NUMA node of memory (mbind: %v), so it lies where the thread runs that "+
				"touches it first; in a container: docker run --cap-add SYS_NICE", err)
		}
	}
}

// Note says what the system has refused, "" if nothing.
func (n *Nodes) Note() string {
	if n == nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.note
}

// here is the node that the calling thread runs on at the moment, and the first where that is not known.
func (n *Nodes) here() int {
	cpu, err := n.sys.CPU()
	if err != nil {
		return 0
	}
	return n.of[cpu]
}

// Run calls f(0) … f(count-1), each once, on the threads of pool. node tells at which node the i-th has its memory, and
// does not fall as i rises. A thread takes what lies at the node that it runs on, and when nothing is left there, of the others.
func (n *Nodes) Run(pool *parallel.Pool, count int, node func(i int) int, f func(i int)) {
	if n == nil {
		pool.Run(count, f)
		return
	}
	q := newNodeQueues(n.Count(), count, node)
	pool.Run(count, func(int) { f(q.take(n.here())) })
}
