"""What cdk.json, the command line and models.toml may say of a deployment, and what is refused with one sentence."""

import ast
import json
import re
import subprocess
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from moorage.limits import TENANT_SANDBOXES_MAX, TENANT_STARTS_PER_SECOND, TENANT_VCPUS_MAX
from moorage.model import embedding_models
from moorage.settings import GROUPS, VARIABLES, OperatorSettings, Settings

from infra.app import check_microvms, check_region
from infra.config import Config, ConfigError, Models
from infra.stacks import TITAN
from tests.infra.conftest import BOTH, COMPANY, EVERYTHING, GIVEN_GROUPS, GIVEN_VPC, MICROVM_VPC, MICROVMS, ROOT, Stacks
from tests.infra.synthesis import context_of, program

WRONG = {
    "an unknown setting": ({"provisoner": "fargate"}, "there is no setting 'provisoner'"),
    "a value outside a closed set": ({"provisioner": "ec2"}, "'provisioner'"),
    "a memory tier that does not exist": ({"memory_tiers": ["2g"]}, "'memory_tiers': takes one or more of 1g, 4g, 16g, 64g"),
    "a collector that is no address": ({"otlp_endpoint": "collector:4318"}, "'otlp_endpoint'"),
    "headers in clear": ({"otlp_endpoint": "https://x", "otlp_headers_secret": "authorization=x"}, "'otlp_headers_secret'"),
    "headers of no collector": (
        {"otlp_headers_secret": "arn:aws:secretsmanager:us-east-1:000000000000:secret:otlp-Ab12Cd"},
        "otlp_headers_secret needs otlp_endpoint",
    ),
    "a URL where a domain is wanted": (
        {"allowed_egress_domains": ["https://pkg.example.com"]},
        "'allowed_egress_domains' takes domain names",
    ),
    "a domain without its certificate": ({"domain_name": "api.example.com"}, "belong together"),
    "a name of no WebSocket API": (
        {
            "websocket_domain_name": EVERYTHING["websocket_domain_name"],
            "websocket_certificate_arn": EVERYTHING["websocket_certificate_arn"],
        },
        "websocket_domain_name needs websocket",
    ),
    "a name of the WebSocket API without its certificate": (
        {"websocket": True, "websocket_domain_name": "socket.example.com"},
        "belong together",
    ),
    "one name of two kinds of API": (
        {**EVERYTHING, "websocket_domain_name": EVERYTHING["domain_name"]},
        "API Gateway maps a name to one kind of API",
    ),
    "a version of TLS that is too old": ({"tls_minimum": "1.1"}, "'tls_minimum'"),
    "a private API by the id of its VPC": ({"private_api": "vpc-0123456789abcdef0"}, "takes ids such as 'vpce-0123456789abcdef0'"),
    "a private API with a public part": (
        {"private_api": "vpce-0123456789abcdef0", "websocket": True},
        "private_api and websocket do not go together: a WebSocket API is public",
    ),
    "any origin of pages": ({"cors_origins": ["*"]}, "takes origins such as 'https://app.example.com'"),
    "an origin that closes the template's text": ({"cors_origins": ['https://a.example"']}, "takes origins such as"),
    "tokens for anybody": (
        {"oidc": {"issuer": "https://a.example", "tenants": ["a"]}},
        "oidc.issuer needs oidc.audience, oidc.client_id or both",
    ),
    "an issuer in clear text": (
        {"oidc": {"issuer": "http://a.example", "audience": "a", "tenants": ["a"]}},
        "'oidc.issuer' takes an address that begins with https",
    ),
    "tokens of no tenant": (
        {"oidc": {"issuer": "https://a.example", "audience": "a", "tenants": []}},
        "oidc.issuer needs oidc.tenants",
    ),
    "a proxy without Fargate": ({"provisioner": "none", "allowed_egress_domains": ["pkg.example.com"]}, "needs sandboxes"),
    "MicroVMs of 64 GiB": ({**MICROVMS, "memory_tiers": ["1g", "64g"]}, "memory_tiers cannot have 64g"),
    "logs of MicroVMs": ({**MICROVMS, "sandbox_logs": True}, "sandbox_logs needs provisioner 'fargate'"),
    "a base image for Fargate": ({"microvm_base_version": "1"}, "microvm_base_version needs provisioner 'lambda_microvm'"),
    "a base image's version as Lambda echoes it": ({**MICROVMS, "microvm_base_version": "1.0"}, "'microvm_base_version'"),
    "a proxy for MicroVMs in an owner's VPC": (
        {**MICROVMS, "vpc": MICROVM_VPC, "allowed_egress_domains": ["pkg.example.com"]},
        "allowed_egress_domains does not go with vpc and provisioner 'lambda_microvm'",
    ),
    "a warm pool of no memory tier": ({"warm_pool": ["2g:1"]}, "'warm_pool' takes a memory tier (1g, 4g, 16g, 64g)"),
    "a warm pool of a tier that is not deployed": ({"memory_tiers": ["1g"], "warm_pool": "4g:1"}, "which memory_tiers leaves out"),
    "a warm pool without Fargate": ({"provisioner": "none", "warm_pool": "1g:1"}, "warm_pool needs provisioner 'fargate'"),
    "a warm pool of MicroVMs": ({**MICROVMS, "warm_pool": "1g:1"}, "warm_pool needs provisioner 'fargate'"),
    "a usage plan without the function that names tenants": ({"authorizer": False, "usage_plans": {"a": {}}}, "needs authorizer"),
    "a usage plan of somebody who cannot be": ({"usage_plans": {"A B": {}}}, "takes plans by tier (a-z, 0-9 and '-')"),
    "a plan for each tenant": ({"usage_plans": {f"t{n}": {} for n in range(51)}}, "takes up to 50 tiers"),
    "a rate without a burst": ({"usage_plans": {"a": {"requests_per_second": 1}}}, "request_burst belong together"),
    "a quota that is none": ({"usage_plans": {"a": {"requests_per_month": 1}}}, "usage_plans.a.requests_per_month"),
    "started environments beyond any quota": ({"provisioned_concurrency": 5000}, "'provisioned_concurrency'"),
    "a mirror without a proxy": ({"npm_mirror": "https://npm.example.com"}, "npm_mirror needs allowed_egress_domains"),
    "a mirror by its address": ({"python_mirror": "https://10.0.0.1/simple"}, "'python_mirror'"),
    "a mirror on another port": (
        {"python_mirror": "https://python.example.com:8443/simple", "allowed_egress_domains": ["pkg.example.com"]},
        "port 80 or 443",
    ),
    "a size of no proxy": ({"proxy_memory_mib": 1024}, "proxy_memory_mib needs allowed_egress_domains"),
    "a bucket without its table": ({"bucket_name": "restored"}, "table_name and bucket_name belong together"),
    "a budget that nobody hears of": ({"monthly_budget": 100}, "need alarm_email"),
    "a key by its alias": ({"kms_key_arn": "arn:aws:kms:us-east-1:111122223333:alias/data"}, "'kms_key_arn'"),
    "a key of China": ({"kms_key_arn": COMPANY["kms_key_arn"].replace("arn:aws:", "arn:aws-cn:")}, "'kms_key_arn'"),
    "two keys": ({"kms_key_arn": COMPANY["kms_key_arn"], "customer_managed_key": True}, "set one of them"),
    "a topic by its name": ({"alarm_topic_arn": "pages"}, "'alarm_topic_arn'"),
    "a web ACL of CloudFront": ({"waf_acl_arn": COMPANY["waf_acl_arn"].replace("regional", "global")}, "'waf_acl_arn'"),
    "two web ACLs": ({"waf_acl_arn": COMPANY["waf_acl_arn"], "waf": True}, "set one of them"),
    "a tag of AWS's": ({"tags": {"aws:owner": "x"}}, "'tags': takes no names that begin with 'aws:' or 'moorage'"),
    "a tag of moorage's": ({"tags": {"moorage:deployment": "x"}}, "'tags': takes no names that begin with 'aws:' or 'moorage'"),
    "a tag without a name": ({"tags": {"": "x"}}, "'tags': takes names of 1 to 128"),
    "a tag with a long value": ({"tags": {"a": "x" * 257}}, "'tags': takes names of 1 to 128 and values of up to 256"),
    "more tags than a resource takes": ({"tags": {f"t{n}": "x" for n in range(41)}}, "'tags': takes up to 40 tags"),
    "half a capacity": ({"table_read_units": 10}, "table_read_units and table_write_units belong together"),
    "a price of one number": ({"sandbox_price": [0.03]}, "'sandbox_price' takes the dollars of an hour"),
    "a price below nothing": ({"sandbox_price": [0.03, -1]}, "'sandbox_price' takes the dollars of an hour"),
    "an idle time that a pause is longer than": (
        {"auto_idle_seconds": 29},
        "'auto_idle_seconds' takes 30 to 1200 seconds, or 0, not '29'",
    ),
    "several words for one": ({"log_level": ["INFO"]}, "'log_level' takes one value"),
    "a word for a number": ({"code_seconds_max": "long"}, "'code_seconds_max' must be a whole number, not 'long'"),
    "another word for on": ({"drain": "yes"}, "'drain' is 'yes'; it takes 'true' or 'false'"),
    "an object of settings": ({"settings": {"drain": True}}, "'settings'"),
    "an issuer's setting outside of oidc": ({"oidc_issuer": "https://a.example"}, "there is no setting 'oidc_issuer'"),
    "an issuer without its address": ({"oidc": {"client_secret": EVERYTHING["otlp_headers_secret"]}}, "oidc needs issuer"),
    "more origins than a preflight compares": (
        {"cors_origins": [f"https://a{n}.example" for n in range(21)]},
        "takes up to 20 origins",
    ),
    "an idle time longer than the container's": ({"auto_idle_seconds": 1201}, "'auto_idle_seconds'"),
    "a network of the internet's": ({"vpc_cidr": "8.0.0.0/16"}, "'vpc_cidr': takes a private network such as 10.0.0.0/16"),
    "a network that EC2 does not make": ({"vpc_cidr": "10.0.0.0/8"}, "with a prefix of 16 to 20, not '10.0.0.0/8'"),
    "a network without room for three zones": ({"vpc_cidr": "10.0.0.0/21"}, "with a prefix of 16 to 20"),
    "a network that begins in its middle": ({"vpc_cidr": "10.0.0.1/16"}, "not '10.0.0.1/16'"),
    "a network that the proxy's is in": (
        {"vpc_cidr": "10.43.0.0/16", "allowed_egress_domains": ["a.example"]},
        "vpc_cidr and proxy_cidr overlap",
    ),
    "a network for no proxy": ({"proxy_cidr": "10.1.0.0/24"}, "proxy_cidr needs allowed_egress_domains"),
    "a network for no sandboxes": ({"provisioner": "none", "vpc_cidr": "10.1.0.0/16"}, "vpc_cidr needs sandboxes"),
    "a VPC by its name": ({"vpc": {**GIVEN_VPC, "id": "main"}}, "'vpc.id'"),
    "a VPC without subnets": ({"vpc": {**GIVEN_VPC, "sandbox_subnets": []}}, "'vpc.sandbox_subnets'"),
    "subnets by their names": ({"vpc": {**GIVEN_VPC, "function_subnets": "private"}}, "takes ids such as 'subnet-0123456789abcdef0'"),
    "a VPC whose endpoints cannot be reached": (
        {"vpc": {**GIVEN_VPC, "endpoint_group": None}},
        "vpc takes endpoint_group, or sandbox_group",
    ),
    "rules for groups that have theirs": ({"vpc": {**GIVEN_VPC, **GIVEN_GROUPS}}, "vpc takes endpoint_group, or sandbox_group"),
    "half of the groups": ({"vpc": {**GIVEN_VPC, "function_group": "sg-0123456789abcdef0"}}, "belong together"),
    "a group of the proxy's alone": (
        {"vpc": {**GIVEN_VPC, "proxy_group": "sg-0123456789abcdef0"}},
        "need sandbox_group and function_group",
    ),
    "a VPC without a place for the proxy": (
        {"vpc": GIVEN_VPC, "allowed_egress_domains": ["a.example"]},
        "vpc.proxy_subnets is needed with allowed_egress_domains",
    ),
    "a place for no proxy": (
        {"vpc": {**GIVEN_VPC, "proxy_subnets": "subnet-0000000000000000d"}},
        "vpc.proxy_subnets needs allowed_egress_domains",
    ),
    "a VPC that is there and one that is made": ({"vpc": GIVEN_VPC, "vpc_cidr": "10.1.0.0/16"}, "vpc_cidr is for one that is made"),
    "zones of given subnets": ({"vpc": GIVEN_VPC, "availability_zones": 2}, "availability_zones is for one that is made"),
    "a VPC for no sandboxes": ({"vpc": GIVEN_VPC, "provisioner": "none"}, "vpc needs sandboxes"),
    "a VPC without a place for functions": ({"vpc": MICROVM_VPC}, "vpc.function_subnets is needed with provisioner 'fargate'"),
    "functions of MicroVMs in a VPC": ({**MICROVMS, "vpc": GIVEN_VPC}, "vpc.function_subnets needs provisioner 'fargate'"),
    "zones of MicroVMs' given subnets": (
        {**MICROVMS, "vpc": MICROVM_VPC, "availability_zones": 2},
        "availability_zones is for one that is made",
    ),
    "browsers of MicroVMs": ({**MICROVMS, "computer": True}, "computer needs provisioner 'fargate' alone"),
    "browsers of some sandboxes": ({**BOTH, "computer": True}, "computer needs provisioner 'fargate' alone"),
    "a network of MicroVMs alone": (
        {**MICROVMS, "microvm_cidr": "10.1.0.0/16"},
        "microvm_cidr needs both provisioners: with one of them vpc_cidr has the sandboxes' addresses",
    ),
    "networks of both in one place": ({**BOTH, "microvm_cidr": "10.42.0.0/18"}, "vpc_cidr and microvm_cidr overlap"),
    "a network that the proxy's is in, of MicroVMs": ({**BOTH, "microvm_cidr": "10.43.0.0/16"}, "microvm_cidr and proxy_cidr overlap"),
    "a VPC for both": ({**BOTH, "vpc": GIVEN_VPC}, "vpc takes one provisioner for all memory tiers"),
    "MicroVMs that wait": ({**BOTH, "warm_pool": ["1g:1"]}, "warm_pool needs provisioner 'fargate'"),
    "the largest tier as MicroVMs": (
        {"provisioner": {"1g": "fargate", "64g": "lambda_microvm"}},
        "memory_tiers cannot have 64g with provisioner 'lambda_microvm': the largest MicroVM has 32 GB of memory",
    ),
    "a provisioner of a tier that is none": (
        {"provisioner": {"2g": "fargate"}},
        "'provisioner': takes 'fargate' or 'lambda_microvm' by memory tier, which are 1g, 4g, 16g, 64g",
    ),
    "a tier without sandboxes": ({"provisioner": {"1g": "none"}}, "takes 'fargate' or 'lambda_microvm' by memory tier"),
    "no tier at all": ({"provisioner": {}}, "takes 'fargate' or 'lambda_microvm' by memory tier"),
    "tiers that have no provisioner": ({**BOTH, "memory_tiers": ["1g", "4g"]}, "memory_tiers and provisioner name different tiers"),
    "browsers without sandboxes": ({"provisioner": "none", "computer": True}, "computer needs provisioner 'fargate'"),
    "a retention of no days": ({"retention_days": 0}, "'retention_days'"),
}


