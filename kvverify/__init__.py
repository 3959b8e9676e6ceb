"""Prove or refute that reusing cached KV gives exactly the token IDs that recomputation gives."""

__version__ = "0.1.0"
