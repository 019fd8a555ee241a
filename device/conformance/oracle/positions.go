package oracle

// AddPositions sets y to x (T, C) plus row pos[t] of table.
func AddPositions(y, x, table []float64, pos []int32, C int) {
	for i := range y[:len(pos)*C] {
		y[i] = x[i] + table[int(pos[i/C])*C+i%C]
	}
}

// AddPositionsBackward adds dy (T, C), the tokens from `from` on, to the rows of their positions
// in dtable.
func AddPositionsBackward(dtable, dy []float64, cu []int32, from, T, C int) {
	for s, first := range cu[:len(cu)-1] {
		for t := max(int(first), from); t < min(int(cu[s+1]), from+T); t++ {
			for c := range C {
				dtable[(t-int(first))*C+c] += dy[(t-from)*C+c]
			}
		}
	}
}
