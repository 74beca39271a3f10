"""What is known of a run at one moment: its status, failures, graph and settings."""
