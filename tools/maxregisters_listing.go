package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// instruction is a line of a listing.
type instruction struct {
	function  string // the kernel of the instruction
	address   string
	predicate bool // some threads skip it
	op        string
	operands  string
}

func (i *instruction) String() string {
	return fmt.Sprintf("%s: /*%s*/ %s %s", i.function, i.address, i.op, i.operands)
}

// name returns the operation without its modifiers.
func (i *instruction) name() string {
	name, _, _ := strings.Cut(i.op, ".")
	return name
}

// listing is the output of nvdisasm. labels maps each label to the index of the instruction after the label.
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

// parse reads a listing. A line that looks like code but cannot be parsed is an error.
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

// next returns the instructions that may follow instruction i. If i jumps to an unknown target, known is false. A call
// may also continue with the next instruction. A return ends the path.
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

// highest returns the highest register that an instruction may use, or -1 for none. An operand may span several
// registers; if the operation does not determine the number, highest assumes the maximum.
func (i *instruction) highest() int {
	most := -1
	for at, operand := range operands(i.operands) {
		for _, m := range register.FindAllStringSubmatch(operand, -1) {
			first, _ := strconv.Atoi(m[1]) // digits alone
			width := 1
			switch {
			case m[2] != "":
				width = 2
			case !strings.Contains(operand, "["): // an address in registers has one or two
				width = i.width(at)
			}
			most = max(most, first+width-1)
		}
	}
	return most
}

// width returns the number of registers that an operand may span. Operands count from 0.
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
		columns, _ := strconv.Atoi(m[1]) // digits alone
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

// operands splits a list at commas outside brackets.
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
