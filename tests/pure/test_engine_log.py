"""The cause of a failure, from what vLLM 0.28.0 really wrote to its log (most of each traceback left out)."""

from pathlib import Path

import pytest

from kvverify.engine.log import cause_in

START = """\
INFO 11-29 19:29:08 [importing.py:88] Triton not installed or not compatible; certain GPU-related functions will not \
be available.
INFO 11-29 19:29:10 [model.py:672] Resolved architecture: LlamaForCausalLM
WARNING 11-29 19:29:10 [vllm.py:1285] Enforce eager set, disabling torch.compile and CUDAGraphs. This is equivalent \
to setting -cc.mode=none -cc.cudagraph_mode=none
(EngineCore pid=15988) INFO 11-29 19:29:19 [core.py:122] Initializing a V1 LLM engine (v0.28.0) with config: \
model='models/m', speculative_config=None, tokenizer='models/m', skip_tokenizer_init=False
[W1129 19:29:28.348130403 utils.cpp:68] Warning: NUMA binding: Using MEMBIND policy for memory allocation on the NUMA \
nodes (0). Memory allocations will be strictly bound to these NUMA nodes. (function init_cpu_memory_env)
(Worker pid=16035) INFO 11-29 19:29:28 [cpu_model_runner.py:131] Starting to load model models/m...
"""

# The worker meets the error, the engine core only hears of it, and the front process hears of that.
TRUNCATED_WEIGHTS = """\
(Worker pid=16035) ERROR 11-29 19:29:28 [multiproc_executor.py:941] WorkerProc failed to start.
(Worker pid=16035) ERROR 11-29 19:29:28 [multiproc_executor.py:941] Traceback (most recent call last):
(Worker pid=16035) ERROR 11-29 19:29:28 [multiproc_executor.py:941]   File ".../vllm/v1/executor/\
multiproc_executor.py", line 908, in worker_main
(Worker pid=16035) ERROR 11-29 19:29:28 [multiproc_executor.py:941]     worker = WorkerProc(*args, **kwargs)
(Worker pid=16035) ERROR 11-29 19:29:28 [multiproc_executor.py:941]              ^^^^^^^^^^^^^^^^^^^^^^^^^^^
(Worker pid=16035) ERROR 11-29 19:29:28 [multiproc_executor.py:941]     with safe_open(st_file, framework="pt") as f:
(Worker pid=16035) ERROR 11-29 19:29:28 [multiproc_executor.py:941] safetensors._safetensors_rust.SafetensorError: \
Error while deserializing header: incomplete metadata, file not fully covered
(EngineCore pid=15988) ERROR 11-29 19:29:30 [core.py:1346] EngineCore failed to start.
(EngineCore pid=15988) ERROR 11-29 19:29:30 [core.py:1346] Traceback (most recent call last):
(EngineCore pid=15988) ERROR 11-29 19:29:30 [core.py:1346]     raise e from None
(EngineCore pid=15988) ERROR 11-29 19:29:30 [core.py:1346] Exception: WorkerProc initialization failed due to an \
exception in a background process. See stack trace for root cause.
(EngineCore pid=15988) Process EngineCore:
(EngineCore pid=15988) Traceback (most recent call last):
(EngineCore pid=15988)     raise e from None
(EngineCore pid=15988) Exception: WorkerProc initialization failed due to an exception in a background process. See \
stack trace for root cause.
Traceback (most recent call last):
  File ".../vllm/v1/engine/utils.py", line 1286, in wait_for_engine_startup
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""

KILLED_WORKER = """\
(EngineCore pid=14887) ERROR 11-29 19:27:30 [multiproc_executor.py:311] Worker proc VllmWorker-0 died unexpectedly \
(exit code: None), shutting down executor.
(EngineCore pid=14887) ERROR 11-29 19:27:30 [dump_input.py:81] Dumping scheduler stats: \
SchedulerStats(num_running_reqs=1, num_waiting_reqs=0, num_skipped_waiting_reqs=0, step_counter=0)
(EngineCore pid=14887) ERROR 11-29 19:27:30 [core.py:1348] EngineCore encountered a fatal error.
(EngineCore pid=14887) ERROR 11-29 19:27:30 [core.py:1348] Traceback (most recent call last):
(EngineCore pid=14887) ERROR 11-29 19:27:30 [core.py:1348]   File ".../vllm/distributed/device_communicators/\
shm_broadcast.py", line 797, in acquire_read
(EngineCore pid=14887) ERROR 11-29 19:27:30 [core.py:1348]     raise RuntimeError("cancelled")
(EngineCore pid=14887) ERROR 11-29 19:27:30 [core.py:1348] RuntimeError: cancelled
ERROR 11-29 19:27:30 [async_llm.py:744] AsyncLLM output_handler failed.
ERROR 11-29 19:27:30 [async_llm.py:744] Traceback (most recent call last):
ERROR 11-29 19:27:30 [async_llm.py:744]     raise self._format_exception(outputs) from None
ERROR 11-29 19:27:30 [async_llm.py:744] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. \
See stack trace (above) for the root cause.
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "control.log"


