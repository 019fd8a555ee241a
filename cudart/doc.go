// Package cudart calls NVIDIA's libraries without cgo: libcudart for memory,
// streams and events, libcuda for kernels, libcublasLt for matrix products and
// libnvidia-ml for what a GPU tells about itself. They are found at run time;
// nothing of CUDA is needed to build.
//
// Find searches them, Open loads them, New binds their functions. Anything that
// hands out addresses of C functions (Symbols) can stand in their place.
//
// Each method calls the one foreign function that it names, unless it says
// otherwise, and documents units, lifetime and synchrony. All methods may be
// called from any goroutine. CUDA keeps its current context per OS thread, so
// methods of libcuda, and those of libcublasLt that reach the device, take the
// context and set it on the calling thread within the same call; those of
// libcudart work on device 0 without.
//
// It imports nothing of this module, and purego.
//
// Invariant: C sees only heap memory that nothing else writes and that lives
// until the call returns; nothing that C keeps longer is Go memory.
package cudart
