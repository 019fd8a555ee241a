package op

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"mt/device"
)

// Table maps each type of operation to the function with which a device runs it. The function gets an S, such as one of
// the device's streams. The device's file for an operation calls Add for its function. All calls of Add come before the
// first call of Take. Any number of goroutines may call Take. The zero value is an empty table.
type Table[S any] struct{ kinds map[reflect.Type]kind[S] } // the key is the type of a pointer to the operation

// kind is the entry of one type of operation: its name, its function, and a pool of values for reuse.
type kind[S any] interface {
	name() string
	// take copies the struct to which o points into a reused value and returns a pointer to the
	// copy. Method run calls the function with such a copy, and then keeps the copy for reuse.
	take(o device.Op) any
	run(on S, copy any) error
}

// Add makes f the function that runs operations of type O. It panics if the table already has one.
func Add[S, O any, P interface {
	*O
	device.Op
}](t *Table[S], f func(S, *O) error) {
	if _, ok := t.kinds[reflect.TypeFor[P]()]; ok {
		panic(fmt.Sprintf("op: the table has %s already", P(new(O)).Name()))
	}
	t.put(reflect.TypeFor[P](), newKind[S, O, P](f))
}

// Replace makes f the function that runs operations of type O, in place of the earlier one. It panics if the table
// has none.
func Replace[S, O any, P interface {
	*O
	device.Op
}](t *Table[S], f func(S, *O) error) {
	if _, ok := t.kinds[reflect.TypeFor[P]()]; !ok {
		panic(fmt.Sprintf("op: the table has no %s", P(new(O)).Name()))
	}
	t.put(reflect.TypeFor[P](), newKind[S, O, P](f))
}

func (t *Table[S]) put(of reflect.Type, k kind[S]) {
	if t.kinds == nil {
		t.kinds = map[reflect.Type]kind[S]{}
	}
	t.kinds[of] = k
}

// Clone returns a copy of t that can be changed without changing t.
func (t *Table[S]) Clone() Table[S] { return Table[S]{maps.Clone(t.kinds)} }

// Names returns the names of the table's operations, sorted.
func (t *Table[S]) Names() []string {
	var names []string
	for _, k := range t.kinds {
		names = append(names, k.name())
	}
	slices.Sort(names)
	return names
}

// Take returns a Call with a copy of the operation behind o and the function that runs it. The error names an
// operation that the table lacks.
func (t *Table[S]) Take(o device.Op) (Call[S], error) {
	k, ok := t.kinds[reflect.TypeOf(o)]
	if !ok {
		return Call[S]{}, fmt.Errorf("there is no operation %s on this device", o.Name())
	}
	return Call[S]{k, k.take(o)}, nil
}

// Call is an operation that is ready to run: a copy of its arguments and the function that runs it. The zero Call holds
// no operation.
type Call[S any] struct {
	kind kind[S]
	copy any // a pointer to the copied struct
}

// None reports whether c is the zero Call.
func (c Call[S]) None() bool { return c.kind == nil }

// Run runs the operation with the argument on, and then keeps the copy of its arguments for reuse. So a Call may run at
// most once.
func (c Call[S]) Run(on S) error { return c.kind.run(on, c.copy) }

// kindOf implements kind for operations of type O: f runs them.
type kindOf[S, O any, P interface {
	*O
	device.Op
}] struct {
	f    func(S, *O) error
	pool sync.Pool // of *O
}

func newKind[S, O any, P interface {
	*O
	device.Op
}](f func(S, *O) error) kind[S] {
	return &kindOf[S, O, P]{f: f, pool: sync.Pool{New: func() any { return new(O) }}}
}

func (k *kindOf[S, O, P]) name() string { return P(new(O)).Name() }

func (k *kindOf[S, O, P]) take(o device.Op) any {
	var c *O
	if pooled {
		c = k.pool.Get().(*O)
	} else {
		c = new(O)
	}
	*c = *o.(P)
	return c
}

func (k *kindOf[S, O, P]) run(on S, copy any) error {
	c := copy.(*O)
	if pooled {
		defer k.pool.Put(c)
	}
	return k.f(on, c)
}
