"""The pytest plugin, in a pytest of its own: it fails what is over budget, and costs nothing."""

from __future__ import annotations

import pytest

from npusched.demos import demo
from tests.conftest import REPOSITORY

pytest_plugins = ["pytester"]

NAME = "npusched.pytest_plugin"


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with a model in it, whose pytest sees this package and takes warnings as errors."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini(
        "[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n"
    )
    (pytester.path / "kws.tflite").write_bytes(demo("ds_cnn"))
    return pytester


def ran(inner: pytest.Pytester, code: str, *options: str) -> pytest.RunResult:
    inner.makepyfile(code)
    return inner.runpytest_subprocess("-p", NAME, "-p", "no:cacheprovider", *options)


def test_within_and_over_budget(inner: pytest.Pytester) -> None:
    """The failure is the table of gates, without a traceback."""
    result = ran(
        inner,
        """
        from pathlib import Path

        import pytest

        MARK = pytest.mark.npusched_budget(
            config="ethos-u55-128", max_sram="64KiB", max_latency="5ms", use_vela=False
        )

        @MARK
        def test_fits(npusched_budget):
            report = npusched_budget("kws.tflite")
            assert report.verdict == "pass"
            assert npusched_budget(Path("kws.tflite").read_bytes()).totals == report.totals

        @MARK
        def test_too_large(npusched_budget):
            npusched_budget("kws.tflite", max_sram="8KiB")
            raise AssertionError("not reached")
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "over budget: max-sram",
            "fail · kws.tflite · ethos-u55-128 @ 500 MHz * 1 of 2 gates failed",
            "*FAIL  SRAM peak  13 616 bytes  8 192 bytes*",
            "*pass  latency *",
            "*max-sram: no plan fits 8192 bytes of sram: the smallest feasible budget is 13616*",
            "FAILED *::test_too_large - Failed: over budget*",
        ]
    )
    text = result.stdout.str()
    assert "not reached" not in text
    assert "Traceback" not in text
    assert "pytest_plugin.py" not in text


def test_a_baseline(inner: pytest.Pytester) -> None:
    result = ran(
        inner,
        """
        import npusched

        def plan(sram):
            return npusched.plan("kws.tflite", "ethos-u55-128", sram=sram, use_vela=False)

        def test_kept(npusched_budget):
            options = {"config": "ethos-u55-128", "sram": "64KiB", "use_vela": False}
            npusched_budget("kws.tflite", baseline=plan("64KiB"), **options)

        def test_lost(npusched_budget):
            options = {"config": "ethos-u55-128", "sram": "14KiB", "use_vela": False}
            npusched_budget(
                "kws.tflite", baseline=plan("64KiB"), max_regression="5%", **options
            )
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*max-regression-latency: latency: *5 % more is allowed*"])


def test_options_of_the_call_then_the_test_then_the_class(inner: pytest.Pytester) -> None:
    result = ran(
        inner,
        """
        import pytest

        @pytest.mark.npusched_budget(config="ethos-u55-64", max_sram="8KiB", use_vela=False)
        class TestAll:
            @pytest.mark.npusched_budget(config="ethos-u55-128", max_sram="32KiB")
            def test_one(self, npusched_budget):
                report = npusched_budget("kws.tflite", max_sram="64KiB")
                assert report.target == "ethos-u55-128"
                assert report.gates[0].limit == 65536

            @pytest.mark.npusched_budget(max_sram="32KiB")
            def test_two(self, npusched_budget):
                report = npusched_budget("kws.tflite")
                assert report.target == "ethos-u55-64"
                assert report.gates[0].limit == 32768
        """,
    )
    result.assert_outcomes(passed=2)


def test_what_cannot_be_checked_fails(inner: pytest.Pytester) -> None:
    """A marker without a call, without a target, with a wrong option; a file that is not there."""
    result = ran(
        inner,
        """
        import pytest

        @pytest.mark.npusched_budget(config="ethos-u55-128", max_sram="1KiB")
        def test_not_called():
            pass

        @pytest.mark.npusched_budget(max_sram="64KiB")
        def test_no_target(npusched_budget):
            npusched_budget("kws.tflite")

        @pytest.mark.npusched_budget(config="ethos-u55-12", max_sram="64KiB")
        def test_wrong_target(npusched_budget):
            npusched_budget("kws.tflite")

        @pytest.mark.npusched_budget(config="ethos-u55-128", max_srma="64KiB")
        def test_wrong_option(npusched_budget):
            npusched_budget("kws.tflite")

        @pytest.mark.npusched_budget("kws.tflite", config="ethos-u55-128")
        def test_positional(npusched_budget):
            npusched_budget("kws.tflite")

        def test_no_limit(npusched_budget):
            npusched_budget("kws.tflite", config="ethos-u55-128", use_vela=False)

        def test_no_model(npusched_budget):
            npusched_budget("absent.tflite", config="ethos-u55-128", max_sram="64KiB")

        def test_no_baseline(npusched_budget):
            npusched_budget("kws.tflite", config="ethos-u55-128", baseline="absent.json")

        @pytest.mark.npusched_budget(config="ethos-u55-128", max_sram="1KiB")
        def test_skipped():
            pytest.skip("for another reason")
        """,
    )
    result.assert_outcomes(failed=8, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*marked npusched_budget, but no model was checked*",
            "*needs a target: config='ethos-u55-128'*",
            "*unknown target 'ethos-u55-12'*",
            "*has no option max_srma; it has: max_sram, max_latency*",
            "*takes keywords only*",
            "*there is nothing to check*",
            "*cannot read the model: absent.tflite does not exist*",
            "*absent.json*",
        ]
    )
    assert "Traceback" not in result.stdout.str()


def test_the_marker_is_known_and_described(inner: pytest.Pytester) -> None:
    result = inner.runpytest_subprocess("-p", NAME, "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.npusched_budget(config=NAME, max_sram=...*"])


def test_unused_it_imports_nothing_that_plans(inner: pytest.Pytester) -> None:
    """Two modules of ours, and none of those that they stand on."""
    result = ran(
        inner,
        """
        import sys

        def test_modules():
            ours = {name for name in sys.modules if name.split(".")[0] == "npusched"}
            assert ours == {"npusched", "npusched.pytest_plugin"}
            assert not {"numpy", "networkx", "msgspec", "click", "ethosu"} & sys.modules.keys()
        """,
    )
    result.assert_outcomes(passed=1)


def test_the_entry_point_is_the_module() -> None:
    """As declared, so that ``-p`` and pytest's own search find one plugin, not two."""
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {NAME: NAME}
