"""Two stacks: ``<name>-state`` stays, ``<name>`` is everything else and may come and go."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_secretsmanager as secrets
from constructs import Construct
from moorage.settings import VARIABLES, Settings, written

from infra.agent_loop import AgentLoop, grant_executions, grant_start_of_executions, machine_arn, reads_in_microvms
from infra.api import BUFFERED_TIMEOUT, OTHERS, STREAM_SECONDS_MAX, STREAM_TIMEOUT, Api, Handlers
from infra.bundling import ROOT
from infra.config import Config, ConfigError, Models
from infra.custom_resource import CustomResources, VectorBucketResource
from infra.egress import EgressProxy
from infra.functions import REAPER_MEMORY_MIB, FunctionFactory, audit_log_group, live
from infra.images import PYTHON_3_13, ContainerImage
from infra.microvms import Microvms
from infra.nag import acknowledge
from infra.network import GivenNetwork, IsolatedNetwork, Network
from infra.observability import DEPLOYMENT_TAG, Observability, described
from infra.prices import sandbox_price
from infra.sandbox import SandboxTask, programs
from infra.state import State
from infra.websocket import DOOR_TIMEOUT, WORK_AGE_MAX, WORK_ATTEMPTS, WebSocketDoor

MODELS_FILE: Final = ROOT / "models.toml"
TITAN: Final = "amazon.titan-embed-text-v2:0"
PROXY_CONTEXT: Final = {
    "Dockerfile": ROOT / "functions" / "egress_proxy" / "Dockerfile",
    "requirements/egress.txt": ROOT / "requirements" / "egress.txt",
    "layers/core/python/moorage": ROOT / "layers" / "core" / "python" / "moorage",
    "functions/egress_proxy": ROOT / "functions" / "egress_proxy",
}
"""What ``functions/egress_proxy/Dockerfile`` copies."""

_NO_SANDBOXES: Final = dict.fromkeys(("MOORAGE_FARGATE_CLUSTER", "MOORAGE_FARGATE_SUBNETS", "MOORAGE_FARGATE_SECURITY_GROUP"), "none")
"""Without a task definition for any memory tier, the provisioner refuses every start and asks ECS nothing."""

_ROLLOUTS: Final = {
    "canary": codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_5_MINUTES,
    "linear": codedeploy.LambdaDeploymentConfig.LINEAR_10_PERCENT_EVERY_1_MINUTE,
}

AUTHORIZER_TIMEOUT: Final = cdk.Duration.seconds(15)
"""At its first token a process imports the code for tokens, on a seventh of a processor, and asks the issuer twice."""

_REAPER_INTERVAL: Final = cdk.Duration.minutes(1)


class StateStack(cdk.Stack):
    """Table and bucket."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config, **options: Any) -> None:
        super().__init__(scope, construct_id, termination_protection=config.retain, **options)
        self.state = State(self, "State", config=config)


