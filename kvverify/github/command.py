"""``kvverify github``: what the action calls inside the image once a run has ended."""

from pathlib import Path
from typing import Any

import click

from kvverify.errors import ReportError

FOLDER = FILE = click.Path(path_type=Path)


@click.command(hidden=True)
@click.argument("report", type=FILE)
@click.option("--into", type=FOLDER, required=True, help="Folder for outputs, annotations and summary.md.")
@click.option("--ended-with", type=int, required=True, help="Status that the run ended with.")
@click.option("--gate", type=click.Choice(["verdict", "acceptance"]), default="verdict", show_default=True)
@click.option("--allow-inconclusive", is_flag=True, help="Let a complete run without a verdict through.")
@click.option("--artifact-url", default="", help="Where report and evidence can be fetched.")
@click.option("--shown-as", type=FILE, help="The report's path as people know it.")
def github(*, report: Path, into: Path, artifact_url: str, shown_as: Path | None, **terms: Any) -> int:
    """Write what GitHub shows of REPORT, and end with the status that the job must have."""
    from kvverify.github.annotations import annotations
    from kvverify.github.gate import decide
    from kvverify.github.outputs import outputs, render_outputs
    from kvverify.github.step_summary import step_summary
    from kvverify.report.load import load_report
    from kvverify.report.rederive import check, require_sound
    from kvverify.report.summary import render

    document = require_sound(load_report(report), report)
    if reasons := check(document, report.parent):
        raise ReportError(f"{report}: {reasons[0]}", "run kvverify validate on it for every reason")
    decision = decide(document, **terms)
    word = "Green" if decision.exit_status == 0 else "Red"
    markdown = render(document, shown_as or report, "markdown")
    (into / "outputs").write_text(render_outputs(outputs(document)))
    (into / "annotations").write_text("".join(f"{line}\n" for line in annotations(document)))
    (into / "summary.md").write_text(step_summary(markdown, f"{word}: {decision.reason}", artifact_url))
    click.echo(f"{word}: {decision.reason}")
    return decision.exit_status
