"""The arithmetic of the suites, and the options that shape them."""

import pytest

from kvverify.errors import UsageError
from kvverify.plan.suites import (
    SUITES,
    find_suite,
    generations,
    parse_prompt_format,
    parse_reuse_counts,
)


def test_standard_asks_24_probes_and_96_generations() -> None:
    specs = SUITES["standard"].specs(256, parse_prompt_format(None, SUITES["standard"]), (1, 3))
    assert len(specs) == 24
    assert generations(specs) == 96
    assert sorted({spec.prompt_tokens for spec in specs}) == [511, 512, 513, 1023, 1024, 1025]
    assert len({spec.id for spec in specs}) == 24


def test_smoke_asks_6_probes_and_24_generations() -> None:
    specs = SUITES["smoke"].specs(256, parse_prompt_format(None, SUITES["smoke"]), (1, 3))
    assert [spec.id for spec in specs] == [
        "chat-511-r1",
        "chat-511-r3",
        "chat-512-r1",
        "chat-512-r3",
        "chat-513-r1",
        "chat-513-r3",
    ]
    assert generations(specs) == 24


@pytest.mark.parametrize("span", [16, 64, 256, 1024])
def test_lengths_lie_on_and_beside_multiples_of_the_span(span: int) -> None:
    assert SUITES["standard"].lengths(span) == (
        2 * span - 1,
        2 * span,
        2 * span + 1,
        4 * span - 1,
        4 * span,
        4 * span + 1,
    )


def test_an_unknown_suite_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"--suite: 'big' is unknown; .*standard, smoke"):
        find_suite("big")


@pytest.mark.parametrize(("text", "counts"), [("1,3", (1, 3)), ("3,1", (3, 1)), (" 2 ", (2,)), ("1, 2,10", (1, 2, 10))])
def test_reuse_counts_are_read_in_the_order_given(text: str, counts: tuple[int, ...]) -> None:
    assert parse_reuse_counts(text) == counts


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "1,",
        "x",
        "1,x",
        "0",
        "1,0",
        "-1",
        "+1",
        "1.0",
        "1e2",
        "1_0",
        "\u0661",
        "\u00b2",
        "1 2",
        "1" * 10,
        "1,1",
        "1,01",
    ],
)
def test_other_reuse_counts_are_refused_in_one_line_that_names_the_option(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_reuse_counts(text)
    assert str(refused.value).startswith("--reuse-counts: ")
    assert refused.value.remedy
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("text", "formats"), [("raw", ("raw",)), ("chat", ("chat",)), ("both", ("raw", "chat"))])
def test_prompt_formats_are_read(text: str, formats: tuple[str, ...]) -> None:
    assert parse_prompt_format(text, SUITES["smoke"]) == formats


def test_an_unknown_prompt_format_is_refused() -> None:
    with pytest.raises(UsageError, match="--prompt-format: 'html' is unknown; choose raw, chat or both"):
        parse_prompt_format("html", SUITES["smoke"])
