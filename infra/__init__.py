"""The AWS deployment: a CDK app with one construct per capability."""
