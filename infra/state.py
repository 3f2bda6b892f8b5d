"""The lasting part of a deployment: the table, the bucket, and the key that seals content."""

import string
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secrets
from constructs import Construct
from moorage.store import keys, object_keys, schema

from infra.config import Config
from infra.nag import acknowledge, acknowledge_wildcard

UPLOAD_EXPIRY_DAYS = 7
"""A multipart upload that nobody completes is dropped by S3; the Uploads API lets one live for an hour."""


_RECORD_ACTIONS: Final = [
    "dynamodb:BatchGetItem",
    "dynamodb:BatchWriteItem",
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
]
_WRITE_ACTIONS: Final = ["dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"]
_OPERATORS_PARTITIONS: Final = [f"{keys.api_key.prefix}*", keys.EGRESS_OPERATOR_SECRETS]
"""API keys and the operator's secrets: only the command line writes them, with the operator's credentials."""
_OBJECT_ACTIONS: Final = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]


def _versions(days: int) -> list[s3.LifecycleRule]:
    """Overwritten and deleted versions go after so many days, and then the mark of a deletion too."""
    if not days:
        return []
    return [s3.LifecycleRule(noncurrent_version_expiration=cdk.Duration.days(days), expired_object_delete_marker=True)]


class State(Construct):
    """One table and one bucket, as ``store/schema.py``, ``store/keys.py`` and ``store/object_keys.py`` describe them."""

    def __init__(self, scope: Construct, construct_id: str, *, config: Config) -> None:
        super().__init__(scope, construct_id)
        removal = cdk.RemovalPolicy.RETAIN if config.retain else cdk.RemovalPolicy.DESTROY
        self.key = self._find_key(config, removal)
        own_table = self._make_table(config, removal)
        self.table: dynamodb.ITable = own_table
        self.bucket: s3.IBucket = self._make_bucket(config, removal)
        self.content_key: secrets.ISecret = self._make_content_key(config, removal)
        if config.table_name and config.bucket_name:
            self._adopt(config.table_name, config.bucket_name, config.content_key_arn, [own_table.table_arn, own_table.table_name])

    def _find_key(self, config: Config, removal: cdk.RemovalPolicy) -> kms.IKey | None:
        if config.kms_key_arn:
            return kms.Key.from_key_arn(self, "GivenKey", config.kms_key_arn)
        if not config.customer_managed_key:
            return None
        key = kms.Key(self, "Key", description=f"{config.name}: table and bucket", enable_key_rotation=True, removal_policy=removal)
        if config.vector_bucket:
            self._let_vectors_be_indexed(key, config)
        return key

    def _let_vectors_be_indexed(self, key: kms.Key, config: Config) -> None:
        """S3 Vectors arranges vectors in the background, as nobody's role (user guide, "Data protection and encryption")."""
        stack = cdk.Stack.of(self)
        bucket = stack.format_arn(service="s3vectors", resource="bucket", resource_name=f"{config.name}-vectors")
        key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("indexing.s3vectors.amazonaws.com")],
                actions=["kms:Decrypt"],
                resources=["*"],
                conditions={"StringEquals": {"aws:SourceAccount": stack.account}, "ArnLike": {"aws:SourceArn": f"{bucket}*"}},
            )
        )

    def _make_table(self, config: Config, removal: cdk.RemovalPolicy) -> dynamodb.Table:
        table = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name=schema.PARTITION_KEY, type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name=schema.SORT_KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PROVISIONED if config.table_read_units else dynamodb.BillingMode.PAY_PER_REQUEST,
            read_capacity=config.table_read_units or None,
            write_capacity=config.table_write_units or None,
            time_to_live_attribute=schema.TTL_ATTRIBUTE,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(point_in_time_recovery_enabled=True),
            # DynamoDB's own key is free; requests to the account's alias/aws/dynamodb are billed.
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if self.key else dynamodb.TableEncryption.DEFAULT,
            encryption_key=self.key,
            deletion_protection=config.retain,
            removal_policy=removal,
        )
        table.add_global_secondary_index(
            index_name=schema.INDEX,
            partition_key=dynamodb.Attribute(name=schema.INDEX_PARTITION_KEY, type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name=schema.INDEX_SORT_KEY, type=dynamodb.AttributeType.STRING),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
            read_capacity=config.table_read_units or None,
            write_capacity=config.table_write_units or None,
        )
        return table

    def _make_bucket(self, config: Config, removal: cdk.RemovalPolicy) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.KMS if self.key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=self.key,
            bucket_key_enabled=True if self.key else None,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            removal_policy=removal,
            versioned=bool(config.object_versions_days) or None,
            lifecycle_rules=[
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=cdk.Duration.days(UPLOAD_EXPIRY_DAYS)),
                # What is too long for a response's record goes after it: TTL may be two days late (DynamoDB developer guide), and a
                # response that runs writes for two days after its record.
                s3.LifecycleRule(prefix=object_keys.RESPONSE_BLOBS, expiration=cdk.Duration.days(config.retention_days + 2)),
                *_versions(config.object_versions_days),
            ],
        )
        acknowledge(
            bucket,
            "AwsSolutions-S1",
            "Every object is written and read through the API, whose access log names tenant, route and status; a second bucket of "
            "server access logs would only repeat it.",
        )
        return bucket

    def _make_content_key(self, config: Config, removal: cdk.RemovalPolicy) -> secrets.Secret:
        key = secrets.Secret(
            self,
            "ContentKey",
            description=f"{config.name}: seals encrypted_content and names sandboxes' tokens; losing it makes both unreadable",
            encryption_key=self.key,
            generate_secret_string=secrets.SecretStringGenerator(
                password_length=64,
                exclude_characters="".join(c for c in string.ascii_letters + string.punctuation if c not in string.hexdigits.lower()),
                require_each_included_type=False,
            ),
            removal_policy=removal,
        )
        acknowledge(
            key,
            "AwsSolutions-SMG4",
            "Clients hold what it has sealed, so a rotation keeps the old key beside: docs/aws.md, 'A content key that has leaked'.",
        )
        return key

    def _adopt(self, table_name: str, bucket_name: str, content_key_arn: str | None, exported: list[str]) -> None:
        """Work on what is there already. What this stack has made stays as it is: it costs nothing empty, and its exports can only go
        when no stack imports them any more."""
        stack = cdk.Stack.of(self)
        for value in (*exported, self.bucket.bucket_arn, self.bucket.bucket_name, self.content_key.secret_arn):
            stack.export_value(value)
        self.table = dynamodb.Table.from_table_attributes(self, "AdoptedTable", table_name=table_name, global_indexes=[schema.INDEX])
        self.bucket = s3.Bucket.from_bucket_name(self, "AdoptedBucket", bucket_name)
        if content_key_arn:
            self.content_key = secrets.Secret.from_secret_complete_arn(self, "AdoptedContentKey", content_key_arn)

    def tell_content_key(self, function: lambda_.Function) -> None:
        """Its ARN, and leave to read it there: no variable holds it."""
        function.add_environment("MOORAGE_CONTENT_KEY_SECRET", self.content_key.secret_arn)
        self.grant_content_key(function)

    def grant_content_key(self, grantee: iam.IGrantable) -> None:
        iam.Grant.add_to_principal(
            grantee=grantee, actions=["secretsmanager:GetSecretValue"], resource_arns=[self.content_key.secret_arn]
        )
        if self.key:
            self.key.grant_decrypt(grantee)

    def grant_all(self, function: lambda_.Function) -> None:
        """Records and objects, read and write: what ``store/table.py`` and ``store/blobs.py`` ask for, no administration, and nothing
        written that is the operator's."""
        table = self.table.table_arn
        function.add_to_role_policy(iam.PolicyStatement(actions=_RECORD_ACTIONS, resources=[table, f"{table}/index/{schema.INDEX}"]))
        function.add_to_role_policy(
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=_WRITE_ACTIONS,
                resources=[table],
                conditions={"ForAnyValue:StringLike": {"dynamodb:LeadingKeys": _OPERATORS_PARTITIONS}},
            )
        )
        function.add_to_role_policy(iam.PolicyStatement(actions=_OBJECT_ACTIONS, resources=[self.bucket.arn_for_objects("*")]))
        assert function.role is not None
        acknowledge_wildcard(
            function.role,
            f"Resource::{self._exported_bucket_arn}/*",
            "Objects are named by tenant and id, so a role names them all; the application puts the tenant into every key.",
        )
        function.add_to_role_policy(iam.PolicyStatement(actions=["s3:ListBucket"], resources=[self.bucket.bucket_arn]))
        self.grant_key(function)

    def grant_key(self, grantee: iam.IGrantable) -> None:
        """The rights under a customer-managed key for each reader or writer of the table or the bucket."""
        if self.key:
            self.key.grant(grantee, "kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey")

    @property
    def _exported_bucket_arn(self) -> str:
        """The other stack's import name of the bucket's ARN: cdk-nag prints it in its place."""
        stack = cdk.Stack.of(self)
        if not cdk.Token.is_unresolved(self.bucket.bucket_name):
            return f"arn:{stack.partition}:s3:::{self.bucket.bucket_name}"
        name: str = stack.resolve(stack.export_value(self.bucket.bucket_arn))["Fn::ImportValue"]
        return name

    def grant_key_lookup(self, grantee: iam.IGrantable) -> None:
        """Read API key records (``K#...``) and nothing else."""
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["dynamodb:GetItem"],
            resource_arns=[self.table.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{keys.api_key.prefix}*"]}},
        )
        if self.key:
            self.key.grant_decrypt(grantee)

    def grant_token_lookup(self, grantee: iam.IGrantable) -> None:
        """Whether a session was ended (``CODE#...``), and whether its tenant has a budget, and nothing else."""
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["dynamodb:GetItem"],
            resource_arns=[self.table.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [keys.console_code("*"), keys.budgets("*")]}},
        )

    def grant_sockets(self, grantee: iam.IGrantable) -> None:
        """Records of WebSocket connections (``WS#...``) and nothing else."""
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=[
                "dynamodb:BatchWriteItem",
                "dynamodb:DeleteItem",
                "dynamodb:GetItem",
                "dynamodb:PutItem",
                "dynamodb:Query",
                "dynamodb:UpdateItem",
            ],
            resource_arns=[self.table.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{keys.socket.prefix}*"]}},
        )
        self.grant_key(grantee)