def test_the_cause_is_the_workers_own_error_and_not_what_others_made_of_it(log):
    log.write_text(START + TRUNCATED_WEIGHTS)
    assert cause_in(log) == (
        "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, "
        "file not fully covered"
    )


def test_a_worker_that_died_is_the_cause_and_not_the_cancelling_that_followed(log):
    log.write_text(START + KILLED_WORKER)
    assert cause_in(log) == "Worker proc VllmWorker-0 died unexpectedly (exit code: None), shutting down executor."


def test_a_log_without_an_error_has_no_cause(log):
    log.write_text(START)
    assert cause_in(log) is None


@pytest.mark.parametrize("size", [0, 1])
def test_an_empty_log_has_no_cause(log, size):
    log.write_bytes(b"\n" * size)
    assert cause_in(log) is None


def test_a_log_that_is_not_there_has_no_cause(log):
    assert cause_in(log) is None
    assert cause_in(log.parent) is None


def test_general_words_alone_are_no_cause(log):
    log.write_text(START + TRUNCATED_WEIGHTS[TRUNCATED_WEIGHTS.index("(EngineCore") :])
    assert cause_in(log) is None


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: To serve at least one request with the model's max seq len (8192), 0.75 GiB KV cache is needed",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig",
        "OSError: [Errno 28] No space left on device",
        "MyException: odd",
    ],
)
@pytest.mark.parametrize("prefix", ["", "(Worker pid=1) ", "(EngineCore_0 pid=77) ERROR 01-02 03:04:05 [core.py:9] "])
def test_an_exception_is_found_behind_any_prefix(log, prefix, line):
    log.write_text(f"{START}{prefix}{line}\n")
    assert cause_in(log) == line


@pytest.mark.parametrize(
    "line",
    [
        "    raise RuntimeError('x')",
        "an Error of the user",
        "INFO 11-29 19:29:08 [a.py:1] no Error here",
        "  except ValueError as error:",
    ],
)
def test_a_line_that_only_speaks_of_errors_is_no_cause(log, line):
    log.write_text(f"{START}{line}\n")
    assert cause_in(log) is None


def test_only_the_end_of_a_long_log_is_read_and_bytes_that_are_no_text_do_no_harm(log):
    chatter = b"INFO 11-29 19:29:08 [a.py:1] \xff\xfe chatter\n" * 50_000
    log.write_bytes(b"ValueError: long ago\n" + chatter + b"ValueError: just now\n")
    assert cause_in(log) == "ValueError: just now"


def test_a_cause_is_one_line_of_bounded_length(log):
    log.write_text("ValueError: " + "x" * 10_000 + "\nsecond line\n")
    cause = cause_in(log)
    assert cause is not None
    assert "\n" not in cause
    assert len(cause) == 300
