package actors

import "math"

// clipping is by what a gradient of that norm is multiplied so that its norm is at most bound, as in
// torch.nn.utils.clip_grad_norm_.
func clipping(bound, norm float64) float64 { return min(1, bound/(norm+1e-6)) }

// norm is the L2 norm over all layers, summed in the order of the layers; as the ranks have
// agreed on it, if they have.
func (s *stepState) norm() float64 {
	if s.agreed {
		return math.Sqrt(s.all)
	}
	var sum float64
	for _, sq := range s.squares {
		sum += sq
	}
	return math.Sqrt(sum)
}
