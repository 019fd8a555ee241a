// Package cudart calls NVIDIA's libraries without cgo: libcudart for memory, streams and events, libcuda for kernels,
// libcublasLt for matrix products and libnvidia-ml for the state of a GPU. It loads them at run time; the build needs
// nothing of CUDA. It imports purego, and nothing of this module.
//
// Find searches for the libraries, Open loads them, and New binds their functions. Any implementation of Symbols can
// replace them.
//
// Each method calls the one foreign function that its comment names, unless the comment says otherwise. Comments state
// units, lifetimes and synchronization. All methods may be called from any goroutine.
//
// CUDA keeps the current context per OS thread, and uses device 0 on a thread without one. Every method that reaches a
// device therefore takes the device's primary context. It makes the context current on the calling thread within the
// same call, whichever library it calls. A method that waits or releases something calls its function even if the
// context cannot be set. Do not call such a method again after an error.
//
// Methods that need no context take the device's ordinal. Within a process, ordinals start at 0 and skip the devices
// that CUDA_VISIBLE_DEVICES hides.
//
// Invariant: C receives only heap memory that nothing else writes and that lives until the call returns. C keeps no Go
// memory after the call.
package cudart
