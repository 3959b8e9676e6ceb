"""The control: the engine with every cache off, which all answers are compared with."""

from kvverify.comparison.arms import CONTROL
from kvverify.target.arm import Arm, EngineSettings


def control_arm(settings: EngineSettings) -> Arm:
    """The arm whose engine can reuse nothing."""
    return Arm(CONTROL, settings, {"enable_prefix_caching": False})
