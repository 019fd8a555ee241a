// Package chart draws lines over axes as a picture in SVG that suits light and
// dark screens, and in a terminal a line as a sparkline of one row.
//
// A [Chart] has one horizontal axis and one panel or more above each other, each
// with a vertical axis and its series:
//
//	c := chart.Chart{Title: "loss", X: chart.Axis{Title: "step"}, Panels: []chart.Panel{{
//		Y:      chart.Axis{Title: "nats per token"},
//		Series: []chart.Series{{Label: "train", X: steps, Y: losses}},
//	}}}
//	err := c.WriteSVG(file)                    // loss.svg
//	fmt.Println(chart.Sparkline(losses, 24)) // ▇▅▃▂▂▁
//
// [WriteBars] draws counts as bars in text.
//
// It imports nothing of ours; whoever shows numbers over numbers imports it.
//
// Invariant: whatever the numbers are, the picture is well-formed and lies within
// its bounds, and every pixel column of it shows the least and the greatest value
// that fell there: thinning leaves no peak out.
package chart
