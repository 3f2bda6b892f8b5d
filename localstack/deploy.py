"""Deploy a synthesised ``cdk.out`` onto an emulator with boto3 alone: no Node, no CDK bootstrap, under a second.

    python3 localstack/deploy.py cdk.out              # AWS_ENDPOINT_URL says where
    python3 localstack/deploy.py cdk.out --destroy

It does what ``cdk deploy`` does: put the assets into the bootstrap bucket, then create or update each stack and wait. Resources of
types that the emulator does not know, and that nothing else refers to, are left out and named on the terminal: they are network
rules, which no emulator enforces.
"""

import argparse
import io
import json
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3

LEFT_OUT: Final = (
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EC2::VPCPeeringConnection",
    "AWS::Route53Resolver::FirewallDomainList",
    "AWS::Route53Resolver::FirewallRuleGroup",
    "AWS::Route53Resolver::FirewallRuleGroupAssociation",
    "AWS::WAFv2::WebACLAssociation",
)
"""Types that ministack 1.5.33 answers with 'Unrecognized resource types'."""

_BOOTSTRAP_VERSION: Final = "30"
_STACK_SECONDS_MAX: Final = 300
_POLL_SECONDS: Final = 0.1


class DeployError(RuntimeError):
    """A stack did not come up; the message has the events that failed."""


@dataclass(frozen=True)
class StackArtifact:
    """One stack of the cloud assembly, in the order of deployment."""

    name: str
    template: dict[str, Any]
    assets: dict[str, Any]
    left_out: tuple[str, ...]


def stacks_of(assembly: Path, left_out: tuple[str, ...] = LEFT_OUT) -> list[StackArtifact]:
    """The stacks of a ``cdk.out``; a stack comes after those that it depends on."""
    artifacts = json.loads((assembly / "manifest.json").read_text())["artifacts"]
    stacks = {name: a for name, a in artifacts.items() if a["type"] == "aws:cloudformation:stack"}
    ordered: list[str] = []

    def visit(name: str) -> None:
        for dependency in stacks[name].get("dependencies", []):
            if dependency in stacks and dependency not in ordered:
                visit(dependency)
        if name not in ordered:
            ordered.append(name)

    for name in stacks:
        visit(name)
    return [_stack(assembly, name, stacks[name], left_out) for name in ordered]


def _stack(assembly: Path, name: str, artifact: dict[str, Any], left_out: tuple[str, ...]) -> StackArtifact:
    template = json.loads((assembly / artifact["properties"]["templateFile"]).read_text())
    dropped = {key: r["Type"] for key, r in template["Resources"].items() if r["Type"] in left_out}
    for key in dropped:
        del template["Resources"][key]
    for resource in template["Resources"].values():
        if "DependsOn" in resource:
            depends = [resource["DependsOn"]] if isinstance(resource["DependsOn"], str) else resource["DependsOn"]
            resource["DependsOn"] = [key for key in depends if key not in dropped]
    assets = json.loads((assembly / f"{name}.assets.json").read_text())["files"]
    return StackArtifact(artifact["properties"].get("stackName", name), template, assets, tuple(sorted(set(dropped.values()))))


