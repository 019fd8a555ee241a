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

// NodeSystem is the operating system's interface for NUMA nodes. Tests implement their own.
type NodeSystem interface {
	// Affinity lists the processors that this process may run on.
	Affinity() ([]int, error)
	// CPU returns the processor that the calling thread is running on.
	CPU() (int, error)
	// Prefer makes untouched pages of b come from the memory of a node, or of other nodes if it is full. b begins and
	// ends at page boundaries.
	Prefer(b []byte, node int) error
}

// Node is a NUMA node with memory and processors that this process may use.
type Node struct {
	ID   int   // the system's number
	CPUs []int // its processors, ascending
}

// Nodes lists the NUMA nodes over which memory is distributed. Each node's part is proportional to its number of
// processors. A nil *Nodes stands for one node, so nothing is distributed.
type Nodes struct {
	all    []Node
	before []int       // before[k] is the number of processors of the nodes before the k-th; the last element is the number of all
	of     map[int]int // the index in all of a processor's node
	sys    NodeSystem

	mu   sync.Mutex
	note string // see Note
}

// FindNodes reads the nodes from the file system root. With one node, or if the system gives no information, it returns
// nil. It also returns nil if the user has set a memory policy, for example with numactl. Sources:
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
			continue // no processors, as with a GPU's memory, or none that this process may use
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

// WithoutProcessors lists the nodes with memory but without processors, in ascending order. On a GH200 the GPU's memory
// is such a node. root is the root of the file system, where tests put their own files.
func WithoutProcessors(root fs.FS) []int {
	return slices.DeleteFunc(nodeList(nodeText(root, "sys/devices/system/node/has_memory")), func(id int) bool {
		cpus, err := fs.ReadFile(root, fmt.Sprintf("sys/devices/system/node/node%d/cpulist", id))
		return err != nil || len(nodeList(string(cpus))) > 0
	})
}

// memoryPolicy returns the memory policy of the process; "default" if none is set or if it is unknown.
func memoryPolicy(root fs.FS) string {
	if words := strings.Fields(nodeText(root, "proc/self/numa_maps")); len(words) > 1 {
		return words[1]
	}
	return "default"
}

// memsAllowed lists the nodes whose memory the process's cpuset allows. It returns false if the system does not say.
func memsAllowed(root fs.FS) ([]int, bool) {
	for line := range strings.Lines(nodeText(root, "proc/self/status")) {
		if nodes, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
			return nodeList(nodes), true
		}
	}
	return nil, false
}

// nodeText returns the content of the file name in root, without surrounding space; "" if the file cannot be read.
func nodeText(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// mostListed bounds the numbers in a list of nodes or processors. Linux cannot be built for more.
const mostListed = 1 << 16

// nodeList parses a list of numbers such as 0-3,8. It skips parts that are not numbers.
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

// Count returns the number of nodes; 1 for nil.
func (n *Nodes) Count() int {
	if n == nil {
		return 1
	}
	return len(n.all)
}

// List returns a copy of the nodes; none for nil.
func (n *Nodes) List() []Node {
	if n == nil {
		return nil
	}
	return slices.Clone(n.all)
}

// String formats n like "2 NUMA nodes (node 0: 16 processors, node 1: 16 processors)".
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

// Cut returns where the k-th node's part of total begins, in total's unit (bytes or elements). For k = Count() it
// returns total, the end.
func (n *Nodes) Cut(total int64, k int) int64 {
	if n == nil {
		return total * int64(k)
	}
	all := int64(n.before[len(n.all)])
	at := int64(n.before[k])
	return total/all*at + total%all*at/all
}

// Part returns the node whose part of total contains position at: the k with Cut(k) ≤ at < Cut(k+1).
func (n *Nodes) Part(total, at int64) int {
	k := 0
	for k+1 < n.Count() && n.Cut(total, k+1) <= at {
		k++
	}
	return k
}

// Place makes the system take the untouched pages of b from the memory of the k-th node. If the system refuses, Note
// says so.
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

// Note returns a message for the user if the system has refused a placement; otherwise "".
func (n *Nodes) Note() string {
	if n == nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.note
}

// here returns the index of the node that the calling thread is running on; 0, the first node, if that is unknown.
func (n *Nodes) here() int {
	cpu, err := n.sys.CPU()
	if err != nil {
		return 0
	}
	return n.of[cpu]
}

// Run calls f(0) … f(count-1), each once, on the threads of pool. node(i) is the index of the node that has the memory
// of item i; it must not decrease with i. A thread first takes items of its own node, and then items of other nodes.
func (n *Nodes) Run(pool *parallel.Pool, count int, node func(i int) int, f func(i int)) {
	if n == nil {
		pool.Run(count, f)
		return
	}
	q := newNodeQueues(n.Count(), count, node)
	pool.Run(count, func(int) { f(q.take(n.here())) })
}
