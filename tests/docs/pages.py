"""Pages of docs/ that are made from the code: the command line and the JSON form."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import click

from npusched.cli.app import app
from npusched.report.compare_json import COMPARE_SCHEMA_FILE, compare_schema
from npusched.report.compare_types import CompareReport
from npusched.report.execution_json import FORMS, form_schema, form_schema_file
from npusched.report.json_form import SCHEMA_FILE, plan_schema
from npusched.report.sweep_json import SWEEP_SCHEMA_FILE
from npusched.report.types import PlanReport

NOTE = "<!-- Made by `pytest tests/docs --update-golden`; do not edit. -->\n"

CLI_INTRO = """# Command line

Results are on stdout, everything else on stderr. `npusched COMMAND --help` prints what stands here.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | no plan fits the budget, a check failed, or a proof found a difference |
| 2 | bad usage, file or configuration |
| 3 | internal error, or a broken installation |
| 130 | interrupted |

Sizes are written `64KiB` (1024), `64KB` (1000) or as a number of bytes; frequencies `400MHz`.
Errors have a line each for what, why and what to do; with `--format json` they are also an object
on stdout: `{"error": {"kind", "what", "why", "hint", …}}`.

The text form is coloured on terminals only (`NO_COLOR` and `FORCE_COLOR` are heard, `TERM=dumb` is
plain) and as wide as the terminal or `COLUMNS`; in a pipe or a file it is 100 wide.

Completion in the shell (bash; `zsh_source` and `fish_source` for the others):

```
eval "$(_NPUSCHED_COMPLETE=bash_source npusched)"
```
"""

FORM_ROWS = "\n".join(
    f"| `{form.command}` | [{form.type.__name__}](#{form.type.__name__.lower()}) | "
    f"`{form_schema_file(name).name}` |"
    for name, form in FORMS.items()
)

JSON_INTRO = f"""# JSON

`npusched plan … --format json` prints one object of type [PlanReport](#planreport). Figures are
exact: bytes and cycles whole numbers, seconds and nanojoules floats. The form is versioned
(`schema_version`); its JSON Schema (draft 2020-12) is `npusched.plan_schema()` and the file
`npusched/report/schemas/{SCHEMA_FILE.name}` of the package. Unknown fields are not valid.

In Python the same values are attributes: `npusched.plan(…)` returns a frozen `PlanReport`.

Errors are `{{"error": {{"kind", "what", "why", "hint", …}}}}` with the values of the error beside
them. Kinds: `model`, `target`, `infeasible` (with `need_bytes`, `have_bytes`, `excess_bytes`,
`smallest_feasible_bytes`, `peak`, `levers`), `vela`, `sim` (an execution), `emit`, `usage`,
`internal`.

Shapes are (n, h, w, c). A step is one segment; ranges of steps are half-open.

The other commands print one object, too, each with a schema of its own in
`npusched/report/schemas/` (in Python `npusched.report.execution_json.form_schema(name)`):

| command | type | schema |
|---|---|---|
| `compare` | [CompareReport](compare.md) | `{COMPARE_SCHEMA_FILE.name}` |
| `sweep` | [SweepReport](sweep.md) | `{SWEEP_SCHEMA_FILE.name}` |
{FORM_ROWS}
"""


COMPARE_INTRO = f"""# Comparing with Vela

`npusched compare MODEL --config NAME` runs Vela (or reads the files of a run), matches its schedule
with our ops, and shows four totals of the same network:

| total | what it is |
|---|---|
| `npusched` | our plan |
| `vela` | what Vela reports, unchanged |
| `vela_compatible` | our cost of Vela's schedule by Vela's own rules: equal to `vela` |
| `vela_recosted` | our cost of Vela's schedule stripe by stripe, with physical bandwidths |

Hold our plan against `vela_recosted`: Vela's report costs cascaded ops as if they ran whole. CPU
ops cost Vela nothing; our time for them stands beside. Quirks of Vela's figures that touch the
model are notes, each with its size; nothing is corrected silently.

What Vela's streams really move is counted from the addresses in the compiled file (U55 and U65, no
data needed) and stands beside our prediction for the same ops and Vela's estimate: feature maps
fetched block by block and written, weights read (and how much of that again), weights staged by
DMA, and the highest byte touched. Where it cannot be counted, `not_executed` says why.

`--vela-output DIR` reads what `vela --output-dir DIR` wrote (3.x to 5.x; with the C++ core's
`--enable-debug-db` everything is there, from CSV files alone the totals and rows as reported).

`--measured FILE` puts your own figures beside the predictions, per network or per op:

```csv
index,cycles
,220870
0,20974
```

