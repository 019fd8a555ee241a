package main

import "mt/tools/asm/neon"

// The kernels of products have up to productRows rows of productColumns columns: with an accumulator for every four
// elements, a register of A for every row and two of B they use all registers.
const (
	productRows    = 6
	productColumns = 16
)

// product is a kernel of h rows.
type product struct {
	*neon.Func
	h    int
	acc  [][]neon.V // by row, and four columns
	left []neon.V   // elements of A
	b    [2]neon.V
	// right points to a row of B; the next one lies so many bytes after it.
	right neon.R
	next  int
}

// newProduct takes the registers of a product, all of which it has.
func newProduct(f *neon.Func, h, next int, right neon.R) *product {
	p := &product{Func: f, h: h, right: right, next: next}
	for range h {
		p.acc = append(p.acc, f.Regs(productColumns/4))
	}
	p.left, p.b = f.Regs(h), [2]neon.V{f.Reg(), f.Reg()}
	return p
}

// clear sets the accumulators to zero.
func (p *product) clear() {
	for _, row := range p.acc {
		for _, a := range row {
			p.Clear(a)
		}
	}
}

// add adds the products of the i-th row of B from here. Element r of A is lane(r) of the register of(r).
func (p *product) add(i int, of func(r int) (neon.V, int)) {
	for half := range 2 {
		p.Load2(p.right, i*p.next+32*half, p.b[0], p.b[1])
		for r := range p.h {
			a, lane := of(r)
			p.FMLALane(p.acc[r][2*half], p.b[0], a, lane)
			p.FMLALane(p.acc[r][2*half+1], p.b[1], a, lane)
		}
	}
}

// four adds the products of four of K, of which the i-th is the first: rows point to the rows of A.
func (p *product) four(rows []neon.R, i int) {
	for r, row := range rows {
		p.Load(row, 4*i, p.left[r])
	}
	for k := range 4 {
		p.add(i+k, func(r int) (neon.V, int) { return p.left[r], k })
	}
}

// one adds the products of one of K, and moves on.
func (p *product) one(rows []neon.R) {
	for r, row := range rows {
		p.Load4(row, 0, p.left[r])
	}
	p.add(0, func(r int) (neon.V, int) { return p.left[r], 0 })
	p.move(rows, 1)
}

// move moves on by n of K.
func (p *product) move(rows []neon.R, n int) {
	for _, row := range rows {
		p.Add(4*n, row)
	}
	p.Add(n*p.next, p.right)
}

// rowsFrom are pointers to h rows of A, stride bytes apart, of which the first is given.
func rowsFrom(f *neon.Func, h int, first, stride neon.R) []neon.R {
	rows := []neon.R{first}
	for r := 1; r < h; r++ {
		rows = append(rows, f.General())
	}
	follow(f, rows, stride)
	return rows
}

// follow sets all rows but the first.
func follow(f *neon.Func, rows []neon.R, stride neon.R) {
	for r := 1; r < len(rows); r++ {
		f.Copy(rows[r-1], rows[r])
		f.AddReg(stride, rows[r])
	}
}

// addTo adds what is at from, rows stride bytes apart, to the accumulators. It overwrites from and what was read of A
// and B.
func (p *product) addTo(from, stride neon.R) {
	spare := p.b[:]
	for r, row := range p.acc {
		for j := 0; j < len(row); j += 2 {
			p.Load2(from, 16*j, spare[0], spare[1])
			p.FADD(row[j], row[j], spare[0])
			p.FADD(row[j+1], row[j+1], spare[1])
		}
		if r < p.h-1 {
			p.AddReg(stride, from)
		}
	}
}

// store writes the accumulators to rows stride bytes apart. It overwrites to.
func (p *product) store(to, stride neon.R) {
	for r, row := range p.acc {
		for j := 0; j < len(row); j += 2 {
			p.Store2(row[j], row[j+1], to, 16*j)
		}
		if r < p.h-1 {
			p.AddReg(stride, to)
		}
	}
}
