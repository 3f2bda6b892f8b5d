"""The owner's view: one dashboard and a few alarms, from metrics that AWS services publish anyway."""

from collections.abc import Mapping
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct
from moorage.limits import SANDBOX_CPU_UNITS as CPU_UNITS
from moorage.store import schema

from infra.config import Config
from infra.functions import given_key
from infra.nag import acknowledge
from infra.prices import DEFAULT_REGION, HOURS_A_MONTH, PRICES

_PERIOD: Final = cdk.Duration.minutes(5)
_COST_PERIOD: Final = cdk.Duration.hours(1)
DEPLOYMENT_TAG: Final = "moorage:deployment"
RUNBOOK: Final = "docs/runbook.md"
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
        table: dynamodb.ITable,
        functions: dict[str, lambda_.Function],
        all_functions: list[lambda_.Function],
    ) -> None:
        """``functions`` are shown one by one, ``all_functions`` count for the cost."""
        super().__init__(scope, construct_id)
        self._service = config.name
        self._topics = self._find_topics(config)
        self._alarm("LoopFailed", machine.metric_failed(period=_PERIOD), 1, "A response's execution failed: see its events.")
        self._alarm("LoopTimedOut", machine.metric_timed_out(period=_PERIOD), 1, "A response's execution ran out of time.")
        self._alarm("ApiErrors", rest_api.metric_server_error(period=_PERIOD, statistic="Sum"), 5, "The API answers 5xx.")
        # Without a function's name these would count all functions of the account, and a sum of several costs as much as each alone.
        (expiry,) = [function for function in all_functions if function.node.id == "Expiry"]
        self._alarm_of_reaper(expiry)
        throttles = functions["ModelStep"].metric_throttles(period=_PERIOD)
        self._alarm("Throttled", throttles, 1, "The account's Lambda concurrency is used up ('moorage doctor' shows the quota).")
        if self._topics:
            self._alarms_to_be_heard(config, table, all_functions)
        # Dashboards are of the account, not of a region: one name in two regions would be one dashboard.
        name = f"{config.name}-{cdk.Stack.of(self).region}"
        dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=name, period_override=cloudwatch.PeriodOverride.AUTO)
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
        if config.has_fargate or config.has_microvms:
            dashboard.add_widgets(
                graph("Sandbox start (ms)", self._own("SandboxStart", "p50"), self._own("SandboxStart", "p99")),
                graph("Sandboxes alive", self._own("SandboxesAlive", "Maximum")),
                graph("Egress: denied, proxy down", self._own("EgressDenied", "Sum"), self._own("ProxyDown", "Sum")),
            )
        if config.settings.warm_pool:
            dashboard.add_widgets(graph("Warm pool", self._own("WarmPoolHits", "Sum"), self._own("WarmPoolMisses", "Sum")))

        dashboard.add_widgets(Costs(config, rest_api, machine, table, functions, all_functions).widget())

    def _find_topics(self, config: Config) -> list[sns.ITopic]:
        topics: list[sns.ITopic] = [self._make_topic(config, config.alarm_email)] if config.alarm_email else []
        if config.alarm_topic_arn:
            topics.append(sns.Topic.from_topic_arn(self, "GivenTopic", config.alarm_topic_arn))
        return topics

    def _make_topic(self, config: Config, email: str) -> sns.Topic:
        topic = sns.Topic(self, "Alarms", enforce_ssl=True, master_key=given_key(self, "Alarms", config))
        stack = cdk.Stack.of(self)
        alarms = stack.format_arn(
            service="cloudwatch", resource="alarm", resource_name="*", arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
        )
        # A policy of a topic's own takes the place of SNS's, which lets the services of the account publish
        # (https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Notify_Users_Alarm_Changes.html).
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": stack.account}, "ArnLike": {"aws:SourceArn": alarms}},
            )
        )
        acknowledge(topic, "AwsSolutions-SNS2", "Alarm texts name metrics, no content; a key for them would cost $1 a month.")
        topic.add_subscription(subscriptions.EmailSubscription(email))
        return topic

    def _alarms_to_be_heard(self, config: Config, table: dynamodb.ITable, functions: list[lambda_.Function]) -> None:
        """Only with a recipient: each costs, and an alarm that nobody hears is none."""
        for function in functions:
            if function.node.id in ("Recovery", "Retirement", "Placement"):
                self._alarm_of_reaper(function)
            if function.node.id == "Authorizer":
                self._alarm("AuthorizerFailed", function.metric_errors(period=_PERIOD), 20, "The authorizer fails or is attacked.")
        for kind in ("Read", "Write"):
            throttled = table.metric(f"{kind}ThrottleEvents", statistic="Sum", period=_PERIOD)
            self._alarm(f"Table{kind}sThrottled", throttled, 1, f"The table throttles {kind.lower()}s.")
        if config.has_egress:
            self._alarm("ProxyDown", self._own("ProxyDown", "Sum"), 3, "The egress proxy is wanted and does not run.")
        if config.has_microvms:
            wrong = self._own("WrongNetwork", "Sum")
            self._alarm("WrongNetwork", wrong, 1, "AWS gave a MicroVM another network than was asked for. It was ended.")
        if config.sandboxes_alarm:
            alive = self._own("SandboxesAlive", "Maximum")
            self._alarm("ManySandboxes", alive, config.sandboxes_alarm, "More sandboxes are alive than sandboxes_alarm expects.")
        if config.monthly_budget:
            self._budget(config)

    def _alarm_of_reaper(self, function: lambda_.Function) -> None:
        name, errors = function.node.id, function.metric_errors(period=_PERIOD)
        self._alarm(f"{name}Failed", errors, 3, f"The function {name} fails again and again: sandboxes may run on and be billed.")

    def _budget(self, config: Config) -> None:
        budget = budgets.CfnBudget
        recipients = {"EMAIL": config.alarm_email, "SNS": config.alarm_topic_arn}
        budget(
            self,
            "Budget",
            budget=budget.BudgetDataProperty(
                # Without a name: another recipient makes it anew, while the one before it exists.
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budget.SpendProperty(amount=config.monthly_budget, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:{DEPLOYMENT_TAG}${config.name}"]},
            ),
            notifications_with_subscribers=[
                budget.NotificationWithSubscribersProperty(
                    notification=budget.NotificationProperty(
                        comparison_operator="GREATER_THAN", notification_type=reached, threshold=percent, threshold_type="PERCENTAGE"
                    ),
                    subscribers=[
                        budget.SubscriberProperty(subscription_type=kind, address=address)
                        for kind, address in recipients.items()
                        if address
                    ],
                )
                for reached, percent in (("ACTUAL", 80), ("FORECASTED", 100))
            ],
        )

    def _alarm(self, name: str, metric: cloudwatch.IMetric, threshold: int, description: str) -> None:
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            threshold=threshold,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=described(name, description),
        )
        for topic in self._topics:
            alarm.add_alarm_action(actions.SnsAction(topic))

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


