"""One run, from options to a finished report: preflight, then one arm after the other, recorded as it goes."""

import platform
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvverify.comparison.arms import CONTROL, NATIVE
from kvverify.comparison.facts import ids_sha256
from kvverify.engine.session import ArmError, ArmSession, Limits
from kvverify.engine.wire import Answered, Generate
from kvverify.errors import ReportError, UsageError
from kvverify.plan.plan import Plan, PlanRequest, Probe, build_plan
from kvverify.plan.suites import DEFAULT_SPAN, find_suite, parse_prompt_format
from kvverify.plan.tokenizer import load_tokenizer
from kvverify.report.document import Document, expected_answers
from kvverify.report.recorder import Recorder, new_document
from kvverify.report.store import ReportStore
from kvverify.target.accelerator import Accelerator, find_accelerator, memory_in_use, wait_until_free
from kvverify.target.arm import Arm, EngineSettings
from kvverify.target.control import control_arm
from kvverify.target.identity import Identity, check_model, model_limit, resolve
from kvverify.target.native import native_arm
from kvverify.target.options import RunOptions, select_arms
from kvverify.target.runtimes import Runtime, find_runtime, package_versions
from kvverify.target.variables import arm_variables, recorded_variables

Say = Callable[[str], None]
"""Takes one line of progress."""


@dataclass(frozen=True)
class Preflight:
    """Everything that is known and checked before an engine starts."""

    options: RunOptions
    runtime: Runtime
    accelerator: Accelerator
    model: Identity
    tokenizer: Identity
    plan: Plan
    arms: tuple[Arm, ...]
    """In running order, the control first."""
    variables: dict[str, str]
    """The whole environment of the engine processes."""

    def manifest(self) -> Document:
        """The plan as the report holds it: no id ends an answer early, because end-of-sequence ids are ignored."""
        return {**self.plan.manifest(), "eos_token_ids": []}

    def request(self) -> dict[str, Any]:
        """The options as JSON values."""
        return {
            name: str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self.options).items()
        }

    def environment(self) -> dict[str, Any]:
        """The report's ``environment`` section."""
        return {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": package_versions(self.runtime),
            "accelerator": self.accelerator.to_json(),
            "variables": recorded_variables(self.variables),
        }


def preflight(options: RunOptions, environment: dict[str, str]) -> Preflight:
    """Check everything that can be checked without an engine; the first error that is found ends the run."""
    arm_names = select_arms(options)
    suite = find_suite(options.suite)
    formats = parse_prompt_format(options.prompt_format, suite)
    runtime = find_runtime(options.device, arm_names)
    accelerator = find_accelerator(options.device)
    model = resolve("model", options.model, options.model_revision)
    config = check_model(model)
    tokenizer = (
        resolve("tokenizer", options.model, options.model_revision)
        if options.tokenizer is None
        else resolve("tokenizer", options.tokenizer, options.tokenizer_revision)
    )
    limit = model_limit(config)
    if options.max_model_len is not None and options.max_model_len > limit:
        raise UsageError(
            f"--max-model-len: {options.max_model_len} is more than the model's own limit {limit}", "lower it"
        )
    request = PlanRequest(
        suite=options.suite,
        prompt_formats=formats,
        reuse_counts=options.reuse_counts,
        span=options.chunk_size or DEFAULT_SPAN,
        block_size=options.block_size,
        max_tokens=options.max_tokens,
        max_model_len=options.max_model_len or limit,
        tenant=options.tenant,
        seed=options.seed,
    )
    plan = build_plan(load_tokenizer(tokenizer.folder), request)
    settings = EngineSettings(
        model=str(model.folder),
        tokenizer=str(tokenizer.folder),
        dtype=options.dtype,
        seed=options.seed,
        max_model_len=request.max_model_len,
        block_size=options.block_size,
        gpu_memory_utilization=options.gpu_memory_utilization,
        max_tokens=options.max_tokens,
    )
    makers = {CONTROL: control_arm, NATIVE: native_arm}
    arms = tuple(makers[name](settings) for name in arm_names)
    variables = arm_variables(environment, options.device)
    return Preflight(options, runtime, accelerator, model, tokenizer, plan, arms, variables)


def verify(checked: Preflight, store: ReportStore, say: Say) -> Document:
    """Run every arm and return the finished report, which is on disk by then.

    Raises ReportError when the report cannot be written. BaseExceptions that end the program (Ctrl-C,
    SIGTERM) leave a report in state ``interrupted`` and no engine behind.
    """
    store.create()
    run_id = uuid.uuid4().hex
    document = new_document(
        run_id=run_id,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        request=checked.request(),
        identity={"model": checked.model.to_json(), "tokenizer": checked.tokenizer.to_json()},
        plan=checked.manifest(),
        environment=checked.environment(),
        arms=[arm.name for arm in checked.arms],
        evidence_directory=store.evidence.name,
    )
    recorder = Recorder(store, document)
    recorder.write()
    store.save("plan.json", checked.manifest())
    run = _Run(checked, store, recorder, run_id, say)
    try:
        run.arms()
        recorder.unchanged(model=checked.model.unchanged(), tokenizer=checked.tokenizer.unchanged())
    except BaseException:
        with suppress(ReportError):  # a report that cannot be written is why we are here, or comes second
            recorder.finish("interrupted")
        raise
    return recorder.finish("complete")


