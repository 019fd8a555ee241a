package model

import (
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestGroups: a tensor belongs to the group whose expression matches its name, even if it is only
// part of a fused parameter such as qkv.
func TestGroups(t *testing.T) {
	c := frozenConfig()
	testkit.NoError(t, c.SetFreeze(Freeze{Names: []string{`layers\.0\.mlp\.`}}))
	groups := []Group{{"keys", []string{"k_proj", `layers\.1\.self_attn\.v_proj`}}, {"table", []string{"embed_tokens"}}}
	testkit.NoError(t, c.SetGroups(groups))
	sums, total := make([]int64, 3), int64(0)
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			for _, s := range p.Stored {
				want := 0
				switch {
				case strings.Contains(s.Name, "k_proj"), strings.Contains(s.Name, "layers.1.self_attn.v_proj"):
					want = 1
				case strings.Contains(s.Name, "embed_tokens"):
					want = 2
				}
				if s.Group != want {
					t.Errorf("%s is in group %d, want %d", s.Name, s.Group, want)
				}
				if !p.Frozen {
					sums[want] += int64(s.Rows * p.Cols)
				}
			}
			total += p.Elems()
		}
	}
	if got := c.GroupParams(); !slices.Equal(got, sums) || sums[0]+sums[1]+sums[2] >= total {
		t.Errorf("the groups have %v parameters, want %v", got, sums)
	}
	if c.EmbedParam().Stored[0].Group != 2 {
		t.Error("the table by itself is in another group")
	}
}

// TestRefusedGroups: SetGroups refuses expressions that are invalid or match nothing, and tensors
// that are frozen or in two groups.
func TestRefusedGroups(t *testing.T) {
	for _, x := range []struct {
		groups []Group
		want   string
	}{
		{[]Group{{"a", []string{"("}}}, `group a: "(" is no regular expression`},
		{[]Group{{"a", []string{"embed_tokens"}}, {"b", []string{"q_proj", "lora_A"}}}, `group b: "lora_A" matches no tensor; they have names such as model.embed_tokens.weight and`},
		{[]Group{{"a", []string{"q_proj"}}, {"b", []string{`layers\.1\.`}}}, "model.layers.1.self_attn.q_proj.weight is in two groups, a and b"},
		{[]Group{{"a", []string{"norm"}}}, "group a: model.norm.weight is frozen"},
	} {
		c := frozenConfig()
		testkit.NoError(t, c.SetFreeze(Freeze{Names: []string{"model.norm"}}))
		if err := c.SetGroups(x.groups); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v, want %s", x.groups, err, x.want)
		}
	}
}

// TestGroupsOfWhatIsNeverTrained: the router's choice bias has no learning rate. A group's
// expression may match it along with trained tensors, but must not match it alone.
func TestGroupsOfWhatIsNeverTrained(t *testing.T) {
	c := frozenConfig()
	c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize, c.DecoderSparseStep, c.ChoiceBias = 4, 2, 8, 1, true
	bias := ""
	for _, p := range c.Layers()[2].Params {
		if p.Role == RoleChoiceBias {
			bias = p.Stored[0].Name
		}
	}
	if err := c.SetGroups([]Group{{"layer", []string{`layers\.0\.`}}}); err != nil || bias == "" {
		t.Fatal(bias, err)
	}
	if err := c.SetGroups([]Group{{"bias", []string{bias}}}); err == nil {
		t.Error("a group of what is never trained is taken")
	}
}
