"""What suits a machine: sizes and backends measured by trials, and how far a training is from the machine's bound."""
