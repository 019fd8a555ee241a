// Package cudart calls NVIDIA's libraries without cgo: libcudart for memory,
// streams and events, libcuda for kernels, libcublasLt for matrix products and
// libnvidia-ml for what a GPU tells about itself. They are found at run time;
// nothing of CUDA is needed to build.
//
// Find searches them, Open loads them, New binds their functions. Anything that
// hands out addresses of C functions (Symbols) can stand in their place.
//
// Each method calls the one foreign function that it names, unless it says
// otherwise, and documents units, lifetime and synchrony. All methods may be called
// from any goroutine. CUDA keeps its current context per OS thread, and takes
// device 0 where a thread has none; so every method that reaches a device takes the
// primary context of that device and sets it on the calling thread within the same
// call, whichever library it calls. A method that gives something back, or waits,
// calls its function even where the context cannot be set, and must not be called
// again. Methods that need no context take the device's ordinal; within a process
// ordinals begin at 0 and leave out the devices that CUDA_VISIBLE_DEVICES hides.
//
// It imports purego, and nothing of this module.
//
// Invariant: C is only given heap memory that nothing else writes and that lives
// until the call returns, and no memory of Go is left with C after that.
package cudart
