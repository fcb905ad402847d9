"""pytest plugin: fail a test whose model is over its budget.

    @pytest.mark.npusched_budget(config="ethos-u55-128", max_sram="64KiB", max_latency="5ms")
    def test_fits(npusched_budget):
        npusched_budget("model.tflite")

Found by pytest through the entry point of the same name. What plans is imported when the fixture is
called, not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

if TYPE_CHECKING:
    from npusched.report.check_types import CheckReport

MARKER: Final = "npusched_budget"

_CALLED: Final = pytest.StashKey[bool]()


class Budget(Protocol):
    """The fixture: plans a model, fails the test if it is over its budget."""

    def __call__(self, model: str | Path | bytes, **options: Any) -> CheckReport:
        """Check a model (a path, ``demo:NAME`` or bytes), and return the check.

        ``options``: those of ``npusched.check``, and ``config`` for its target; they go before
        those of the marker.
        """
        ...


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(config=NAME, max_sram=..., max_latency=..., ...): budget of the models that the "
        f"test gives to the fixture {MARKER}; arguments as of npusched.check",
    )


@pytest.fixture(name=MARKER)
def npusched_budget(request: pytest.FixtureRequest) -> Budget:
    """Fail the test unless a model's plan keeps the limits of the marker ``npusched_budget``."""

    def checked(model: str | Path | bytes, **options: Any) -> CheckReport:
        request.node.stash[_CALLED] = True
        report, text = _check(model, {**_marked(request.node), **options})
        if report is None or report.verdict == "fail":
            pytest.fail(text, pytrace=False)
        return report

    return checked


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """A marked test that checks no model would pass whatever the budget is: it fails."""
    result = yield
    marked = item.get_closest_marker(MARKER) is not None
    if marked and not item.stash.get(_CALLED, False):
        pytest.fail(
            f"marked {MARKER}, but no model was checked: call the fixture {MARKER} with one",
            pytrace=False,
        )
    return result


def _marked(node: pytest.Item) -> dict[str, Any]:
    """The options of all markers; those of a test go before those of its class and module."""
    options: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers(MARKER))):
        if marker.args:
            pytest.fail(
                f"{MARKER} takes keywords only, as config='ethos-u55-128', max_sram='64KiB'",
                pytrace=False,
            )
        options.update(marker.kwargs)
    return options


def _check(model: str | Path | bytes, options: dict[str, Any]) -> tuple[CheckReport | None, str]:
    """The check and its text; None and the reason if there is nothing that could be checked."""
    import inspect

    from npusched.api import check
    from npusched.errors import NpuschedError
    from npusched.report.check_text import failed_gates, render_check_text

    target = options.pop("config", None)
    if target is None:
        return None, f"{MARKER} needs a target: config='ethos-u55-128' (see npusched configs)"
    known = list(inspect.signature(check).parameters)[2:]
    unknown = sorted(options.keys() - set(known))
    if unknown:
        return None, f"{MARKER} has no option {', '.join(unknown)}; it has: {', '.join(known)}"
    try:
        report = check(model, target, **options)
    except (NpuschedError, OSError) as error:
        return None, str(error)
    over = ", ".join(gate.id for gate in failed_gates(report))
    return report, f"over budget: {over}\n{render_check_text(report)}"
