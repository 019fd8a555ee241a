// Package op holds the operations that layers are made of, as values: one file
// for one operation (or a forward and its backward), with its arguments, what is
// wrong with them (Check), and where a profile wants more than its name its shape
// and FLOPs (Worker). Do enqueues one; Table is how a device finds what runs it.
//
// Conventions. Tensors must outlive an event recorded after the operation. They
// are dense and row-major unless a stride says otherwise. "act" is the compute
// dtype (fp32 or bf16) of activations and of weights with two dimensions; norms'
// weights and biases are fp32. Sums, norms, softmax and losses are computed in
// fp32 and rounded once, when stored. The gradient rule: gradients of parameters
// ACCUMULATE in fp32, gradients of activations OVERWRITE, unless a field says
// otherwise. Every reduction has a partition fixed by the shapes alone: the same
// bits for any number of threads.
//
// It imports device. Invariant: nothing here reads memory. Check says what shapes,
// types and lengths say, for every device alike; the values of index tensors are
// for those who can read them, and what only one device cannot do is that
// device's to refuse.
package op
