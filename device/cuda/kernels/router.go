package kernels

import (
	"cmp"
	"fmt"

	"mt/device"
	"mt/device/op"
)

func init() {
	add(Router)
	add(RouterBackward)
}

// routerKernels are the kernels for routers with up to experts experts. forwardAny and backwardAny
// support all rules, the others only the simplest; see router.cu.
type routerKernels struct {
	experts                 int
	forward, backward       Kernel
	forwardAny, backwardAny Kernel
}

func routerFor(experts int) routerKernels {
	name := func(op string) Kernel { return Kernel{Module: "router", Name: fmt.Sprintf("%s_%d", op, experts)} }
	return routerKernels{experts, name("router"), name("router_backward"), name("router_any"), name("router_backward_any")}
}

var routers = []routerKernels{routerFor(32), routerFor(64), routerFor(128), routerFor(256), routerFor(op.MaxExperts)}

func routerPick(experts int) *routerKernels {
	for i := range routers {
		if experts <= routers[i].experts {
			return &routers[i]
		}
	}
	panic(fmt.Sprintf("kernels: %d experts, at most %d", experts, op.MaxExperts))
}

// routerWarps is the number of warps in a block of the router's kernels. A warp works on one token at a time.
const routerWarps = 8

// routerFlags returns the rule as bits, a parameter of the kernels; router.cu lists the bits.
func routerFlags(normalize bool, r op.RouterRule) (flags int) {
	for i, set := range []bool{normalize, r.Sigmoid, r.Shared, r.Gated} {
		if set {
			flags |= 1 << i
		}
	}
	return flags
}

// Router launches op.Router: a kernel that writes ids, weights and the sums of scores over slices
// of the tokens, then one that adds up these sums.
func Router(l Launcher, a *op.Router) {
	if a.T == 0 {
		return
	}
	const most = 1024 // most slices of the tokens
	each := ceilDiv(ceilDiv(int64(a.T), most), routerWarps) * routerWarps
	var part device.Tensor
	slices := int(ceilDiv(int64(a.T), each))
	if !a.ProbSum.None() {
		part = l.Scratch(4*int64(slices)*int64(a.E)).Tensor(device.F32, 0, int64(slices)*int64(a.E))
	}
	kernel, p, r := &routerPick(a.E).forward, l.Params().Tensor(a.Logits), a.Rule
	if r == (op.RouterRule{}) && a.Bias.None() {
		p.Tensor(a.IDs).Tensor(a.Weights).Tensor(part).I32(a.T).I32(a.E).I32(a.K).Bool(a.Normalize).I32(int(each))
	} else {
		kernel = &routerPick(a.E).forwardAny
		p.Tensor(a.Bias).Tensor(a.IDs).Tensor(a.Weights).Tensor(part).I32(a.T).I32(int(each)).I32(a.E).I32(a.K)
		p.I32(routerFlags(a.Normalize, r)).I32(r.Groups).I32(r.OpenGroups).I32(r.GroupBest).F32(cmp.Or(r.Scale, 1)).F32(r.Near)
	}
	l.Launch(kernel, line(int64(slices)), line(routerWarps*32), 0, p)
	if !a.ProbSum.None() {
		addUp(l, a.ProbSum, part, slices, a.E)
	}
}

// RouterBackward launches op.RouterBackward.
func RouterBackward(l Launcher, a *op.RouterBackward) {
	if a.T == 0 {
		return
	}
	kernel, r := &routerPick(a.E).backward, a.Rule
	p := l.Params().Tensor(a.DLogits).Tensor(a.Logits).Tensor(a.IDs).Tensor(a.DWeights).Tensor(a.Counts).I32(a.T)
	if r == (op.RouterRule{}) {
		p.I32(a.E).I32(a.K).Bool(a.Normalize).F32(a.AuxScale)
	} else {
		kernel = &routerPick(a.E).backwardAny
		p.F32(a.AuxScale).I32(a.E).I32(a.K).I32(routerFlags(a.Normalize, r)).F32(cmp.Or(r.Scale, 1)).F32(r.Near)
	}
	l.Launch(kernel, line(ceilDiv(int64(a.T), routerWarps)), line(routerWarps*32), 0, p)
}
