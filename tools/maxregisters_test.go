package main

import (
	"strings"
	"testing"
)

// listingOf returns the listing of a kernel with two kinds of warps: a producer that keeps 24
// registers, and a consumer (at the label consumer) with 240. The arguments are the instructions of
// each.
func listingOf(producer, consumer string) string {
	address := 0
	code := func(lines string) string {
		var b strings.Builder
		for line := range strings.Lines(lines) {
			line = strings.TrimSpace(line)
			if !strings.HasSuffix(line, ":") {
				line = "        /*" + string("0123456789abcdef"[address/16%16]) + string("0123456789abcdef"[address%16]) + "0*/   " + line + " ;"
				address++
			}
			b.WriteString(line + "\n")
		}
		return b.String()
	}
	return "\t.section\t.text.k,\"ax\",@progbits\n        .global         k\n.text.k:\n" + code(`LDC R60, c[0x0][0x28]
		@P0 BRA `+"`(.consumer)"+`
		USETMAXREG.DEALLOC.CTAPOOL 0x18
		`+producer+`
		EXIT
		.consumer:
		USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0
		`+consumer+`
		EXIT
		.last:
		BRA `+"`(.last)"+`
		NOP`)
}

// TestCheck: checkListing rejects listings in which a thread may use a register that it has
// released. The error names the instruction.
func TestCheck(t *testing.T) {
	for _, c := range []struct{ name, producer, consumer, want string }{
		{"within both", "IADD3 R23, R2, 0x1, RZ", "MOV R239, R1", ""},
		{"a register beyond", "IADD3 R24, R2, 0x1, RZ", "MOV R239, R1", "k: /*030*/ IADD3 R24, R2, 0x1, RZ: uses R24, and the thread has 24 registers"},
		{"of a consumer", "NOP", "MOV R240, R1", "uses R240, and the thread has 240 registers"},
		{"the second of a pair", "IMAD.WIDE.U32 R23, R2, R3, R4", "NOP", "uses R24"},
		{"an address", "LDG.E R0, desc[UR36][R23.64+0x10]", "NOP", "uses R24"},
		{"the last of four", "STS.128 [R2], R21", "NOP", "uses R24"},
		{"the last of a product's", "NOP", "HGMMA.64x64x16.F32.BF16 R209, R4, gdesc[UR8], R209", "uses R240"},
		{"a product that fits", "NOP", "HGMMA.64x64x16.F32.BF16 R208, R236, gdesc[UR8], R208", ""},
		{"uniform registers", "UMOV UR40, 0x1", "NOP", ""},
		{"out of line", "@P1 BRA `(.aside)\n.back:\nNOP", "EXIT\n.aside:\nMOV R25, R1\nBRA `(.back)", "uses R25, and the thread has 24 registers"},
		{"in a loop", ".again:\nMOV R2, R1\n@P2 BRA `(.again)\nMOV R30, R1", "NOP", "uses R30"},
		{"shared by both", "BRA `(.both)", ".both:\nMOV R100, R1", "uses R100, and the thread has 24 registers"},
		{"into the open", "BRX R2 -0x10", "NOP", "jumps to where the listing does not say"},
		{"from nowhere", "EXIT\nMOV R2, R1", "NOP", "no jump leads there"},
		{"a call", "CALL.REL.NOINC `(.aside)", "EXIT\n.aside:\nMOV R24, R1\nRET.REL.NODEC R2 `(k)", "uses R24"},
	} {
		var out strings.Builder
		err := checkListing(listingOf(c.producer, c.consumer), &out)
		if (err == nil) != (c.want == "") || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: %v, want %q in %q", c.name, err, c.want, out.String())
		}
	}
}

// TestNoListing: a listing without USETMAXREG, or with a line that cannot be parsed, is an error.
func TestNoListing(t *testing.T) {
	for _, text := range []string{"", ".text.k:\n/*0000*/ EXIT ;\n", ".text.k:\n/*0000*/ what is this\n"} {
		if err := checkListing(text, &strings.Builder{}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
