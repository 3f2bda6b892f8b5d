"""moorage: a self-hosted Responses API with a computer."""

__version__ = "0.2.0"
