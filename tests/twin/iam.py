"""IAM as far as the roles of a synthesised template use it: identity policies with their conditions, and the policies of keys.

What is not understood here is an error, never a yes: a new operator or condition key stops the tests until it is.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tests.twin import given_key
from tests.twin.calls import PROXY, SOCKETS, Check, checks, key_checks, own_name
from tests.twin.template import ACCOUNT, REGION, Template

Statement = Mapping[str, Any]


@dataclass(frozen=True)
class Account:
    """A deployment's roles and what they are to reach."""

    template: Template

    def roles(self) -> dict[str, str]:
        """The logical id of each function's role, and of the proxy's, by the function's own name."""
        found = {
            own_name(name): _name_of(properties["Role"])
            for name, properties in self.template.of_type("AWS::Lambda::Function")
            if name.startswith("Functions")
        }
        for _, properties in self.template.of_type("AWS::ECS::TaskDefinition"):
            if "TaskRoleArn" in properties:
                found[PROXY] = _name_of(properties["TaskRoleArn"])
        return found

    @property
    def has_proxy(self) -> bool:
        return PROXY in self.roles()

    @property
    def data_key(self) -> str | None:
        """The customer-managed key of table and bucket."""
        (_, table) = self.template.one("AWS::DynamoDB::Table")
        key: str | None = table.get("SSESpecification", {}).get("KMSMasterKeyId")
        return key

    def allows(self, role: str, check: Check) -> bool:
        """Whether the role may: some statement allows it and none denies it. A key's own policy must leave the decision to IAM."""
        context = {name: self._value(value) for name, value in check.context}
        return self.decides(role, check.action, self.arn(check.on), context, check.partitions)

    def decides(self, role: str, action: str, resource: str, context: Mapping[str, str], partitions: tuple[str, ...] = ()) -> bool:
        """The same for a resource by its ARN."""
        context = {**context, "aws:SecureTransport": "true"}
        effects = {
            statement["Effect"]
            for statement in self._statements(role)
            if _applies(statement, action, resource) and _holds(statement.get("Condition", {}), context, partitions)
        }
        return effects == {"Allow"} and (not action.startswith("kms:") or self._key_trusts_iam(resource))

    def arn(self, kind: str) -> str:
        """A resource of this kind, as the template's policies name it."""
        match kind:
            case "any":
                return "*"
            case "table" | "index":
                table = f"<{self.template.one('AWS::DynamoDB::Table')[0]}.Arn>"
                return table if kind == "table" else f"{table}/index/GSI1"
            case "bucket" | "object":
                bucket = f"<{self.template.one('AWS::S3::Bucket')[0]}.Arn>"
                return bucket if kind == "bucket" else f"{bucket}/T/acme/F/file-1"
            case "vector index":
                (_, made) = self.template.one("Custom::KeptVectorBucket")
                return f"arn:aws:s3vectors:{REGION}:{ACCOUNT}:bucket/{made['Name']}/index/vs-0123456789abcdef"
            case "machine" | "execution":
                name = self.template.one("AWS::StepFunctions::StateMachine")[1]["StateMachineName"]
                ending = f"stateMachine:{name}" if kind == "machine" else f"execution:{name}:resp_1"
                return f"arn:aws:states:{REGION}:{ACCOUNT}:{ending}"
            case "worker":
                (name, _) = self.template.one("AWS::Lambda::Alias", "SocketWork")
                return f"<{name}>"
            case "connection":
                (api, _), stage = self.template.one("AWS::ApiGatewayV2::Api"), self.template.one("AWS::ApiGatewayV2::Stage")[1]
                return f"arn:aws:execute-api:{REGION}:{ACCOUNT}:<{api}>/{stage['StageName']}/POST/@connections/AbC-1="
            case "cluster":
                return f"<{self.template.one('AWS::ECS::Cluster', 'Sandbox')[0]}.Arn>"
            case "task":
                cluster = self.template.one("AWS::ECS::Cluster", "Sandbox")[1]["ClusterName"]
                return f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/{cluster}/0123456789abcdef"
            case "task definition" | "execution role":
                # Of the smallest tier that Fargate has.
                name, definition = next(each for each in self.template.of_type("AWS::ECS::TaskDefinition") if "SandboxTask" in each[0])
                role: str = definition["ExecutionRoleArn"]
                revision = f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/{definition['Family']}:7"
                return self.template.values.get(name, revision) if kind == "task definition" else role
            case "proxy":
                (name, _) = self.template.one("AWS::ECS::Service")
                return f"<{name}>"
            case "secrets key":
                (_, proxy) = self.template.one("AWS::ECS::TaskDefinition", "Egress")
                variables: dict[str, str] = {each["Name"]: each["Value"] for each in proxy["ContainerDefinitions"][0]["Environment"]}
                return variables["MOORAGE_EGRESS_KEY"]
            case "content key":
                return f"<{self.template.one('AWS::SecretsManager::Secret')[0]}>"
            case "audit trail":
                return f"<{self.template.one('AWS::Logs::LogGroup', 'Audit')[0]}.Arn>"
            case "data key":
                assert self.data_key is not None
                return self.data_key
        raise AssertionError(f"no template has a {kind}")

    def _value(self, text: str) -> str:
        return self.arn(text) if text == "cluster" else text

    def _statements(self, role: str) -> Iterator[Statement]:
        for resource in self.template.resources.values():
            if resource["Type"] == "AWS::IAM::Policy" and {"Ref": role} in resource["Properties"].get("Roles", []):
                yield from self.template.resolve(resource["Properties"]["PolicyDocument"]["Statement"])
        for policy in self.template.resolve(self.template.resources[role]["Properties"].get("Policies", [])):
            yield from policy["PolicyDocument"]["Statement"]

    def _key_trusts_iam(self, key: str) -> bool:
        policies = [p["KeyPolicy"] for name, p in self.template.of_type("AWS::KMS::Key") if key == f"<{name}.Arn>"]
        policies += [given_key.policy()] if key == given_key.ARN else []
        root = f"arn:aws:iam::{ACCOUNT}:root"
        # The key of the domain secrets is made by our custom resource without a policy: KMS's default one leaves it to IAM.
        return not policies or any(
            statement["Effect"] == "Allow" and statement["Action"] == "kms:*" and statement["Principal"] == {"AWS": root}
            for policy in policies
            for statement in policy["Statement"]
        )


