package op

import (
	"reflect"
	"sync"

	"mt/device"
)

// pools has a pool of reusable values for each type of operation. An argument of Device.Do escapes
// to the heap, so without reuse every call of Do would allocate.
var pools sync.Map // reflect.Type of the operation → *sync.Pool

// Do enqueues o on s, a stream of d. It copies o into a value from the pool of o's type, which returns to the pool
// later. Once the pool holds enough values, Do allocates nothing. An error makes the stream fail.
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

// Worker is an operation whose cost depends on its shape, such as a matrix product or attention.
type Worker interface {
	device.Op
	// Work returns the shape as text for people, and the number of floating-point operations; 0: unknown.
	Work() (shape string, flops float64)
	// MostWork returns the same shape as a Shape, the type of the operands, and an upper bound of the floating-point
	// operations. It does not allocate.
	MostWork() (Shape, device.DType, float64)
}

// Mover is an operation that counts its bytes: the least device memory that it reads and writes. Every operand counts
// once; small operands (tables, one number a row) do not count. All operations of this package are Movers.
type Mover interface {
	device.Op
	Bytes() int64
}
