"""What the owner looks at: one dashboard and a few alarms, from metrics that AWS services publish anyway."""

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra.config import Config
from infra.nag import acknowledge

_PERIOD: Final = cdk.Duration.minutes(5)
METRICS_NAMESPACE: Final = "moorage"
"""Metrics that the steps write themselves (embedded metric format in their logs)."""


class Observability(Construct):
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: Config,
        rest_api: apigateway.RestApi,
        machine: stepfunctions.StateMachine,
        table: dynamodb.Table,
        functions: dict[str, lambda_.Function],
        cluster_name: str | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._service = config.name
        self._topic = self._make_topic(config.alarm_email)
        self._alarm("LoopFailed", machine.metric_failed(period=_PERIOD), 1, "A response's execution failed: see its events.")
        self._alarm("LoopTimedOut", machine.metric_timed_out(period=_PERIOD), 1, "A response's execution ran out of time.")
        self._alarm("ApiErrors", rest_api.metric_server_error(period=_PERIOD, statistic="Sum"), 5, "The API answers 5xx.")
        throttles = cloudwatch.Metric(namespace="AWS/Lambda", metric_name="Throttles", statistic="Sum", period=_PERIOD)
        self._alarm("Throttled", throttles, 1, "The account's Lambda concurrency is used up ('moorage doctor' shows the quota).")
        dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=config.name, period_override=cloudwatch.PeriodOverride.AUTO)
        graph = self._graph
        dashboard.add_widgets(
            graph("Requests", rest_api.metric_count(), rest_api.metric_client_error(), rest_api.metric_server_error()),
            graph("Latency of the gateway (ms)", rest_api.metric_latency(statistic="p50"), rest_api.metric_latency(statistic="p99")),
            graph("Time to first token (ms)", self._own("TimeToFirstToken", "p50"), self._own("TimeToFirstToken", "p99")),
        )
        dashboard.add_widgets(
            graph("Loops", machine.metric_started(), machine.metric_succeeded(), machine.metric_failed()),
            graph("Rounds", self._own("Rounds", "Sum"), self._own("ToolCalls", "Sum")),
            graph("Tokens", self._own("InputTokens", "Sum"), self._own("OutputTokens", "Sum"), self._own("CachedTokens", "Sum")),
        )
        dashboard.add_widgets(
            graph("Functions: running", *(f.metric("ConcurrentExecutions", statistic="Maximum") for f in functions.values())),
            graph("Errors: requests and responses", self._own("Errors", "Sum")),
            graph("Functions: errors", *(f.metric_errors() for f in functions.values())),
            graph(
                "Table (consumed units)",
                table.metric_consumed_write_capacity_units(),
                table.metric_consumed_read_capacity_units(),
            ),
        )
        if cluster_name:
            dashboard.add_widgets(
                graph("Sandbox start (ms)", self._own("SandboxStart", "p50"), self._own("SandboxStart", "p99")),
                graph("Sandboxes alive", self._own("SandboxesAlive", "Maximum")),
                graph("Denied egress", self._own("EgressDenied", "Sum")),
            )
        if config.warm_pool:
            dashboard.add_widgets(graph("Warm pool", self._own("WarmPoolHits", "Sum"), self._own("WarmPoolMisses", "Sum")))

    def _make_topic(self, email: str | None) -> sns.Topic | None:
        if email is None:
            return None
        topic = sns.Topic(self, "Alarms", enforce_ssl=True)
        acknowledge(topic, "AwsSolutions-SNS2", "Alarm texts name metrics, no content; a key for them would cost $1 a month.")
        topic.add_subscription(subscriptions.EmailSubscription(email))
        return topic

    def _alarm(self, name: str, metric: cloudwatch.IMetric, threshold: int, description: str) -> None:
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            threshold=threshold,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=description,
        )
        if self._topic:
            alarm.add_alarm_action(actions.SnsAction(self._topic))

    def _own(self, name: str, statistic: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=name,
            dimensions_map={"service": self._service},
            statistic=statistic,
            period=_PERIOD,
        )

    def _graph(self, title: str, *metrics: cloudwatch.IMetric) -> cloudwatch.IWidget:
        return cloudwatch.GraphWidget(title=title, left=list(metrics), width=8)
