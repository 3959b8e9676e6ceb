"""One run, from options to a finished report: preflight, then one arm after the other, recorded as it goes."""

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime

from kvverify.comparison.arms import CONTROL
from kvverify.comparison.connector_log import doubts, read_connector_log
from kvverify.comparison.facts import ids_sha256
from kvverify.engine.log import LogTail
from kvverify.engine.session import ArmError, ArmSession, Limits
from kvverify.engine.wire import Answered, Generate
from kvverify.errors import ReportError
from kvverify.plan.plan import Probe
from kvverify.preflight import Preflight
from kvverify.report.document import Document, expected_answers
from kvverify.report.recorder import Recorder, new_document
from kvverify.report.store import ReportStore
from kvverify.target.accelerator import memory_in_use, wait_until_free
from kvverify.target.arm import Arm

Say = Callable[[str], None]
"""Takes one line of progress."""


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
        acceptance=None if checked.fixture is None else checked.fixture.acceptance(),
    )
    recorder = Recorder(store, document)
    recorder.write()
    store.save("plan.json", checked.manifest())
    try:
        _Run(checked, store, recorder, run_id, say).arms()
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
        session.prepare(arm.engine_arguments(), arm.settings.sampling(), clear_kv_memory=arm.clear_kv_memory)
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
            wrong = arm.mismatches(started.effective)
            device, seen = started.effective.get("device_name"), self._checked.accelerator
            if seen.device == "cuda" and device != seen.name:
                wrong.append(f"the engine ran on {device}, preflight looked at {seen.name}")
            if wrong:
                raise ArmError(f"{arm.name}: " + "; ".join(wrong), "this arm would not test what its name says")
            prepared = self._open(following, sessions) if following else None
            tail = LogTail(session.log) if arm.has_connector else None
            for probe in self._checked.plan.probes:
                self._ask(arm, session, probe, tail)
            self._say(f"{arm.name}: stopping the engine")
            session.stop()
            self._wait_for_memory(arm)
        except ArmError as error:
            session.end()
            self._recorder.arm_state(arm.name, "failed", limit=error.limit, error=str(error))
            self._say(str(error))
        else:
            self._recorder.arm_state(arm.name, "complete")
        return prepared

    def _ask(self, arm: Arm, session: ArmSession, probe: Probe, tail: LogTail | None) -> None:
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
            log = None if tail is None else read_connector_log(tail.new())
            self._recorder.answer(arm.name, _answer(probe, role, ordinal, answered, log))
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


def _answer(probe: Probe, role: str, ordinal: int, answered: Answered, log: dict[str, int] | None) -> Document:
    """An engine's answer as the report holds it, with what a connector's log says about it."""
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
        "doubts": doubts(log, answered.cached_tokens_external),
        "connector_log": log,
        "error": answered.error,
    }