class _Run:
    """The arms of one run, in order; the next one's process imports while the present one answers."""

    def __init__(self, checked: Preflight, store: ReportStore, recorder: Recorder, run_id: str, say: Say) -> None:
        self._checked = checked
        self._store = store
        self._recorder = recorder
        self._run_id = run_id
        self._say = say
        options = checked.options
        self._limits = Limits(options.start_timeout, options.answer_timeout, options.shutdown_timeout)
        self._memory_before = memory_in_use(options.device)

    def arms(self) -> None:
        """Run each arm; without a whole control the others prove nothing and are not started."""
        waiting: Sequence[Arm] = self._checked.arms
        with ExitStack() as sessions:
            session: ArmSession | None = self._open(waiting[0], sessions)
            while session is not None:
                arm, *waiting = waiting
                following = self._run_arm(arm, session, waiting[0] if waiting else None, sessions)
                control_failed = arm.name == CONTROL and self._state(arm) != "complete"
                session = None if control_failed or not waiting else following or self._open(waiting[0], sessions)

    def _open(self, arm: Arm, sessions: ExitStack) -> ArmSession:
        log = self._store.evidence_path(f"{arm.name}.log")
        session = sessions.enter_context(
            ArmSession(arm.name, log, self._checked.variables | arm.variables, self._limits)
        )
        session.prepare(arm.engine_arguments(), arm.settings.sampling())
        return session

    def _run_arm(self, arm: Arm, session: ArmSession, following: Arm | None, sessions: ExitStack) -> ArmSession | None:
        """Run one arm to its end; the session of the following one, where it could be opened."""
        prepared = None
        self._say(f"{arm.name}: starting the engine")
        self._recorder.arm_state(arm.name, "running", log=f"{arm.name}.log")
        try:
            started = session.start()
            self._store.save(f"{arm.name}.engine-config.json", started.engine_config)
            self._recorder.arm_state(arm.name, "running", effective=started.effective)
            if wrong := arm.mismatches(started.effective):
                raise ArmError(f"{arm.name}: " + "; ".join(wrong), "this arm would not test what its name says")
            prepared = self._open(following, sessions) if following else None
            for probe in self._checked.plan.probes:
                self._ask(arm, session, probe)
            self._say(f"{arm.name}: stopping the engine")
            session.stop()
            self._wait_for_memory(arm)
        except ArmError as error:
            session.end()
            self._recorder.arm_state(arm.name, "failed", limit=error.limit, error=str(error))
            self._say(f"{arm.name}: {error}")
        else:
            self._recorder.arm_state(arm.name, "complete")
        return prepared

    def _ask(self, arm: Arm, session: ArmSession, probe: Probe) -> None:
        """Every answer that the arm owes for a probe, one after the other."""
        # Another run's answers can be in a store that outlives the engine: a scope is this run's own.
        scope = f"{probe.scope}.{self._run_id}"
        counts = []
        for role, ordinal in expected_answers(arm.name, probe.reuse_count):
            command = Generate(
                request=f"{arm.name}.{probe.id}.{role}.{ordinal}",
                prompt_token_ids=list(probe.prompt_token_ids),
                scope=scope,
                sampling_extra=arm.sampling_extra(scope),
            )
            answered = session.ask(command)
            self._recorder.answer(arm.name, _answer(probe, role, ordinal, answered))
            counts.append("failed" if answered.error else str(answered.cached_tokens))
        self._say(f"{arm.name}: {probe.id} answered, cached {', '.join(counts)} of {probe.prompt_tokens}")

    def _wait_for_memory(self, arm: Arm) -> None:
        if not wait_until_free(self._checked.options.device, self._memory_before, self._limits.shutdown):
            raise ArmError(
                f"{arm.name}: its device memory was still in use {self._limits.shutdown:g} s after it ended",
                "see that nothing else uses the GPU",
                "shutdown_timeout",
            )

    def _state(self, arm: Arm) -> str:
        return next(str(one["state"]) for one in self._recorder.document["arms"] if one["name"] == arm.name)


def _answer(probe: Probe, role: str, ordinal: int, answered: Answered) -> Document:
    """An engine's answer as the report holds it."""
    submitted = answered.prompt_token_ids
    return {
        "probe": probe.id,
        "role": role,
        "ordinal": ordinal,
        "submitted_sha256": None if submitted is None else ids_sha256(submitted),
        "generated_token_ids": answered.generated_token_ids,
        "finish_reason": answered.finish_reason,
        "cached_tokens": answered.cached_tokens,
        "cached_tokens_local": answered.cached_tokens_local,
        "cached_tokens_external": answered.cached_tokens_external,
        "doubts": [],
        "error": answered.error,
    }
