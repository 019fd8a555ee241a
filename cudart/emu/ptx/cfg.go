package ptx

// reconverge finds the instruction at which the threads of a divergent branch run together again, for every branch.
// It stores the index in the branch's inst.e; -1: the end of the kernel. This instruction starts the immediate
// post-dominator of the branch's basic block, the first block that all paths from the branch reach.
//
// An exit with a guard adds no edge to the graph, because threads that exit do not reconverge.
func reconverge(code []inst) {
	leaders := blockStarts(code)
	number := make([]int, len(code)) // basic block of each instruction
	for i, at := range leaders {
		end := len(code)
		if i+1 < len(leaders) {
			end = leaders[i+1]
		}
		for j := at; j < end; j++ {
			number[j] = i
		}
	}
	n := len(leaders)
	next := make([][]int, n+1) // node n is the end of the kernel
	for i := range leaders {
		end := len(code)
		if i+1 < n {
			end = leaders[i+1]
		}
		next[i] = successors(code, end-1, number, n)
	}
	post := postDominators(next)
	for i := range code {
		in := &code[i]
		if in.fam != famControl || in.op != opBra && in.op != opBrx {
			continue
		}
		in.e = -1
		if p := post[number[i]]; p >= 0 && p < n && !exits(code, leaders[p]) {
			in.e = int32(leaders[p])
		}
	}
}

// exits reports whether the instruction at pc is an exit without a guard predicate, which all
// threads that reach it execute.
func exits(code []inst, pc int) bool {
	return code[pc].fam == famControl && code[pc].op == opExit && code[pc].guard < 0
}

func blockStarts(code []inst) []int {
	start := make([]bool, len(code)+1)
	start[0] = true
	for i := range code {
		in := &code[i]
		if in.fam != famControl || in.op > opExit {
			continue
		}
		start[i+1] = true
		if in.op == opBra {
			start[in.imm] = true
		}
		if in.op == opBrx {
			for _, t := range in.x.targets {
				start[t] = true
			}
		}
	}
	var out []int
	for i := range code {
		if start[i] {
			out = append(out, i)
		}
	}
	return out
}

// successors returns the numbers of the basic blocks that may follow the block whose last instruction has index
// last. number gives the block of every instruction; end is the node for the kernel's end.
func successors(code []inst, last int, number []int, end int) []int {
	in := &code[last]
	var out []int
	if in.fam == famControl {
		switch in.op {
		case opBra:
			out = append(out, number[in.imm])
		case opBrx:
			for _, t := range in.x.targets {
				out = append(out, number[t])
			}
		case opExit:
			if in.guard < 0 {
				return []int{end}
			}
		}
		if in.guard < 0 && len(out) > 0 {
			return out
		}
	}
	if last+1 < len(code) {
		return append(out, number[last+1])
	}
	return append(out, end)
}

// postDominators returns the immediate post-dominator of each node of a graph; `next` lists the successors of each
// node. The last node is the end. -1: the end cannot be reached from the node. The algorithm is the iteration of
// Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed graph.
func postDominators(next [][]int) []int {
	end := len(next) - 1
	back := make([][]int, len(next))
	for i, to := range next {
		for _, t := range to {
			back[t] = append(back[t], i)
		}
	}
	order, rank := postorder(back, end)
	post := make([]int, len(next))
	for i := range post {
		post[i] = -1
	}
	post[end] = end
	for changed := true; changed; {
		changed = false
		for i := len(order) - 2; i >= 0; i-- { // the last node of order is the end
			b, found := order[i], -1
			for _, s := range next[b] {
				if post[s] < 0 {
					continue
				}
				if found < 0 {
					found = s
					continue
				}
				for found != s {
					if rank[found] < rank[s] {
						found = post[found]
					} else {
						s = post[s]
					}
				}
			}
			if found != post[b] {
				post[b], changed = found, true
			}
		}
	}
	return post
}

// postorder walks a graph depth-first from the node from; `to` lists each node's successors. It returns the reachable
// nodes, successors before the node itself (order), and each node's position in this order (rank).
func postorder(to [][]int, from int) (order, rank []int) {
	rank = make([]int, len(to))
	seen := make([]bool, len(to))
	var visit func(int)
	visit = func(n int) {
		seen[n] = true
		for _, t := range to[n] {
			if !seen[t] {
				visit(t)
			}
		}
		rank[n] = len(order)
		order = append(order, n)
	}
	visit(from)
	return order, rank
}
