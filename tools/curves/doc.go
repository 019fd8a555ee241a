// Command curves draws the training losses of runs into one picture: a line for each name, the mean over
// its runs. It also prints their held-out losses.
//
//	go run ./tools/curves FILE.svg NAME=DIR,DIR,… …
//
// A DIR is an output_dir with metrics.jsonl. The runs of a name have logged the same steps.
package main
