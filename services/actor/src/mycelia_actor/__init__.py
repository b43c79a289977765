"""The actor service: steps environments, records rows, sends them to replay."""