class ServiceStack(cdk.Stack):
    """Network, sandboxes, loop, API and dashboard. It only connects the constructs."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config, models: Models, state: State, **options: Any) -> None:
        super().__init__(scope, construct_id, **options)
        self._config, self._models, self._state = config, models, state
        hooks = CustomResources(self, "Hooks", config=config)
        state.grant_content_key(hooks.grantee)
        self._sandbox_keys = hooks.sandbox_keys(state.content_key.secret_arn, config.content_key_edition)
        self.network = self._make_network(hooks) if config.has_fargate else None
        self.sandbox = SandboxTask(self, "Sandbox", config=config, network=self.network, hooks=hooks) if self.network else None
        self.microvms = self._make_microvms(hooks) if config.has_microvms else None
        self.egress = self._make_egress(hooks)
        self.vector_bucket = (
            hooks.kept_vector_bucket("VectorBucket", config=config, tag=DEPLOYMENT_TAG, key=state.key) if config.vector_bucket else None
        )
        factory = FunctionFactory(self, "Functions", config=config, models=models, environment=self._environment(), lists=self._lists())
        self.loop = AgentLoop(self, "AgentLoop", config=config, factory=factory, network=self.network)
        self.handlers = self._make_handlers(factory)
        self.api = Api(self, "Api", config=config, handlers=self.handlers, hooks=hooks)
        if config.computer or config.has_both:
            self._reach_inside()
        self.sockets = self._make_sockets(factory) if config.websocket else {}
        if config.rollout != "at_once":
            self._roll_out_slowly()
        self.reapers = self._make_reapers(factory)
        self._grant()
        if config.streams_percent:
            # Of its own: what the function depends on must not depend on the right to change the function.
            sharing = CustomResources(self, "Sharing", config=config, sdk=hooks.sdk)
            doors, least = (2 if self.sockets else 1), config.provisioned_concurrency
            percent = config.streams_percent // doors
            sharing.share_concurrency("Concurrency", self.handlers.responses, percent=percent, at_least=least)
            if self.sockets:
                sharing.share_concurrency("SocketConcurrency", self.sockets["SocketWork"], percent=percent, at_least=0)
        Observability(
            self,
            "Observability",
            config=config,
            rest_api=self.api.rest_api,
            machine=self.loop.machine,
            table=state.table,
            functions={"Responses": self.handlers.responses, **self.sockets, **self.loop.steps},
            all_functions=[*self.handlers.all, *self.sockets.values(), *self.loop.steps.values(), *self.reapers.values()],
        )
        cdk.CfnOutput(self, "BaseUrl", value=self.api.base_url, description="base_url of the SDKs")
        cdk.CfnOutput(self, "ApiId", value=self.api.rest_api.rest_api_id)
        cdk.CfnOutput(self, "TableName", value=state.table.table_name)
        cdk.CfnOutput(self, "BucketName", value=state.bucket.bucket_name)
        cdk.CfnOutput(self, "StateMachineArn", value=self.loop.machine.state_machine_arn)
        if config.oidc and config.oidc.client_secret:
            secret = secrets.Secret.from_secret_complete_arn(self, "OidcClientSecret", config.oidc.client_secret)
            # As an encrypted variable, filled by CloudFormation; the template has only the reference.
            self.handlers.responses.add_environment("MOORAGE_OIDC_CLIENT_SECRET", secret.secret_value.unsafe_unwrap())
        if config.audit_retention_days:
            self._keep_audit_trail()
        if self.egress:
            cdk.CfnOutput(self, "SecretsKeyArn", value=self.egress.secrets_key.key_arn)

    def _environment(self) -> dict[str, str]:
        """The environment of every function. Reading it again here fails at synthesis, and not at the start of a function."""
        config = self._config
        price, source = sandbox_price(config, self.region)
        told_elsewhere: dict[str, Any] = {"allowed_egress_domains": (), "cors_origins": (), "otlp_endpoint": None}
        settings = Settings(
            **asdict(replace(config.settings, sandbox_price=price, sandbox_programs=programs(config), **told_elsewhere)),
            name=config.name,
            content_key_edition=config.content_key_edition,
            table_name=self._state.table.table_name,
            bucket_name=self._state.bucket.bucket_name,
            state_machine_arn=machine_arn(self, config),
            provisioner="by_tier" if config.has_both else "lambda_microvm" if config.has_microvms else "fargate",
            presigned_downloads=True,
            retention_seconds=config.retention_days * 86_400,
            sandbox_price_source=source,
            sandbox_browser=config.computer,
        )
        environment = {
            **settings.to_environment(),
            **(self.sandbox.environment if self.sandbox else {} if self.microvms else _NO_SANDBOXES),
            **(self.microvms.environment if self.microvms else {}),
            **(self.egress.environment if self.egress else {}),
        }
        Settings.from_environment(environment)
        return environment

    def _lists(self) -> dict[str, str]:
        """Settings without a bound of their own: 80 domains would fill a function's variables."""
        lists = {"allowed_egress_domains", "cors_origins"}
        return {name: written(getattr(self._config.settings, each.field)) for name, each in VARIABLES.items() if each.field in lists}

    def _make_network(self, hooks: CustomResources) -> Network:
        if self._config.vpc:
            return GivenNetwork(self, "Network", given=self._config.vpc, hooks=hooks)
        return IsolatedNetwork(self, "Network", config=self._config, bucket=self._state.bucket, hooks=hooks)

    def _make_microvms(self, hooks: CustomResources) -> Microvms:
        image = self.sandbox.image if self.sandbox else None
        return Microvms(self, "Microvms", config=self._config, state=self._state, hooks=hooks, image=image)

    def _make_egress(self, hooks: CustomResources) -> EgressProxy | None:
        sandboxes = self.sandbox or self.microvms
        if not (self._config.has_egress and sandboxes):
            return None
        first = (self.sandbox and self.sandbox.desk_image) or sandboxes.image
        image = ContainerImage(
            self, "ProxyImage", config=self._config, hooks=hooks, context=PROXY_CONTEXT, base=PYTHON_3_13, after=first
        )
        proxy = EgressProxy(
            self,
            "Egress",
            config=self._config,
            network=self.network,
            microvms=self.microvms,
            hooks=hooks,
            image=image,
            state=self._state,
            places_key=self._sandbox_keys.get_att_string("Places") if self.microvms else None,
        )
        if self.sandbox:
            self.sandbox.end_before(proxy.sandbox_group)
        return proxy

    def _make_handlers(self, factory: FunctionFactory) -> Handlers:
        config = self._config
        responses = factory.make(
            "Responses",
            folder="responses",
            handler="run.sh" if config.streaming else "app.handle",
            timeout=STREAM_TIMEOUT,
            memory_mib=config.model_memory_mib,
            environment={"MOORAGE_STREAM_SECONDS_MAX": str(STREAM_SECONDS_MAX)},
            is_streaming=config.streaming,
            searches=True,
        )
        return Handlers(
            responses=responses,
            containers=factory.make(
                "Containers", folder="containers", handler="handler.handle", timeout=BUFFERED_TIMEOUT, memory_mib=512
            ),
            sessions=self._make_sessions(factory),
            files=factory.make("Files", folder="files", handler="handler.handle", timeout=BUFFERED_TIMEOUT, memory_mib=1_024),
            authorizer=factory.make(
                "Authorizer",
                folder="authorizer",
                handler="handler.handle",
                timeout=AUTHORIZER_TIMEOUT,
                memory_mib=256,
                environment={"MOORAGE_USAGE_PLANS": ",".join({OTHERS: None, **config.usage_plans})} if config.usage_plans else None,
            )
            if config.authorizer
            else None,
        )

    def _make_sessions(self, factory: FunctionFactory) -> lambda_.Function:
        """People's terminals: from inside the sandboxes' network, if there is one, to sandboxes that others start."""
        network = self.network
        return factory.make(
            "Sessions",
            folder="containers",
            handler="handler.handle",
            timeout=BUFFERED_TIMEOUT,
            memory_mib=384,
            environment={**network.environment, **self._vouching} if network else None,
            vpc=network.vpc if network else None,
            subnets=network.function_subnets if network else None,
            security_groups=[network.function_group] if network else None,
        )

    @property
    def _vouching(self) -> dict[str, str]:
        """In the sandboxes' network no issuer is reached, so the authorizer's word for a token counts."""
        return {"MOORAGE_OIDC_AT_GATEWAY": "true"} if self._config.oidc and self._config.authorizer else {}

    def _make_sockets(self, factory: FunctionFactory) -> dict[str, lambda_.Function]:
        door = WebSocketDoor(self, "WebSocket", config=self._config, after=self.api.rest_api.node.find_child("Account"))
        work = factory.make(
            "SocketWork",
            folder="sockets",
            handler="work.handle",
            timeout=STREAM_TIMEOUT,
            memory_mib=self._config.model_memory_mib,
            environment={**door.environment, "MOORAGE_STREAM_SECONDS_MAX": str(STREAM_SECONDS_MAX)},
        )
        worker = live(work)
        worker.configure_async_invoke(retry_attempts=WORK_ATTEMPTS, max_event_age=WORK_AGE_MAX)
        entrance = factory.make(
            "SocketDoor",
            folder="sockets",
            handler="door.handle",
            timeout=DOOR_TIMEOUT,
            memory_mib=256,
            environment={**door.environment, "MOORAGE_WEBSOCKET_WORKER": worker.function_arn},
        )
        door.join(entrance, work, self.handlers.authorizer)
        cdk.CfnOutput(self, "WebSocketUrl", value=door.address, description="What a WebSocket client connects to")
        return {"SocketDoor": entrance, "SocketWork": work}

    def _make_reapers(self, factory: FunctionFactory) -> dict[str, lambda_.Function]:
        """Every minute: responses that lost their process, containers and sandboxes that nobody uses, and, from inside the sandboxes'
        network, a look whether one still works."""
        network = self.network
        recovery = factory.make(
            "Recovery",
            folder="reaper",
            handler="handler.recover_responses",
            timeout=cdk.Duration.minutes(5),
            memory_mib=REAPER_MEMORY_MIB,
        )
        expiry = factory.make(
            "Expiry",
            folder="reaper",
            handler="handler.expire_containers",
            timeout=cdk.Duration.minutes(5),
            memory_mib=REAPER_MEMORY_MIB,
            searches=True,
        )
        reapers = {"Recovery": recovery, "Expiry": expiry}
        if network:
            reapers["Retirement"] = factory.make(
                "Retirement",
                folder="reaper",
                handler="handler.retire_sandboxes",
                timeout=cdk.Duration.minutes(5),
                memory_mib=REAPER_MEMORY_MIB,
                environment=network.environment,
                vpc=network.vpc,
                subnets=network.function_subnets,
                security_groups=[network.function_group],
            )
            reapers["Placement"] = self._make_placement(factory)
        events.Rule(
            self,
            "EveryMinute",
            schedule=events.Schedule.rate(_REAPER_INTERVAL),
            targets=[targets.LambdaFunction(function, retry_attempts=0) for name, function in reapers.items() if name != "Placement"],
        )
        return reapers

    def _roll_out_slowly(self) -> None:
        """CodeDeploy turns the alias to a new version of the streaming function bit by bit, and back if it fails meanwhile."""
        alias = self.handlers.responses.node.find_child("Live")
        assert isinstance(alias, lambda_.Alias)
        failing = cloudwatch.Alarm(
            self,
            "RolloutFails",
            metric=alias.metric_errors(period=cdk.Duration.minutes(1)),
            threshold=5,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=described(
                "RolloutFails", "The new version of the streaming function fails; CodeDeploy goes back to the one before."
            ),
        )
        configuration = _ROLLOUTS[self._config.rollout]
        group = codedeploy.LambdaDeploymentGroup(self, "Rollout", alias=alias, deployment_config=configuration, alarms=[failing])
        acknowledge(
            group,
            "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSCodeDeployRoleForLambdaLimited]",
            "CodeDeploy's service role takes this managed policy (CodeDeploy user guide).",
        )

    def _make_placement(self, factory: FunctionFactory) -> lambda_.Function:
        """Hears of sandboxes that run or have stopped.

        Lambda retries a failed one twice, and a waiting caller orders again after its claim. So noting a sandbox twice is harmless, and
        so is a lost note.
        """
        assert self.sandbox is not None
        function = factory.make(
            "Placement", folder="placement", handler="handler.handle", timeout=cdk.Duration.seconds(30), memory_mib=256
        )
        events.Rule(
            self,
            "SandboxChanged",
            event_pattern=events.EventPattern(
                source=["aws.ecs"],
                detail_type=["ECS Task State Change"],
                detail={"clusterArn": [self.sandbox.cluster.cluster_arn], "lastStatus": ["RUNNING", "STOPPED"]},
            ),
            targets=[targets.LambdaFunction(function)],
        )
        return function

    def _reach_inside(self) -> None:
        """Tasks of Fargate are reached from inside the sandboxes' network alone, and what is asked below ``/v1/containers`` comes to a
        function outside, which starts sandboxes. So it asks the one inside: for browsers, and for sessions beside those of MicroVMs. A
        gateway cannot: beside ``{proxy+}`` it takes no other variable, and it knows no container's tier."""
        shows = live(self.handlers.sessions) if self._config.has_both else self.handlers.sessions.node.find_child("Live")
        assert isinstance(shows, lambda_.Alias)
        shows.grant_invoke(self.handlers.containers)
        self.handlers.containers.add_environment("MOORAGE_SCREENS_FUNCTION", shows.function_arn)

    def _grant(self) -> None:
        """Each function's rights, in one place."""
        state, handlers, steps = self._state, self.handlers, self.loop.steps
        model, recovery, expiry = steps["ModelStep"], self.reapers["Recovery"], self.reapers["Expiry"]
        streaming = [handlers.responses, *(function for name, function in self.sockets.items() if name == "SocketWork")]
        serving = [*streaming, handlers.containers, handlers.sessions, handlers.files]
        for function in (*serving, *self.reapers.values(), *steps.values()):
            state.grant_all(function)
        self._tell_keys(streaming)
        askers = [*streaming, model, *([handlers.containers] if self._models.has_upstream_shell else [])]
        for function in askers:
            self._allow_model_keys(function, self._models.parameters, self._models.secrets)
            if self._models.uses_bedrock:
                _grant_bedrock(function)
            if self._models.guardrails:
                arns = [cdk.Fn.sub(f"arn:${{AWS::Partition}}:{each}") for each in self._models.guardrails]
                function.add_to_role_policy(iam.PolicyStatement(actions=["bedrock:ApplyGuardrail"], resources=arns))
        if self._models.draws_by:
            arns = [cdk.Fn.sub(f"arn:${{AWS::Partition}}:{each}") for each in self._models.draws_by]
            steps["ServiceStep"].add_to_role_policy(iam.PolicyStatement(actions=["bedrock:InvokeModel"], resources=arns))
        # A service call may search files, for which its query is embedded; neither it nor the indexing asks a model that answers.
        embedders = [steps["ServiceStep"], steps["IndexStep"]]
        for function in embedders:
            self._allow_model_keys(function, self._models.embedding_parameters, self._models.embedding_secrets)
        for function in (*askers, *embedders):
            self._allow_titan(function)
        self._export_traces([*streaming, model, steps["ContinueStep"], steps["FailResponse"], recovery])
        for function in (*streaming, steps["ContinueStep"], recovery):
            grant_executions(self, self._config, function)
        for function in (model, steps["FailResponse"]):  # A session of an agent goes on when its response has ended.
            grant_start_of_executions(self, self._config, function)
        # Inside the sandboxes' network there is no way to ECS, and no right to it. Others have to do with MicroVMs alone.
        starters = [*streaming, handlers.containers, model, steps["IndexStep"], expiry]
        others = [steps["ToolStep"], steps["ParseStep"], handlers.sessions]
        if self.network:
            others = [steps["ServiceStep"], *([steps["ParseStep"]] if reads_in_microvms(self._config) else [])]
        if self.sandbox:
            for function in starters:
                self.sandbox.grant_start(function)
                self.sandbox.grant_stop(function)
        if self.microvms:
            starters += others
            for function in starters:
                self.microvms.grant_start(function)
                self.microvms.grant_stop(function)
            self.microvms.grant_clean(expiry)
        if self.egress:
            for function in starters:
                self.egress.grant_scale(function)
            for function in (*streaming, handlers.containers, recovery):  # Recovery makes the containers of automations.
                self.egress.secrets_key.grant(function, "kms:GenerateDataKey")
        if self.vector_bucket:
            self._grant_vectors(self.vector_bucket)
        if handlers.authorizer:
            state.grant_key_lookup(handlers.authorizer)
        if "SocketDoor" in self.sockets:
            state.grant_key_lookup(self.sockets["SocketDoor"])
            state.grant_sockets(self.sockets["SocketDoor"])
            if self._config.oidc:
                state.grant_token_lookup(self.sockets["SocketDoor"])

    def _grant_vectors(self, bucket: VectorBucketResource) -> None:
        """Functions that index, search, or delete files and stores: all of them outside of the sandboxes' network.

        Functions inside it work on the bucket alone. A filter takes the right to read vectors (S3 Vectors API reference,
        ``QueryVectors``).
        """
        searches, deletes = ("QueryVectors", "GetVectors"), ("DeleteVectors", "DeleteIndex")
        bucket.grant(self.loop.steps["IndexStep"], "CreateIndex", "PutVectors", *deletes)
        bucket.grant(self.loop.steps["ServiceStep"], *searches)
        bucket.grant(self.handlers.responses, *searches, *deletes)
        bucket.grant(self.handlers.files, "DeleteVectors")
        bucket.grant(self.reapers["Expiry"], *deletes)

    def _tell_keys(self, streaming: list[lambda_.Function]) -> None:
        """Grant the content key to functions that seal or open; they read it from Secrets Manager.

        Functions that start, follow or reach sandboxes get the derived key of their tokens.
        """
        steps, reapers = self.loop.steps, self.reapers
        for function in (*streaming, steps["ModelStep"], steps["ServiceStep"], steps["FailResponse"], reapers["Recovery"]):
            self._state.tell_content_key(function)
        key = self._sandbox_keys.get_att_string("Hex")
        names = ("ModelStep", "ToolStep", "IndexStep", "ParseStep", *(["ServiceStep"] if self._config.has_both else []))
        told = [steps[name] for name in names]
        watching = [reaper for name, reaper in reapers.items() if name != "Recovery"]
        for function in (*streaming, self.handlers.containers, self.handlers.sessions, *told, *watching):
            function.add_environment("MOORAGE_SANDBOX_KEY", key)

    def _export_traces(self, functions: list[lambda_.Function]) -> None:
        """Functions that end responses get the address for traces.

        They are outside of the sandboxes' network, with the internet before them; the headers come as an encrypted variable, filled by
        CloudFormation, and the template has only the reference.
        """
        if self._config.settings.otlp_endpoint is None:
            return
        for function in functions:
            function.add_environment("OTEL_EXPORTER_OTLP_ENDPOINT", self._config.settings.otlp_endpoint)
            if self._config.otlp_headers_secret:
                headers = secrets.Secret.from_secret_complete_arn(function, "OtlpHeaders", self._config.otlp_headers_secret)
                function.add_environment("OTEL_EXPORTER_OTLP_HEADERS", headers.secret_value.unsafe_unwrap())

    def _keep_audit_trail(self) -> None:
        """The API's functions add lines, and so does the reaper, because it answers expired approvals. None of them reads any."""
        group = audit_log_group(self, "Audit", self._config)
        writers = [self.handlers.responses, self.reapers["Recovery"], *([self.sockets["SocketWork"]] if self.sockets else [])]
        for function in writers:
            group.grant_write(function)
            function.add_environment("MOORAGE_AUDIT_LOG_GROUP", group.log_group_name)
        cdk.CfnOutput(self, "AuditLogGroup", value=group.log_group_name)

    def _allow_model_keys(self, function: lambda_.Function, parameters: tuple[str, ...], names: tuple[str, ...]) -> None:
        """Read the model keys that ``models.toml`` names, and no other parameter or secret."""
        arns = [self.format_arn(service="ssm", resource="parameter", resource_name=name.removeprefix("/")) for name in parameters]
        if arns:
            function.add_to_role_policy(iam.PolicyStatement(actions=["ssm:GetParameter"], resources=arns))
        stored = [self._secret_arn(name) for name in names]
        if stored:
            function.add_to_role_policy(iam.PolicyStatement(actions=["secretsmanager:GetSecretValue"], resources=stored))
        if self._config.model_keys_kms_arn and (arns or stored):
            # By the two services alone: the key opens nothing else for a function.
            services = [f"{service}.{self.region}.amazonaws.com" for service in ("secretsmanager", "ssm")]
            function.add_to_role_policy(
                iam.PolicyStatement(
                    actions=["kms:Decrypt"],
                    resources=[self._config.model_keys_kms_arn],
                    conditions={"StringEquals": {"kms:ViaService": services}},
                )
            )

    def _secret_arn(self, name: str) -> str:
        """Secrets Manager puts six characters behind a secret's name (its user guide, "Secret ARN")."""
        if not name.startswith("arn:"):
            suffixed = f"{name}-??????"
            return self.format_arn(
                service="secretsmanager", resource="secret", resource_name=suffixed, arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
            )
        region = name.split(":")[3]
        if not cdk.Token.is_unresolved(self.region) and region != self.region:
            raise ConfigError(f"models.toml: the secret {name} is in {region}, and the deployment goes to {self.region}.")
        return name

    def _allow_titan(self, function: lambda_.Function) -> None:
        """Embed texts, and ask no other model."""
        arns = [
            self.format_arn(service="bedrock", region=region, account="", resource="foundation-model", resource_name=TITAN)
            for region in self._models.titan_regions
        ]
        if arns:
            function.add_to_role_policy(iam.PolicyStatement(actions=["bedrock:InvokeModel"], resources=arns))


def _grant_bedrock(function: lambda_.Function) -> None:
    """Call models: foundation models, inference profiles, and the OpenAI-shaped endpoints."""
    function.add_to_role_policy(
        iam.PolicyStatement(
            actions=["bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream", "bedrock-mantle:CreateInference"],
            resources=["*"],
        )
    )
    # "Resource::*" of a function's role is acknowledged by the factory; models.toml says which models are offered.


def build(app: cdk.App, config: Config, *, models_file: Path = MODELS_FILE, **options: Any) -> ServiceStack:
    """Put both stacks into ``app``."""
    models = Models.from_file(models_file, config)
    for name, value in {DEPLOYMENT_TAG: config.name, **config.tags}.items():
        cdk.Tags.of(app).add(name, value)
    state = StateStack(app, f"{config.name}-state", config=config, description="moorage: table and bucket", **options)
    return ServiceStack(
        app,
        config.name,
        config=config,
        models=models,
        state=state.state,
        description="moorage: the Responses API with a computer",
        **options,
    )
