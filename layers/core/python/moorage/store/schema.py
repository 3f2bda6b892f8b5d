"""The table's shape as constants, and as a call that creates it if no stack does (embedded mode and tests)."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PARTITION_KEY: Final = "PK"
SORT_KEY: Final = "SK"
INDEX: Final = "GSI1"
INDEX_PARTITION_KEY: Final = "GSI1PK"
INDEX_SORT_KEY: Final = "GSI1SK"
TTL_ATTRIBUTE: Final = "ttl"


def create_table(client: "DynamoDBClient", name: str) -> None:
    """Create the table (on-demand billing, one keys-only index, TTL) unless it is there; harmless to repeat."""
    try:
        client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": attribute, "AttributeType": "S"}
                for attribute in (PARTITION_KEY, SORT_KEY, INDEX_PARTITION_KEY, INDEX_SORT_KEY)
            ],
            KeySchema=[
                {"AttributeName": PARTITION_KEY, "KeyType": "HASH"},
                {"AttributeName": SORT_KEY, "KeyType": "RANGE"},
            ],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": INDEX,
                    "KeySchema": [
                        {"AttributeName": INDEX_PARTITION_KEY, "KeyType": "HASH"},
                        {"AttributeName": INDEX_SORT_KEY, "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ],
        )
    except client.exceptions.ResourceInUseException:
        return
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    client.update_time_to_live(TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL_ATTRIBUTE})
