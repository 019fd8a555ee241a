package optim

import (
	"testing"

	"mt/model"
)

// TestOfMatrices: Muon moves what maps one space to another, and neither tables nor routers nor vectors.
func TestOfMatrices(t *testing.T) {
	for role, want := range map[model.Role]bool{model.RoleQKV: true, model.RoleDown: true, model.RoleO: true, model.RoleGateUp: true,
		model.RoleEmbed: false, model.RolePositions: false, model.RoleLMHead: false} {
		p := model.Param{Role: role, Rows: 8, Cols: 4, Dims: 2, Stored: []model.Stored{{Name: "t", Rows: 8}}}
		vector, fp32 := p, p
		vector.Dims, fp32.F32 = 1, true
		if OfMatrices(p) != want || OfMatrices(vector) || OfMatrices(fp32) {
			t.Errorf("%s: a matrix: %t, a vector: %t, kept in fp32: %t; want %t, false, false", role, OfMatrices(p), OfMatrices(vector), OfMatrices(fp32), want)
		}
		l := model.NewLayout(model.Layer{Kind: model.Block, Params: []model.Param{p}}, false, model.Param{})
		o := Muon{Others: AdamW{}}
		if matrices, units := len(Matrices(l)), len(o.Units(l)); matrices+units != 1 || (matrices == 1) != want {
			t.Errorf("%s: %d matrices, %d units", role, matrices, units)
		}
		if name := o.Planes(Pieces(p)[0])[0].Name; (name == momentum.Name) != want {
			t.Errorf("%s: the first plane is %s", role, name)
		}
	}
}
