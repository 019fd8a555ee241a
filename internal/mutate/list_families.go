package main

// ofFamilies breaks what single families of models need.
var ofFamilies = []broken{
	{"model/place.go", []way{
		{from: "first := int64(at.Slice) * int64(at.Rows) * cols", to: "first := int64(0)", test: "TestPlaces"},
		{from: "row = at.First + row/at.Run*at.Step + row%at.Run", to: "row = at.First + row", test: "TestPlaces"},
		{from: "if at.Transposed {\n\t\treturn first", to: "if false {\n\t\treturn first", test: "TestPlaces"},
		{from: "case byHeads:\n\t\treturn headDim", to: "case byHeads:\n\t\treturn headDim / 2", test: "TestPlaces"},
		{from: "s.Place.Slice, s.Place.Slices = e, n.c.NumExperts", to: "s.Place.Slice, s.Place.Slices = 0, n.c.NumExperts", test: "TestPlaces"},
		{from: "\t\t\tfirst += run\n", to: "", test: "TestPlaces"},
	}},
	{"checkpoint/placed.go", []way{
		{from: "base := int64(at.Slice) * lines\n", to: "base := int64(0)\n", test: "TestPlaced"},
		{from: "from, to = max(from, base), min(to, base+lines)", to: "to = min(to, base+lines)", test: "TestPlaced"},
		{from: "elem + from - base, to - from", to: "elem, to - from", test: "TestLines"},
		{from: "base+of >= from && base+of < to", to: "base+of > from && base+of < to", test: "TestPlaced|TestLines"},
		{from: "s.first -= elem\n\t\t\ts.parts(size, func(s stretch) { l.decode", to: "s.parts(size, func(s stretch) { l.decode", test: "TestLines"},
		{from: "s.first -= elem\n\t\t\ts.parts(size, func(s stretch) { s.put", to: "s.parts(size, func(s stretch) { s.put", test: "TestLines"},
		{from: "s.first+part.n*s.stride", to: "s.first+part.n", test: "TestLongStretch"},
		{from: "s.elem, s.n, s.first = s.elem+part.n,", to: "s.elem, s.n, s.first = s.elem,", test: "TestLongStretch"},
		{from: "for from := base; from < base+piece.lines(); from += step {", to: "for from := base; from < base+1; from += step {", test: "TestLongStretch"},
		{from: "values[s.first-from*line+k*s.stride]", to: "values[s.first+k*s.stride]", test: "TestPlaced"},
	}},
	{"checkpoint/writer.go", []way{
		{from: "return max(min(max(most, leastPiece), pieceBytes), line)", to: "return min(max(most, leastPiece), pieceBytes)", test: "TestLongStretch"},
	}},
	{"checkpoint/others.go", []way{
		{from: "t.names[st.Tensor()], ", to: "t.names[st.Name], ", test: "TestPlaced"},
	}},
}
