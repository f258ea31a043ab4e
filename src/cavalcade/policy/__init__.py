"""Policy networks with a leading population axis. They know nothing of environments or of learning."""
