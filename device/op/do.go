package op

import (
	"reflect"
	"sync"

	"mt/device"
)

// pools hold, for each type of operation, values that nobody uses at the moment.
// They save allocations, as an argument of Device.Do lies on the heap.
var pools sync.Map // reflect.Type of the operation → *sync.Pool

// Do enqueues o on s, a stream of d. It allocates nothing, once as many operations
// of that type have been made as are enqueued at the same time. An error makes the
// stream fail.
func Do[O any, P interface {
	*O
	device.Op
}](d device.Device, s device.Stream, o O) {
	if !pooled {
		p := new(O)
		*p = o
		d.Do(s, P(p))
		return
	}
	pool, ok := pools.Load(reflect.TypeFor[O]())
	if !ok {
		pool, _ = pools.LoadOrStore(reflect.TypeFor[O](), &sync.Pool{New: func() any { return new(O) }})
	}
	p := pool.(*sync.Pool).Get().(*O)
	*p = o
	d.Do(s, P(p))
	pool.(*sync.Pool).Put(p)
}

// Worker is an operation whose cost depends on more than its name.
type Worker interface {
	device.Op
	// Work returns the shape that decides the cost, for people, and the number of
	// floating point operations, 0 where that is not known.
	Work() (shape string, flops float64)
	// MostWork returns the same shape, and the most floating point operations that the arguments allow, on operands of
	// that type. It takes no memory.
	MostWork() (Shape, device.DType, float64)
}

// Mover is an operation that says how many bytes of device memory it reads and writes at
// least: every operand once, but what it keeps by itself (tables, one number a row) not at
// all. All operations of this package are Movers.
type Mover interface {
	device.Op
	Bytes() int64
}