or JSON `{{"network": {{"latency_ms": 0.44}}, "ops": [{{"index": 0, "cycles": 20974}}]}}`. Names
that are understood: `cycles`, `npu_cycles`, `npu_active`, `latency_s`, `latency_ms`, `latency_us`,
`inference_time` (seconds) and a few more; other numbers are kept as counters.

`--format json` prints one object of type [CompareReport](#comparereport); its JSON Schema is
`npusched/report/schemas/{COMPARE_SCHEMA_FILE.name}`. The target is described in [JSON](json.md).
"""


def compare_page() -> str:
    """Every type of a comparison that a plan does not have."""
    definitions: Any = compare_schema()["$defs"]
    known: Any = plan_schema()["$defs"]
    names = in_order(CompareReport.__name__, definitions)
    types = (type_section(name, definitions[name]) for name in names if name not in known)
    return "".join([NOTE, COMPARE_INTRO, *types])


def cli_page() -> str:
    """Every command: usage, help, options, examples. Not click's own layout, which may change."""
    return "".join(
        [
            NOTE,
            CLI_INTRO,
            *(_command(path, command) for path, command in _commands(app, "npusched")),
        ]
    )


def _command(path: str, command: click.Command) -> str:
    usage = [path]
    rows = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            name = (parameter.name or "").upper()
            usage.append(name if parameter.required else f"[{name}]")
        elif isinstance(parameter, click.Option):
            rows.append(f"| {_option(parameter)} | {_meaning(parameter)} |\n")
    if isinstance(command, click.Group):
        usage.append("COMMAND")
    parts = [f"\n## {path}\n\n```text\n{' '.join([*usage, '[OPTIONS]'])}\n```\n"]
    parts.append(f"\n{inspect.cleandoc(command.help or '')}\n")
    if rows:
        parts += ["\n| option | meaning |\n|---|---|\n", *rows]
    commands, _, after = (command.epilog or "").removeprefix("\b\nExamples:\n").partition("\n\n")
    shown = "\n".join(line.strip() for line in commands.splitlines())
    parts.append(f"\n```text\n{shown}\n```\n")
    return "".join([*parts, f"\n{after}\n" if after else ""])


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len))
    if isinstance(option.type, click.Choice):
        return f"{names} " + " \\| ".join(f"`{choice}`" for choice in option.type.choices)
    if option.is_flag:
        return names
    return f"{names} {option.metavar or 'N'}"


def _meaning(option: click.Option) -> str:
    text = (option.help or "").replace("|", "\\|")
    if option.required:
        text += " Required."
    if option.show_default and option.default is not None:
        text += f" Default: {option.default}."
    return text


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.commands:
            yield from _commands(command.commands[name], f"{path} {name}")


def json_page() -> str:
    """Every published type, in the order in which they are first mentioned."""
    definitions: Any = plan_schema()["$defs"]
    names = in_order(PlanReport.__name__, definitions)
    for name, form in FORMS.items():
        definitions = {**definitions, **dict(form_schema(name)["$defs"])}  # type: ignore[call-overload]
        names = list(dict.fromkeys([*names, *in_order(form.type.__name__, definitions)]))
    return "".join([NOTE, JSON_INTRO, *(type_section(name, definitions[name]) for name in names)])


def in_order(root: str, definitions: Any) -> list[str]:
    """Names of the types that a type mentions, in that order."""
    found, waiting = [], [root]
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found.append(name)
            waiting += _mentioned(definitions[name])
    return found


def _mentioned(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            return [str(schema["$ref"]).rsplit("/", 1)[1]]
        return [name for value in schema.values() for name in _mentioned(value)]
    if isinstance(schema, list):
        return [name for value in schema for name in _mentioned(value)]
    return []


def type_section(name: str, schema: Any) -> str:
    """What a published type is, and its fields."""
    text = inspect.cleandoc(schema.get("description", "")).replace("``", "`")
    lines = [f"\n## {name}\n\n{text}\n"]
    properties = schema.get("properties")
    if properties:
        documented = any("description" in field for field in properties.values())
        lines.append("\n| field | type |" + (" meaning |" if documented else ""))
        lines.append("\n|---|---|" + ("---|" if documented else ""))
        for field, details in properties.items():
            meaning = f" {details.get('description', '')} |" if documented else ""
            lines.append(f"\n| `{field}` | {_kind(details)} |{meaning}")
        lines.append("\n")
    elif "enum" in schema:
        lines.append("\nOne of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".\n")
    return "".join(lines)


def _kind(schema: Any) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(part) for part in schema["anyOf"])
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return "[" + ", ".join(_kind(part) for part in schema["prefixItems"]) + "]"
        return f"list of {_kind(schema['items'])}" if schema.get("items") else "list"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))
