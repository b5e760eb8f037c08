"""The CloudFormation half of an environment: one stage of thin stacks over declared values."""
