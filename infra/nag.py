"""Findings of cdk-nag that stand, each with the reason why."""

from aws_cdk import Acknowledgment, Stack, Token, Validations
from constructs import IConstruct


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Let one finding (``AwsSolutions-X1`` or ``AwsSolutions-IAM5[Resource::*]``) of ``construct`` stand for ``reason``."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))


def acknowledge_wildcard(construct: IConstruct, finding: str, reason: str) -> None:
    """The same for a wildcard in a policy: ``finding`` is ``Action::s3:Get*`` or ``Resource::<arn>``, as in the policy."""
    acknowledge(construct, f"AwsSolutions-IAM5[{_printed(Stack.of(construct), finding)}]", reason)


def _printed(stack: Stack, text: str) -> str:
    """cdk-nag prints values of the deployment as ``<AWS::AccountId>``."""
    pseudo = {stack.account: "<AWS::AccountId>", stack.region: "<AWS::Region>", stack.partition: "<AWS::Partition>"}
    for value, printed in pseudo.items():
        if Token.is_unresolved(value):
            text = text.replace(value, printed)
    return text
