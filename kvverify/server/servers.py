"""Finding out what a server is, before anything is asked of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvverify.errors import PreflightError
from kvverify.server.client import Client, Identity, Kind, Load, member, text
from kvverify.server.http import RequestFailed, Transport
from kvverify.server.llamacpp import LlamaCppClient
from kvverify.server.openai import OpenAIClient
from kvverify.server.sglang import SGLangClient
from kvverify.server.vllm import VllmClient

_CLIENTS: Mapping[Kind, type[VllmClient | LlamaCppClient | SGLangClient | OpenAIClient]] = {
    "vllm": VllmClient,
    "llamacpp": LlamaCppClient,
    "sglang": SGLangClient,
    "openai": OpenAIClient,
}
_OWNERS: Mapping[str, Kind] = {"vllm": "vllm", "llamacpp": "llamacpp", "sglang": "sglang"}
"""What servers give as the owner of their models."""


@dataclass(frozen=True)
class Server:
    """One server that answers."""

    name: str
    """``cache`` or ``recompute``: the path whose requests it gets; in modes with one server, all."""
    url: str
    """Without credentials."""
    client: Client
    identity: Identity
    load: Load
    """Its work before the first request."""


def find_server(name: str, transport: Transport, kind: Kind | None, model: str | None) -> Server:
    """Ask a server for its models and what it is. Raises PreflightError where it does not answer."""
    try:
        listed = transport.get("/v1/models")
    except RequestFailed as error:
        if error.unreachable or kind is None or model is None:
            raise PreflightError(
                f"the server at {transport.url} does not list its models: {error}", _help(error)
            ) from None
        listed = None
    first = member(listed, "data", 0)
    found = kind or _OWNERS.get(text(member(first, "owned_by")) or "", "openai")
    named = model or text(member(first, "id"))
    if named is None:
        raise PreflightError(f"the server at {transport.url} names no model", "name one by --model")
    client = _CLIENTS[found](transport, named)
    identity = client.identify()
    cleaned = Identity(
        identity.kind,
        None if identity.version is None else transport.clean(identity.version),
        transport.clean(identity.model),
        {key: transport.clean(value) if isinstance(value, str) else value for key, value in identity.settings.items()},
    )
    return Server(name, transport.url, client, cleaned, client.load())


def _help(error: RequestFailed) -> str:
    said = str(error)
    if said.startswith(("HTTP 401", "HTTP 403")):
        return "name the environment variable that holds its key by --api-key-env"
    if error.unreachable:
        return "see that it runs and that the URL is right"
    return "see that the URL is that of the API, or name --kind and --model"
