"""Whether a deployment has browsers beside its sandboxes, and what its operator builds to have them."""

from types import MappingProxyType
from typing import Final

from moorage.model.catalog import ModelEntry
from moorage.settings import Settings

_ON_FARGATE: Final = (
    "The sandboxes of this deployment have no browser. Set 'computer' to true in cdk.json, and 'make deploy' builds the image of one "
    "(functions/sandbox/Dockerfile.desk)."
)
_TO_BUILD: Final = MappingProxyType(
    {
        "launcher": "The containers of this deployment have no browser. Install the package 'chromium' on this machine, or build "
        "moorage's image by 'docker compose build --build-arg COMPUTER=1', and start moorage again.",
        "docker": "The container engine of this deployment has no image of a browser. Build it with 'moorage sandbox-image build "
        "--desk', and start moorage again.",
        "fargate": _ON_FARGATE,
        "elsewhere": _ON_FARGATE,
    }
)
"""By where sandboxes are, for those that can have a browser in walls of its own."""
_NO_WALLS: Final = (
    "Sandboxes of this deployment are MicroVMs. One machine has one container, in which a browser would have no walls against "
    "commands. Deploy with provisioner 'fargate' alone, and 'computer', in cdk.json."
)


def refusal(entry: ModelEntry, settings: Settings) -> str | None:
    """Why this model has no hosted computer here, and what to do; None if it has one."""
    if entry.view == "off":
        return f"The operator offers no hosted computer to '{entry.name}'. Name another model."
    if settings.provisioner in ("lambda_microvm", "by_tier"):
        return _NO_WALLS
    return None if settings.sandbox_browser else _TO_BUILD[settings.provisioner]
