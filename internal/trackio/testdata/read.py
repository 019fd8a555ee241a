"""Prints what Trackio reads of a run that mt wrote, as JSON, after it has made
a run of its own in the same project: read.py PROJECT RUN, with TRACKIO_DIR set.
Needs trackio."""
import contextlib
import json
import sys

import trackio
from trackio.sqlite_storage import SQLiteStorage

project, run = sys.argv[1:]
with contextlib.redirect_stdout(sys.stderr):
    trackio.init(project=project, name="theirs")
    trackio.log({"train/loss": 9.0}, step=1)
    trackio.finish()
logs = SQLiteStorage.get_logs(project, run)
json.dump({
    "projects": SQLiteStorage.get_projects(),
    "runs": sorted(SQLiteStorage.get_runs(project)),
    "steps": [row["step"] for row in logs],
    "loss": [row["train/loss"] for row in logs],
    "config": SQLiteStorage.get_run_config(project, run),
}, sys.stdout)