def refused(account: Account, asked: Mapping[str, list[str]]) -> list[str]:
    """What functions ask and may not. What a deployment has no proxy for, nobody asks there; functions that it has not ask nothing."""
    roles = account.roles()
    return [
        f"{function} may not {check.action} on {check.on} {' '.join(check.partitions)}".strip()
        for function, operations in asked.items()
        if function in roles or function not in (PROXY, *SOCKETS)
        for operation in operations
        for check in _all_checks(account, operation)
        if (account.has_proxy or (function != PROXY and check.on not in ("proxy", "secrets key")))
        if not account.allows(roles[function], check)
    ]


def _all_checks(account: Account, operation: str) -> Iterator[Check]:
    for check in checks(operation):
        yield check
        if account.data_key is not None:
            yield from key_checks(check)


def _name_of(reference: str) -> str:
    found = re.fullmatch(r"<(\w+)\.Arn>", reference)
    assert found is not None, reference
    return found[1]


def _many(value: Any) -> list[str]:
    return list(value) if isinstance(value, list) else [value]


def _applies(statement: Statement, action: str, resource: str) -> bool:
    assert not {"NotAction", "NotResource", "Principal"} & statement.keys(), statement
    acts = any(fnmatchcase(action.lower(), pattern.lower()) for pattern in _many(statement["Action"]))
    return acts and any(pattern == "*" or fnmatchcase(resource, _literal(pattern)) for pattern in _many(statement["Resource"]))


def _literal(pattern: str) -> str:
    """IAM's wildcards are ``*`` and ``?``; brackets mean nothing to it."""
    return pattern.replace("[", "[[]")


def _holds(conditions: Mapping[str, Mapping[str, Any]], context: Mapping[str, str], partitions: tuple[str, ...]) -> bool:
    return all(
        _condition(operator, key, _many(wanted), context, partitions)
        for operator, keys in conditions.items()
        for key, wanted in keys.items()
    )


def _condition(operator: str, key: str, wanted: list[str], context: Mapping[str, str], partitions: tuple[str, ...]) -> bool:
    if key == "dynamodb:LeadingKeys":
        hits = [any(fnmatchcase(each, _literal(pattern)) for pattern in wanted) for each in partitions]
        match operator:
            case "ForAllValues:StringLike":
                return all(hits)
            case "ForAnyValue:StringLike":
                return any(hits)
    elif (operator, key) == ("ArnLike", "lambda:SourceFunctionArn"):
        # Only what a function's own code asks has it (Lambda developer guide, "Using source function ARN").
        return key in context and any(fnmatchcase(context[key], _literal(pattern)) for pattern in wanted)
    elif operator in ("StringEquals", "ArnEquals"):
        assert key in context or key.split(":")[0] in ("ecs", "iam"), f"nobody says what {key} is"
        return context.get(key) in wanted
    raise AssertionError(f"{operator} of {key} is not understood")
