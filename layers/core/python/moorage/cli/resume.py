"""``moorage resume``: a paused response goes on."""

import argparse

from moorage.cli.pause import add_action


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Let paused responses go on where they stood still."
    add_action(parser, "resume")
