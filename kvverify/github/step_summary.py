"""The step summary: the report's own Markdown, the way to the artifact, and a visible cut where GitHub's limit is."""

LIMIT_BYTES = 1024 * 1024 - 4096
"""GitHub refuses a step's summary above 1 MiB as a whole; the rest is left for what else the step says."""


def step_summary(markdown: str, outcome: str, artifact_url: str, limit: int = LIMIT_BYTES) -> str:
    """Markdown of at most ``limit`` bytes that begins as ``markdown`` does, with its heading.

    ``outcome`` is our own sentence on what the job does with the verdict; ``artifact_url`` may be empty.
    """
    heading, _, rest = markdown.partition("\n")
    where = f"[Report and evidence]({artifact_url})" if artifact_url.startswith("https://") else ""
    whole = "\n".join((heading, "", f"{outcome}. {where}".rstrip(), rest))
    return cut(whole, limit)


def cut(text: str, limit: int) -> str:
    """Whole lines of ``text`` that fit into ``limit`` bytes, and a last line that says so where some do not."""
    if len(text.encode()) <= limit:
        return text
    note = "\n> **This summary was cut here**: GitHub shows at most 1 MiB. The report holds everything.\n"
    room = limit - len(note.encode())
    kept: list[str] = []
    for line in text.splitlines(keepends=True):
        room -= len(line.encode())
        if room < 0:
            break
        kept.append(line)
    return "".join(kept) + note
