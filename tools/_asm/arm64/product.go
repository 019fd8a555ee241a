package main

import "mt/tools/asm/neon"

// A kernel of a matrix product A·B computes up to productRows rows and productColumns columns of
// the result at a time. It uses all vector registers: one for every four elements of the result
// (the sums), one for each row of A, and two for B.
const (
	productRows    = 6
	productColumns = 16
)

// product generates a matrix product kernel with h rows.
type product struct {
	*neon.Func
	h    int
	acc  [][]neon.V // sums: a row of registers for each of the h rows
	left []neon.V   // elements of A, one register a row
	b    [2]neon.V
	// right is the general register with the address of a row of B. The next row begins next bytes later.
	right neon.R
	next  int
}

// newProduct allocates the vector registers of a kernel with h rows. right and next are as in product.
func newProduct(f *neon.Func, h, next int, right neon.R) *product {
	p := &product{Func: f, h: h, right: right, next: next}
	for range h {
		p.acc = append(p.acc, f.Regs(productColumns/4))
	}
	p.left, p.b = f.Regs(h), [2]neon.V{f.Reg(), f.Reg()}
	return p
}

// clear generates instructions that set all sums to zero.
func (p *product) clear() {
	for _, row := range p.acc {
		for _, a := range row {
			p.Clear(a)
		}
	}
}

// add generates the products of one column of A with row i of B, counted from the address in
// p.right, and adds them to the sums. Function of(r) returns the register and the lane with the
// column's element in row r.
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

// four generates the products for four consecutive elements of K (the dimension summed over),
// beginning with the i-th, and adds them to the sums. List rows holds a pointer to each row of A.
func (p *product) four(rows []neon.R, i int) {
	for r, row := range rows {
		p.Load(row, 4*i, p.left[r])
	}
	for k := range 4 {
		p.add(i+k, func(r int) (neon.V, int) { return p.left[r], k })
	}
}

// one generates the products for one element of K (the dimension summed over) and adds them to the
// sums. It advances the pointers in rows and p.right by one element.
func (p *product) one(rows []neon.R) {
	for r, row := range rows {
		p.Load4(row, 0, p.left[r])
	}
	p.add(0, func(r int) (neon.V, int) { return p.left[r], 0 })
	p.move(rows, 1)
}

// move advances the pointers in rows and p.right by n elements of K.
func (p *product) move(rows []neon.R, n int) {
	for _, row := range rows {
		p.Add(4*n, row)
	}
	p.Add(n*p.next, p.right)
}

// rowsFrom returns registers with the addresses of h rows of A. The first row is at first, and each further row stride
// bytes later.
func rowsFrom(f *neon.Func, h int, first, stride neon.R) []neon.R {
	rows := []neon.R{first}
	for r := 1; r < h; r++ {
		rows = append(rows, f.General())
	}
	follow(f, rows, stride)
	return rows
}

// follow sets the pointers to consecutive rows: each one, after the first, to the pointer before it plus stride.
func follow(f *neon.Func, rows []neon.R, stride neon.R) {
	for r := 1; r < len(rows); r++ {
		f.Copy(rows[r-1], rows[r])
		f.AddReg(stride, rows[r])
	}
}

// addTo adds h rows in memory to the sums, element by element. The first row is at address `from`,
// and each further row stride bytes later. addTo overwrites `from` and the registers of A and B.
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

// store writes the sums to h rows in memory. The first row is at to, and each further row stride bytes later. store
// overwrites to.
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
