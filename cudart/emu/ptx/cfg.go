package ptx

// reconverge finds, for every branch, the instruction at which threads that part
// there come together again. That is the start of the immediate post-dominator of
// the branch's block, or -1 when that is the end of the kernel. It is stored in
// inst.e.
//
// An exit with a guard adds no edge to the graph: threads that leave do not come
// back.
func reconverge(code []inst) {
	leaders := blockStarts(code)
	number := make([]int, len(code)) // block of an instruction
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

// exits says whether the instruction at pc ends its threads.
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

// successors are the blocks that may follow the block whose last instruction is
// last.
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

// postDominators are the immediate post-dominators of the nodes of a graph. The
// last node is the end; the entry is -1 where the end cannot be reached. It is the
// iteration of Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", on
// the reversed graph.
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
		for i := len(order) - 2; i >= 0; i-- { // the end itself is last
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

// postorder visits the graph from one node. It returns the nodes it reaches,
// children before their parents, and the place of each node in that order.
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
