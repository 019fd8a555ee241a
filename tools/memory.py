"""The table of bench/reports/optimizers.md on memory: what a plan says that a run takes, and the most that its process took.

    go build -o /tmp/mt ./cmd/mt && python3 tools/memory.py /tmp/mt [DIR]

Trains a model of 331 million parameters for two steps on the CPU, with each optimizer, and with one of them the other
choices. Planned is host and device together, since the CPU is the device; taken is the peak of the process's resident memory
(VmHWM) as the kernel tells it at the end. It needs 5 GiB of memory, and 3 GiB of disk in DIR (else the system's folder for
temporary files).
"""
import json
import os
import subprocess
import sys
import tempfile

RUN = """
model: {hidden_size: 1024, intermediate_size: 2816, num_hidden_layers: 28, num_attention_heads: 16, num_key_value_heads: 8, vocab_size: 256}
dataset: README.md
max_seq_len: 32
max_steps: 2
per_device_train_batch_size: 2
compute_dtype: bf16
recompute: full
device: cpu
save_strategy: "no"
sample_prompt: ""
compare_bigram: false
max_grad_norm: 0
"""

OPTIMIZERS = ["adamw", "adamw_8bit", "adamw_4bit", "muon", "muon_8bit", "lion", "lion_8bit", "sgd"]


def cases(folder):
    """What a row is called, and the flags of its run."""
    for optim in OPTIMIZERS:
        few = ["--ns-steps", "1"] if "muon" in optim else []  # for the time that it takes
        yield f"`{optim}`", ["--optim", optim, *few]
    yield "`sgd`, `momentum: 0.9`", ["--optim", "sgd", "--momentum", "0.9"]
    for name, *flags in (
        ("gradients wait for the norm", "--max-grad-norm", "1"),
        ("`clip: layerwise`", "--max-grad-norm", "1", "--clip", "layerwise"),
        ("`grad_dtype: bf16`", "--grad-dtype", "bf16"),
        ("`master_dtype: bf16`", "--master-dtype", "bf16"),
        ("both", "--master-dtype", "bf16", "--grad-dtype", "bf16"),
        ("`state_dir`", "--state-dir", f"{folder}/state", "--host-memory", "1700MiB"),
        ("`state_dir`, `master_dtype: bf16`", "--state-dir", f"{folder}/state", "--host-memory", "1300MiB", "--master-dtype", "bf16"),
    ):
        yield f"`adamw_8bit`, {name}", ["--optim", "adamw_8bit", *flags]


def planned(mt, config, flags):
    """Bytes of host and device that mt plan says."""
    out = subprocess.run([mt, "plan", config, *flags, "--json"], check=True, capture_output=True, text=True).stdout
    memory = json.loads(out)["memory"]
    return memory["host_bytes"] + memory["device_bytes"]


def taken(mt, config, flags):
    """Bytes of the process's peak."""
    with tempfile.TemporaryFile("w+") as log:
        command = [mt, "train", config, *flags]
        run = os.posix_spawn(mt, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, log.fileno(), fd) for fd in (1, 2)])
        _, status, usage = os.wait4(run, 0)
        if status != 0:
            log.seek(0)
            sys.exit(f"{' '.join(command)}:\n{log.read()}")
    return usage.ru_maxrss * 1024


def main():
    mt = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
        os.mkdir(f"{folder}/state")
        config = f"{folder}/run.yaml"
        with open(config, "w") as f:
            f.write(RUN.replace("README.md", os.path.abspath("README.md")) + f"output_dir: {folder}/out\ncache_dir: {folder}/cache\n")
        print("| optimizer | planned | taken | difference |")
        print("| --- | --- | --- | --- |")
        for name, flags in cases(folder):
            plan, most = planned(mt, config, flags), taken(mt, config, flags)
            subprocess.run(["rm", "-rf", f"{folder}/out"], check=True)
            print(f"| {name} | {plan / 2**20:.0f} MiB | {most / 2**20:.0f} MiB | {most / plan - 1:+.1%} |", flush=True)


main()
