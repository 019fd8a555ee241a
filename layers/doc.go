// Package layers has the stateless templates of each layer kind: forward and backward, written in the operations of
// device/op. Callers pass weights, gradients and activations to each call; nothing here allocates, waits or keeps
// anything. A layer's Kind describes the layer for code that plans, fetches and offloads.
//
// A block with a recurrence is a kind of its own with the visits of other blocks (kind_block.go, recurrence.go,
// gated_delta_net.go, kda.go, short_conv.go, mamba2.go). For each block the plan chooses what the block's forward keeps
// for the backward (Keeps). With preference pairs, the losses of all chunks come before any gradient: both answers of
// a pair decide each token's factor (op.PreferenceWeights).
//
// # Passengers
//
// Some models pass more than the hidden state from block to block: per-layer inputs, and keys and values that later
// blocks share (Gemma 4 E2B). Multi-token prediction passes the embedding, and then the final norm's output (ahead.go).
// These passengers lie behind the hidden state's rows in the same memory (passengers.go). Slots, spills, lanes and
// gradients treat them as part of the hidden state. A layer of its own computes the per-layer inputs from the embedding
// (kind_per_layer.go, per_layer.go).
//
// # Experts
//
// A block with experts is two layers: its attention, and a layer in parts, the router (part 0) and the
// experts (kind_moe.go, moe*.go). Each part is a tile of its own in weight slots and gradient buffers. On the
// host the layer is whole: one slab, one update, one entry of a checkpoint.
//
//   - Route: norm and router write the normed rows, the chosen experts and a running sum into one state
//     for the whole step (MoEState). The device sorts pairs of token and choice by expert. The host learns
//     where each expert's pairs begin and enqueues no expert earlier; no thread blocks.
//   - Expert: one launch over the tokens of all micro-batches adds to the sum. A shared expert is one
//     that every token chooses, the last part of the layer, with a width of its own.
//   - Combine: each micro-batch takes its rows of the sum as the layer's output. If the sum is normed, the
//     layer keeps it for the backward, whose Route turns the gradient of the output into that of the sum.
//
// The backward routes again with the same bits, so the counts of the forward still hold. Experts follow in
// reverse, first those still in slots. Each gradient goes to its range of the layer's slab. Combine computes
// the gradient of the input from the gradient of the output. The gradient of Combine's weights is the last part.
//
// If the plan expects fewer than 0.5 idle experts in a layer, all tiles are fetched ahead. Otherwise, unless
// the device is unified, the Prefetcher waits for the routing and fetches experts on demand: an idle
// expert is not fetched, has no launch in the forward, and gets a gradient of zero. No tile fetched on
// demand stays for the next pass. The choice changes no bit. mt plan names the choice and the bytes that
// travel, metrics.jsonl the tiles that were fetched.
//
// With output_router_logits the loss balances the experts' load. The routing of all layers then goes to
// Compute of every lane, which adds probabilities in the order of the layers before any loss or backward.
// Several ranks add theirs first. The balancing loss joins the step's, and its gradient is part of Combine.
//
// # Rows longer than the device holds
//
// With hidden_states: host, hidden states stay on the host. A launch copies chunks to the device and back
// on its own stream, and attention takes one group of key/value heads at a time (hidden.go, groups.go).
//
// It imports device, device/op, model, schedule and base/bf16. Invariant: a
// template enqueues on the stream it is given and touches only tensors it was given.
package layers
