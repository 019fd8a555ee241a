// Package chart draws line charts: as an SVG picture for light and dark screens, and as a one-row sparkline for
// terminals.
//
// A [Chart] has one horizontal axis and one or more panels stacked above it. Each panel has a vertical axis and its
// series:
//
//	c := chart.Chart{Title: "loss", X: chart.Axis{Title: "step"}, Panels: []chart.Panel{{
//		Y:      chart.Axis{Title: "nats per token"},
//		Series: []chart.Series{{Label: "train", X: steps, Y: losses}},
//	}}}
//	err := c.WriteSVG(file)                    // loss.svg
//	fmt.Println(chart.Sparkline(losses, 24)) // ▇▅▃▂▂▁
//
// [WriteBars] draws counts as text bars.
//
// It imports nothing of this module.
//
// Invariant: for any input the picture is well-formed and lies within its bounds. Every pixel column shows the minimum
// and the maximum of its values, so thinning loses no peak.
package chart
