package testkit

import (
	"reflect"
	"testing"
)

// Fact is a value with its name and its expected value.
type Fact struct {
	name      string
	got, want any
}

// Is returns a Fact for Check: the value called name is got, and want is expected.
func Is(name string, got, want any) Fact { return Fact{name, got, want} }

// Check reports each Fact whose value is not the expected one as an error of the test. The error begins with what, the
// name of the tested thing. Values are compared as by reflect.DeepEqual, and numbers of different types by value.
func Check(t testing.TB, what string, rows ...Fact) {
	t.Helper()
	for _, r := range rows {
		if !equal(r.got, r.want) {
			t.Errorf("%s: %s is %v, want %v", what, r.name, r.got, r.want)
		}
	}
}

// equal reports whether got is the expected value want. Numbers of different types are equal if they have the same
// value.
func equal(got, want any) bool {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	if !isNumber(g) || !isNumber(w) || g.Type() == w.Type() {
		return reflect.DeepEqual(got, want)
	}
	there := w.Convert(g.Type()) // different values may convert to the same value, but then do not convert back
	return there.Equal(g) && there.Convert(w.Type()).Equal(w) && negative(there) == negative(w)
}

func isNumber(v reflect.Value) bool {
	return v.IsValid() && (v.CanInt() || v.CanUint() || v.CanFloat())
}

func negative(v reflect.Value) bool {
	return v.CanInt() && v.Int() < 0 || v.CanFloat() && v.Float() < 0
}
