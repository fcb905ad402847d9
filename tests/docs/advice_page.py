"""docs/advice.md: how advice is found, every rule, and how sure a prediction is."""

from __future__ import annotations

from npusched.advise import BANDS, RULES, Confidence
from npusched.advise.configs import LEAST_GAIN
from npusched.advise.models import MAX_CUT, SPARSITY
from npusched.advise.types import FLOOR, MIN_GAIN
from tests.docs.pages import NOTE

_WHO = {
    Confidence.HIGH: "the very change was planned: the file, target or budget will be that one",
    Confidence.MEDIUM: "weights will be trained or ranges calibrated anew, so their encoding and "
    "scales will differ",
    Confidence.LOW: "a stand-in was planned: training has to reach it, or another op is built",
}


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


INTRO = f"""# What to change

Which change of the model or of its target would help, by how much, and at what price?

```
npusched advise model.tflite -c ethos-u55-128
npusched advise model.tflite -c ethos-u55-128 --sram 64KiB --objective energy
npusched advise model.tflite -c ethos-u55-128 --apply 1 -o changed.tflite
```

Nothing here is a rule of thumb. A rule looks for a place, makes the changed file (or target, or
budget), and that is planned just as the model itself: with the same options, exact weight sizes of
Vela's, Vela's schedules as candidates. The effect is the difference between the two plans. Where
there are alternatives (memory modes, ways to cut a pool in two) they are planned quickly first,
without Vela, and the best one is planned in full.

- What does not lower the objective is not mentioned: at least {_percent(MIN_GAIN)} of it must be
  saved, {_percent(LEAST_GAIN)} where hardware, SRAM or sparsity pay for it.
- `--objective` says what to lower: `cycles` (the time of one inference, NPU and CPU), `energy`,
  `sram` or `offchip`.
- A message says what gets better, and after "but" what gets worse by {_percent(FLOOR)} or more;
  then what comes with it besides figures.
- Advices stand alone: their effects do not add up. Apply one, and ask again.
- Where no plan keeps the budget, or the board has less memory, advice is about the SRAM that is
  lacking, compared with the smallest plan.
- Warnings come first, then the largest gain. If there is nothing to say, nothing is said.

`--apply N -o FILE` writes the model with the change of advice N. Where the message says that
results stay the same, the file can be used as it is. Where weights are to be trained or ranges to
be calibrated, it has stand-ins of the right size: it is there to be planned, not to be shipped.

`npusched plan` shows notes that cost no time (`--advice quick`): a float model, batch norms to
fold, padding, ops on the CPU amid the NPU's work; but for folding they have no figures.
`--advice all` puts all advice into the report of a plan, `--advice none` leaves it out. In Python:

```python
import npusched

report = npusched.advice("model.tflite", "ethos-u55-128")
for item in report.advice:
    print(item.id, item.delta.latency_s, item.message)
```

`--format json` is an [AdviceReport](json.md#advicereport), `--format md` a page with a table.

## How sure

A prediction has a band: the change that comes true lies within so much of the predicted one, or
within {_percent(FLOOR)} of the figure before the change, whichever is more.

| confidence | band | when |
|---|---|---|
"""

OUTRO = f"""
Channels are cut by at most {_percent(MAX_CUT)} of a layer (17 to 16, not 24 to 16). Pruning is
planned at {_percent(SPARSITY)} zeros, the smallest weights of every op.

`reports/advice.md` has every advice on every model of a corpus: each is applied from outside,
planned anew and held against its band, with other weights where training would change them, and
executed with LiteRT's reference kernels where results are said to stay the same.

All figures are predicted: they share the cost model of every plan ([Cost](cost.md)).
"""


def advice_page() -> str:
    """The page, with a row for every confidence and every rule."""
    bands = "".join(
        f"| {each.value} | ±{_percent(BANDS[each])} of the change | {_WHO[each]} |\n"
        for each in (Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW)
    )
    rules = "".join(f"| {r.id} | {r.title} | {r.when} | {r.plans} |\n" for r in RULES)
    head = "\n## Rules\n\n| id | about | when | what is planned |\n|---|---|---|---|\n"
    return "".join([NOTE, INTRO, bands, head, rules, OUTRO])
