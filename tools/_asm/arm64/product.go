package main

import "mt/tools/asm/neon"

// The matrix product kernels compute up to productRows rows of productColumns columns. The kernels use all registers:
// one accumulator for four elements, one register of A a row, and two registers of B.
const (
	productRows    = 6
	productColumns = 16
)

// product is a kernel of h rows.
type product struct {
	*neon.Func
	h    int
	acc  [][]neon.V // sums: a row of registers for each of the h rows
	left []neon.V   // elements of A, one register a row
	b    [2]neon.V
	// right points to a row of B; the next row begins next bytes later.
	right neon.R
	next  int
}

// newProduct allocates all registers of a product.
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

// add adds the products with row i of B, counted from p.right. Lane lane(r) of register of(r) holds the element of A
// for row r.
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

// four adds the products of four k values, beginning with the i-th. The pointers in rows address the rows of A.
func (p *product) four(rows []neon.R, i int) {
	for r, row := range rows {
		p.Load(row, 4*i, p.left[r])
	}
	for k := range 4 {
		p.add(i+k, func(r int) (neon.V, int) { return p.left[r], k })
	}
}

// one adds the products of one k value and advances the pointers.
func (p *product) one(rows []neon.R) {
	for r, row := range rows {
		p.Load4(row, 0, p.left[r])
	}
	p.add(0, func(r int) (neon.V, int) { return p.left[r], 0 })
	p.move(rows, 1)
}

// move advances the pointers by n k values.
func (p *product) move(rows []neon.R, n int) {
	for _, row := range rows {
		p.Add(4*n, row)
	}
	p.Add(n*p.next, p.right)
}

// rowsFrom returns pointers to h rows of A, stride bytes apart. The pointer first addresses row 0.
func rowsFrom(f *neon.Func, h int, first, stride neon.R) []neon.R {
	rows := []neon.R{first}
	for r := 1; r < h; r++ {
		rows = append(rows, f.General())
	}
	follow(f, rows, stride)
	return rows
}

// follow sets each pointer after the first to its predecessor plus stride.
func follow(f *neon.Func, rows []neon.R, stride neon.R) {
	for r := 1; r < len(rows); r++ {
		f.Copy(rows[r-1], rows[r])
		f.AddReg(stride, rows[r])
	}
}

// addTo adds rows in memory to the accumulators. The pointer from addresses the first row; the next ones follow
// stride bytes apart. addTo overwrites from and the registers of A and B.
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

// store writes the accumulators to rows in memory. The pointer to addresses the first row; the next ones follow
// stride bytes apart. store advances the pointer.
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
