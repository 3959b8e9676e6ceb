"""One engine through ``ArmSession``: what counts as a hit, what a bad prompt does, and how it stops."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvverify.engine.processes import living_members
from kvverify.engine.session import ArmError, ArmSession, Limits
from kvverify.engine.wire import Answered, Generate, Started
from kvverify.target.arm import EngineSettings
from kvverify.target.native import native_arm
from kvverify.target.variables import arm_variables

from .running import PATIENCE, ROOT

pytestmark = pytest.mark.engine

PROMPT = [(7919 * place) % 40_000 + 100 for place in range(50)]
LIMITS = Limits(start=PATIENCE, answer=PATIENCE, shutdown=PATIENCE)


def open_session(folder: Path, name: str = "native_prefix_caching") -> ArmSession:
    variables = arm_variables({**os.environ, "PYTHONPATH": str(ROOT)}, "cpu")
    return ArmSession(name, folder / f"{name}.log", variables, LIMITS)


@pytest.fixture(scope="module")
def settings(smollm2: Path) -> EngineSettings:
    model = str(smollm2)
    return EngineSettings(
        model=model,
        tokenizer=model,
        dtype="float16",
        seed=0,
        max_model_len=128,
        block_size=16,
        gpu_memory_utilization=0.45,
        max_tokens=4,
    )


@pytest.fixture(scope="module")
def engine(settings: EngineSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ArmSession, Started]]:
    arm = native_arm(settings)
    with open_session(tmp_path_factory.mktemp("session")) as session:
        session.prepare(arm.engine_arguments(), settings.sampling(), clear_kv_memory=False)
        yield session, session.start()


class Asking:
    """Numbers the requests, which must differ."""

    count = 0

    def __call__(self, session: ArmSession, prompt: list[int], scope: str) -> Answered:
        Asking.count += 1
        return session.ask(Generate(f"request-{Asking.count}", prompt, scope, {}))


ask = Asking()


def test_the_engine_is_what_was_asked_for(engine, settings):
    _, started = engine
    assert native_arm(settings).mismatches(started.effective) == []
    assert started.engine_config["cache_config"]["enable_prefix_caching"] is True


def test_only_the_same_prompt_in_the_same_scope_hits(engine):
    session, _ = engine
    cold, again, elsewhere = (ask(session, PROMPT, scope) for scope in ("one", "one", "two"))
    assert [answer.cached_tokens for answer in (cold, again, elsewhere)] == [0, 48, 0]
    assert [answer.cached_tokens_local for answer in (cold, again, elsewhere)] == [0, 48, 0]
    assert {answer.cached_tokens_external for answer in (cold, again, elsewhere)} == {0}
    assert cold.generated_token_ids == again.generated_token_ids == elsewhere.generated_token_ids
    assert cold.prompt_token_ids == PROMPT


@pytest.mark.parametrize(
    "prompt",
    [[10**6, 5, 5], list(range(100, 228)), []],
    ids=["an id that the model does not have", "no room for an answer", "nothing"],
)
def test_a_prompt_that_the_engine_refuses_is_a_failed_answer_and_the_engine_goes_on(engine, prompt):
    session, _ = engine
    refused = ask(session, prompt, "refused")
    assert refused.error
    assert refused.generated_token_ids is None
    assert refused.cached_tokens is None
    assert ask(session, PROMPT, "after").error is None


def test_stopping_leaves_no_process_and_can_be_followed_by_the_end(engine):
    session, _ = engine
    group = session._group
    assert len(living_members(group)) > 2
    session.stop()
    assert living_members(group) == []
    session.end()


def test_an_engine_that_cannot_be_configured_says_why(settings, tmp_path):
    arm = native_arm(settings)
    with open_session(tmp_path) as session:
        session.prepare({**arm.engine_arguments(), "block_size": "wide"}, settings.sampling(), clear_kv_memory=False)
        with pytest.raises(ArmError) as failed:
            session.start()
        group = session._group
    assert "Prepare failed" in failed.value.problem
    assert "block_size" in failed.value.problem
    assert str(session.log) in failed.value.remedy
    assert failed.value.limit is None
    assert living_members(group) == []
