"""The kinds of reports that ``validate`` and ``summary`` know, told apart by the schema that a document names."""

from pathlib import Path
from typing import Any, Literal

from kvverify.report import rederive, summary

SERVER_CHECK = "kvverify.server-check.v1"


def check(document: Any, folder: Path) -> list[str]:
    """List every reason why a report that lies in ``folder`` is not sound; empty where it is."""
    if _is_server_check(document):
        from kvverify.server.rederive import check_document

        return check_document(document)
    return rederive.check(document, folder)


def render(document: Any, path: Path, form: Literal["text", "markdown"], *, colour: bool = False) -> str:
    """Give the summary of the report that was read from ``path``. Raises ReportError for one that is not sound."""
    if _is_server_check(document):
        from kvverify.server.summary import render as render_server_check

        return render_server_check(document, path, form, colour=colour)
    return summary.render(document, path, form, colour=colour)


def _is_server_check(document: Any) -> bool:
    return isinstance(document, dict) and document.get("schema") == SERVER_CHECK
