"""Sandboxes as Lambda MicroVMs: what functions are told and may do. **Not yet run on AWS.**

Images and network connector are the owner's and come by ARN (``docs/aws.md`` says how they are made): nothing of this stack has to
be rebuilt with them, and no VPC is deployed, because a VM is reached by its public endpoint with a token of AWS's own.
"""

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_

from infra.config import Config


class Microvms:
    """Everything that ``sandbox/lambda_microvm.py`` names in its calls."""

    def __init__(self, config: Config) -> None:
        assert config.microvm_egress_connector is not None
        self._images = config.microvm_images
        self._connector = config.microvm_egress_connector

    def grant_start(self, function: lambda_.Function) -> None:
        """Run, wake and reach VMs. They are given no role, so there is none to pass."""
        self._grant_reach(function)
        self._allow(function, "lambda:RunMicrovm", "lambda:ResumeMicrovm")
        # With "*" a function could hand a VM AWS's INTERNET_EGRESS. The default ingress has to be passed too.
        _, partition, _, region, *_ = self._connector.split(":")
        ingress = f"arn:{partition}:lambda:{region}:aws:network-connector:aws-network-connector:HTTP_INGRESS"
        function.add_to_role_policy(iam.PolicyStatement(actions=["lambda:PassNetworkConnector"], resources=[ingress, self._connector]))

    def grant_stop(self, function: lambda_.Function) -> None:
        """End VMs, and look into them before, for the functions that can see whether one is dead, and for a container's deletion."""
        self._grant_reach(function)
        self._allow(function, "lambda:TerminateMicrovm")

    def grant_list(self, function: lambda_.Function) -> None:
        """See which VMs live, for the function that ends lost ones. A list takes no resource."""
        self._allow(function, "lambda:ListTags")
        function.add_to_role_policy(iam.PolicyStatement(actions=["lambda:ListMicrovms"], resources=["*"]))

    @property
    def environment(self) -> dict[str, str]:
        """``MOORAGE_MICROVM_*`` as ``sandbox/lambda_microvm.py`` reads them."""
        images = {f"MOORAGE_MICROVM_IMAGE_{tier.upper()}": arn for tier, arn in self._images.items()}
        return {"MOORAGE_MICROVM_EGRESS_CONNECTOR": self._connector, **images}

    def _grant_reach(self, function: lambda_.Function) -> None:
        self._allow(function, "lambda:GetMicrovm", "lambda:CreateMicrovmAuthToken")

    def _allow(self, function: lambda_.Function, *actions: str) -> None:
        """Rights over VMs are rights over the images that they run."""
        function.add_to_role_policy(iam.PolicyStatement(actions=list(actions), resources=sorted(self._images.values())))
