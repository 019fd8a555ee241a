package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// unlimited is the register count before the first USETMAXREG (the instruction of setmaxnreg). A thread then has all
// registers of the launch.
const unlimited = math.MaxInt

// check follows the control flow of all kernels in l. Result bad lists the instructions that use a
// register which the thread no longer has, limits is the number of USETMAXREG instructions. If an
// instruction can be reached with different register counts, the lowest of them applies.
func check(l listing) (bad []string, limits int) {
	has := make([]int, len(l.code)) // registers before the instruction; 0: not reached
	var work []int
	reach := func(i, registers int) {
		if has[i] == 0 || registers < has[i] {
			has[i] = registers
			work = append(work, i)
		}
	}
	limited := map[string]bool{}
	for i := range l.code {
		if i == 0 || l.code[i-1].function != l.code[i].function {
			reach(i, unlimited)
		}
		if l.code[i].name() == "USETMAXREG" {
			limits++
			limited[l.code[i].function] = true
		}
	}
	open := map[int]bool{} // indices of jumps whose target is unknown
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		registers := has[i]
		if l.code[i].name() == "USETMAXREG" {
			registers = l.code[i].limit()
		}
		to, known := l.next(i)
		if !known && limited[l.code[i].function] {
			open[i] = true
		}
		for _, next := range to {
			reach(next, registers)
		}
	}
	for i := range l.code {
		in := &l.code[i]
		switch most := in.highest(); {
		case !limited[in.function]:
		case open[i]:
			bad = append(bad, fmt.Sprintf("%s: jumps to where the listing does not say", in))
		case has[i] == 0 && most >= 0:
			bad = append(bad, fmt.Sprintf("%s: no jump leads there, so nobody knows how many registers it has", in))
		case most >= has[i] && has[i] > 0:
			bad = append(bad, fmt.Sprintf("%s: uses R%d, and the thread has %d registers", in, most, has[i]))
		}
	}
	return bad, limits
}

// limit returns the register count that i, a USETMAXREG, sets. If the operand is not a number, limit returns 1, so that
// check finds an error in the code after it.
func (i *instruction) limit() int {
	_, last, _ := strings.Cut(i.operands, ",")
	if last == "" {
		last = i.operands
	}
	n, err := strconv.ParseInt(strings.TrimSpace(last), 0, 32)
	if err != nil {
		return 1
	}
	return int(n)
}
