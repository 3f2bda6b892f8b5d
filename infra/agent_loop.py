"""The loop: the state machine of ``agent_loop.asl.json`` and one function per Task in it.

The definition is the file, unchanged: CloudFormation puts the functions' ARNs in the place of ``${ModelStepArn}`` and its like, as
embedded mode and tests do. A placeholder ``${XyzArn}`` is served by ``functions/steps/handler.py``'s function ``xyz``.
"""

import re
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra.bundling import ROOT
from infra.config import Config
from infra.functions import FunctionFactory, log_group
from infra.nag import acknowledge, acknowledge_wildcard
from infra.network import Network

ASL_FILE: Final = ROOT / "layers" / "core" / "python" / "moorage" / "loop" / "agent_loop.asl.json"
_PLACEHOLDER: Final = re.compile(r"\$\{(\w+)Arn\}")
_STEP_TIMEOUT: Final = cdk.Duration.minutes(15)
"""Lambda's maximum. Steps end themselves earlier (``MODEL_STEP_SECONDS_MAX``, ``TOOL_STEP_SECONDS_MAX``)."""

TOOL_MEMORY_MIB: Final = 384
"""A tool step copies output and files: 91 MiB of code, and eight transfers at once with two parts of 8 MiB each. More memory would only
cost more while a command runs."""

INDEX_MEMORY_MIB: Final = 1024
"""An index step holds a file's text, its chunks and their words: up to 600 MB for one of 5,000,000 tokens
(``python -m tests.bench.documents``)."""

_MEMORY_MIB: Final = {
    **dict.fromkeys(("ToolStep", "ServiceStep", "ParseStep"), TOOL_MEMORY_MIB),
    "IndexStep": INDEX_MEMORY_MIB,
}
"""Of steps that need another amount than those that ask models."""


DOCUMENTS_TIER: Final = "1g"
"""Of the containers in which documents are read (``vector_stores/attachments.py``, and ``reserve`` by default)."""

_SEARCHING: Final = ("ServiceStep", "IndexStep")
"""Steps that read or write indexes of vector stores."""


def reads_in_microvms(config: Config) -> bool:
    """Whether documents are read in MicroVMs: by the tier of their containers."""
    return DOCUMENTS_TIER in config.microvm_tiers


def machine_name(config: Config) -> str:
    """Fixed, so that functions can name the machine that calls them without a cycle between the two."""
    return f"{config.name}-agent-loop"


def machine_arn(scope: Construct, config: Config) -> str:
    return cdk.Stack.of(scope).format_arn(
        service="states",
        resource="stateMachine",
        resource_name=machine_name(config),
        arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
    )


def grant_start_of_executions(scope: Construct, config: Config, function: lambda_.Function) -> None:
    """Start executions of the loop."""
    function.add_to_role_policy(iam.PolicyStatement(actions=["states:StartExecution"], resources=[machine_arn(scope, config)]))


def grant_executions(scope: Construct, config: Config, function: lambda_.Function) -> None:
    """Start, describe and stop executions of the loop."""
    executions = cdk.Stack.of(scope).format_arn(
        service="states",
        resource="execution",
        resource_name=f"{machine_name(config)}:*",
        arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
    )
    grant_start_of_executions(scope, config, function)
    function.add_to_role_policy(
        iam.PolicyStatement(actions=["states:StopExecution", "states:DescribeExecution"], resources=[executions])
    )
    assert function.role is not None
    acknowledge_wildcard(function.role, f"Resource::{executions}", "An execution is named after its response.")


class AgentLoop(Construct):
    """State machine and step functions. Of them the tool step and the step that has documents read live in the sandboxes' network,
    if there is one; the service step runs the calls that need the internet, from outside of it. It has no right to sandboxes, unless
    there are MicroVMs beside Fargate, which are reached from there."""

    def __init__(
        self, scope: Construct, construct_id: str, *, config: Config, factory: FunctionFactory, network: Network | None
    ) -> None:
        super().__init__(scope, construct_id)
        definition = ASL_FILE.read_text()
        self.steps: dict[str, lambda_.Function] = {}
        for name in dict.fromkeys(_PLACEHOLDER.findall(definition)):
            is_inside = name == "ToolStep" or (name == "ParseStep" and not reads_in_microvms(config))
            self.steps[name] = factory.make(
                name,
                folder="steps",
                handler=f"handler.{_snake(name)}",
                timeout=_STEP_TIMEOUT,
                memory_mib=_MEMORY_MIB.get(name, config.model_memory_mib),
                environment=network.environment if network and is_inside else None,
                vpc=network.vpc if network and is_inside else None,
                subnets=network.function_subnets if network and is_inside else None,
                security_groups=[network.function_group] if network and is_inside else None,
                searches=name in _SEARCHING,
            )
        # Step Functions writes the group's name into a policy of the account, which holds 5,120 characters. Names that begin so need no
        # place in it (Step Functions developer guide, "Avoiding Amazon CloudWatch Logs resource policy size restrictions").
        logs = log_group(self, "Logs", config, name=f"/aws/vendedlogs/states/{machine_name(config)}")
        self.machine = stepfunctions.StateMachine(
            self,
            "Machine",
            state_machine_name=machine_name(config),
            state_machine_type=stepfunctions.StateMachineType.STANDARD,
            definition_body=stepfunctions.DefinitionBody.from_string(definition),
            definition_substitutions={f"{name}Arn": step.current_version.function_arn for name, step in self.steps.items()},
            logs=stepfunctions.LogOptions(destination=logs, level=stepfunctions.LogLevel.ALL, include_execution_data=False),
            tracing_enabled=True,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        for step in self.steps.values():
            # Every version: executions that run when a deployment comes go on with the ones that they began with.
            versions = f"{step.function_arn}:*"
            self.machine.add_to_role_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[versions]))
            logical_id = cdk.Stack.of(self).get_logical_id(step.node.default_child)  # type: ignore[arg-type]
            acknowledge_wildcard(self.machine.role, f"Resource::<{logical_id}.Arn>:*", "All versions of one function of this loop.")
        acknowledge(
            self.machine.role,
            "AwsSolutions-IAM5[Resource::*]",
            "Log delivery and X-Ray accept no resource (service authorization reference).",
        )


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
