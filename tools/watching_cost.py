"""What watching a run costs: CPU seconds of mt with everything that watches, and without.

    go build -o /tmp/mt ./cmd/mt && python3 tools/watching_cost.py /tmp/mt [PAIRS]

Runs examples/scratch.yaml PAIRS times (8) each way, in turns, on one thread, with a line of
numbers after every step. The watched run has --dashboard with one viewer, --trace, TensorBoard
and MLflow; the server for MLflow is in here, and says yes to everything. Prints each pair
and the median of the ratios, less one, with the ratios of the plain runs to each other beside it:
below that, a difference is the machine's.
"""
import http.server
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request

STEPS = 300


class MLflow(http.server.BaseHTTPRequestHandler):
    """Answers what a client asks for to begin a run, and {} to all else."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        run = {"info": {"run_id": "r", "run_uuid": "r", "experiment_id": "1", "status": "RUNNING"}, "data": {}}
        body = json.dumps({"run": run, "experiment": {"experiment_id": "1", "name": "e"}, "experiment_id": "1"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = answer

    def log_message(self, *_):
        pass


def view(url):
    """Reads the events of a dashboard until the run ends."""
    try:
        with urllib.request.urlopen(url.replace("/?", "/events?")) as events:
            while events.read1(65536):
                pass
    except OSError:
        pass


def cpu_seconds(mt, folder, watched, server):
    """One run's CPU seconds, user and system."""
    out = tempfile.mkdtemp(dir=folder)
    command = [mt, "train", "examples/scratch.yaml", f"--output_dir={out}/run", f"--max_steps={STEPS}", "--eval_steps=0", "--sample_prompt=", "--threads=1",
               "--logging_steps=1"]
    env = dict(os.environ, MLFLOW_TRACKING_URI=server, MLFLOW_EXPERIMENT_NAME="e")
    if watched:
        command += ["--report_to=tensorboard,mlflow", "--dashboard=0", f"--trace={out}/trace.json.gz"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    for line in run.stdout:
        said.append(line)
        if watched and (url := re.search(r"http://\S*/\?token=\S+", line)):
            threading.Thread(target=view, args=(url[0],), daemon=True).start()
            watched = False
    if run.wait() != 0 or watched:
        sys.exit(f"{' '.join(command)}\n{''.join(said)}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    mt, pairs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), MLflow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    plain, watched = [], []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            for way in (0, 1) if pair % 2 else (1, 0):
                (watched if way else plain).append(cpu_seconds(mt, folder, way, address))
            print(f"plain {plain[-1]:.2f} s, watched {watched[-1]:.2f} s: {100 * (watched[-1] / plain[-1] - 1):+.2f} %", flush=True)
    ratios = [100 * (w / p - 1) for w, p in zip(watched, plain)]
    own = [0.0] if pairs == 1 else [100 * (b / a - 1) for a, b in zip(plain, plain[1:])]
    print(f"median {statistics.median(ratios):+.2f} % [{min(ratios):+.2f} to {max(ratios):+.2f}]; "
          f"plain runs, each against the one before: median {statistics.median(own):+.2f} % [{min(own):+.2f} to {max(own):+.2f}]")


if __name__ == "__main__":
    main()