@pytest.mark.parametrize(("settings", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_setting_is_refused_with_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config.from_context({"moorage": settings})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


NOT_ON_AWS = {
    "MOORAGE_STORE_DIR": "records and files are in DynamoDB and S3",
    "MOORAGE_RUNNING_RESPONSES_MAX": "the concurrency of the functions bounds them",
    "MOORAGE_CONTENT_KEY": "functions read it from Secrets Manager",
    "MOORAGE_DOCKER_": "sandboxes are Fargate tasks",
    "MOORAGE_EGRESS_ALLOWED_NETWORKS": "no route leads from the proxy's network to a private one",
    "MOORAGE_EGRESS_CA": "the CA is kept in the table, sealed",
    "MOORAGE_EGRESS_PLACES_KEY": "each Fargate task has an address of its own; with provisioner 'lambda_microvm' it is set",
    "MOORAGE_EGRESS_PORTS": "the security groups open 80 and 443",
    "MOORAGE_EXECUTIONS_FILE": "Step Functions keeps where executions stand",
    "MOORAGE_FETCH_ALLOWED_NETWORKS": "the API's functions have no route to a private network",
    "MOORAGE_JSON_SILENCE_SECONDS": "API Gateway waits five minutes for the next byte",
    "MOORAGE_LAUNCHER_SOCKET": "there is no launcher",
    "MOORAGE_AUDIT_FILE": "the audit trail goes to a log group",
    "MOORAGE_LOG_FILE": "CloudWatch keeps what functions print",
    "MOORAGE_MICROVM_": "sandboxes are Fargate tasks; with provisioner 'lambda_microvm' they are set",
    "MOORAGE_MODELS_FILE": "models.toml lies beside each function",
    "OTEL_SERVICE_NAME": "the traces bear the deployment's name",
}
"""Settings that the deployment leaves alone, and why."""


def test_every_setting_is_set_by_the_deployment_or_left_alone_for_a_reason(everything: Stacks) -> None:
    """What is left to its default is not rendered: such a setting is one that the CDK app passes on."""
    source = ast.parse((ROOT / "infra" / "stacks.py").read_text())
    calls = [node for node in ast.walk(source) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Settings"]
    passed_on = {keyword.arg for call in calls for keyword in call.keywords} | {setting.name for setting in fields(OperatorSettings)}
    read = {name for name, variable in VARIABLES.items() if variable.field not in passed_on} | set(GROUPS.values())
    functions = everything.of_type("AWS::Lambda::Function").values()
    told = {name for f in functions for name in f.get("Environment", {}).get("Variables", {})}
    told |= {"MOORAGE_FARGATE_" for name in told if name.startswith("MOORAGE_FARGATE_")}
    told |= {
        variable["Name"]
        for task in everything.of_type("AWS::ECS::TaskDefinition").values()
        for container in task["ContainerDefinitions"]
        for variable in container.get("Environment", [])
    }
    assert read - told == set(NOT_ON_AWS)


def test_the_command_line_overrides_cdk_json() -> None:
    context = {
        "moorage": {"retention_days": 7, "memory_tiers": ["1g"]},
        "moorage:retention_days": "90",
        "moorage:memory_tiers": "4g,1g",
        "moorage:waf": "true",
        "moorage:tls_minimum": "1.2",
        "moorage:content_key_edition": "2",
        "moorage:image_edition": "2026.10",
        "moorage:sandbox_image": "null",
    }
    config = Config.from_context(context)
    assert (config.retention_days, config.memory_tiers, config.waf, config.tls_minimum) == (90, ("1g", "4g"), True, "1.2")
    texts = (config.content_key_edition, config.image_edition, config.sandbox_image)
    assert texts == ("2", "2026.10", None)
    microvms = {"moorage:provisioner": "lambda_microvm", "moorage:microvm_base_version": "7"}
    assert Config.from_context(microvms).microvm_base_version == "7"


def test_settings_of_documented_commands_are_taken_as_the_shell_hands_them_on() -> None:
    """``make`` gives ``OPTIONS`` to a shell, which takes quotes away."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    options = [found for page in pages for found in re.findall(r"^\$ make deploy OPTIONS='([^']+)'", page.read_text(), re.MULTILINE)]
    assert len(options) > 5
    for each in options:
        words = subprocess.run(["sh", "-c", f"printf '%s\\n' {each}"], capture_output=True, text=True, check=True).stdout.splitlines()
        settings = dict(word.replace("=BUCKET", "=bucket").split("=", 1) for word in words if word != "-c")
        Config.from_context({"moorage": {}, **settings})


def test_documented_commands_ask_the_proxys_cluster_for_its_service(everything: Stacks) -> None:
    (service,) = everything.of_type("AWS::ECS::Service").values()
    cluster = everything.of_type("AWS::ECS::Cluster")[service["Cluster"]["Ref"]]["ClusterName"]
    text = "\n".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    asked = re.findall(r"aws ecs (?:describe|list)-services --cluster (\S+)", text)
    assert {name.replace("NAME", "moorage") for name in asked} == {cluster}


def test_cdk_json_spells_settings_as_json_and_variables_as_text() -> None:
    """A list is one with commas, an object has pairs, and null is the default. Domains and origins are read as requests' are."""
    told = {
        "allowed_egress_domains": ["API.Example.com", "*.pkg.example"],
        "drain": True,
        "sandbox_price": [0.03, 0.004],
        "warm_pool": ["1g:2", "4g:1"],
        "python_mirror": None,
        "oidc": {"issuer": "https://a.example", "audience": "a", "tenants": ["a", "b"], "roles": {"staff": "member"}},
    }
    environment = {
        "MOORAGE_TABLE": "t",
        "MOORAGE_BUCKET": "b",
        "MOORAGE_ALLOWED_EGRESS_DOMAINS": "api.example.com,*.pkg.example",
        "MOORAGE_DRAIN": "true",
        "MOORAGE_SANDBOX_PRICE": "0.03,0.004",
        "MOORAGE_WARM_POOL": "1g:2,4g:1",
        "MOORAGE_OIDC_ISSUER": "https://a.example",
        "MOORAGE_OIDC_AUDIENCE": "a",
        "MOORAGE_OIDC_TENANTS": "a,b",
        "MOORAGE_OIDC_ROLES": "staff:member",
        "MOORAGE_TENANT_SANDBOXES_MAX": str(TENANT_SANDBOXES_MAX),
        "MOORAGE_TENANT_VCPUS_MAX": str(TENANT_VCPUS_MAX),
        "MOORAGE_TENANT_STARTS_PER_SECOND": str(TENANT_STARTS_PER_SECOND),
    }
    chosen = Config.from_context({"moorage": told}).settings
    assert Settings("t", "b", **asdict(chosen)).to_environment() == environment
    assert replace(Settings.from_environment(environment), upstream={}) == Settings("t", "b", **asdict(chosen))


def test_synthesis_stops_at_a_wrong_setting_with_a_sentence_and_no_trace(tmp_path: Path) -> None:
    done = program(context_of({"provisioner": "ec2"}), tmp_path)
    assert done.returncode == 1
    wanted = "takes 'none', 'fargate' or 'lambda_microvm', or one of the latter two for each memory tier."
    assert f"cdk.json: 'provisioner': {wanted}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("region", ["cn-north-1", "us-gov-west-1", "us-iso-east-1", "eusc-de-east-1"])
def test_a_region_of_another_partition_is_refused_with_one_sentence(region: str) -> None:
    with pytest.raises(ConfigError, match=f"^The region {region} is outside of AWS's commercial partition, [^\n]+$"):
        check_region(region)


def test_microvms_are_refused_by_name_in_a_region_without_them() -> None:
    """Lambda itself answers AccessDenied there, without a word (reported)."""
    with pytest.raises(ConfigError, match=r"^Lambda has no MicroVMs in eu-west-2: use provisioner 'fargate', or one of [^\n]+\.$"):
        check_microvms(Config(provisioner="lambda_microvm"), "eu-west-2")
    for config, region in (("lambda_microvm", "eu-west-1"), ("lambda_microvm", None), ("fargate", "eu-west-2")):
        check_microvms(Config.from_context({"moorage": {"provisioner": config}}), region)


def test_microvms_have_every_size_that_there_is_and_others_on_request() -> None:
    assert Config(provisioner="lambda_microvm").memory_tiers == ("1g", "4g", "16g")
    assert Config.from_context({"moorage": {**MICROVMS, "memory_tiers": "4g"}}).memory_tiers == ("4g",)
    assert Config().memory_tiers == ("1g", "4g", "16g", "64g")


def test_each_tier_may_have_a_provisioner_of_its_own() -> None:
    both = Config.from_context({"moorage": {"provisioner": {"16g": "fargate", "1g": "lambda_microvm"}, "warm_pool": "16g:1"}})
    assert (both.memory_tiers, both.microvm_tiers, both.fargate_tiers) == (("1g", "16g"), ("1g",), ("16g",))
    told = Config.from_context({"moorage": {}, "moorage:provisioner": '{"1g": "lambda_microvm", "64g": "fargate"}'})
    assert (told.microvm_tiers, told.fargate_tiers, told.has_both) == (("1g",), ("64g",), True)
    alone = Config.from_context({"moorage": {"provisioner": {"4g": "fargate"}}})
    assert (alone.provisioner, alone.memory_tiers) == ("fargate", ("4g",))
    with pytest.raises(ConfigError, match="Lambda has no MicroVMs in eu-west-2"):
        check_microvms(both, "eu-west-2")


def test_a_region_of_the_commercial_partition_and_none_at_all_are_taken() -> None:
    check_region("eu-central-1")
    check_region(None)


def test_model_keys_of_the_environment_become_parameters_on_aws(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(
        '[[models]]\nkey = "env:OPENAI_API_KEY"\n[[models]]\nkey = "ssm:/elsewhere/key"\n[[models]]\nprovider = "bedrock_converse"\n'
    )
    models = Models.from_file(file, Config(name="mine"))
    assert models.parameters == ("/elsewhere/key", "/mine/OPENAI_API_KEY")
    assert '"ssm:/mine/OPENAI_API_KEY"' in models.text
    assert "env:" not in models.text
    assert models.uses_bedrock
    assert not models.has_upstream_shell


def test_secrets_of_model_keys_are_found_by_name_and_by_arn(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    arn = "arn:aws:secretsmanager:us-east-1:111122223333:secret:shared-Ab12Cd"
    file.write_text(
        f'[[models]]\nkey = "secretsmanager:/mine/openai"\n[[models]]\nkey = "secretsmanager:{arn}"\n'
        '[[embedding]]\nname = "small"\nprovider = "openai"\nkey = "secretsmanager:/mine/embedding"\n'
    )
    models = Models.from_file(file, Config(name="mine"))
    assert (models.secrets, models.embedding_secrets) == (("/mine/embedding", "/mine/openai", arn), ("/mine/embedding",))


def test_titan_embeds_where_it_is_named_and_where_no_other_model_is(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text("")
    assert Models.from_file(file, Config()).titan_regions == (None,)
    file.write_text('[[embedding]]\nname = "small"\nprovider = "openai"\nkey = "env:EMBEDDING_KEY"\n[[models]]\nkey = "ssm:/other"\n')
    models = Models.from_file(file, Config(name="mine"))
    assert (models.titan_regions, models.embedding_parameters) == ((), ("/mine/EMBEDDING_KEY",))
    file.write_text('[[embedding]]\nprovider = "bedrock_titan"\n[[embedding]]\nprovider = "bedrock_titan"\nregion = "eu-west-1"\n')
    assert Models.from_file(file, Config()).titan_regions == (None, "eu-west-1")
    assert embedding_models.TITAN == TITAN


def test_those_who_search_and_those_who_index_may_ask_titan_and_no_other_model(everything: Stacks) -> None:
    statements = [
        statement
        for policy in everything.of_type("AWS::IAM::Policy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Action"] == "bedrock:InvokeModel"
    ]
    assert len(statements) >= 3
    assert {json.dumps(statement["Resource"]) for statement in statements} == {
        json.dumps(f"arn:aws:bedrock:us-east-1::foundation-model/{TITAN}")
    }


def test_the_containers_function_reads_model_keys_only_for_upstreams(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[[models]]\nkey = "ssm:/elsewhere/key"\nshell = "upstream"\n')
    assert Models.from_file(file, Config()).has_upstream_shell


def test_the_image_model_of_bedrock_is_the_one_that_may_be_asked(tmp_path: Path) -> None:
    """By the function of service calls, and by none that asks models: those get no right by it."""
    file = tmp_path / "models.toml"
    table = '[image_generation]\nkind = "bedrock"\nmodel = "stability.stable-image-ultra-v1:1"\nkey = "env:BEDROCK_KEY"\n'
    file.write_text(table)
    models = Models.from_file(file, Config(name="mine"))
    arn = "bedrock:${AWS::Region}::foundation-model/stability.stable-image-ultra-v1:1"
    assert (models.draws_by, models.uses_bedrock, models.parameters) == ((arn,), False, ("/mine/BEDROCK_KEY",))
    file.write_text(f'{table}region = "us-west-2"\nmodels = ["stability.sd3-5-large-v1:0"]\n')
    assert Models.from_file(file, Config()).draws_by == (
        "bedrock:us-west-2::foundation-model/stability.stable-image-ultra-v1:1",
        "bedrock:us-west-2::foundation-model/stability.sd3-5-large-v1:0",
    )
    file.write_text('[image_generation]\nkind = "openai"\nmodel = "gpt-image-1.5"\nkey = "env:OPENAI_API_KEY"\n')
    assert Models.from_file(file, Config()).draws_by == ()


def test_a_model_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text("[[models]\n")
    with pytest.raises(ConfigError, match=r"models\.toml cannot be read"):
        Models.from_file(file, Config())
