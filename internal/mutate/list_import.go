package main

// ofImports breaks what is read of other tools' configs, and what mt has of their keys.
var ofImports = []broken{
	{"internal/config/schedulerargs.go", []way{
		{from: "return end / c.LearningRate\n", to: "return end\n", test: "TestSchedulerArgs"},
		{from: "return c.schedulerArg(\"min_lr_rate\", c.MinLRRatio)", to: "return c.MinLRRatio", test: "TestSchedulerArgs"},
		{from: "c.LearningRate <= end {", to: "c.LearningRate < 0 {", test: "TestSchedulerArgsAreChecked"},
		{from: "a.whole && x != math.Trunc(x):", to: "a.whole && x == math.Trunc(x):", test: "TestSchedulerArgsAreChecked"},
	}},
}
