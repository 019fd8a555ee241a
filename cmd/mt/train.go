package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mt/internal/run"
	"mt/internal/run/config"
	"mt/internal/run/predict"
	"mt/internal/run/settings"
	"mt/model"
	"mt/plan/rates"
)

func (a *app) trainCommand() *cobra.Command {
	var dry, asJSON, helpAll bool
	c := a.keyed(&cobra.Command{
		Use:   "train CONFIG.yaml [--any-config-key value]",
		Short: "Train a model",
		Long:  trainHelp(true), // for manual pages
		Example: `  mt train examples/quickstart.yaml
  mt train run.yaml --learning-rate 1e-4 --pipeline.weight-slots 4
  mt train run.yaml --dry-run
  mt train run.yaml --max-steps 2000
  mt train run.yaml --trace run.json.gz
  mpirun -n 4 --hostfile hosts mt train run.yaml
  mt train --model quickstart --dataset notes.txt --max-seq-len 256 --output-dir out/notes`,
	}, func(c *cobra.Command, cfg *config.Config) error {
		if err := cfg.Require("model", "dataset"); err != nil {
			return err
		}
		switch {
		case dry && a.world != nil:
			return config.Usagef("train: --dry-run is for one process: start it by itself, once")
		case dry:
			return run.DryRun(c.Context(), cfg, a.options(asJSON))
		case asJSON:
			return config.Usagef("--json goes with --dry-run; a run writes its numbers to metrics.jsonl in output_dir")
		}
		a.out.spare = true // the results are in output_dir
		o := a.options(false)
		o.ProcessEnds = true
		err := run.Train(c.Context(), cfg, o)
		a.ranksEnded = true
		return err
	})
	help := c.HelpFunc()
	c.SetHelpFunc(func(c *cobra.Command, args []string) {
		c.Long = trainHelp(helpAll)
		help(c, args)
	})
	one := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if helpAll {
			return c.Help()
		}
		return a.asRank(c.Context(), "train", func() error { return one(c, args) })
	}
	config.Switch(c.Flags(), "help-all", &helpAll)
	config.Switch(c.Flags(), "dry-run", &dry)
	config.Switch(c.Flags(), "json", &asJSON)
	return c
}

// trainHelp returns the help of mt train, with all config keys or the common ones.
func trainHelp(all bool) string {
	which := "Common config keys"
	if all {
		which = "Config keys"
	}
	return keyHelp(`Train trains a model from a YAML file. Every key of the file is also a flag. Flags win
over the file. Dashes and underscores are the same, and a switch needs no value.
Key names of other trainers are accepted.

The same command again resumes from the newest checkpoint in output_dir. If steps or
learning rate differ, a note says what changes. Ctrl-C finishes the step, saves a
checkpoint and exits with 130. So does a closed terminal, unless nohup started mt.

Under MPI or srun, with one process per host, all ranks train one model:
mpirun -n 4 --hostfile hosts mt train run.yaml (docs/clusters.md).

Presets train from scratch (--model NAME). tiny and quickstart are for a CPU:
`+presets()+`

  --dry-run   check everything, show memory and disk space, train nothing
  --json      with --dry-run: the plan as JSON
  --help-all  list all config keys, not only the common ones

`+which+", with their defaults:\n", all)
}

func (a *app) planCommand() *cobra.Command {
	var asJSON bool
	var gpu, host, sweep, network string
	var perSwitch, hosts int
	c := a.keyed(&cobra.Command{
		Use:   "plan CONFIG.yaml [--any-config-key value]",
		Short: "Show what a run would need, by purpose, and whether it fits",
		Long: `Plan checks a config, opens the model, and prints how much memory a run would
take on the device and on the host, by purpose, and how much of the disk. It
reads no data (rows are taken to have max_seq_len tokens), looks at no
output_dir and allocates nothing. With device_memory the plan is for a GPU of
that size, which need not be here; without host_memory it is for what this
machine has. Flags are those of mt train.

With --gpu it predicts how long a step takes on that GPU, what it waits for, what
batch and depths to take, and the smallest machine that would do. Nothing is
measured, and the GPU need not be here.

mt train CONFIG.yaml --dry-run shows the same of a run here and now: with its
data, the free disk space and the checkpoint that it would go on from.

  --gpu NAME    ` + strings.Join(rates.GPUs(), ", ") + `;
                or a file that mt doctor --save has written; several devices
                that differ with commas between them: rtx4090,rtx3090
  --host NAME   the host's memory, TYPE-TRANSFERSxCHANNELS, such as ddr5-4800x8
                (default: one that such a GPU is often in)
  --gpus-per-switch N
                how many GPUs share one link to the host, behind a switch
                (default: each has its own)
  --hosts N     how many hosts, such as this one is, divide the rows of a step
  --network RATE
                what each of them sends and receives at, such as 100Gb/s
  --sweep WHAT  a table over batch, seq or depth
  --json        all of it as JSON`,
		Example: `  mt plan examples/quickstart.yaml
  mt plan --model qwen2.5-7b --device-memory 24GiB --host-memory 128GiB
  mt plan --model qwen2.5-14b --gpu rtx3090 --host-memory 128GiB --sweep batch
  mt plan --model qwen2.5-7b --gpu h100 --hosts 4 --network 100Gb/s
  mt plan run.yaml --device-memory 10GiB --json`,
	}, func(c *cobra.Command, cfg *config.Config) error {
		o := a.options(asJSON)
		if err := forecast(&o.Forecast, gpu, host, sweep); err != nil {
			return err
		}
		if err := behindSwitches(&o.Forecast, perSwitch); err != nil {
			return err
		}
		if err := onHosts(&o.Forecast, c.Flags().Changed("hosts"), hosts, network); err != nil {
			return err
		}
		return predict.Plan(c.Context(), cfg, o)
	})
	c.Flags().StringVar(&gpu, "gpu", "", "")
	c.Flags().StringVar(&host, "host", "", "")
	c.Flags().IntVar(&perSwitch, "gpus-per-switch", 0, "")
	c.Flags().IntVar(&hosts, "hosts", 0, "")
	c.Flags().StringVar(&network, "network", "", "")
	c.Flags().StringVar(&sweep, "sweep", "", "")
	config.Switch(c.Flags(), "json", &asJSON)
	return c
}

