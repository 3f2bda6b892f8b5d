"""``moorage doctor``: what is in place, what is not, and what to do about it.

With ``--aws`` it looks at the account that a deploy would go to. Without, at this machine, or at the table of the deployment that the
environment names; and if a deployment answers, it asks its models for an answer, starts a sandbox, and sees that the sandbox cannot
get out. It changes nothing and keeps nothing.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import boto3

from moorage.cli.checks import given_network, microvms, new_account, shares
from moorage.cli.checks.account import AwsClients, cdk_context, deployed_models, deployed_settings, of_account
from moorage.cli.checks.deployment import of_deployment, table_finding
from moorage.cli.checks.engines import of_engines
from moorage.cli.checks.findings import CheckProgress, Finding, Level, Said, warn
from moorage.cli.checks.machine import of_a_start, of_machine
from moorage.cli.output import add_json, say_json
from moorage.cli.target import AWS_CONFIG, TargetError, aws_region, find
from moorage.command_hints import typed_here
from moorage.local.resource_paths import ROOT
from moorage.terminal import clear_status, say, show_status


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Check what moorage needs, a line for each thing, with what to do about it. It looks at this machine and the local "
        "stack; or, where MOORAGE_URL or MOORAGE_TABLE names another deployment, at that one: table, key, models, a sandbox, and "
        "that it cannot get out. Exit code 1 says that something failed."
    )
    parser.add_argument("--aws", action="store_true", help="before a deploy: check the account and region that it would go to")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Shows a line for each check; 1 if one of them failed."""
    findings: list[Finding] = []
    for said in before_deploy(environ) if options.aws else of_this(environ):
        if isinstance(said, CheckProgress):
            show_status(f"{said.what} ...")
            continue
        clear_status()
        findings.append(said)
        say_json(asdict(said)) if options.json else _show(said)
    failed = sum(finding.level is Level.FAIL for finding in findings)
    if not options.json:
        say(f"\n{len(findings)} checks, {failed} failed.")
    return 1 if failed else 0


def _show(finding: Finding) -> None:
    colour = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}[finding.level]
    say(f"{finding.level:<4}", colour=colour, end="  ")
    say(finding.what)
    if finding.advice:
        say(typed_here(f"      {finding.advice}"))


def before_deploy(environ: Mapping[str, str]) -> Iterator[Said]:
    yield from of_account(lambda: AwsClients.of(environ), deployed_models(ROOT), cdk_context(ROOT))
    session, settings = boto3.Session(region_name=aws_region(environ)), deployed_settings(ROOT)

    def client(name: str) -> Any:
        return session.client(name, config=AWS_CONFIG)  # type: ignore[call-overload]

    yield from new_account.findings(client, settings, session.region_name)
    yield from given_network.findings(client, settings, session.region_name)
    yield from microvms.findings(client, settings, session.region_name)
    yield from shares.findings(client, settings)


def of_this(environ: Mapping[str, str]) -> Iterator[Said]:
    """The machine and its stack, or the deployment that the environment names."""
    try:
        target = find(environ)
    except TargetError as error:
        yield from of_machine(environ)
        yield from of_a_start(environ)
        yield from of_engines(environ)
        yield warn("no deployment to ask", str(error))
        return
    if target.is_local:
        yield from of_machine(environ)
        yield from of_engines(environ)
    elif target.table_name:
        yield table_finding(target)
    yield from of_deployment(target, environ)
