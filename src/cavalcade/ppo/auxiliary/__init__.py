"""What else a policy may learn by. None of it is needed, none of it is in the core loop."""
