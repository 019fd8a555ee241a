package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// instruction is a line of a listing.
type instruction struct {
	function  string // the kernel that the instruction belongs to
	address   string
	predicate bool // it has a predicate, so some threads may skip it
	op        string
	operands  string
}

func (i *instruction) String() string {
	return fmt.Sprintf("%s: /*%s*/ %s %s", i.function, i.address, i.op, i.operands)
}

// name returns the operation without its modifiers: LDG for LDG.E.128.
func (i *instruction) name() string {
	name, _, _ := strings.Cut(i.op, ".")
	return name
}

// listing is the parsed output of nvdisasm. labels maps each label to the index in code of the instruction after the
// label.
type listing struct {
	code   []instruction
	labels map[string]int
}

var (
	sectionLine = regexp.MustCompile(`^\.text\.(\S+):$`)
	labelLine   = regexp.MustCompile(`^(\S+):$`)
	codeLine    = regexp.MustCompile(`^/\*([0-9a-f]+)\*/\s+(@!?U?P[T0-9]+\s+)?([A-Z][A-Za-z0-9_.]*)\s*(.*?)\s*;`)
	labelUse    = regexp.MustCompile("`\\(([^)]+)\\)")
	register    = regexp.MustCompile(`\bR(\d+)\b(\.64)?`)
	product     = regexp.MustCompile(`\.64x(\d+)x`)
)

// parse reads the output of nvdisasm. It returns an error if a line looks like an instruction but cannot be parsed.
func parse(text string) (listing, error) {
	l, function := listing{labels: map[string]int{}}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := sectionLine.FindStringSubmatch(line); m != nil {
			function = m[1]
		}
		if m := labelLine.FindStringSubmatch(line); m != nil {
			l.labels[m[1]] = len(l.code)
			continue
		}
		if !strings.HasPrefix(line, "/*") {
			continue
		}
		m := codeLine.FindStringSubmatch(line)
		if m == nil {
			return l, fmt.Errorf("%s: a line that is no instruction: %s", function, line)
		}
		l.code = append(l.code, instruction{function, m[1], m[2] != "", m[3], m[4]})
	}
	return l, nil
}

// next returns the indices of the instructions that may run after instruction i. known is false if i jumps to an
// unknown target. After a call, the target may run or the instruction behind the call; after a return, none.
func (l *listing) next(i int) (to []int, known bool) {
	in := &l.code[i]
	ends := in.op == "EXIT" || in.op == "BRA" || in.name() == "RET"
	if (!ends || in.predicate) && i+1 < len(l.code) && l.code[i+1].function == in.function {
		to = append(to, i+1)
	}
	if in.name() == "RET" {
		return to, true
	}
	uses := labelUse.FindAllStringSubmatch(in.operands, -1)
	for _, m := range uses {
		at, ok := l.labels[m[1]]
		if !ok {
			return nil, false
		}
		to = append(to, at)
	}
	switch in.name() {
	case "BRA", "CALL", "JMP":
		return to, len(uses) > 0
	case "BRX", "JMX":
		return nil, false
	}
	return to, true
}

// highest returns the highest register that the instruction may use; −1 if it uses none. An operand may span several
// registers. If the operation does not say how many, highest assumes the most that are possible.
func (i *instruction) highest() int {
	most := -1
	for at, operand := range operands(i.operands) {
		for _, m := range register.FindAllStringSubmatch(operand, -1) {
			first, _ := strconv.Atoi(m[1]) // cannot fail: m[1] has digits only
			width := 1
			switch {
			case m[2] != "":
				width = 2
			case !strings.Contains(operand, "["): // an address has one register, or two with .64
				width = i.width(at)
			}
			most = max(most, first+width-1)
		}
	}
	return most
}

// width returns the largest number of registers that the operand with this index (from 0) may span.
func (i *instruction) width(operand int) int {
	switch i.name() {
	case "HGMMA", "IGMMA", "QGMMA": // 64 rows of sums for 128 threads; the second operand is A
		m := product.FindStringSubmatch(i.op)
		if m == nil {
			return 128
		}
		if operand == 1 {
			return 4
		}
		columns, _ := strconv.Atoi(m[1]) // cannot fail: m[1] has digits only
		return columns / 2
	case "HMMA", "IMMA", "QMMA", "LDSM", "STSM":
		return 4
	case "CS2R", "RET", "SYNCS", "DADD", "DMUL", "DFMA", "DSETP":
		return 2
	}
	switch {
	case strings.Contains(i.op, ".128"):
		return 4
	case strings.Contains(i.op, "64"), strings.Contains(i.op, ".WIDE"):
		return 2
	}
	return 1
}

// operands splits the text of an instruction's operands at commas outside brackets.
func operands(s string) []string {
	var out []string
	depth, from := 0, 0
	for i, c := range s {
		switch c {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				out, from = append(out, s[from:i]), i+1
			}
		}
	}
	return append(out, s[from:])
}
