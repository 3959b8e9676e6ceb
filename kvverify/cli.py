"""The command line: click commands that only wire the packages together. Heavy imports stay inside the commands."""

import json
import math
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NoReturn

import click

import kvverify
from kvverify.errors import KvverifyError, UsageError
from kvverify.github.command import github
from kvverify.server.command import server

EPILOG = "Exit status: 0 all checks passed, 1 a correctness check failed, 2 anything else, bad usage included."


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=EPILOG)
@click.version_option(kvverify.__version__, prog_name="kvverify")
def cli() -> None:
    """Prove or refute that reusing cached KV gives exactly the token IDs that recomputation gives."""


class ReuseCounts(click.ParamType[tuple[int, ...]]):
    """Distinct positive integers joined by commas."""

    name = "counts"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> tuple[int, ...]:
        from kvverify.plan.suites import parse_reuse_counts

        return value if isinstance(value, tuple) else parse_reuse_counts(value)


class FiniteRange(click.FloatRange):
    """A range without the numbers that no comparison excludes (nan) and that JSON does not have (inf)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


POSITIVE = click.IntRange(min=1)
SECONDS = FiniteRange(min=0, min_open=True)
SEEDS = click.IntRange(min=0, max=2**32 - 1)  # the engine seeds numpy too, which takes no more
FILE = click.Path(path_type=Path)


@cli.command(epilog=EPILOG)
@click.option("--model", required=True, metavar="DIR|ORG/NAME", help="Model folder, or a name on the model hub.")
@click.option("--model-revision", metavar="COMMIT", help="Commit of a hub model: 40 hexadecimal digits.")
@click.option("--tokenizer", metavar="DIR|ORG/NAME", help="Tokenizer.  [default: the model's]")
@click.option("--tokenizer-revision", metavar="COMMIT", help="Commit of a hub tokenizer.")
@click.option(
    "--kv-connector",
    required=True,
    metavar="NAME",
    help="LMCacheConnectorV1, or none for the engine without a connector.",
)
@click.option("--lmcache-config", type=FILE, metavar="FILE", help="LMCache's YAML; needed with a connector.")
@click.option("--kv-connector-module-path", metavar="MODULE", help="Refused: only vLLM's own connectors are targets.")
@click.option("--kv-connector-extra-config", type=FILE, metavar="FILE", help="Refused unless it is empty.")
@click.option(
    "--native-prefix-caching/--no-native-prefix-caching",
    default=None,
    help="vLLM's own prefix caching.  [default: on without a connector, off with one]",
)
@click.option("--suite", default="standard", show_default=True, help="standard, smoke or acceptance.")
@click.option("--compare-native", is_flag=True, help="Acceptance: native prefix caching is a second target.")
@click.option("--fixture", type=FILE, metavar="FILE", help="Acceptance: what is expected.")
@click.option("--prompt-format", metavar="FORMAT", help="raw, chat or both.  [default: the suite's]")
@click.option(
    "--reuse-counts", type=ReuseCounts(), default="1,3", show_default=True, help="Reusing answers of a probe."
)
@click.option("--max-tokens", type=POSITIVE, default=16, show_default=True, help="Generated tokens an answer.")
@click.option("--seed", type=SEEDS, default=0, show_default=True, help="Seed of prompts and engine.")
@click.option("--device", default="cuda", show_default=True, help="cuda or cpu.")
@click.option(
    "--dtype",
    type=click.Choice(["float16", "bfloat16", "float32"]),
    default="float16",
    show_default=True,
    help="Data type.",
)
@click.option(
    "--gpu-memory-utilization",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    default=0.45,
    show_default=True,
    help="Share of the device's memory.",
)
@click.option(
    "--max-model-len",
    type=POSITIVE,
    help="Prompt and answer together, in tokens.  [default: the model's limit]",
)
@click.option("--block-size", type=POSITIVE, default=16, show_default=True, help="Tokens of one KV block.")
@click.option("--chunk-size", type=POSITIVE, help="Span of the probes in tokens; with LMCache, its chunk size.")
@click.option("--tenant", default="isolated-verifier", show_default=True, help="Part of every probe's cache scope.")
@click.option("--report", type=FILE, required=True, metavar="FILE", help="JSON report to write; never overwritten.")
@click.option(
    "--start-timeout", type=SECONDS, default=600, show_default=True, help="Seconds for an engine to be ready."
)
@click.option("--answer-timeout", type=SECONDS, default=300, show_default=True, help="Seconds for one answer.")
@click.option(
    "--shutdown-timeout",
    type=SECONDS,
    default=60,
    show_default=True,
    help="Seconds for an engine to be gone.",
)
@click.option("--dry-run", is_flag=True, help="Check everything and print the probe manifest; verifies nothing.")
def run(*, dry_run: bool, **given: Any) -> int:
    """Verify a cache configuration against an engine with every cache off."""
    from kvverify.following import follow
    from kvverify.preflight import preflight
    from kvverify.report.store import ReportStore
    from kvverify.report.summary import render
    from kvverify.target.options import RunOptions
    from kvverify.verification import verify

    options = RunOptions(**given)
    store = ReportStore(options.report)
    store.check()
    checked = preflight(options, dict(os.environ))
    if dry_run:
        click.echo(json.dumps(checked.manifest(), indent=2))
        click.echo("dry run: nothing was verified", err=True)
        return 0
    return follow(lambda say: verify(checked, store, say), store, render)


@cli.command()
@click.argument("report", type=FILE)
def validate(report: Path) -> int:
    """Check that REPORT is sound: its schema, and that every verdict follows from its answers and evidence files.

    Exit status: 0 the report is sound, whatever its verdict; 2 it is not, every reason on a line of its own.
    """
    from kvverify.families import check
    from kvverify.report.load import load_report

    document = load_report(report)
    reasons = check(document, report.parent)
    for reason in reasons:
        click.echo(f"{report}: {reason}", err=True)
    if reasons:
        return 2
    click.echo(f"{report} is sound: every verdict follows from its evidence (verdict: {document['result']['verdict']})")
    return 0


@cli.command()
@click.argument("report", type=FILE)
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text", show_default=True)
def summary(report: Path, form: Literal["text", "markdown"]) -> None:
    """Show what REPORT says: the verdict first, then each probe, and what was and was not tested."""
    from kvverify.families import render
    from kvverify.following import colour
    from kvverify.report.load import load_report

    click.echo(render(load_report(report), report, form, colour=colour()))


cli.add_command(server)
cli.add_command(github)


@cli.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="Ask about one device.  [default: both]")
@click.option("--json", "as_json", is_flag=True, help="Say it as JSON.")
def doctor(*, device: str | None, as_json: bool) -> int:
    """Say what can run here, and why not the rest: versions, GPU, driver, free memory, disk, targets.

    Exit status: 0 at least one target can run, 2 none can.
    """
    from kvverify.doctor import DEVICES, examine, render

    found = examine(DEVICES if device is None else (device,))
    click.echo(json.dumps(found.to_json(), indent=2) if as_json else render(found))
    return 0 if found.healthy() else 2


@cli.command()
@click.argument("before", type=FILE)
@click.argument("after", type=FILE)
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text", show_default=True)
def compare(before: Path, after: Path, form: Literal["text", "markdown"]) -> int:
    """Compare two reports across an upgrade: what fails AFTER that did not fail BEFORE.

    Exit status: 0 no regression, 1 a probe fails now that did not, 2 not everything can be compared.
    """
    from kvverify.report.compare import compare as compare_reports
    from kvverify.report.compare import render_comparison
    from kvverify.report.load import load_report
    from kvverify.report.rederive import require_sound

    found = compare_reports(*(require_sound(load_report(path), path) for path in (before, after)))
    click.echo(render_comparison(found, markdown=form == "markdown"))
    return found.exit_status


@cli.group()
def fixture() -> None:
    """Make and check acceptance fixtures: what a run on your own hardware is expected to find."""


@fixture.command()
@click.argument("report", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, metavar="FILE", help="Fixture to write; never overwritten.")
def record(report: Path, output: Path) -> None:
    """Make a fixture from REPORT, of a complete acceptance run: it expects what that run found."""
    from kvverify.report.fixture import record as record_fixture
    from kvverify.report.load import load_report
    from kvverify.report.rederive import require_sound

    document = record_fixture(require_sound(load_report(report), report), output.stem)
    try:
        with output.open("x") as file:
            file.write(json.dumps(document, indent=2) + "\n")
    except OSError as error:
        raise UsageError(f"--output: {output} cannot be written ({error.strerror})", "name a new file") from None
    click.echo(f"wrote {output}: it expects {sum(map(len, document['expected'].values()))} verdicts")


@fixture.command()
@click.argument("fixture_file", metavar="FIXTURE", type=FILE)
def check(fixture_file: Path) -> int:
    """Check that FIXTURE is a sound acceptance fixture; every reason why not is a line of its own."""
    from kvverify.report.fixture import check_fixture
    from kvverify.report.load import load_report

    reasons = check_fixture(load_report(fixture_file))
    for reason in reasons:
        click.echo(f"{fixture_file}: {reason}", err=True)
    if not reasons:
        click.echo(f"{fixture_file} is a sound acceptance fixture")
    return 2 if reasons else 0


def main() -> NoReturn:
    """Run the command line; every error is one line on stderr, and no error ever ends with status 1."""
    from kvverify.interrupts import Interrupted

    try:
        status = cli.main(prog_name="kvverify", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.ClickException as error:
        _complain(error.format_message())
    except KvverifyError as error:
        _complain(str(error))
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted")
    except Interrupted as signal:
        _complain(f"interrupted by {signal}")
    except (SystemExit, BrokenPipeError):
        sys.exit(2)  # click ends with 1 when nobody reads its output any more, which would mean a failed check
    except Exception:  # noqa: BLE001 - whatever it is, Python would end with 1, which means a failed check
        with suppress(OSError):
            traceback.print_exc()
        _complain("internal error, please report it with the lines above")
    sys.exit(status if isinstance(status, int) else 0)


def _complain(message: str) -> NoReturn:
    with suppress(OSError):  # a full disk under stderr must not turn an error into another status
        click.echo(f"kvverify: error: {' '.join(message.splitlines())}", err=True)  # a path may hold line breaks
    sys.exit(2)
