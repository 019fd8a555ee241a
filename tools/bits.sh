#!/usr/bin/env bash
# Trains small models in every way that mt has and prints a digest of each model, checkpoint
# and metrics line. Two binaries that compute the same print the same:
#
#     go build -o /tmp/mt ./cmd/mt && go build -tags emu -o /tmp/mtemu ./cmd/mt
#     tools/bits.sh /tmp/mt /tmp/mtemu OUT > new.txt && diff old.txt new.txt
#
# MT is a usual binary and MTEMU one with the emulator; OUT is a new folder that keeps the runs and their output. The metrics
# lose their times, rates and memory before they are digested. A run that fails prints its
# exit status in place of digests. Runs on several ranks need mpirun. Takes about a minute.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -eq 3 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mt=$(realpath "$1")
emu=$(realpath "$2")
mkdir -p "$3"
out=$(realpath "$3")
readonly mt emu out recordings=internal/run/testdata/recordings
export XDG_CACHE_HOME=$out/cache

cat > "$out/base.yaml" <<'YAML'
model: {hidden_size: 64, intermediate_size: 160, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 256, initializer_range: 0.05, eos_token_id: 0}
dataset: ${GOROOT}/src/bufio/*.go
max_seq_len: 64
val_size: 4
per_device_train_batch_size: 4
max_steps: 6
learning_rate: 3.0e-3
warmup_steps: 2
weight_decay: 0.1
logging_steps: 1
save_steps: 3
eval_steps: 3
report_to: none
device: cpu
threads: 2
YAML

# digests NAME prints a line for each file of a run that depends on computed values.
digests() {
	local name=$1 f
	(
		cd "$out/$name"
		find . -type f \( -name '*.safetensors' -o -name '*.bin' -o -name '*.zst' \) | LC_ALL=C sort | while read -r f; do
			printf '%s %s %s\n' "$(sha256sum < "$f" | cut -c1-16)" "$name" "$f"
		done
		if [ -e metrics.jsonl ]; then
			printf '%s %s metrics\n' "$(grep -oE '"(step|loss|eval_loss|grad_norm|learning_rate|tokens|epoch)":[^,}]*' metrics.jsonl | sha256sum | cut -c1-16)" "$name"
		fi
	)
}

# run NAME [BINARY] ARGUMENTS… trains and prints the digests.
run() {
	local name=$1 binary=$mt rc=0
	shift
	[ "$1" != emu ] || { binary=$emu; shift; }
	"$binary" train "$@" --output-dir "$out/$name" > "$out/$name.log" 2>&1 < /dev/null || rc=$?
	if [ "$rc" -ne 0 ]; then echo "$name failed with $rc"; return; fi
	digests "$name"
}

# base NAME ARGUMENTS… is a run of the small model above.
base() {
	local name=$1
	shift
	run "$name" "$out/base.yaml" "$@"
}

base inplace
base copied --binding copy
base bf16 --compute-dtype bf16
base bf16masters --compute-dtype bf16 --master-dtype bf16
base gradbf16 --grad-dtype bf16 --binding copy
base headshards --binding copy --pipeline.head-shards 4
base microbatches --binding copy --pipeline.micro-batch-tokens 64
base layersorder --binding copy --pipeline.micro-batch-tokens 64 --micro-batch-order lanes
base recomputed --binding copy --recompute full
base kept --binding copy --recompute none
base layerwise --clip layerwise
base unclipped --max-grad-norm 0
base synchronous --synchronous-updates
base averages --ema-decay 0.9
base groups --lr-groups '[{name: embed, modules: [embed_tokens], lr: 1e-4}]'
base noise --neftune-noise-alpha 5
base smoothed --label-smoothing-factor 0.1 --z-loss-coef 1e-3
base hidden --binding copy --hidden-states host --pipeline.micro-batch-tokens 64 --pipeline.chunk-tokens 32
base frozen --freeze 'layers\.[01]\.'
base zstd --optimizer-zstd
for o in adamw_8bit adamw_4bit lion lion_8bit muon muon_8bit sgd; do base "$o" --optim "$o"; done
base disks --binding copy --host-memory 98.6MiB --state-dir "$out/states"
base diskweights --binding copy --host-memory 99.2MiB --state-dir "$out/states2" --param-dir "$out/params" --clip layerwise --model '{hidden_size: 64, intermediate_size: 160, num_hidden_layers: 24, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 256, initializer_range: 0.05, eos_token_id: 0}'
base lanes --devices 2 --binding copy
base tied --model '{hidden_size: 64, intermediate_size: 160, num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 256, max_position_embeddings: 256, initializer_range: 0.05, eos_token_id: 0, tie_word_embeddings: true}'
base stopped --max-steps 3
base stopped --max-steps 6
run emulated emu "$out/base.yaml" --device cuda --max-steps 2 --save-steps 0 --val-size 0 --eval-steps 0
run emulated2 emu "$out/base.yaml" --device cuda --devices 2 --max-steps 2 --save-steps 0 --val-size 0 --eval-steps 0

# recorded NAME ARGUMENTS… trains a recording's model on its rows.
recorded() {
	local name=$1 dir=$recordings/$1
	shift
	run "$name" --model "$dir/model" --dataset "$dir/train.jsonl" --max-seq-len 256 --per-device-train-batch-size 1 \
		--max-steps 4 --learning-rate 1e-3 --logging-steps 1 --save-dtype fp32 --device cpu --report-to none --threads 2 "$@"
}
for r in qwen3moe-balanced deepseekv2-biased gptoss-whole qwen3next-shared llama4-stretches gemma2-capped qwen3-tied granite4-nope; do recorded "$r"; done
recorded dpo-sigmoid --dpo '{beta: 0.3}'

run scratch examples/scratch.yaml --max-steps 4 --device cpu
if [ -d "$out/scratch" ]; then
	run chat examples/chat.yaml --model "$out/scratch" --max-steps 4 --num-train-epochs 1 --device cpu
	run pairs examples/dpo.yaml --model "$out/chat" --max-steps 4 --num-train-epochs 1 --device cpu
	"$mt" generate --model "$out/chat" --prompt "Once" --max-new-tokens 40 --temperature 0 --device cpu 2> /dev/null |
		sha256sum | sed 's/ .*/ generated/'
fi

if command -v mpirun > /dev/null; then
	rc=0
	mpirun -n 2 "$mt" train "$out/base.yaml" --output-dir "$out/ranks" > "$out/ranks.log" 2>&1 < /dev/null || rc=$?
	if [ "$rc" -eq 0 ]; then digests ranks; else echo "ranks failed with $rc"; fi
else
	echo "ranks skipped: no mpirun"
fi
