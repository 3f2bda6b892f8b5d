"""A synthesised deployment read as CloudFormation reads it: references become names, text is put together."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

ACCOUNT = "111122223333"
REGION = "us-east-1"
_PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::StackName": "moorage",
    "AWS::URLSuffix": "amazonaws.com",
}
_ARNS = {
    "AWS::ECR::Repository": f"ecr:{REGION}:{ACCOUNT}:repository/",
    "AWS::Lambda::Function": f"lambda:{REGION}:{ACCOUNT}:function:",
}
"""ARNs that templates take apart, or that are put together from names."""


@dataclass(frozen=True)
class Template:
    """The resources of both stacks. A reference to one becomes ``<LogicalId>``, to its attribute ``<LogicalId.Attribute>``, unless
    ``values`` says what it is."""

    resources: Mapping[str, Mapping[str, Any]]
    exports: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    region: str = REGION

    @classmethod
    def of(cls, *templates: Mapping[str, Any]) -> "Template":
        """Stacks that import from each other."""
        resources = {name: each for template in templates for name, each in template["Resources"].items()}
        outputs = [output for template in templates for output in template.get("Outputs", {}).values()]
        return cls(resources, {output["Export"]["Name"]: output["Value"] for output in outputs if "Export" in output})

    def in_region(self, region: str) -> "Template":
        """As it would have been synthesised there (``tests/twin/test_names.py`` holds that true for one of them)."""
        resources, exports = (json.loads(json.dumps(each).replace(REGION, region)) for each in (self.resources, self.exports))
        return replace(self, resources=resources, exports=exports, region=region)

    def of_type(self, kind: str) -> Iterator[tuple[str, Any]]:
        """Logical id and resolved properties."""
        for name, resource in self.resources.items():
            if resource["Type"] == kind:
                yield name, self.resolve(resource.get("Properties", {}))

    def one(self, kind: str, containing: str = "") -> tuple[str, Any]:
        (found,) = [(name, properties) for name, properties in self.of_type(kind) if containing in name]
        return found

    def resolve(self, value: Any) -> Any:
        match value:
            case {"Ref": name}:
                return self._pseudo(name) or self._named(name)
            case {"Fn::GetAtt": [name, attribute]}:
                return self._named(f"{name}.{attribute}")
            case {"Fn::ImportValue": export}:
                return self.resolve(self.exports[export])
            case {"Fn::Join": [separator, parts]}:
                return separator.join(str(part) for part in self.resolve(parts))
            case {"Fn::Select": [index, parts]}:
                chosen = self.resolve(parts)
                # A part of what only AWS knows stays what it is a part of.
                return chosen[int(index)] if isinstance(chosen, list) and len(chosen) > int(index) else f"{chosen}[{index}]"
            case {"Fn::Sub": str(text)}:
                return re.sub(r"\$\{([\w:.]+)\}", lambda found: self._pseudo(found[1]) or self._named(found[1]), text)
            case {"Fn::Split": [separator, text]}:
                return str(self.resolve(text)).split(separator)
            case {"Fn::GetAZs": _}:
                return [f"{self.region}{letter}" for letter in "abc"]
            case dict():
                assert not any(key.startswith("Fn::") for key in value), value
                return {key: self.resolve(each) for key, each in value.items()}
            case list():
                return [self.resolve(each) for each in value]
            case _:
                return value

    def _pseudo(self, name: str) -> str | None:
        return self.region if name == "AWS::Region" else _PSEUDO.get(name)

    def _named(self, name: str) -> str:
        logical_id, _, attribute = name.partition(".")
        arn = _ARNS.get(self.resources.get(logical_id, {}).get("Type", "")) if attribute == "Arn" else None
        if arn is not None:
            return self.values.get(name, f"arn:aws:{arn}<{logical_id}>")
        return self.values.get(name, f"<{name}>")
