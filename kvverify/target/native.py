"""The target that is vLLM's own prefix caching, without a KV connector."""

from kvverify.comparison.arms import NATIVE
from kvverify.target.arm import Arm, EngineSettings


def native_arm(settings: EngineSettings) -> Arm:
    """The arm that reuses blocks which are still in the engine's own KV cache."""
    return Arm(NATIVE, settings, {"enable_prefix_caching": True})