class Deployer:
    """Puts assemblies onto one endpoint, with the credentials and region of a session."""

    def __init__(self, session: boto3.Session, endpoint: str) -> None:
        self.session = session
        self.endpoint = endpoint
        self._clients: dict[str, Any] = {}

    def close(self) -> None:
        """Close the connections to the emulator."""
        for client in self._clients.values():
            client.close()

    def deploy(self, assembly: Path) -> dict[str, dict[str, str]]:
        """Create or update every stack; returns the outputs by stack. Raises :class:`DeployError`."""
        self.put_bootstrap_version()
        outputs = {}
        for stack in stacks_of(assembly):
            if stack.left_out:
                print(f"{stack.name}: left out, this emulator does not know them: {', '.join(stack.left_out)}")
            self._upload(assembly, stack)
            outputs[stack.name] = self.apply(stack)
        return outputs

    def put_bootstrap_version(self) -> None:
        """What the templates look for before all else."""
        self.client("ssm").put_parameter(
            Name="/cdk-bootstrap/hnb659fds/version", Value=_BOOTSTRAP_VERSION, Type="String", Overwrite=True
        )

    def destroy(self, assembly: Path, *, spared: tuple[str, ...] = ()) -> None:
        """Delete the stacks but for those ``spared``, last first. What the templates retain stays."""
        cloudformation = self.client("cloudformation")
        for stack in (each for each in reversed(stacks_of(assembly)) if each.name not in spared):
            cloudformation.update_termination_protection(StackName=stack.name, EnableTerminationProtection=False)
            cloudformation.delete_stack(StackName=stack.name)
            self._wait(stack.name)

    def client(self, service: str) -> Any:
        """The one client for a service."""
        if service not in self._clients:
            self._clients[service] = self.session.client(service, endpoint_url=self.endpoint)  # type: ignore[call-overload]
        return self._clients[service]

    def _upload(self, assembly: Path, stack: StackArtifact) -> None:
        account = self.client("sts").get_caller_identity()["Account"]
        storage = self.client("s3")
        for asset in stack.assets.values():
            for destination in asset["destinations"].values():
                bucket = _filled(destination["bucketName"], account, str(self.session.region_name))
                _create_bucket(storage, bucket)
                source = assembly / asset["source"]["path"]
                body = zipped(source) if asset["source"]["packaging"] == "zip" else source.read_bytes()
                storage.put_object(Bucket=bucket, Key=destination["objectKey"], Body=body)

    def apply(self, stack: StackArtifact) -> dict[str, str]:
        """Create or update one stack, whose assets are there; returns its outputs."""
        cloudformation, storage = self.client("cloudformation"), self.client("s3")
        bucket = f"deploy-templates-{self.client('sts').get_caller_identity()['Account']}"
        _create_bucket(storage, bucket)
        # A template beyond 51,200 bytes has to come from S3.
        storage.put_object(Bucket=bucket, Key=stack.name, Body=json.dumps(stack.template).encode())
        request = {
            "StackName": stack.name,
            "TemplateURL": f"{self.endpoint}/{bucket}/{stack.name}",
            "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
        }
        exists = any(s["StackName"] == stack.name for s in cloudformation.describe_stacks()["Stacks"])
        try:
            (cloudformation.update_stack if exists else cloudformation.create_stack)(**request)
        except cloudformation.exceptions.ClientError as error:
            if "No updates are to be performed" not in str(error):
                raise
        return self._wait(stack.name)

    def _wait(self, name: str) -> dict[str, str]:
        cloudformation = self.client("cloudformation")
        deadline = time.monotonic() + _STACK_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
            except cloudformation.exceptions.ClientError:
                return {}  # deleted
            status = stack["StackStatus"]
            if status == "DELETE_COMPLETE":
                return {}
            if not status.endswith("_IN_PROGRESS"):
                if status in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
                    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
                raise DeployError(
                    f"{name} is {status}: {stack.get('StackStatusReason', '')}\n" + "\n".join(_failures(cloudformation, name))
                )
            time.sleep(_POLL_SECONDS)
        raise DeployError(f"{name} did not come to rest within {_STACK_SECONDS_MAX} s.")


def _failures(cloudformation: Any, name: str) -> Iterator[str]:
    for event in reversed(cloudformation.describe_stack_events(StackName=name)["StackEvents"]):
        if event["ResourceStatus"].endswith("FAILED"):
            yield f"  {event['LogicalResourceId']} ({event['ResourceType']}): {event.get('ResourceStatusReason', '')}"


def _filled(text: str, account: str, region: str) -> str:
    return text.replace("${AWS::AccountId}", account).replace("${AWS::Region}", region)


def _create_bucket(storage: Any, bucket: str) -> None:
    try:
        storage.create_bucket(Bucket=bucket)
    except (storage.exceptions.BucketAlreadyOwnedByYou, storage.exceptions.BucketAlreadyExists):
        return


def zipped(folder: Path) -> bytes:
    """A folder as zip, file modes kept: ``run.sh`` has to stay executable."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return buffer.getvalue()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("assembly", type=Path, help="the folder that 'cdk synth' wrote")
    parser.add_argument("--endpoint", default="http://127.0.0.1:4566")
    parser.add_argument("--destroy", action="store_true")
    arguments = parser.parse_args()
    deployer = Deployer(boto3.Session(), arguments.endpoint)
    try:
        if arguments.destroy:
            deployer.destroy(arguments.assembly)
        else:
            print(json.dumps(deployer.deploy(arguments.assembly), indent=2))
    except DeployError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