// forecast checks --gpu, --host and --sweep, and sets the machine whose rates mt plan predicts with.
func forecast(f *settings.Forecast, gpu, host, sweep string) (err error) {
	switch sweep {
	case "", "batch", "seq", "depth":
	default:
		return config.Usagef("plan: --sweep %q: want batch, seq or depth", sweep)
	}
	if gpu == "" {
		if host != "" || sweep != "" {
			return config.Usagef("plan: --host and --sweep need --gpu, which says whose rates to predict with")
		}
		return nil
	}
	if host != "" {
		first, others, several := strings.Cut(gpu, ",")
		if strings.HasSuffix(first, ".json") {
			return config.Usagef("plan: --host %s goes with the name of a GPU; the file %s has a host of its own, to be changed there", host, gpu)
		}
		if gpu = first + "+" + host; several {
			gpu += "," + others
		}
	}
	if f.Machine, err = rates.Find(gpu); err != nil {
		return config.Usagef("plan: --gpu %w", err)
	}
	f.Sweep = sweep
	return nil
}

// onHosts applies --hosts (n) and --network to f: the plan is then for n hosts that this network connects. given
// reports whether --hosts was given.
func onHosts(f *settings.Forecast, given bool, n int, network string) (err error) {
	switch {
	case !given && network == "":
		return nil
	case !given:
		return config.Usagef("plan: --network %s goes with --hosts, which says how many hosts it is between, such as --hosts 4", network)
	case n < 1 || n > mostHosts:
		return config.Usagef("plan: --hosts %d: want a number of hosts from 1 to %d, such as 4", n, mostHosts)
	}
	f.Hosts = n
	if f.Machine == nil && network != "" {
		return config.Usagef("plan: --network needs --gpu, which says whose rates to predict with")
	}
	if f.Machine == nil || n == 1 {
		return nil
	}
	if network != "" {
		if f.Machine.Network, err = rates.ParseNetwork(network); err != nil {
			return config.Usagef("plan: --network %w", err)
		}
	}
	if f.Machine.Network == nil {
		return config.Usagef("plan: --hosts %d with --gpu needs the network between them, such as --network 100Gb/s (or network in a file of rates)", n)
	}
	return nil
}

// mostHosts is the largest number that --hosts accepts.
const mostHosts = 4096

// behindSwitches applies --gpus-per-switch to f: n of the predicted machine's GPUs share one link to the host. 0
// leaves the number that the machine's rates have.
func behindSwitches(f *settings.Forecast, n int) error {
	switch {
	case n == 0:
		return nil
	case n < 0:
		return config.Usagef("plan: --gpus-per-switch %d: at least one GPU is behind a switch", n)
	case f.Machine == nil:
		return config.Usagef("plan: --gpus-per-switch needs --gpu, which says whose rates to predict with")
	}
	f.Machine.Link.PerSwitch = n
	return nil
}

func (a *app) evalCommand() *cobra.Command {
	var asJSON bool
	c := a.keyed(&cobra.Command{
		Use:   "eval --model DIR --dataset FILE",
		Short: "Measure loss and perplexity of a model on a data set",
		Long: `Eval prints the mean loss per supervised token, in nats, its exponential (the
perplexity) and the number of those tokens, over all rows of the data set.

  --model DIR           a Hugging Face directory, such as a run's output_dir
  --dataset FILE        files, directories or globs, separated by commas
  --max-seq-len N       tokens of a row (default 2048)
  --packing BOOL        fill rows with several documents (default: for text)
  --device DEVICE       auto, cpu or cuda
  --compute-dtype TYPE  auto, bf16 or fp32
  --threads N           worker threads
  --json                {"loss": ..., "perplexity": ..., "tokens": ...}

Other keys of mt train that say how data is read or computed work too, and so
does a config file in front.`,
		Example: `  mt eval --model out/quickstart --dataset held-out.txt --max-seq-len 256 --json`,
	}, func(c *cobra.Command, cfg *config.Config) error {
		if err := cfg.Require("model", "dataset"); err != nil {
			return err
		}
		o := a.options(asJSON)
		o.ProcessEnds = true
		r, err := run.Eval(c.Context(), run.EvalOptions{Options: o, Config: cfg})
		if err != nil {
			return err
		}
		if asJSON {
			return a.json(r)
		}
		_, err = fmt.Fprintf(a.stdout, "loss %.6f  perplexity %.4f  tokens %d\n", r.Loss, r.Perplexity, r.Tokens)
		return err
	})
	config.Switch(c.Flags(), "json", &asJSON)
	return c
}

// presets returns the names of the model presets, broken into lines.
func presets() string {
	var b strings.Builder
	width := 0
	for _, name := range model.PresetNames() {
		if width+len(name) > 76 {
			b.WriteByte('\n')
			width = 0
		}
		if width == 0 {
			b.WriteByte(' ')
		}
		b.WriteString(" " + name)
		width += len(name) + 1
	}
	return b.String()
}
