package kernels

import (
	"mt/device"
	"mt/device/op"
)

func init() { add(SortByExpert) }

// Steps of a counting sort; see sort.cu.
var (
	sortCount   = Kernel{Module: "sort", Name: "sort_count"}
	sortColumns = Kernel{Module: "sort", Name: "sort_columns"}
	sortOffsets = Kernel{Module: "sort", Name: "sort_offsets"}
	sortPlace   = Kernel{Module: "sort", Name: "sort_place"}
)

// SortByExpert launches op.SortByExpert. It drops pairs with invalid experts, so Offsets then end below N.
func SortByExpert(l Launcher, a *op.SortByExpert) {
	const (
		pieceWarps = 4    // pieces in a block
		least      = 128  // least pairs in a piece
		most       = 1024 // most pieces
		lanes      = 32   // columns in a block of sort_columns
	)
	each := max(least, (ceilDiv(int64(a.N), most)+31)/32*32)
	pieces := ceilDiv(int64(a.N), each)
	scratch := l.Scratch(4 * (pieces + 1) * int64(a.E))
	table, totals := scratch.Tensor(device.I32, 0, pieces*int64(a.E)), scratch.Tensor(device.I32, 4*pieces*int64(a.E), int64(a.E))
	blocks := line(ceilDiv(pieces, pieceWarps))
	if a.N > 0 {
		p := l.Params().Tensor(table).Tensor(a.IDs).I32(a.N).I32(a.E).I32(int(each))
		l.Launch(&sortCount, blocks, line(pieceWarps*32), 0, p)
	}
	if a.E > 0 {
		p := l.Params().Tensor(table).Tensor(totals).I32(int(pieces)).I32(a.E)
		l.Launch(&sortColumns, line(ceilDiv(int64(a.E), lanes)), line(1024), 0, p)
	}
	p := l.Params().Tensor(a.Offsets).Tensor(a.Counts).Tensor(totals).I32(a.E)
	l.Launch(&sortOffsets, line(1), line(int64(warps(a.E, 1024))), 0, p)
	if a.N > 0 {
		p = l.Params().Tensor(a.Order).Tensor(a.Rows).Tensor(table).Tensor(a.Offsets).Tensor(a.IDs)
		p.I32(a.N).I32(a.E).I32(a.K).I32(int(each))
		l.Launch(&sortPlace, blocks, line(pieceWarps*32), 0, p)
	}
}
