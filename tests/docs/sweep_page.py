"""docs/sweep.md: how a sweep works, and every field of its store and its JSON."""

from __future__ import annotations

from typing import Any

from npusched.batch.store import JOB_COLUMNS, STORE_VERSION
from npusched.report.sweep_docs import SWEEP_DOCS
from npusched.report.sweep_json import SWEEP_SCHEMA_FILE, sweep_schema
from npusched.report.sweep_types import SweepReport
from tests.docs.pages import NOTE, in_order, type_section

INTRO = f"""# Sweeps

`npusched sweep` plans many models on many targets within many budgets, and keeps every result in
one file.

```text
$ npusched sweep demo:ds_cnn demo:resnet8 -c ethos-u55-128,ethos-u65-256 --sram 32KiB,capacity
```

MODELS are files, folders (all `.tflite` files below), patterns and `demo:NAME`. A job is one model
on one target within one budget; `capacity`, or no `--sram` at all, is what the target has. Files
with the same content are one model.

```python
import npusched

report = npusched.sweep(["demo:ds_cnn"], ["ethos-u55-128"], sram=["16KiB", None])
for row in report.rows:
    print(row.model, row.budget_bytes, row.status, row.latency_s)
```

`npusched.sweep` also takes `Target` values, so that clocks, memory modes and your own vela.ini can
be swept (`npusched.load_target`).

## What is planned again, and what is not

The key of a job is the SHA-256 of the model's content, the resolved target's JSON, the budget, the
planning options, and the versions of npusched and Vela. A job whose key is in the store is not
planned again, so the same command goes on where an interrupted one stopped, and a wider sweep
plans only what is new. With `--retry-errors`, jobs that ended in an error are planned again.

Each row is written when it is finished, in a transaction of its own. Whatever ends a sweep (Ctrl-C,
a kill, a full disk) leaves a valid store with every finished job once. One sweep writes to a store
at a time, a second is refused; reading meanwhile is fine.

The exit code is 0 as soon as every job has a result. A model that cannot be read or planned is a
row with `status` `error`, a budget that is too small one with `infeasible` and the smallest budget
that has a plan; neither ends the sweep. 2: a model, target, budget or store that was named cannot
be used; 130: interrupted.

A row says what `npusched plan` says of the same model, target and budget. The budgets of a model on
a target are planned together, which saves reading and lowering, but do not influence each other: a
schedule of Vela's that was found for one budget (`--candidates asked`) competes at that one only.

## Who works

Without further options as many processes as there are CPUs (`--workers N`). Planning happens in
processes of their own: one that dies (a crash, no memory left) takes no result with it. What is
left of its task is tried once more in a fresh process; if that dies, too, these jobs are rows with
`error_kind` `worker`.

`--scheduler local:N` plans on N workers of dask.distributed on this machine (loopback only),
`--scheduler tcp://HOST:PORT` on those of a running scheduler
(`pip install "npusched[distributed]"`). Workers need the same versions of npusched and Vela as the
sweep, but no files: models are shipped with their tasks, results come back by value, and the sweep
alone writes to the store. A dask worker that dies loses its task to another one; a task is given up
when four have died under it. As everywhere in dask, whoever can reach a scheduler can run code on
its workers: keep it in a network that you trust.

## The store

An SQLite file. `npusched sweep --show FILE` sums it up, `--format csv` or `--format json` print its
rows, and so does any SQLite client:

```sh
sqlite3 results.sqlite "SELECT model, target, budget_bytes, latency_s FROM result WHERE status='ok'"
```

| table | one row per | columns |
|---|---|---|
| `job` | job | `{"`, `".join(JOB_COLUMNS)}` |
| `model` | model | `sha256`, `name`, `size_bytes` |
| `target` | resolved target | `sha256`, `name`, `json` |
| `setting` | set of planning options | `sha256`, `json` |

The view `result` has the fields of [SweepRow](#sweeprow), with the names of models and targets.
`PRAGMA user_version` is {STORE_VERSION}. While a sweep runs there are files `-wal`, `-shm` and
`.lock` beside it; the first two stay after a kill and belong to it until it is opened again.

## JSON

`--format json` prints one [SweepReport](#sweepreport); its JSON Schema is
`npusched/report/schemas/{SWEEP_SCHEMA_FILE.name}`. `--format csv` prints the rows alone, with the
same names.

`geomean_latency_s` is a mean over the jobs that have a plan, so compare it only between groups that
have the same ones; `slowdown` is made to be compared.
"""


def sweep_page() -> str:
    """The text above, and the types of a sweep."""
    definitions: Any = sweep_schema()["$defs"]
    names = in_order(SweepReport.__name__, definitions)
    assert set(names) == set(SWEEP_DOCS)
    return "".join([NOTE, INTRO, *(type_section(name, definitions[name]) for name in names)])