def described(name: str, description: str) -> str:
    """The message of an alarm: a sentence, and the place of the remedy's steps."""
    return f"{description} What to do: {RUNBOOK}#{name.lower()}"


class Costs:
    """An estimate of what is paid by the hour, from metrics that are there anyway and list prices (``infra/prices.py``).

    Model tokens, S3 requests and log lines are left out: no metric without a price of its own counts them.
    """

    def __init__(
        self,
        config: Config,
        rest_api: apigateway.RestApi,
        machine: stepfunctions.StateMachine,
        table: dynamodb.ITable,
        steps: dict[str, lambda_.Function],
        functions: list[lambda_.Function],
    ) -> None:
        region = cdk.Stack.of(rest_api).region
        self._region = region if region in PRICES else DEFAULT_REGION
        self._prices = PRICES[self._region]
        self._config, self._rest_api, self._machine, self._table = config, rest_api, machine, table
        self._steps, self._functions = steps, functions

    def widget(self) -> cloudwatch.IWidget:
        parts = [self._at_rest(), self._gateway(), self._lambda(), self._transitions()]
        if not self._config.table_read_units:
            parts.append(self._units())
        if self._config.has_fargate:
            parts.append(self._sandboxes())
        return cloudwatch.GraphWidget(
            title=f"Estimated cost ($ an hour, list prices of {self._region})", left=parts, stacked=True, width=24
        )

    def _at_rest(self) -> cloudwatch.IMetric:
        hour = self._prices.at_rest(self._config) / HOURS_A_MONTH
        return self._expression("At rest", f"TIME_SERIES({hour:.6f})", {})

    def _gateway(self) -> cloudwatch.IMetric:
        price = self._prices.api_request
        return self._expression("API Gateway", f"requests * {_plain(price)}", {"requests": self._rest_api.metric_count()})

    def _lambda(self) -> cloudwatch.IMetric:
        metrics: dict[str, cloudwatch.IMetric] = {}
        seconds, calls = [], []
        for number, function in enumerate(self._functions):
            metrics[f"d{number}"] = function.metric_duration(statistic="Sum")
            metrics[f"n{number}"] = function.metric_invocations()
            seconds.append(f"FILL(d{number}, 0) / 1000 * {_memory_mib(function) / 1024:g}")
            calls.append(f"FILL(n{number}, 0)")
        prices = self._prices
        used = f"({' + '.join(seconds)}) * {_plain(prices.lambda_gb_second)}"
        expression = f"{used} + ({' + '.join(calls)}) * {_plain(prices.lambda_request)}"
        return self._expression("Lambda", expression, metrics)

    def _transitions(self) -> cloudwatch.IMetric:
        """Two for each model step (itself and the choice after it), one for each tool step, two for each execution. Step Functions'
        own metric counts those of the whole account."""
        model, tool = self._steps["ModelStep"].metric_invocations(), self._steps["ToolStep"].metric_invocations()
        expression = f"(2 * FILL(model, 0) + FILL(tool, 0) + 2 * FILL(started, 0)) * {_plain(self._prices.transition)}"
        return self._expression("Step Functions", expression, {"model": model, "tool": tool, "started": self._machine.metric_started()})

    def _units(self) -> cloudwatch.IMetric:
        index = {"TableName": self._table.table_name, "GlobalSecondaryIndexName": schema.INDEX}
        metrics = {
            "w": self._table.metric_consumed_write_capacity_units(),
            "r": self._table.metric_consumed_read_capacity_units(),
            "wi": self._table.metric("ConsumedWriteCapacityUnits", dimensions_map=index, statistic="Sum"),
            "ri": self._table.metric("ConsumedReadCapacityUnits", dimensions_map=index, statistic="Sum"),
        }
        write, read = _plain(self._prices.write_unit), _plain(self._prices.read_unit)
        expression = f"(FILL(w, 0) + FILL(wi, 0)) * {write} + (FILL(r, 0) + FILL(ri, 0)) * {read}"
        return self._expression("DynamoDB", expression, metrics)

    def _sandboxes(self) -> cloudwatch.IMetric:
        """The reaper counts them once a minute; their size is taken for the smallest."""
        minute = 60 * (CPU_UNITS["1g"] / 1024 * self._prices.fargate_vcpu_second + self._prices.fargate_gb_second)
        alive = cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name="SandboxesAlive",
            dimensions_map={"service": self._config.name},
            statistic="Sum",
        )
        return self._expression("Sandboxes (as if of 1g)", f"FILL(alive, 0) * {_plain(minute)}", {"alive": alive})

    def _expression(self, label: str, expression: str, metrics: Mapping[str, cloudwatch.IMetric]) -> cloudwatch.IMetric:
        return cloudwatch.MathExpression(label=label, expression=expression, using_metrics=metrics, period=_COST_PERIOD)


def _memory_mib(function: lambda_.Function) -> float:
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    assert resource.memory_size is not None
    return resource.memory_size


def _plain(price: float) -> str:
    """Metric math knows no exponents."""
    return f"{price:.12f}".rstrip("0")
