package main

import (
	"fmt"

	"mt/tools/asm/neon"
)

// panelBytes is the size of a row of a panel, in which B is packed: 32 columns of fp32. A kernel
// processes half a panel at a time.
const panelBytes = 128

// tile generates c = a·b (or c += a·b) for h rows of a, which is stored by rows or, with cols, by columns. b is
// stored in panels of k rows of 32 floats.
func tile(h int, cols bool) {
	layout := "Rows"
	if cols {
		layout = "Cols"
	}
	f := neon.Begin(fmt.Sprintf("tile%s%dNEON", layout, h),
		"func(k int, a *float32, astride int, b *float32, bpanel int, c *float32, cstride, panels int, acc bool)",
		fmt.Sprintf("multiplies %d rows: see tileFunc.", h))
	args := f.Args("a", "astride", "b", "bpanel", "c", "cstride", "panels", "acc")
	a, astride, b, bpanel, c, cstride, halves, adds := args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7]
	k, right, forth := f.General(), f.General(), f.General()
	rows := make([]neon.R, 1)
	if !cols {
		rows = make([]neon.R, h)
	}
	for r := range rows {
		rows[r] = f.General()
	}
	p := newProduct(f, h, panelBytes, right)
	f.Shift(1, halves)
	f.SetConstant(panelBytes/2, forth) // panelBytes/2 from the first to the second half, and bpanel − panelBytes/2 from there to the next panel

	half, finish, store := f.Label("half"), f.Label("finish"), f.Label("store")
	f.Place(half)
	f.LoadArg("k", k)
	f.Copy(b, right)
	f.Copy(a, rows[0])
	p.clear()
	if cols {
		p.columns(k, rows[0], astride, finish)
	} else {
		follow(f, rows, astride)
		p.rows(k, rows, finish)
	}
	f.Place(finish)
	f.Copy(c, right)
	f.Zero(adds, store)
	p.addTo(right, cstride)
	f.Copy(c, right)
	f.Place(store)
	p.store(right, cstride)
	f.Add(panelBytes/2, c)
	f.AddReg(forth, b)
	f.SubFrom(bpanel, forth)
	f.Add(-1, halves)
	f.NotZero(halves, half)
	f.Ret()
}

// rows generates the products over k for an A that is stored by rows: four elements of K at a time, then one at a time.
// At the end it jumps to the label done.
func (p *product) rows(k neon.R, rows []neon.R, done string) {
	four, rest, one := p.Label("four"), p.Label("rest"), p.Label("one")
	p.Less(k, 4, rest)
	p.Place(four)
	p.four(rows, 0)
	p.move(rows, 4)
	p.Func.Add(-4, k)
	p.NotLess(k, 4, four)
	p.Place(rest)
	p.Zero(k, done)
	p.Place(one)
	p.one(rows)
	p.Func.Add(-1, k)
	p.NotZero(k, one)
}

// columns generates the products over k for an A that is stored by columns, stride bytes apart. A column fills up to
// two registers. At the end it jumps to the label done.
func (p *product) columns(k, column, stride neon.R, done string) {
	turn := p.Label("column")
	p.Zero(k, done)
	p.Place(turn)
	lane := func(r int) (neon.V, int) { return p.left[r/4], r % 4 }
	rest, at, to := p.h, 0, 0
	if p.h >= 4 {
		p.Load(column, 0, p.left[0])
		rest, at, to = p.h-4, 16, 1
	}
	switch rest {
	case 1:
		p.Load4(column, at, p.left[to])
	case 2:
		p.Load8(column, at, p.left[to])
	case 3: // the third element has its own register
		p.Load8(column, 0, p.left[0])
		p.Load4(column, 8, p.left[1])
		lane = func(r int) (neon.V, int) { return p.left[r/2], r % 2 }
	}
	p.add(0, lane)
	p.AddReg(stride, column)
	p.Func.Add(panelBytes, p.right)
	p.Func.Add(-1, k)
	p.NotZero(k, turn)
}
